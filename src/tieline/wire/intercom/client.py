"""One connection of a session to a broker: bytes in, events out; what the session says, as bytes; no I/O.

Theory. The first frame is the registration, and what the broker echoes on `registered` is all that may be
used besides the frames of revision F. A request ends in its answer, in its time, or with the connection;
an answer that comes later means nothing.

Rule 1: nothing is sent that the broker did not announce; who asks for it is refused before a byte is made.
Rule 2: an unknown frame, one before `registered`, a second `registered`, a malformed message or answer
    ends the connection; a malformed row of a list is left out.
Rule 3: one operation for one id at a time: a second `send` under an id that waits is refused.
Rule 4: this module knows no clock and no chance: moments and ids are told to it.

Source: reference/intercom.md 1.1 to 1.3, 1.7, 4.4, cases 11, 14, 31, 37; docs/wire-intercom.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tieline.errors import ProtocolError, Refused
from tieline.wire.buffer import FrameTooLarge, LengthBuffer
from tieline.wire.intercom.forms import is_label, is_text, plain_letter, plain_session
from tieline.wire.intercom.framing import FRAME_BYTES_MAX, fields_of, framed, payload

__all__ = [
    "CAPABILITIES",
    "LIST_MS",
    "REGISTER_MS",
    "SEND_MS",
    "ClientLink",
    "Closed",
    "Event",
    "LastAsked",
    "Left",
    "Listed",
    "MessageCame",
    "ReadAnswered",
    "ReceiptAsked",
    "Registered",
    "Sent",
    "TimedOut",
    "WakeAsked",
    "WakeFailed",
]

CAPABILITIES: Final = ("guardedDelivery", "receiptReads", "lastReads", "wakeOutcomes")
"""What a session of ours announces with the number 1, and a broker that can, too."""
REGISTER_MS: Final = 10_000
SEND_MS: Final = 8_000
LIST_MS: Final = 5_000
REQUESTS_MAX: Final = 1_024
"""Operations that wait on one connection; more are refused, not queued."""


class Registered(msgspec.Struct, frozen=True):
    """The broker took us, under this id, and announced these of `CAPABILITIES`."""

    session_id: str
    capabilities: frozenset[str]


class Listed(msgspec.Struct, frozen=True):
    """Who can be seen, ourselves included; `error` where the broker could not say it whole."""

    request_id: str
    rows: tuple[dict[str, Any], ...]
    error: str = ""


class MessageCame(msgspec.Struct, frozen=True):
    """A message for us, and its sender as the broker shows it."""

    sender: dict[str, Any]
    message: dict[str, Any]


class Sent(msgspec.Struct, frozen=True):
    """The broker's answer to a send: `kind` is "delivered", "queued" or "failed"."""

    message_id: str
    kind: str
    reason: str = ""
    is_outcome_known: bool = True


class Left(msgspec.Struct, frozen=True):
    """A session that we could see is gone."""

    session_id: str


class ReadAnswered(msgspec.Struct, frozen=True):
    """The answer to a read of ours, or `{error}`; `kind` is "last" or "receipt"."""

    kind: str
    request_id: str
    body: dict[str, Any]


class LastAsked(msgspec.Struct, frozen=True):
    """Somebody reads our last answer; answered by `answer_last` under `token`."""

    token: str
    sender: dict[str, Any]
    entry: str | None
    offset: int
    limit: int


class ReceiptAsked(msgspec.Struct, frozen=True):
    """Somebody reads what became of a message to us; answered by `answer_receipt` under `token`."""

    token: str
    sender: dict[str, Any]
    root: str
    message_id: str


class WakeAsked(msgspec.Struct, frozen=True):
    """Mail waits for a parked child of ours; answered by `answer_wake` under `token`."""

    token: str
    session_id: str
    message_id: str


class WakeFailed(msgspec.Struct, frozen=True):
    """The child that we asked could not be woken; our question may still reach it."""

    message_id: str
    detail: str


class TimedOut(msgspec.Struct, frozen=True):
    """No answer in time; `kind` is "send", "list", "last" or "receipt", `name` the id of the operation."""

    kind: str
    name: str


class Closed(msgspec.Struct, frozen=True):
    """The connection is over; every operation that waited has no answer."""

    reason: str
    unanswered: tuple[tuple[str, str], ...] = ()  # (kind, name), as in `TimedOut`


Event = (
    Registered
    | Listed
    | MessageCame
    | Sent
    | Left
    | ReadAnswered
    | LastAsked
    | ReceiptAsked
    | WakeAsked
    | WakeFailed
    | TimedOut
    | Closed
)

_READS: Final = {"last": "lastReads", "receipt": "receiptReads"}
_Frame = Mapping[str, Any]


class ClientLink:
    """The session's end of one socket.

    Per read: `receive_data`, act on `events_received()`, write `data_to_send()`. When `is_closed`: close the
    socket. At `deadline_ms`: `expire`.
    """

    def __init__(
        self,
        session: Mapping[str, Any],
        requested_id: str | None,
        now_ms: int,
        *,
        send_ms: int = SEND_MS,
        list_ms: int = LIST_MS,
        announced: Sequence[str] = CAPABILITIES,
    ) -> None:
        """Register.

        Args:
            session: What is said of ourselves, in the strict form.
            requested_id: The id that we would have.
            now_ms: Monotonic milliseconds.
            send_ms: How long a send waits for the broker.
            list_ms: How long a list or a read waits.
            announced: Those of `CAPABILITIES` that this session has.

        Raises:
            ProtocolError: the session is not of the strict form.
        """
        if plain_session(session) is None:
            raise ProtocolError("MALFORMED_FRAME", "this session would be refused by every broker")
        self.session_id = ""
        self.capabilities: frozenset[str] = frozenset()
        self._send_ms, self._list_ms = send_ms, list_ms
        self._buffer = LengthBuffer(FRAME_BYTES_MAX)
        self._out: list[bytes] = []
        self._events: list[Event] = []
        self._waiting: dict[tuple[str, str], int] = {}
        self._is_closed = False
        self._register_by_ms: int | None = now_ms + REGISTER_MS
        frame: dict[str, Any] = {"type": "register", "session": dict(session)}
        if requested_id is not None:
            frame["requestedId"] = requested_id
        self._announced = frozenset(announced)
        self._say({**frame, **{name: 1 for name in CAPABILITIES if name in self._announced}})

    # ------------------------------------------------------------ bytes and time

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""
        return self._is_closed

    @property
    def is_registered(self) -> bool:
        """Whether the broker took us, and the connection stands."""
        return bool(self.session_id) and not self._is_closed

    @property
    def deadline_ms(self) -> int | None:
        """When the next operation has no time left, monotonic; None while none waits."""
        dues = [*self._waiting.values()]
        if self._register_by_ms is not None:
            dues.append(self._register_by_ms)
        return min(dues, default=None)

    def data_to_send(self) -> bytes:
        """Return the bytes to write, in order, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def events_received(self) -> list[Event]:
        """Return what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def receive_data(self, data: bytes) -> None:
        """Take what the broker said; whatever breaks the rules ends the connection. Never raises."""
        if self._is_closed:
            return
        is_oversize = False
        try:
            frames = self._buffer.feed(data)
        except FrameTooLarge as error:
            frames, is_oversize = error.lines_before, True
        for one in frames:
            try:
                self._heard(fields_of(one))
            except ProtocolError as error:
                self.close(f"the broker broke the protocol: {error}")
                return
        if is_oversize:
            self.close("the broker sent a frame over the bound")

    def receive_eof(self) -> None:
        """The broker closed the socket."""
        self.close("the broker closed the connection")

    def expire(self, now_ms: int) -> None:
        """Time passed: what has no time left ends without an answer."""
        if self._register_by_ms is not None and self._register_by_ms <= now_ms:
            self.close("the broker did not take our registration in time")
        for key, due_ms in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[key]
                self._events.append(TimedOut(*key))

    def close(self, reason: str) -> None:
        """End the connection; what waited has no answer."""
        if not self._is_closed:
            self._is_closed = True
            unanswered, self._waiting = tuple(self._waiting), {}
            self._register_by_ms = None
            self._events.append(Closed(reason, unanswered))

    # ------------------------------------------------------------ what we say

    def list(self, request_id: str, now_ms: int) -> None:
        """Ask who is there; ends in `Listed` or `TimedOut`.

        Raises:
            Refused: PEER_OFFLINE, RESOURCE_BUSY.
        """
        self._wait("list", request_id, now_ms + self._list_ms)
        self._say({"type": "list", "requestId": request_id})

    def send(self, to: str, message: Mapping[str, Any], now_ms: int) -> None:
        """Send a message; ends in `Sent` or `TimedOut`.

        Raises:
            Refused: INVALID_PARAMS, no broker would take this form; MESSAGE_TOO_LARGE; CAPABILITY_DENIED, it
                bears a guard and the broker checks none; PEER_OFFLINE, RESOURCE_BUSY: nothing left.
        """
        letter = plain_letter(message)
        if letter is None or letter.is_guard_broken:
            raise Refused("INVALID_PARAMS", "this message would be refused by every broker")
        if letter.guard is not None:
            self._need("guardedDelivery")
        data = payload({"type": "send", "to": to, "message": dict(message)})
        try:
            frame = framed(data)
        except ProtocolError as error:
            raise Refused("MESSAGE_TOO_LARGE", str(error)) from None
        self._wait("send", letter.message_id, now_ms + self._send_ms)
        self._out.append(frame)

    def tell_presence(self, changes: Mapping[str, Any]) -> None:
        """Say what changed of us; `applicationGuard`, None to withdraw it, only where guards are known."""
        if "applicationGuard" in changes and "guardedDelivery" not in self.capabilities:
            changes = {name: value for name, value in changes.items() if name != "applicationGuard"}
        if self.is_registered and changes:
            self._say({"type": "presence", **changes})

    def leave(self, *, is_parked: bool = False) -> None:
        """Say that we go; `is_parked`: a child that will come back, where the broker keeps mail for such."""
        if self.is_registered:
            frame: dict[str, Any] = {"type": "unregister"}
            if is_parked and "wakeOutcomes" in self.capabilities:
                frame["parked"] = True
            self._say(frame)

    def read(self, kind: str, request_id: str, to: str, body: Mapping[str, Any], now_ms: int) -> None:
        """Read a peer's last answer ("last") or what it recorded of a message ("receipt").

        Raises:
            Refused: CAPABILITY_DENIED, the broker cannot; PEER_OFFLINE, RESOURCE_BUSY.
        """
        self._need(_READS[kind])
        self._wait(kind, request_id, now_ms + self._list_ms)
        self._say({"type": f"{kind}_request", "requestId": request_id, "to": to, **body})

    def answer_last(self, token: str, body: Mapping[str, Any]) -> None:
        """Answer `LastAsked`."""
        self._say({"type": "last_page", "token": token, **body})

    def answer_receipt(self, token: str, body: Mapping[str, Any]) -> None:
        """Answer `ReceiptAsked`."""
        self._say({"type": "receipt_facts", "token": token, **body})

    def answer_wake(self, token: str, *, is_woken: bool, detail: str) -> None:
        """Answer `WakeAsked`."""
        self._say({"type": "wake_outcome", "token": token, "ok": is_woken, "detail": detail})

    def _need(self, capability: str) -> None:
        if self.is_registered and capability not in self.capabilities:
            raise Refused("CAPABILITY_DENIED", f"this broker is too old: it does not know {capability}")

    def _wait(self, kind: str, name: str, due_ms: int) -> None:
        if not self.is_registered:
            raise Refused("PEER_OFFLINE", "not connected to the broker", is_retryable=True)
        if (kind, name) in self._waiting:
            raise Refused("RESOURCE_BUSY", "an operation with this id waits for its answer")
        if len(self._waiting) >= REQUESTS_MAX:
            raise Refused("RESOURCE_BUSY", "too many operations wait for the broker", is_retryable=True)
        self._waiting[kind, name] = due_ms

    def _say(self, frame: Mapping[str, Any]) -> None:
        if not self._is_closed:
            self._out.append(framed(payload(frame)))

    # ------------------------------------------------------------ what the broker says

    def _heard(self, frame: _Frame) -> None:
        kind = frame["type"]
        if kind == "registered":
            self._registered(frame)
            return
        if not self.session_id:
            raise ProtocolError("MALFORMED_FRAME", "a frame before the registration was taken")
        if kind in _ANNOUNCED and _ANNOUNCED[kind] not in self.capabilities:
            raise ProtocolError("MALFORMED_FRAME", f"{kind} was not announced")
        hear = _HEARD.get(kind)
        if hear is None:
            raise ProtocolError("MALFORMED_FRAME", f"unknown frame {kind[:64]!r}")
        event = hear(frame)
        if self._is_awaited(event):
            self._events.append(event)

    def _registered(self, frame: _Frame) -> None:
        session_id = frame.get("sessionId")
        if self.session_id or not is_label(session_id):
            raise ProtocolError("MALFORMED_FRAME", "not the one answer to our registration")
        self.session_id = str(session_id)
        self._register_by_ms = None
        self.capabilities = frozenset(name for name in self._announced if _is_one(frame.get(name)))
        self._events.append(Registered(self.session_id, self.capabilities))

    def _is_awaited(self, event: Event) -> bool:
        """Return whether an event is news; an answer that nobody waits for is none."""
        match event:
            case Listed():
                key = ("list", event.request_id)
            case Sent():
                key = ("send", event.message_id)
            case ReadAnswered():
                key = (event.kind, event.request_id)
            case _:
                return True
        return self._waiting.pop(key, None) is not None


def _is_one(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


def _string(frame: _Frame, name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise ProtocolError("MALFORMED_FRAME", f"{name} is not a string")
    return value


def _row(value: object) -> dict[str, Any] | None:
    """Return a session that can be shown: one whose only fault is its projectId keeps the rest."""
    if not isinstance(value, dict) or not is_label(value.get("id")):
        return None
    found = plain_session(value)
    if found is None and "projectId" in value:
        found = plain_session({name: item for name, item in value.items() if name != "projectId"})
    # What a broker adds for capable sessions is not a session's own to say, and is left out there.
    return None if found is None else {**{n: v for n, v in value.items() if n == "guardedDelivery"}, **found}


def _sender(frame: _Frame) -> dict[str, Any]:
    row = _row(frame.get("from"))
    if row is None:
        raise ProtocolError("MALFORMED_FRAME", "a sender that is no session")
    return row


def _sessions(frame: _Frame) -> Event:
    rows = frame.get("sessions")
    if not isinstance(rows, list):
        raise ProtocolError("MALFORMED_FRAME", "sessions is not a list")
    found = tuple(row for row in map(_row, rows) if row is not None)
    error = frame.get("error", "")
    return Listed(_string(frame, "requestId"), found, error if isinstance(error, str) else "")


def _message(frame: _Frame) -> Event:
    message = frame.get("message")
    if plain_letter(message) is None or not isinstance(message, dict):
        raise ProtocolError("MALFORMED_FRAME", "a message that is none")
    return MessageCame(_sender(frame), message)


def _delivered(frame: _Frame) -> Event:
    return Sent(_string(frame, "messageId"), "queued" if frame.get("delivery") == "queued" else "delivered")


def _queued(frame: _Frame) -> Event:
    return Sent(_string(frame, "messageId"), "queued", _string(frame, "reason"))


def _failed(frame: _Frame) -> Event:
    is_known = frame.get("outcomeKnown") is not False
    return Sent(_string(frame, "messageId"), "failed", _string(frame, "reason"), is_known)


def _left(frame: _Frame) -> Event:
    return Left(_string(frame, "sessionId"))


def _last_read(frame: _Frame) -> Event:
    entry, offset, limit = frame.get("entryId"), frame.get("offset", 0), frame.get("limit", 0)
    if not (entry is None or is_label(entry)) or not _is_count(offset) or not _is_count(limit):
        raise ProtocolError("MALFORMED_FRAME", "a read that is none")
    return LastAsked(_string(frame, "token"), _sender(frame), entry, offset, limit)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _receipt_read(frame: _Frame) -> Event:
    return ReceiptAsked(
        _string(frame, "token"), _sender(frame), _string(frame, "rootSessionId"), _string(frame, "messageId")
    )


def _last_response(frame: _Frame) -> Event:
    return _answered("last", frame)


def _receipt_response(frame: _Frame) -> Event:
    return _answered("receipt", frame)


def _answered(kind: str, frame: _Frame) -> Event:
    body = {name: value for name, value in frame.items() if name not in ("type", "requestId")}
    return ReadAnswered(kind, _string(frame, "requestId"), body)


def _wake_request(frame: _Frame) -> Event:
    return WakeAsked(_string(frame, "token"), _string(frame, "sessionId"), _string(frame, "messageId"))


def _wake_failed(frame: _Frame) -> Event:
    detail = frame.get("detail", "")
    return WakeFailed(_string(frame, "messageId"), str(detail) if is_text(detail) else "")


_HEARD: Final = {
    "sessions": _sessions,
    "message": _message,
    "delivered": _delivered,
    "delivery_queued": _queued,
    "delivery_failed": _failed,
    "session_left": _left,
    "last_read": _last_read,
    "last_response": _last_response,
    "receipt_read": _receipt_read,
    "receipt_response": _receipt_response,
    "wake_request": _wake_request,
    "wake_failed": _wake_failed,
}
_ANNOUNCED: Final = {
    "last_read": "lastReads",
    "last_response": "lastReads",
    "receipt_read": "receiptReads",
    "receipt_response": "receiptReads",
    "wake_request": "wakeOutcomes",
    "wake_failed": "wakeOutcomes",
}
"""Frames that only a broker that announced their capability may send."""
