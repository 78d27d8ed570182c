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

from tieline.errors import ProtocolError, Refused
from tieline.wire.buffer import FrameTooLarge, LengthBuffer
from tieline.wire.intercom.forms import plain_letter, plain_session
from tieline.wire.intercom.framing import FRAME_BYTES_MAX, fields_of, framed, payload
from tieline.wire.intercom.news import (
    CAPABILITIES,
    Closed,
    Event,
    LastAsked,
    Left,
    Listed,
    MessageCame,
    ReadAnswered,
    ReceiptAsked,
    Registered,
    Sent,
    TimedOut,
    WakeAsked,
    WakeFailed,
    event_of,
    registered_of,
)

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

REGISTER_MS: Final = 10_000
SEND_MS: Final = 8_000
LIST_MS: Final = 5_000
REQUESTS_MAX: Final = 1_024
"""Operations that wait on one connection; more are refused, not queued."""


_READS: Final = {"last": "lastReads", "receipt": "receiptReads"}


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

    def _heard(self, frame: Mapping[str, Any]) -> None:
        kind = frame["type"]
        if kind == "registered":
            self._registered(frame)
            return
        if not self.session_id:
            raise ProtocolError("MALFORMED_FRAME", "a frame before the registration was taken")
        event = event_of(frame, self.capabilities)
        if self._is_awaited(event):
            self._events.append(event)

    def _registered(self, frame: Mapping[str, Any]) -> None:
        told = registered_of(frame, self._announced)
        if self.session_id:
            raise ProtocolError("MALFORMED_FRAME", "a second answer to our registration")
        self.session_id, self.capabilities = told.session_id, told.capabilities
        self._register_by_ms = None
        self._events.append(told)

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
