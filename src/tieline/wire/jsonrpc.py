"""The strict JSON-RPC 2.0 line grammar that the native, control, attach and MCP doors share.

Rule 1: one document has one meaning. What two parsers could read differently is refused: a repeated
member name, NaN and infinities, a lone surrogate, U+0000, an integer beyond 2^53 - 1, a byte order
mark, any encoding but UTF-8.
Rule 2: cost is bounded before parsing: brackets are counted in the bytes, and only where that count
is above the bound is the depth computed exactly, still without parsing.
Rule 3: `True` is no integer and `1.0` is no id; an id is echoed with the type it came with.
Rule 4: this module knows no method and no peer; the length of a line is bounded by `wire.buffer`.

How a repeated name is found: the parser keeps the last of two equal names, so the document written
again would be shorter. A line that equals its own rewriting therefore repeats none, and that is the
common case. Any other line must hold as many names as it has colons outside strings.

Source: reference/native.md 2.6, 3.7, 4.4; reference/reliability.md 3.5, F11, K24, K25.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from tieline.errors import ProtocolError

__all__ = [
    "DEPTH_MAX",
    "ID_LENGTH_MAX",
    "INTEGER_MAX",
    "KEYS_MAX",
    "METHOD_LENGTH_MAX",
    "Body",
    "ErrorObject",
    "Frame",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "decode",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
]

DEPTH_MAX: Final = 32
"""Arrays and objects inside each other; the deepest frame of any door here has 8."""
KEYS_MAX: Final = 4_096
"""Member names in one line, all objects together."""
INTEGER_MAX: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""
METHOD_LENGTH_MAX: Final = 128
ID_LENGTH_MAX: Final = 256

NUMBER_OF_CODE: Final[dict[str, int]] = {
    "PARSE_ERROR": -32700,
    "INVALID_RPC": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
}
"""JSON-RPC's own numbers; every other code travels under `OTHER_NUMBER`, the code itself in `data`."""
OTHER_NUMBER: Final = -32000

RequestId = str | int
"""Names one attempt on one connection; a string of 1 to 256 characters or a safe integer."""


Body = Mapping[str, Any] | msgspec.Struct
"""Params or a result as it is written: an object on the wire."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """A call that must be answered once, under its `id`."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A call that must never be answered, not even with an error."""

    method: str
    params: dict[str, Any]


class ErrorObject(msgspec.Struct, frozen=True, gc=False):
    """A JSON-RPC error as the far end wrote it: foreign content, not for display as it is."""

    code: int
    message: str
    data: Any = None

    @property
    def typed_code(self) -> str:
        """The code in `data.code`, or the empty string where the far end gave none."""
        code = self.data.get("code") if isinstance(self.data, dict) else None
        return code if isinstance(code, str) else ""


class Response(msgspec.Struct, frozen=True, gc=False):
    """An answer: exactly one of `result` and `error`; `error` is None on success.

    `id` is None only beside an error, where the far end could not read the request's id.
    """

    id: RequestId | None
    result: Any = None
    error: ErrorObject | None = None


Frame = Request | Notification | Response

_parse: Final = msgspec.json.Decoder().decode
_write: Final = msgspec.json.Encoder().encode

_NOTHING: Final = object()
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_REQUEST_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_RESPONSE_MEMBERS: Final = frozenset({"jsonrpc", "id", "result", "error"})
_ERROR_MEMBERS: Final = frozenset({"code", "message", "data"})


def decode(line: bytes) -> Frame:
    """Return the one frame that `line` holds.

    Args:
        line: The bytes between two line ends, already within the caller's bound.

    Raises:
        ProtocolError: `PARSE_ERROR` where the bytes are not one strict JSON document, `INVALID_RPC`
            where the document is no JSON-RPC 2.0 frame. The link is then closed, after one error
            response with the id null: where the next frame begins is no longer certain.
    """
    # Splitting stops at the bound and searches with memchr; counting would look at every byte.
    if len(line.split(b"[", DEPTH_MAX)) + len(line.split(b"{", DEPTH_MAX)) > DEPTH_MAX:
        _require_depth(line)
    try:
        document = _parse(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The parser's own text may quote the far end's bytes, so it goes into the chain only.
        raise ProtocolError("PARSE_ERROR", "the line is not strict JSON in UTF-8") from error
    name_count = _require_safe_values(document)
    if _write(document) != line and name_count != _outside_strings(line).count(b":"):
        raise ProtocolError("PARSE_ERROR", "a member name is repeated")
    if b"\\" in line and b"\\u0000" in line:
        _require_no_nul(document)
    return _frame(document)


def encode_request(request_id: RequestId, method: str, params: Body) -> bytes:
    """Return the line, with its end, of one request.

    Raises:
        TypeError, ValueError: `params` hold a value that JSON has no word for.
    """
    return _write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n"


def encode_notification(method: str, params: Body) -> bytes:
    """Return the line, with its end, of one notification; errors as `encode_request`."""
    return _write({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


def encode_result(request_id: RequestId, result: Body) -> bytes:
    """Return the line, with its end, of one successful answer; errors as `encode_request`."""
    return _write({"jsonrpc": "2.0", "id": request_id, "result": result}) + b"\n"


def encode_error(
    request_id: RequestId | None,
    code: str,
    text: str,
    details: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the line, with its end, of one refusal.

    Args:
        request_id: The request's id, or None where it could not be read.
        code: The typed code; it travels as `error.data.code` under JSON-RPC's number for it.
        text: One sentence for a person, free of foreign content.
        details: More members for `error.data`; a member `code` among them is not used.
    """
    error = {
        "code": NUMBER_OF_CODE.get(code, OTHER_NUMBER),
        "message": text,
        "data": {**(details or {}), "code": code},
    }
    return _write({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n"


# --- what the bytes must be -----------------------------------------------------------------------


def _outside_strings(line: bytes) -> bytes:
    """Return what a valid document has outside its strings; of an invalid one, anything.

    An escape can hide a quotation mark only after an odd number of backslashes: removing pairs of
    backslashes first, left to right, leaves exactly those.
    """
    if b"\\" in line:
        line = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(line.split(b'"')[::2])


def _require_depth(line: bytes) -> None:
    """Raise `PARSE_ERROR` where brackets are nested deeper than `DEPTH_MAX`, or do not pair.

    One replacement removes every innermost pair at once, that is one level, at the speed of memory.
    """
    brackets = _outside_strings(line).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(DEPTH_MAX):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise ProtocolError("PARSE_ERROR", f"the line is nested deeper than {DEPTH_MAX}, or does not close")


def _require_safe_values(document: object) -> int:
    """Return how many member names `document` holds.

    The walk is over values, not characters, and needs no stack: the list grows while it is read.

    Raises:
        ProtocolError: `PARSE_ERROR` for an integer beyond 2^53 - 1, or too many names.
    """
    name_count = 0
    waiting: list[Any] = [document]
    for value in waiting:
        kind = type(value)
        if kind is dict:
            name_count += len(value)
            waiting.extend(value.values())
        elif kind is list:
            waiting.extend(value)
        elif kind is int and not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise ProtocolError("PARSE_ERROR", "an integer is beyond 2^53 - 1")
    if name_count > KEYS_MAX:
        raise ProtocolError("PARSE_ERROR", f"the line has more than {KEYS_MAX} member names")
    return name_count


def _require_no_nul(document: object) -> None:
    """Raise `PARSE_ERROR` where a text or a member name holds U+0000.

    The bytes can tell only that it may be so: a backslash may itself be escaped.
    """
    waiting: list[Any] = [document]
    for value in waiting:
        if isinstance(value, dict):
            waiting.extend(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str) and "\0" in value:
            raise ProtocolError("PARSE_ERROR", "a text holds U+0000")


# --- what the document must be --------------------------------------------------------------------


def _refuse(text: str) -> NoReturn:
    raise ProtocolError("INVALID_RPC", text)


def _frame(document: object) -> Frame:
    """Return the frame a strict document stands for, or raise `INVALID_RPC`."""
    if not isinstance(document, dict):
        _refuse("a frame is one JSON object; a batch is not taken")
    if document.get("jsonrpc") != "2.0":
        _refuse('the member jsonrpc must be "2.0"')
    if "method" in document:
        return _call(document)
    return _response(document)


def _call(document: dict[str, Any]) -> Request | Notification:
    if not document.keys() <= _REQUEST_MEMBERS:
        _refuse("a call has the members jsonrpc, id, method and params, and no other")
    method = document["method"]
    if type(method) is not str or not 1 <= len(method) <= METHOD_LENGTH_MAX:
        _refuse(f"a method is a text of 1 to {METHOD_LENGTH_MAX} characters")
    params = document.get("params", _NOTHING)
    if params is _NOTHING:
        params = {}
    elif type(params) is not dict:
        _refuse("params must be an object")
    if "id" not in document:
        return Notification(method, params)
    identity = document["id"]
    if not _is_request_id(identity):
        _refuse(f"a request's id is a text of 1 to {ID_LENGTH_MAX} characters or a safe integer")
    return Request(identity, method, params)


def _response(document: dict[str, Any]) -> Response:
    if not document.keys() <= _RESPONSE_MEMBERS or "id" not in document:
        _refuse("a frame is a call with a method, or an answer with an id")
    if ("result" in document) == ("error" in document):
        _refuse("an answer has exactly one of result and error")
    identity = document["id"]
    if "result" in document:
        if not _is_request_id(identity):
            _refuse("a result's id is the id of a request")
        return Response(identity, document["result"])
    if identity is not None and not _is_request_id(identity):
        _refuse("an error's id is the id of a request, or null")
    return Response(identity, None, _error(document["error"]))


def _error(value: object) -> ErrorObject:
    if not isinstance(value, dict) or not value.keys() <= _ERROR_MEMBERS:
        _refuse("an error is an object with code, message and data")
    code, message = value.get("code"), value.get("message")
    if type(code) is not int or type(message) is not str:
        _refuse("an error has an integer code and a text message")
    return ErrorObject(code, message, value.get("data"))


def _is_request_id(value: object) -> bool:
    """Return whether `value` may name a request: integers were bounded with the document."""
    return (type(value) is str and 1 <= len(value) <= ID_LENGTH_MAX) or type(value) is int
