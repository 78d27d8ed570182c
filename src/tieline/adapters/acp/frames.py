"""The lines of the Agent Client Protocol, as far as the proxy looks at them.

Rule 1: a line that is no JSON object, or says nothing that concerns us, is nobody's business: None.
Rule 2: a line is written anew only where something is added to it; every other one goes on as it came.
Rule 3: nothing is added at the root of a protocol type; what is ours stands in `_meta`, under `tieline`.

Source: reference/native.md 4.1, 4.3; reference/harnesses.md 9.
"""

import json
from typing import Any, Final

__all__ = [
    "VENDOR",
    "advertised",
    "agent_name",
    "cancelled",
    "event",
    "key",
    "line",
    "list_of",
    "object_of",
    "prompt",
    "read",
    "text_of",
    "wants_events",
    "with_server",
]

VENDOR: Final = "tieline"
EVENTS_VERSION: Final = 1
SERVER: Final = "tieline"
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
NAME_CHARACTERS_MAX: Final = 64


def read(data: bytes) -> dict[str, Any] | None:
    """Return the message of a line, or None where it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def line(frame: dict[str, Any]) -> bytes:
    """Return the line of a message, with its end, in ASCII."""
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


def key(request_id: object) -> str:
    """Return what tells ids apart: 1 and "1" are two."""
    return json.dumps(request_id)


def object_of(holder: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the object at a path of members; {} where there is none."""
    found: Any = holder
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def list_of(holder: dict[str, Any], name: str) -> list[Any] | None:
    """Return the list that is the member of this name, or None."""
    found = holder.get(name)
    return found if isinstance(found, list) else None


def wants_events(frame: dict[str, Any]) -> bool:
    """Return whether the client of this `initialize` takes peer events: a whole number of 1 or more."""
    told = object_of(frame, "params", "clientCapabilities", "_meta", VENDOR).get("peerEvents")
    return isinstance(told, int) and not isinstance(told, bool) and told >= EVENTS_VERSION


def agent_name(frame: dict[str, Any]) -> str:
    """Return what the agent calls itself when it answers `initialize`, made plain; '' where it does not."""
    name = object_of(frame, "result", "agentInfo").get("name")
    if not isinstance(name, str):
        return ""
    told = (one if one in NAME_CHARACTERS else "-" for one in name.lower()[:NAME_CHARACTERS_MAX])
    return "".join(told).strip("-")


def advertised(frame: dict[str, Any]) -> bytes:
    """Return the answer to `initialize` with our side of the capability."""
    result = object_of(frame, "result")
    capabilities = object_of(result, "agentCapabilities")
    meta = object_of(capabilities, "_meta")
    ours = {**object_of(meta, VENDOR), "peerEvents": EVENTS_VERSION}
    told = {**capabilities, "_meta": {**meta, VENDOR: ours}}
    return line({**frame, "result": {**result, "agentCapabilities": told}})


def with_server(frame: dict[str, Any], command: tuple[str, ...], variables: dict[str, str]) -> bytes:
    """Return the request of a session with our server of tools behind those that the client named."""
    params = object_of(frame, "params")
    servers = [one for one in params["mcpServers"] if object_of({"one": one}, "one").get("name") != SERVER]
    ours = {
        "name": SERVER,
        "command": command[0],
        "args": [*command[1:], "mcp"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    return line({**frame, "params": {**params, "mcpServers": [*servers, ours]}})


def prompt(request_id: str, session: str, text: str) -> bytes:
    """Return a prompt of ours."""
    params = {"sessionId": session, "prompt": [{"type": "text", "text": text}]}
    return line({"jsonrpc": "2.0", "id": request_id, "method": "session/prompt", "params": params})


def cancelled(request_id: object) -> bytes:
    """Return the answer to a prompt that was cancelled before the agent had it."""
    return line({"jsonrpc": "2.0", "id": request_id, "result": {"stopReason": "cancelled"}})


def event(kind: str, session: str, told: dict[str, Any]) -> bytes:
    """Return the notification of an event; `kind` is `peer_update` or `resource_update`."""
    params = {"sessionId": session, "version": EVENTS_VERSION, "event": told}
    return line({"jsonrpc": "2.0", "method": f"_{VENDOR}/{kind}", "params": params})


def text_of(update: dict[str, Any]) -> str:
    """Return the text of an agent's answer that an update brings, or ''."""
    if update.get("sessionUpdate") != "agent_message_chunk":
        return ""
    text = object_of(update, "content").get("text")
    return text if isinstance(text, str) else ""
