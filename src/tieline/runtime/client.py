"""A short-lived process asks a running root, and gets its answer or the reason why not.

Rule 1: blocking calls on one socket, standard library only: a person and a hook pay this import every
time, so neither asyncio nor msgspec is imported here.
Rule 2: a request whose bytes may have left and that changes something ends in `OutcomeUnknown` when no
answer came; one that changes nothing ends in a plain refusal.
Rule 3: before the first byte is sent, the kernel's word is taken that the far end is ours.
Rule 4: the version is compared first; the hello and the first request travel in one write, and a root
of another version refuses the hello before it reads the request.
Rule 5: this module finds nothing (see `locate`) and prints nothing.

Source: wire/control/protocol.py; DESIGN.md 2, 8; reference/reliability.md S7; reference/open-bugs.md O07.
"""

import _socket
import errno
import json
import os
import sys
from time import monotonic
from typing import Any, Final, NoReturn, Self

from tieline import __version__
from tieline.errors import (
    CODES,
    OutcomeUnknown,
    ProtocolError,
    RecoveryRequired,
    Refused,
    TielineError,
    UsageError,
)

__all__ = ["CHANGING", "VERSION", "Client", "error_of", "result_of"]

CONNECT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""One line; what `wire.control` allows."""
VERSION: Final = 1
"""Of the control endpoint: `wire.control.protocol.VERSION`."""
_HELLO_ID: Final = "hello"
_CHUNK_BYTES: Final = 65_536
CHANGING: Final = frozenset({"local.send", "local.ask", "local.reply", "send_peer_message"})
_USAGE_CODES: Final = frozenset({"USAGE", "INVALID_PARAMS", "INVALID_RPC", "PARSE_ERROR", "FRAME_TOO_LARGE"})


def error_of(
    code: str, text: str, *, is_retryable: bool = False, message_id: str = "", candidates: object = None
) -> TielineError:
    """Return the error that a typed code stands for, of the branch that says what to do next.

    A code that is not ours is kept in the text and taken as an outcome that is not known.
    """
    if code in _USAGE_CODES:
        return UsageError(text, code)
    if code == "RECOVERY_REQUIRED":
        return RecoveryRequired(text)
    if code == "DELIVERY_UNKNOWN":
        return OutcomeUnknown(text, message_id)
    if code == "METHOD_NOT_FOUND":
        return Refused(
            "VERSION_SKEW", "the running root does not know this request; it is of another version"
        )
    if code not in CODES:
        return OutcomeUnknown(f"{text} ({code})" if code else text, message_id)
    named = candidates if isinstance(candidates, list) else []
    texts = [{str(name): str(value) for name, value in one.items()} for one in named if isinstance(one, dict)]
    return Refused(code, text, is_retryable=is_retryable, candidates=texts)


class Client:
    """One connection to the control endpoint of a root; opened by the first call, kept until `close`."""

    def __init__(self, path: str) -> None:
        """Name the control endpoint: an absolute path of at most 107 bytes (macOS: 103)."""
        self.path = path
        self._link: _socket.socket | None = None
        self._rest = bytearray()
        self._last_id = 0
        self._is_opened = False

    def __enter__(self) -> Self:
        """Return this client; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; calling it again does nothing."""
        if self._link is not None:
            self._link.close()
            self._link = None
            self._rest.clear()
            self._is_opened = False

    def call(
        self, method: str, params: dict[str, Any] | None = None, timeout_s: float = 10.0
    ) -> dict[str, Any]:
        """Return the result of one request.

        Args:
            method: Its name, such as `local.who`.
            params: Its fields; None where there are none.
            timeout_s: For the whole exchange, on the monotonic clock.

        Raises:
            Refused: nothing was taken: no root listens there (`NO_ROOT`), this process may not reach
                it (`PERMISSION_DENIED`), an answer that changes nothing did not come (`WAIT_TIMEOUT`),
                the root's answer cannot be read
                (`VERSION_SKEW`), or the root's own refusal.
            UsageError: the root says that the request is wrong.
            OutcomeUnknown: a request that changes something was sent, and no answer came.
            RecoveryRequired: the root's store is in doubt.
        """
        fields = params or {}
        deadline = monotonic() + timeout_s
        link = self._connected(min(timeout_s, CONNECT_S))
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": fields}
        message_id = str(fields.get("messageId", ""))
        try:
            link.settimeout(max(deadline - monotonic(), 0.001))
            link.sendall(self._hello() + _line(request))
            if not self._is_opened:
                self._open(link, deadline)
            answer = self._answer(link, self._last_id, deadline)
        except TimeoutError:
            self.close()
            self._lost(method, message_id, "WAIT_TIMEOUT", f"no answer within {timeout_s:g} s")
        except OSError:
            self.close()
            self._lost(method, message_id, "NO_ROOT", "the root ended before it answered")
        except ProtocolError as error:  # an answer came, and cannot be read
            self.close()
            self._lost(method, message_id, "VERSION_SKEW", str(error))
        except BaseException:
            # After a refused hello the far end hangs up; after anything else the stream is in doubt.
            self.close()
            raise
        return result_of(answer, message_id)

    def _connected(self, timeout_s: float) -> _socket.socket:
        if self._link is None:
            link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            try:
                link.settimeout(timeout_s)
                link.connect(self.path)
                _require_own(link)
            except OSError as error:
                link.close()
                raise _unreached(error) from error
            except BaseException:
                link.close()
                raise
            self._link = link
        return self._link

    def _hello(self) -> bytes:
        """Return the opening frame, or nothing on a link whose versions were compared."""
        if self._is_opened:
            return b""
        params = {"version": VERSION, "product": f"tieline {__version__}"}
        return _line({"jsonrpc": "2.0", "id": _HELLO_ID, "method": "control.hello", "params": params})

    def _open(self, link: _socket.socket, deadline: float) -> None:
        """Take the answer to the hello.

        Raises:
            Refused: `VERSION_SKEW`; the request behind the hello was not read.
        """
        answer = self._answer(link, _HELLO_ID, deadline)
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict):
            raise Refused("VERSION_SKEW", f"the root that runs is of another version: {error.get('message')}")
        if not isinstance(result, dict) or result.get("version") != VERSION:
            raise Refused("VERSION_SKEW", "the root that runs is of another version")
        self._is_opened = True

    def _answer(self, link: _socket.socket, request_id: int | str, deadline: float) -> dict[str, Any]:
        while True:
            frame = self._frame(link, deadline)
            # An answer with the id null is the root's word that it could not read us at all.
            if "method" in frame or frame.get("id") not in (request_id, None):
                continue
            if not isinstance(frame.get("result"), dict) and not isinstance(frame.get("error"), dict):
                raise ProtocolError("INVALID_RPC", "the root's answer has neither a result nor an error")
            return frame

    def _frame(self, link: _socket.socket, deadline: float) -> dict[str, Any]:
        searched_bytes = 0
        while True:
            end = self._rest.find(b"\n", searched_bytes)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                return _document(line)
            searched_bytes = len(self._rest)
            if searched_bytes > ANSWER_BYTES_MAX:
                raise ProtocolError("FRAME_TOO_LARGE", f"the root's answer is over {ANSWER_BYTES_MAX} bytes")
            remaining_s = deadline - monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            link.settimeout(remaining_s)
            data = link.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionResetError
            self._rest += data

    def _lost(self, method: str, message_id: str, code: str, text: str) -> NoReturn:
        if method in CHANGING:
            raise OutcomeUnknown(text, message_id) from None
        raise Refused(code, text, is_retryable=code != "VERSION_SKEW") from None


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _require_own(link: _socket.socket) -> None:
    """Raise unless the kernel says that the far end runs as this user."""
    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:
        return  # Elsewhere the verified 0700 directory alone holds.
    credentials = link.getsockopt(_socket.SOL_SOCKET, option, 12)
    owner = int.from_bytes(credentials[4:8], sys.byteorder)
    if owner != os.geteuid():
        raise Refused("UNSAFE_ENDPOINT", f"the control endpoint belongs to user {owner}, not to this one")


def _unreached(error: OSError) -> TielineError:
    if error.errno in (errno.EPERM, errno.EACCES):
        return Refused("PERMISSION_DENIED", "the system does not let this process reach the root's socket")
    if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
        return Refused("WAIT_TIMEOUT", "the root does not take connections now", is_retryable=True)
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
        return Refused("NO_ROOT", "no root listens at its control endpoint; it has ended")
    name = errno.errorcode.get(error.errno or 0, "?")
    return Refused("NO_ROOT", f"the control endpoint cannot be reached ({name})")


def _document(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ProtocolError("PARSE_ERROR", "the root's answer is not one JSON object a line")
    return document


def result_of(answer: dict[str, Any], message_id: str = "") -> dict[str, Any]:
    """Return the result of an answer's frame.

    Raises:
        TielineError: the frame is an error; of the branch that its code stands for.
    """
    result = answer.get("result")
    if isinstance(result, dict):
        return result
    error = answer.get("error")
    assert isinstance(error, dict), "an answer without a result has an error"
    data = error.get("data")
    details = data if isinstance(data, dict) else {}
    code = details.get("code")
    if not isinstance(code, str):
        code = {-32601: "METHOD_NOT_FOUND", -32602: "INVALID_PARAMS"}.get(error.get("code", 0), "")
    text = details.get("text") if isinstance(details.get("text"), str) else error.get("message")
    raised = error_of(
        code,
        text if isinstance(text, str) else "the root refused without a reason",
        is_retryable=details.get("retryable") is True or details.get("isRetryable") is True,
        message_id=message_id,
        candidates=details.get("candidates"),
    )
    action = details.get("action")
    raise raised.advising(action) if isinstance(action, str) and raised.code == code else raised
