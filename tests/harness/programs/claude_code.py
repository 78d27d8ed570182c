"""Claude Code on the scripted model.

Source: reference/harnesses.md 1, 4.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.harness.programs.base import SERVER, Program

__all__ = ["ClaudeCode"]


class ClaudeCode(Program):
    name = "claude-code"
    ready = ("? for shortcuts", "for shortcuts", "shift+tab")

    def configure(self, server: Mapping[str, Any] | None) -> None:
        folder = self.place.home / "claude"
        folder.mkdir(exist_ok=True)
        # What a person answers once: the theme, and that this folder is trusted.
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        state: dict[str, Any] = {
            "hasCompletedOnboarding": True,
            "hasSeenAutoDefaultNudge": True,
            "theme": "dark",
            "projects": {str(self.place.work): project},
        }
        if server is not None:
            state["mcpServers"] = {SERVER: {"type": "stdio", **server}}
        (folder / ".claude.json").write_text(json.dumps(state))
        settings = {"permissions": {"allow": [f"mcp__{SERVER}"]}}
        (folder / "settings.json").write_text(json.dumps(settings))

    def variables(self) -> dict[str, str]:
        return {
            "CLAUDE_CONFIG_DIR": str(self.place.home / "claude"),
            "ANTHROPIC_BASE_URL": self.place.model_url,
            "ANTHROPIC_AUTH_TOKEN": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def headless(self, prompt: str) -> list[str]:
        return ["-p", prompt]
