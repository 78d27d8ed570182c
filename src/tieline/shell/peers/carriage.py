"""What leaves: one short connection a message, written whole, half closed, watched until it ends.

Theory. Nothing is ever answered on a connection of ours. So a message is written when its bytes and the
end of them were handed to the kernel; what becomes of it comes later, over a connection of the far end's.
That the far end closes shows that it read to the end. The next message to it waits for that, for a short
time, because connections that overlap may be read in any order.

Rule 1: authentication and frame leave in one write; nothing is written to a far end that was not checked.
Rule 2: before the write a failure is definite, and who asked learns why; after it there is none.
Rule 3: at most `OPEN_MAX` connections at once; what waits behind them is bounded, too.

Source: reference/pi-peers-and-harness-doors.md rules 17, 21, 22, 49, 1Q; reference/reliability.md S7, S11.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from tieline.errors import ProtocolError, Refusal
from tieline.shell.peers.ports import Line, Target, World
from tieline.wire.peers.frames import Frame
from tieline.wire.peers.protocol import outbound

__all__ = ["Carriage"]

OPEN_MAX: Final = 32
WAITING_MAX: Final = 4_096
END_MS: Final = 1_000
"""How long a far end that keeps its side open is waited for."""

Done = Callable[[Refusal | None], None]
"""Told None when the bytes left, else why nothing of them did."""

_FULL: Final = Refusal("QUEUE_FULL", "too many messages wait for a connection", is_retryable=True)
_CLOSED: Final = Refusal("PEER_OFFLINE", "this root is closing", is_retryable=True)


class _Errand:
    """One message on its way."""

    __slots__ = ("data", "done", "due_ms", "line", "number", "target")

    def __init__(self, number: int, target: Target, data: bytes, done: Done) -> None:
        self.number, self.target, self.data, self.done = number, target, data, done
        self.line: Line | None = None
        self.due_ms: int | None = None  # None: not written yet


class Carriage:
    """The connections that one root opens."""

    def __init__(self, world: World, new_number: Callable[[], int]) -> None:
        self._world, self._new_number = world, new_number
        self._open: dict[int, _Errand] = {}
        self._waiting: deque[_Errand] = deque()
        self._is_closed = False
        self.relays_refused = 0

    def carry(self, target: Target, frames: Sequence[Frame], done: Done) -> None:
        """Write frames to a window; `done` is told how that ended, never before this call returns."""
        try:
            data = outbound(target.token, frames)
        except ProtocolError as error:
            refusal = Refusal("MESSAGE_TOO_LARGE", str(error))
            self._world.defer(lambda: done(refusal))
            return
        if self._is_closed or len(self._waiting) >= WAITING_MAX:
            why = _CLOSED if self._is_closed else _FULL
            self._world.defer(lambda: done(why))
            return
        self._waiting.append(_Errand(self._new_number(), target, data, done))
        self._world.defer(self._pump)

    def lost(self, number: int) -> bool:
        """The socket of that number is closed; return whether it was one of these."""
        errand = self._open.get(number)
        if errand is None:
            return False
        self._end(errand, None)
        return True

    @property
    def is_writing(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._waiting) or any(one.due_ms is None for one in self._open.values())

    @property
    def deadline_ms(self) -> int | None:
        """When a far end was waited for long enough."""
        return min((one.due_ms for one in self._open.values() if one.due_ms is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Wait no longer for far ends that keep their side open."""
        for errand in list(self._open.values()):
            if errand.due_ms is not None and errand.due_ms <= now_ms:
                self._end(errand, None)

    def close(self) -> None:
        """Open no more; what was written stays written."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for errand in waiting:
            errand.done(_CLOSED)
        for errand in list(self._open.values()):
            self._end(errand, None if errand.due_ms is not None else _CLOSED)

    def _pump(self) -> None:
        while self._waiting and len(self._open) < OPEN_MAX:
            errand = self._waiting.popleft()
            self._open[errand.number] = errand
            self._dial(errand)

    def _dial(self, errand: _Errand) -> None:
        self._world.dial(errand.target, lambda line, refusal: self._dialled(errand, line, refusal))

    def _dialled(self, errand: _Errand, line: Line | None, refusal: Refusal | None) -> None:
        if line is None or errand.number not in self._open:
            if line is not None:
                line.close()
            if errand.number in self._open:
                self._end(errand, refusal or Refusal("PEER_OFFLINE", "no connection", is_retryable=True))
            return
        errand.line, line.number = line, errand.number
        if line.pid is not None and errand.target.pid and line.pid != errand.target.pid:
            self.relays_refused += 1
            why = Refusal("AUTHENTICATION_FAILED", "another process answers at this window's address")
            self._end(errand, why)
            return
        line.write(errand.data)
        line.finish()
        errand.data = b""
        errand.due_ms = self._world.now().mono_ms + END_MS
        self._world.rearm()

    def _end(self, errand: _Errand, refusal: Refusal | None) -> None:
        if self._open.pop(errand.number, None) is None:
            return
        if errand.line is not None:
            errand.line.close()
        errand.done(refusal)
        self._pump()
        self._world.rearm()
