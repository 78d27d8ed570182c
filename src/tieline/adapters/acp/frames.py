"""The lines of the Agent Client Protocol, as far as the proxy looks at them.

Rule 1: a line that is no JSON object, or says nothing that concerns us, is nobody's business: None.
Rule 2: where something is added to a line, the rest of it stays to the byte; every other goes on as it came.
Rule 3: bytes that are no UTF-8 do not hide a line: some agents read over them.
Rule 4: nothing is added at the root of a protocol type; what is ours stands in `_meta`, under `tieline`.

Source: reference/native.md 4.1, 4.3; reference/harnesses.md 9.
"""

import json
import secrets
from typing import Any, Final

from tieline.adapters.acp import splice

__all__ = [
    "VENDOR",
    "advertised",
    "agent_name",
    "cancelled",
    "end_of",
    "event",
    "is_ours",
    "is_work",
    "key",
    "line",
    "object_of",
    "own_id",
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
REQUEST_CANCELLED: Final = -32_800
WORK: Final = frozenset(
    (
        "agent_message_chunk",
        "agent_thought_chunk",
        "plan",
        "tool_call",
        "tool_call_update",
        "user_message_chunk",
    )
)
"""Updates of a prompt alone; others, as of an agent's commands and its modes, come at any time."""
OWN_PREFIX: Final = f"{VENDOR}-{secrets.token_hex(8)}-"
"""Begins the ids of our prompts; drawn for this process, for behind this proxy may stand another."""


class _NoNumberError(ValueError):
    """A word that Python takes for a number, and nobody else."""


def _no_number(word: str) -> float:
    raise _NoNumberError(word)


def read(data: bytes) -> dict[str, Any] | None:
    """Return the message of a line, or None where it is none."""
    try:
        document = json.loads(data.decode("utf-8", "replace"), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def line(frame: dict[str, Any]) -> bytes:
    """Return the line of a message, with its end, in ASCII."""
    return _text(frame).encode() + b"\n"


def _text(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def key(request_id: object) -> str:
    """Return what tells ids apart: 1 and "1" are two, 1 and 1.0 are one."""
    if isinstance(request_id, float) and request_id.is_integer():
        request_id = int(request_id)
    return json.dumps(request_id)


def own_id(number: int) -> str:
    """Return the id of a prompt of ours."""
    return f"{OWN_PREFIX}{number}"


def is_ours(request_id: object) -> bool:
    """Return whether a prompt of ours has this id."""
    return isinstance(request_id, str) and request_id.startswith(OWN_PREFIX)


def object_of(holder: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the object at a path of members; {} where there is none."""
    found: Any = holder
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


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


def advertised(data: bytes) -> bytes:
    """Return the answer to `initialize`, whose result is an object, with our side of the capability."""
    path = ("result", "agentCapabilities", "_meta", VENDOR, "peerEvents")
    return splice.put(data, path, str(EVENTS_VERSION))


def with_server(
    data: bytes, frame: dict[str, Any], command: tuple[str, ...], variables: dict[str, str]
) -> bytes:
    """Return the request of a session with our server of tools behind those that the client named.

    One of our name, as an earlier setup left it, gives way. A client that names no list names none.
    """
    named = frame["params"].get("mcpServers", [])
    servers = [one for one in named if object_of({"one": one}, "one").get("name") != SERVER]
    ours = {
        "name": SERVER,
        "command": command[0],
        "args": [*command[1:], "mcp"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    path = ("params", "mcpServers")
    if "mcpServers" in frame["params"] and len(servers) == len(named):
        return splice.append(data, path, _text(ours))
    return splice.put(data, path, _text([*servers, ours]))


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


def end_of(frame: dict[str, Any]) -> str:
    """Return why the prompt ended that this answers; '' where it does not say."""
    reason = object_of(frame, "result").get("stopReason")
    if object_of(frame, "error").get("code") == REQUEST_CANCELLED:
        reason = "cancelled"
    return reason if isinstance(reason, str) else ""


def is_work(update: dict[str, Any]) -> bool:
    """Return whether an update shows that the agent works on its prompt."""
    return update.get("sessionUpdate") in WORK


def text_of(update: dict[str, Any]) -> str:
    """Return the text of an agent's answer that an update brings, or ''."""
    if update.get("sessionUpdate") != "agent_message_chunk":
        return ""
    text = object_of(update, "content").get("text")
    return text if isinstance(text, str) else ""
