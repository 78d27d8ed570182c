"""Gemini CLI on the scripted model.

Source: reference/harnesses.md 1, 6.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.harness.programs.base import SERVER, Program

__all__ = ["Gemini"]


class Gemini(Program):
    name = "gemini"
    ready = ("Type your message",)

    def configure(self, server: Mapping[str, Any] | None) -> None:
        folder = self.place.home / ".gemini"
        folder.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "telemetry": {"enabled": False},
        }
        if server is not None:
            settings["mcpServers"] = {SERVER: {**server, "trust": True}}
        (folder / "settings.json").write_text(json.dumps(settings))

    def variables(self) -> dict[str, str]:
        return {
            "GEMINI_CLI_HOME": str(self.place.home),
            "GOOGLE_GEMINI_BASE_URL": self.place.model_url,
            "GEMINI_API_KEY": "none",
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }

    def interactive(self) -> list[str]:
        # Without a named model, models are asked which one to take, four times over minutes.
        return ["-m", "gemini-2.5-flash"]

    def headless(self, prompt: str) -> list[str]:
        return [*self.interactive(), "-p", prompt]
