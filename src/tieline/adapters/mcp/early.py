"""The first answers of the MCP door: from constants, before anything of the root is imported.

Rule 1: only what is certain is answered here. A line that is not plainly one of these requests (any
escape that could hide a name, any long number, any doubt at all) is left to the one strict grammar,
which needs imports and comes a moment later.
Rule 2: both protocol families are answered, request by request: one with a protocol version in its
`_meta` is of the family without a handshake, any other of the family with `initialize`.
Rule 3: nothing is asked of the root, so nothing here can wait.

The reader is the interpreter's own C scanner, used directly: importing `json` would bring the regular
expressions along, which cost as much as the interpreter's own start.

Source: reference/native.md 4.4; reference/substrate.md 6; reference/harnesses.md 4, 8.
"""

import os
from _json import make_scanner

from tieline.adapters.mcp import hosts
from tieline.adapters.mcp.constants import (
    HANDSHAKE_VERSIONS,
    INSTRUCTIONS,
    INTERCOM_TOOL,
    MODERN_VERSIONS,
    SERVER,
    TOOLS,
    to_json,
)
from tieline.adapters.mcp.wires import has_intercom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["METHODS", "UNSUPPORTED_VERSION", "EarlyAnswers", "constant_result", "modern_version", "tools_of"]

METHODS = frozenset({"initialize", "server/discover", "tools/list", "ping"})
"""The requests that are answered from constants."""
UNSUPPORTED_VERSION = -32022
"""The protocol's number for a version that this end does not speak."""

_CAPABILITIES: "dict[str, object]" = {"tools": {"listChanged": False}}
_STAMP: "dict[str, object]" = {"io.modelcontextprotocol/serverInfo": SERVER}
_CACHE_MS = 3_600_000
_LINE_BYTES_MAX = 65_536
_DEPTH_MAX = 32
_LONG_NUMBER = b"0" * 16
_FLATTEN = bytes.maketrans(b"123456789{", b"000000000[")


class _Doubt(Exception):
    """The line is not plainly a request that is answered here."""


def modern_version(params: "dict[str, Any]") -> str:
    """Return the protocol version that a request names in its `_meta`, or ''."""
    meta = params.get("_meta")
    version = meta.get(hosts.VERSION_META, "") if isinstance(meta, dict) else ""
    return version if isinstance(version, str) else "?"


def tools_of(environment: "Mapping[str, str]") -> "tuple[dict[str, object], ...]":
    """Return the tools that a root in this environment has: that of a wire only where the wire is on."""
    return (*TOOLS, INTERCOM_TOOL) if has_intercom(environment) else TOOLS


def constant_result(
    method: str, params: "dict[str, Any]", environment: "Mapping[str, str] | None" = None
) -> "dict[str, object]":
    """Return the result of one of `METHODS`; the tools are those of `environment`, ours where None."""
    is_modern = modern_version(params) != ""
    if method == "initialize":
        asked = params.get("protocolVersion")
        version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        return {
            "protocolVersion": version,
            "capabilities": _CAPABILITIES,
            "serverInfo": SERVER,
            "instructions": INSTRUCTIONS,
        }
    result: dict[str, object] = {}
    if method == "server/discover":
        result = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": _CAPABILITIES,
            "instructions": INSTRUCTIONS,
        }
        is_modern = True
    if method == "tools/list":
        result = {"tools": tools_of(os.environ if environment is None else environment)}
    if is_modern:
        result |= {"resultType": "complete", "_meta": _STAMP}
        if method != "ping":
            result |= {"ttlMs": _CACHE_MS, "cacheScope": "public"}
    return result


class EarlyAnswers:
    """Answers lines from constants; remembers what the host told of itself while doing so."""

    def __init__(self) -> None:
        self.client = ""
        self.meta: dict[str, Any] = {}
        self.is_answered = False
        self._scan = make_scanner(_Rules)  # type: ignore[arg-type]  # it asks for these attributes, of any object

    def answer(self, line: bytes) -> bytes | None:
        """Return the answer, with its line end, or None where this line is for the grammar.

        An empty answer means that the line was a notification that asks for nothing.
        """
        try:
            document = self._read(line)
            if "id" not in document:
                return b"" if document["method"] == "notifications/initialized" else None
            method, params = document["method"], document.get("params", {})
            if method not in METHODS or modern_version(params) not in ("", *MODERN_VERSIONS):
                return None
            text = to_json(
                {"jsonrpc": "2.0", "id": document["id"], "result": constant_result(method, params)}
            )
        except (_Doubt, TypeError):
            return None
        self.client = hosts.client_name(params) or self.client
        if isinstance(params.get("_meta"), dict):
            self.meta |= params["_meta"]
        self.is_answered = True
        return text.encode() + b"\n"

    def _read(self, line: bytes) -> "dict[str, Any]":
        """Return the call that `line` plainly is."""
        flat = line.translate(_FLATTEN)
        if (
            not 0 < len(line) <= _LINE_BYTES_MAX
            or b"\\" in line
            or _LONG_NUMBER in flat
            or flat.count(b"[") > _DEPTH_MAX
        ):
            raise _Doubt
        try:
            text = line.decode().strip(" \t\r")
            document, end = self._scan(text, 0)
        except (ValueError, StopIteration, RecursionError) as error:
            raise _Doubt from error
        if end != len(text) or type(document) is not dict or document.get("jsonrpc") != "2.0":
            raise _Doubt
        if not document.keys() <= {"jsonrpc", "id", "method", "params"}:
            raise _Doubt
        if type(document.get("method")) is not str or type(document.get("params", {})) is not dict:
            raise _Doubt
        identity = document.get("id", 0)
        if type(identity) is not int and not (type(identity) is str and 0 < len(identity) <= 256):
            raise _Doubt
        return document


def _unique(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Doubt
    return members


def _doubtful(_text: str) -> "Any":
    raise _Doubt


class _Rules:
    """What the scanner asks for: one meaning per document; numbers with a fraction are not for here."""

    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_unique)
    parse_float = staticmethod(_doubtful)
    parse_int = int
    parse_constant = staticmethod(_doubtful)
    memo: "dict[str, str]" = {}  # noqa: RUF012 - the scanner's own cache of names
