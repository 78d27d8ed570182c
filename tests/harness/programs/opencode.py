"""opencode on the scripted model.

Source: reference/harnesses.md 1, 7.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.harness.programs.base import SERVER, Program

__all__ = ["Opencode"]

RELEASE = "1.18.33"


class Opencode(Program):
    name = "opencode"
    ready = ("Ask anything",)

    def configure(self, server: Mapping[str, Any] | None) -> None:
        folder = self.place.home / ".config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "mock",
            "options": {"baseURL": f"{self.place.model_url}/v1", "apiKey": "none"},
            "models": {"mock-model": {"name": "mock-model"}},
        }
        document: dict[str, Any] = {
            "model": "mock/mock-model",
            "small_model": "mock/mock-model",
            "provider": {"mock": provider},
            "share": "disabled",
            "autoupdate": False,
        }
        if server is not None:
            document["mcp"] = {
                SERVER: {
                    "type": "local",
                    "command": [server["command"], *server["args"]],
                    "environment": server["env"],
                    "enabled": True,
                }
            }
        (folder / "opencode.json").write_text(json.dumps(document))
        self._hold_back_packages(folder)

    def _hold_back_packages(self, folder: Path) -> None:
        """Let opencode find what it installs beside a plugin: 64 MB from the network, and 13 s of a start."""
        wanted = {"@opencode-ai/plugin": RELEASE}
        (folder / "node_modules").mkdir(exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"dependencies": wanted}))
        lock = {"name": "opencode", "lockfileVersion": 3, "packages": {"": {"dependencies": wanted}}}
        (folder / "package-lock.json").write_text(json.dumps(lock))

    def variables(self) -> dict[str, str]:
        home = self.place.home
        return {
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_SHARE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "PI_INTERCOM_RUNTIME_DIR": str(self.place.shared.parent / "i"),
        }

    def headless(self, prompt: str) -> list[str]:
        return ["run", prompt]
