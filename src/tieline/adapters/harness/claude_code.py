"""Claude Code: `.claude.json` and `settings.json` of the person, `.mcp.json` and `.claude/` of a project.

Rule 1: the tools are marked to be loaded at once: behind its tool search a model would not see them.
Rule 2: hooks call the server that runs already; no process starts for them.

Source: reference/harnesses.md 4; its documentation of settings, hooks and MCP.
"""

import os

from tieline.adapters.harness.base import (
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    folder_of,
    gate_entry,
    is_our_group,
    is_our_server,
    server_entry,
    tool_hook_entries,
)
from tieline.adapters.harness.facts import CLAUDE_HOOKS, SERVER

__all__ = ["HARNESS"]

_PERMISSION = f"mcp__{SERVER}"


def _folder(place: Place) -> str:
    return folder_of(place, "CLAUDE_CONFIG_DIR", ".claude")


def _state(place: Place) -> str:
    """Return where the person's MCP servers are: beside the folder, unless a variable moved the folder."""
    if place.environment.get("CLAUDE_CONFIG_DIR"):
        return os.path.join(_folder(place), ".claude.json")
    return os.path.join(place.home, ".claude.json")


def _files(place: Place) -> list[Document | Whole]:
    settings, state = os.path.join(_folder(place), "settings.json"), _state(place)
    if place.project:
        settings = os.path.join(place.project, ".claude", "settings.json")
        state = os.path.join(place.project, ".mcp.json")
    server = {"type": "stdio", **server_entry(place, alwaysLoad=True)}
    servers = Document(
        state,
        "json",
        (Entry(("mcpServers", SERVER), server),),
        (Mark(("mcpServers", SERVER), is_our_server),),
    )
    allowed = Entry(("permissions", "allow"), _PERMISSION, is_element=True, extra="permission")
    hooks = Document(
        settings,
        "json",
        (*tool_hook_entries(CLAUDE_HOOKS), gate_entry(place, "claude"), allowed),
        (
            Mark(("hooks", "*", "*"), is_our_group),
            Mark(("permissions", "allow", "*"), lambda value: value == _PERMISSION),
        ),
    )
    return [servers, hooks]


HARNESS = Harness(
    "claude-code",
    "Claude Code",
    ("claude",),
    _folder,
    _files,
    ("permission", "gate"),
    "start its windows anew; a project's servers it asks you to approve once",
)
