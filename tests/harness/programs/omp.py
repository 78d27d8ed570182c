"""oh-my-pi on the scripted model.

Source: reference/harnesses.md 1, 3.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.harness.programs.base import SERVER, Program

__all__ = ["OhMyPi"]


class OhMyPi(Program):
    name = "omp"
    ready = ("mock-model",)

    def configure(self, server: Mapping[str, Any] | None) -> None:
        folder = self.place.home / "agent"
        folder.mkdir(exist_ok=True)
        provider = {
            "baseUrl": f"{self.place.model_url}/v1",
            "api": "openai-completions",
            "apiKey": "none",
            "models": [{"id": "mock-model", "name": "mock-model"}],
        }
        # JSON is YAML. Without `xdev: false` the tools are devices, no functions.
        (folder / "models.yml").write_text(json.dumps({"providers": {"mock": provider}}))
        (folder / "config.yml").write_text(
            json.dumps({"tools": {"xdev": False}, "startup": {"setupWizard": False}})
        )
        servers = {} if server is None else {SERVER: dict(server)}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def variables(self) -> dict[str, str]:
        return {
            "PI_CODING_AGENT_DIR": str(self.place.home / "agent"),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
            "PI_SKIP_VERSION_CHECK": "1",
        }

    def interactive(self) -> list[str]:
        return ["--model", "mock/mock-model"]

    def headless(self, prompt: str) -> list[str]:
        return [*self.interactive(), "-p", prompt]
