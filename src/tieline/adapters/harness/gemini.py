"""Gemini CLI: an extension folder for the person, `settings.json` for a project.

Rule 1: between two tools nothing is started unless mail waits: the shell looks for a file first.
Rule 2: a hook of ours never ends with a code that Gemini CLI takes for a refusal.
Rule 3: an extension's server cannot be trusted; that is an entry of `settings.json`, given with consent.

Source: reference/harnesses.md 6; its documentation of extensions, hooks and MCP.
"""

import json
import os
from typing import Any

from tieline import __version__
from tieline.adapters.harness.base import (
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    folder_of,
    hook_command,
    is_our_group,
    is_our_server,
    server_entry,
)
from tieline.adapters.harness.facts import COMMAND_HOOK_MS_MAX, GEMINI_HOOKS, GUARD, SERVER

__all__ = ["HARNESS"]

_MARKS = (Mark(("mcpServers", SERVER), is_our_server), Mark(("hooks", "*", "*"), is_our_group))


def _folder(place: Place) -> str:
    return os.path.join(folder_of(place, "GEMINI_CLI_HOME", ""), ".gemini")


def _groups(place: Place) -> dict[str, dict[str, Any]]:
    """Return the hook group of each event."""
    found = {}
    for hook in GEMINI_HOOKS:
        command = f"{hook_command(place, 'gemini', hook.event)} || exit 0"
        if hook.is_guarded:
            command = f"[ -e {GUARD} ] || exit 0; {command}"
        called = {"name": SERVER, "type": "command", "command": command, "timeout": COMMAND_HOOK_MS_MAX}
        found[hook.event] = {"hooks": [called]}
    return found


def _files(place: Place) -> list[Document | Whole]:
    trusted = Entry(("mcpServers", SERVER), server_entry(place, trust=True), extra="permission")
    if place.project:
        settings = os.path.join(place.project, ".gemini", "settings.json")
        plain = Entry(("mcpServers", SERVER), server_entry(place))
        hooks = [Entry(("hooks", event), group, is_element=True) for event, group in _groups(place).items()]
        return [Document(settings, "json", (plain, *hooks), _MARKS)]
    folder = os.path.join(_folder(place), "extensions", SERVER)
    manifest = {
        "name": SERVER,
        "version": __version__,
        "description": "Messages between the coding agents of this machine.",
        "mcpServers": {SERVER: server_entry(place)},
    }
    hooks_file = {"hooks": {event: [group] for event, group in _groups(place).items()}}
    return [
        Whole(os.path.join(folder, "gemini-extension.json"), _text(manifest)),
        Whole(os.path.join(folder, "hooks", "hooks.json"), _text(hooks_file)),
        Document(os.path.join(_folder(place), "settings.json"), "json", (trusted,), _MARKS),
    ]


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


HARNESS = Harness(
    "gemini",
    "Gemini CLI",
    ("gemini",),
    _folder,
    _files,
    ("permission",),
    "start its windows anew; an idle window takes mail at its next prompt: Gemini CLI has no way to wake it",
)
