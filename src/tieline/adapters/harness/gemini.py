"""Gemini CLI: an extension folder for the person, `settings.json` for a project.

Rule 1: between two tools nothing is started unless mail waits: the shell looks for a file first. Where none
waits, the other hooks tell the root behind the harness's back, but for the begin and end of a subagent.
Rule 2: a hook of ours never ends with a code that Gemini CLI takes for a refusal.
Rule 3: the server stands in one file: named in two, Gemini CLI starts it twice. What lets the model use our
tools unasked is a list of its own in `settings.json`, given with consent.

Source: reference/harnesses.md 6; its documentation of extensions, hooks and MCP.
"""

import json
import os
import shlex
import sys
from typing import Any

from tieline import __version__
from tieline.adapters.harness.base import (
    HOOK_MARKS,
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    command_variables,
    folder_of,
    hook_command,
    is_our_group,
    is_our_server,
    places_of,
    server_entry,
)
from tieline.adapters.harness.facts import (
    COMMAND_HOOK_MS_MAX,
    GEMINI_HOOKS,
    GUARD,
    HOOK_CLIENT,
    SERVER,
    SHARED_CALL,
)

__all__ = ["HARNESS"]

_TOOLS = ("list_peers", "send_peer_message", "peer_messages", "coordinate_resource")
_ALLOWED = tuple(f"mcp_{SERVER}_{tool}" for tool in _TOOLS)
_MARKS = (
    Mark(("mcpServers", SERVER), is_our_server),
    *HOOK_MARKS,
    Mark(("tools", "allowed", "*"), lambda value: value in _ALLOWED),
)


def _folder(place: Place) -> str:
    return os.path.join(folder_of(place, "GEMINI_CLI_HOME", ""), ".gemini")


def _groups(place: Place) -> list[tuple[str, dict[str, Any]]]:
    """Return each hook's event and group."""
    found = []
    for hook in GEMINI_HOOKS:
        command = hook.line.format(guard=_guard(place), call=_call(place, hook.event))
        called = {"name": SERVER, "type": "command", "command": command, "timeout": COMMAND_HOOK_MS_MAX}
        matcher = {"matcher": hook.matcher} if hook.matcher else {}
        found.append((hook.event, {**matcher, "hooks": [called]}))
    return found


def _guard(place: Place) -> str:
    """Return the flag's place: where the variable was set when the server was set up, that of the server."""
    home = "" if place.project else place.environment.get("TIELINE_HOME", "")
    return f'{shlex.quote(os.path.abspath(home))}/mail/"${{GEMINI_SESSION_ID}}"' if home else GUARD


def _call(place: Place, event: str) -> str:
    """Return what a hook starts: the client that needs no more than a bare interpreter."""
    if place.project:
        return SHARED_CALL.format(words=f"gemini {event}", call=hook_command(place, "gemini", event))
    client = shlex.join([sys.executable, "-I", "-S", os.path.join(place.package, HOOK_CLIENT)])
    # The harness hands down the variables of its own start, and not those that the server was set up with.
    variables = [f"{name}={shlex.quote(value)}" for name, value in command_variables(place).items()]
    return " ".join([*variables, client, '"$f.door"', "gemini", event])


def _files(place: Place) -> list[Document | Whole]:
    allowed = [Entry(("tools", "allowed"), tool, is_element=True, extra="permission") for tool in _ALLOWED]
    if place.project:
        settings = os.path.join(place.project, ".gemini", "settings.json")
        plain = Entry(("mcpServers", SERVER), server_entry(place))
        hooks = [Entry(("hooks", event), group, is_element=True) for event, group in _groups(place)]
        return [Document(settings, "json", (plain, *hooks, *allowed), _MARKS)]
    folder = os.path.join(_folder(place), "extensions", SERVER)
    manifest = {
        "name": SERVER,
        "version": __version__,
        "description": "Messages between the coding agents of this machine.",
        "mcpServers": {SERVER: server_entry(place)},
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for event, group in _groups(place):
        groups.setdefault(event, []).append(group)
    hooks_file = {"hooks": groups}
    hooks_folder = os.path.join(folder, "hooks")
    folders = (folder, hooks_folder)
    return [
        Whole(os.path.join(folder, "gemini-extension.json"), _text(manifest), _is_our_text, folders),
        Whole(os.path.join(hooks_folder, "hooks.json"), _text(hooks_file), _is_our_text, folders),
        Document(os.path.join(_folder(place), "settings.json"), "json", tuple(allowed), _MARKS),
    ]


def _is_our_text(text: str) -> bool:
    """Return whether a file of the extension is ours, of any version: a server or hooks of ours alone."""
    try:
        held = json.loads(text)
    except ValueError:
        return False
    servers = [one for _, one in places_of(held, ("mcpServers", "*"))]
    groups = [one for _, one in places_of(held, ("hooks", "*", "*"))]
    return bool(servers or groups) and all(map(is_our_server, servers)) and all(map(is_our_group, groups))


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


HARNESS = Harness(
    "gemini",
    "Gemini CLI",
    ("gemini",),
    _folder,
    _files,
    ("permission",),
    "start its windows anew; an idle window takes mail at its next prompt, or by a waiter of its model",
    "mail comes between tools, at a turn's end, with a prompt; an idle window is not woken, but by a waiter",
)
