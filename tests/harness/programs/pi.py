"""pi on the scripted model.

Source: reference/harnesses.md 1, 2.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.harness.programs.base import SERVER, Program

__all__ = ["Pi"]


class Pi(Program):
    name = "pi"
    ready = ("mock-model",)

    def configure(self, server: Mapping[str, Any] | None) -> None:
        folder = self.place.home / "agent"
        folder.mkdir(exist_ok=True)
        (folder / "models.json").write_text(json.dumps({"providers": {"mock": self._provider()}}))
        servers = {} if server is None else {SERVER: {**server, "exposure": "direct"}}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def _provider(self) -> dict[str, Any]:
        return {
            "baseUrl": f"{self.place.model_url}/v1",
            "api": "openai-completions",
            "apiKey": "none",
            "models": [{"id": "mock-model"}],
        }

    def variables(self) -> dict[str, str]:
        return {
            "PI_CODING_AGENT_DIR": str(self.place.home / "agent"),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
            "PI_SKIP_VERSION_CHECK": "1",
        }

    def interactive(self) -> list[str]:
        return ["--provider", "mock", "--model", "mock-model"]

    def headless(self, prompt: str) -> list[str]:
        return [*self.interactive(), "-p", prompt]
