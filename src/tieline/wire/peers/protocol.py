"""One connection of the pi-peers wire: who may speak first and how long; no I/O.

A connection carries one message: the far end proves that it read our key file, says its frames and
hangs up. Nothing is ever answered on it; what there is to say goes over a connection of our own.

Rule 1: the first line presents a token that `verify` grades; anything else closes, and nothing is told of it.
Rule 2: the bound on a line is kept while reading; an unfinished line has one budget of time, and bytes that
trickle in do not extend it. Between lines a proven far end may be silent; the link's cap is the caller's.
Rule 3: the first offence closes; the frames that were whole before it are still good.
Rule 4: a line cut off by the end of the connection is malformed; one that lacks only its line end is whole.
Rule 5: this module knows no socket, no registry and no meaning of a frame; time is told to it.

Source: spec/pi-peers.md, "Channel", "Handshake"; reference/pi-peers-and-harness-doors.md 21 to 26, U20.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from tieline.errors import ProtocolError
from tieline.wire.buffer import FrameTooLarge, LineBuffer
from tieline.wire.peers.frames import (
    LINE_BYTES_MAX,
    Frame,
    StatusFrame,
    UserFrame,
    auth_line,
    decode,
    decode_auth,
    encode,
)

__all__ = [
    "LINE_MS",
    "Authenticated",
    "Closed",
    "Event",
    "FrameReceived",
    "Grade",
    "Inbound",
    "Reason",
    "outbound",
]

LINE_MS: Final = 30_000
"""Life of an unfinished line, the first one from the moment the connection came. Source: reference 22."""

Reason = Literal["ended", "late", "unauthenticated", "malformed", "oversize", "stopped"]


class Grade(msgspec.Struct, frozen=True):
    """What a token proved: the peer token, "the same user"; a child token, which run of ours speaks.

    `run` is None for the peer token and for the root's own child token.
    """

    is_child: bool
    run: str | None = None


class Authenticated(msgspec.Struct, frozen=True):
    """The first line presented a token of ours; comes at most once and before any frame."""

    grade: Grade


class FrameReceived(msgspec.Struct, frozen=True):
    """One frame came; a receipt for several messages comes as one frame for each."""

    frame: Frame


class Closed(msgspec.Struct, frozen=True):
    """The conversation is over; comes exactly once and last. Close the link; nothing is to be written.

    `reason` is "ended" where the far end hung up between lines, "stopped" where this end did.
    """

    reason: Reason


Event = Authenticated | FrameReceived | Closed


class Inbound:
    """The receiving end of one connection: bytes and moments in, events out."""

    __slots__ = ("_deadline_ms", "_events", "_grade", "_is_closed", "_lines", "_verify")

    def __init__(self, verify: Callable[[str], Grade | None], now_ms: int) -> None:
        """Wait for the first line.

        Args:
            verify: Grades the token of the first line, in constant time; None for a stranger's.
            now_ms: Monotonic milliseconds; the first line has `LINE_MS` from here.
        """
        self._verify = verify
        self._lines = LineBuffer(LINE_BYTES_MAX)
        self._deadline_ms: int | None = now_ms + LINE_MS
        self._events: list[Event] = []
        self._grade: Grade | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the conversation is over."""
        return self._is_closed

    @property
    def grade(self) -> Grade | None:
        """What the far end proved; None until it did."""
        return self._grade

    @property
    def deadline_ms(self) -> int | None:
        """When `expire` will close, monotonic milliseconds; None while nothing is awaited."""
        return self._deadline_ms

    def receive_data(self, data: bytes, now_ms: int) -> None:
        """Take bytes as they came, in any pieces."""
        self.expire(now_ms)
        if self._is_closed or not data:
            return
        is_oversize = False
        try:
            lines = self._lines.feed(data)
        except FrameTooLarge as error:
            lines, is_oversize = error.lines_before, True
        self._take(lines)
        if is_oversize:
            self._close("oversize")
        elif not self.is_closed and self._grade is not None:
            if not self._lines.rest_bytes:
                self._deadline_ms = None
            elif self._deadline_ms is None or b"\n" in data:
                self._deadline_ms = now_ms + LINE_MS

    def receive_eof(self) -> None:
        """Take the far end's half close: a last line whose end is missing counts when it is whole."""
        if self._is_closed:
            return
        if self._lines.rest_bytes:
            self._take(self._lines.feed(b"\n"))
        self._close("ended" if self._grade is not None else "unauthenticated")

    def expire(self, now_ms: int) -> None:
        """Close where a line was not finished in its time."""
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            self._close("late")

    def stop(self) -> None:
        """Close from this end: what came before is still told."""
        self._close("stopped")

    def events_received(self) -> list[Event]:
        """Return what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if self._is_closed:
                return
            if self._grade is None:
                self._authenticate(line)
            else:
                self._read(line, self._grade)

    def _authenticate(self, line: bytes) -> None:
        try:
            grade = self._verify(decode_auth(line).token)
        except ProtocolError:
            grade = None
        if grade is None:
            self._close("unauthenticated")
            return
        self._grade = grade
        self._events.append(Authenticated(grade))

    def _read(self, line: bytes, grade: Grade) -> None:
        try:
            frame = decode(line)
        except ProtocolError:
            self._close("malformed")
            return
        if isinstance(frame, UserFrame) and not frame.sender and not grade.is_child:
            # Who is no child of ours is known by its address alone, and a receipt could not be sent.
            self._close("malformed")
            return
        frames = frame.each() if isinstance(frame, StatusFrame) else (frame,)
        self._events.extend(FrameReceived(one) for one in frames)

    def _close(self, reason: Reason) -> None:
        if self._is_closed:
            return
        self._is_closed, self._deadline_ms = True, None
        self._events.append(Closed(reason))


def outbound(token: str, frames: Iterable[Frame]) -> bytes:
    """Return all that one connection says, to be written at once: the authentication, then `frames`.

    Raises:
        ProtocolError: `FRAME_TOO_LARGE`; one of them does not fit in a line. Nothing is to be written.
    """
    return b"".join([auth_line(token), *(encode(frame) for frame in frames)])
