"""Claude Code: `.claude.json` and `settings.json` of the person, `.mcp.json` and `.claude/` of a project.

Rule 1: the tools are marked to be loaded at once: behind its tool search a model would not see them.
Rule 2: hooks call the server that runs already; no process starts for them, but for the one that waits for
mail in a window that has no socket.

Source: reference/harnesses.md 4; its documentation of settings, hooks and MCP.
"""

import os
import shlex
import sys

from tieline.adapters.harness.base import (
    HOOK_MARKS,
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    folder_of,
    gate_entry,
    hook_command,
    is_our_server,
    server_entry,
    tool_hook_entries,
)
from tieline.adapters.harness.facts import (
    CLAUDE_HOOKS,
    HOOK_CLIENT,
    SERVER,
    WAIT_DOOR,
    WAIT_EVENT,
    WAIT_EVENTS,
    WAIT_SECONDS_MAX,
    WAITING_LINE,
)

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
        (*tool_hook_entries(CLAUDE_HOOKS), *_waiters(place), gate_entry(place, "claude"), allowed),
        (
            *HOOK_MARKS,
            Mark(("permissions", "allow", "*"), lambda value: value == _PERMISSION),
        ),
    )
    return [servers, hooks]


def _waiters(place: Place) -> list[Entry]:
    """Return the hooks that start the command which waits."""
    home = "" if place.project else place.environment.get("TIELINE_HOME", "")
    door = f'{shlex.quote(os.path.abspath(home))}/mail/"host-$PPID.door"' if home else WAIT_DOOR
    client = [sys.executable, "-I", "-S", os.path.join(place.package, HOOK_CLIENT)]
    call = f'{shlex.join(client)} "$d" claude-code {WAIT_EVENT}'
    if place.project:
        call = hook_command(place, "claude-code", WAIT_EVENT)
    command = {"type": "command", "command": WAITING_LINE.format(door=door, call=call)}
    group = {"hooks": [{**command, "asyncRewake": True, "timeout": WAIT_SECONDS_MAX}]}
    return [Entry(("hooks", event), group, is_element=True) for event in WAIT_EVENTS]


HARNESS = Harness(
    "claude-code",
    "Claude Code",
    ("claude",),
    _folder,
    _files,
    ("permission", "gate"),
    "start its windows anew; a project's servers it asks you to approve once",
)
