"""Codex on the scripted model.

Source: reference/harnesses.md 1, 5.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.harness.programs.base import SERVER, Program

__all__ = ["Codex"]


class Codex(Program):
    name = "codex"
    # The line of keys is drawn before the thread is loaded, and what is typed until then is lost.
    ready = ("mock-model default",)

    def configure(self, server: Mapping[str, Any] | None) -> None:
        folder = self.place.home / "codex"
        folder.mkdir(exist_ok=True)
        # JSON texts and lists are TOML texts and lists.
        lines = [
            'model = "mock-model"',
            'model_provider = "mock"',
            'approval_policy = "never"',
            "check_for_update_on_startup = false",
            "[model_providers.mock]",
            'name = "mock"',
            f"base_url = {json.dumps(self.place.model_url + '/v1')}",
            'wire_api = "responses"',
            "requires_openai_auth = false",
            "[analytics]",
            "enabled = false",
            f"[projects.{json.dumps(str(self.place.work))}]",
            'trust_level = "trusted"',
        ]
        if server is not None:
            lines += [
                f"[mcp_servers.{SERVER}]",
                f"command = {json.dumps(server['command'])}",
                f"args = {json.dumps(server['args'])}",
                f"[mcp_servers.{SERVER}.env]",
                *(f"{name} = {json.dumps(value)}" for name, value in server["env"].items()),
            ]
        (folder / "config.toml").write_text("\n".join(lines) + "\n")

    def variables(self) -> dict[str, str]:
        return {"CODEX_HOME": str(self.place.home / "codex")}

    def interactive(self) -> list[str]:
        # Else it starts a server that outlives the window; who tests that server asks for it.
        return ["--no-daemon"]

    def headless(self, prompt: str) -> list[str]:
        return ["exec", "--skip-git-repo-check", prompt]
