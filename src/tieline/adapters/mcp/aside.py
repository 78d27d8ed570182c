"""A server that stands aside: its host's agent has our tools already, from a plugin of ours or by a proxy.

Some hosts start the servers that other agents' configurations name. A second root of the same session would
be a second peer, with the same tools once more.

Rule 1: the plugin names its own process, and only a server that this very process started stands aside: a
command that the agent runs inherits the name, and may be another agent with a server of its own.
Rule 2: it offers no tools, opens no root, imports nothing of one, and lasts as long as its host wants it.

Source: DESIGN.md 2, "A session is one root"; reference/harnesses.md 3.
"""

import os

from tieline.adapters.mcp.early import METHODS, constant_result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["PROXY_VARIABLE", "SERVED_VARIABLE", "answer", "is_served"]

SERVED_VARIABLE = "TIELINE_SERVED_BY"
"""Names the process whose agent has our tools from a plugin: its number, in decimal."""
PROXY_VARIABLE = "TIELINE_ACP"
"""As in `runtime.proxied`, which is not imported where it is not set."""
_METHOD_NOT_FOUND = -32601


def is_served(environment: "Mapping[str, str]", parent: int) -> bool:
    """Return whether the process `parent`, which started this server, has our tools without it."""
    return environment.get(SERVED_VARIABLE) == str(parent)


def answer(line: bytes) -> bytes:
    """Return what a line of the host is answered, with its line end; empty where it asks for nothing."""
    import json  # noqa: PLC0415 - who does not stand aside does not pay for it

    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return b""
    if not isinstance(frame, dict) or frame.get("id") is None:
        return b""
    told = {"jsonrpc": "2.0", "id": frame["id"], **_outcome(frame.get("method"), frame.get("params"))}
    return json.dumps(told).encode() + b"\n"


def _outcome(method: object, params: object) -> "dict[str, Any]":
    if isinstance(method, str) and method in METHODS:
        result = constant_result(method, params if isinstance(params, dict) else {})
        result.pop("instructions", None)  # they explain tools that are not there
        return {"result": result | {"tools": []} if "tools" in result else result}
    why = f"process {os.getppid()} has Tieline's tools without this server, which offers none"
    return {"error": {"code": _METHOD_NOT_FOUND, "message": why, "data": {"code": "METHOD_NOT_FOUND"}}}
