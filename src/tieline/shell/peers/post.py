"""The post of one root: its connections to and from windows, and what the engine orders over them.

Theory. The driver orders sends to instances; this module finds the window anew, writes one message over one
connection and settles it as written. What windows write is proved by the first line, judged, and becomes
commands. It decides nothing about messages.

Rule 1: at most `INBOUND_MAX` connections are held; a stranger, else the longest idle, gives way.
Rule 2: a message whose bytes left is settled as written, whatever comes after; it is never written again.
Rule 3: a window that speaks a newer protocol, lacks its key or whose socket is not this user's is never
    connected to.
Rule 4: link numbers begin at `FIRST_LINK`, so that an answer finds the carrier that asked.
Rule 5: this module knows no event loop, no socket and no file.

Source: reference/pi-peers-and-harness-doors.md rules 17 to 24, 43, 49, 3.3, 8; DESIGN.md 1.
"""

from typing import Final, assert_never

from tieline.engine.contract import (
    Answer,
    AskDirectory,
    AskStatus,
    DirectoryTold,
    Outcome,
    PushReceipt,
    Send,
    Settle,
    Transmit,
)
from tieline.engine.intake import Intake
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.shell.peers.carriage import Carriage
from tieline.shell.peers.ports import Line, Target, World
from tieline.shell.peers.reception import Reception
from tieline.wire.peers import mapping
from tieline.wire.peers.frames import Frame, StatusFrame
from tieline.wire.peers.protocol import Authenticated, Closed, FrameReceived, Grade, Inbound

__all__ = ["FIRST_LINK", "Post"]

FIRST_LINK: Final = 1 << 40
INBOUND_MAX: Final = 64
STATUSES_MAX: Final = 256
"""Receipts under way at once; a flood of messages cannot make us open connections without end."""


class _Visit:
    """One connection that somebody made to us."""

    __slots__ = ("grade", "inbound", "line", "number", "used_ms")

    def __init__(self, number: int, line: Line, inbound: Inbound, now_ms: int) -> None:
        self.number, self.line, self.inbound, self.used_ms = number, line, inbound, now_ms
        self.grade: Grade | None = None


class Post:
    """The connections of one root on this wire."""

    def __init__(self, world: World, own: Peer) -> None:
        self._world = world
        self._intake = Intake()
        self._visits: dict[int, _Visit] = {}
        self._number = FIRST_LINK
        self._carriage = Carriage(world, self._new_number)
        self._reception = Reception(world, self._intake, own, self._tell_status)
        self._statuses_count = 0
        self._counts = {"window_links_crowded_out": 0, "window_receipts_untold": 0}
        self.is_closed = False

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    @property
    def counters(self) -> dict[str, int]:
        """What was refused or dropped."""
        return {
            **self._counts,
            "window_relays_refused": self._carriage.relays_refused,
            "window_frames_dropped": self._reception.dropped_count,
            "window_receipts_ignored": self._reception.receipts_ignored_count,
        }

    @property
    def is_writing(self) -> bool:
        """Whether something that was ordered has not left yet."""
        return self._carriage.is_writing

    def idle(self) -> None:
        """The host is idle: what it was sent while it was busy counts against nobody any more."""
        self._intake.idle()

    # ------------------------------------------------------------ what the root asks

    def send(self, send: Send) -> None:
        """Carry out one send that the engine ordered."""
        match send:
            case Answer():
                self._reception.answer(send)
            case Transmit():
                self._transmit(send)
            case PushReceipt():
                self._push(send)
            case AskStatus():
                self._settle(send.attempt, Outcome.LOST, None)  # there is no such question on this wire
            case AskDirectory():
                self._world.submit(DirectoryTold(send.attempt, frozenset()))
            case _:
                assert_never(send)

    def tell(self, address: str, frame: Frame) -> None:
        """Write a frame to whatever window listens at an address; nobody waits for its end."""
        target = self._world.target_at(address)
        if isinstance(target, Target):
            self._carriage.carry(target, [frame], lambda _refusal: None)

    def tell_window(self, target: Target, frame: Frame) -> None:
        """Write a frame to a window that was just looked up; nobody waits for its end."""
        self._carriage.carry(target, [frame], lambda _refusal: None)

    def _transmit(self, send: Transmit) -> None:
        target = self._world.target(send.instance)
        if isinstance(target, Refusal):
            is_final = target.code == "UNSUPPORTED_PROTOCOL"
            self._settle(send.attempt, Outcome.REFUSED if is_final else Outcome.UNREACHED, target)
            return
        head = self._world.letterhead
        frame = mapping.user_frame(
            send.envelope, address=head.address, pid=head.pid, session=head.session, name=head.name
        )
        wrong = mapping.departure(frame)
        if wrong is not None:
            self._settle(send.attempt, Outcome.REFUSED, wrong)
            return

        def done(refusal: Refusal | None) -> None:
            if refusal is None:
                self._settle(send.attempt, Outcome.WRITTEN, None)
                self._world.transmitted(send.envelope, target)
            else:
                self._settle(send.attempt, Outcome.UNREACHED, refusal)

        self._carriage.carry(target, [frame], done)

    def _push(self, send: PushReceipt) -> None:
        """Tell a window what became of its message, where this wire has a word for that."""
        status = mapping.status(
            send.receipt,
            original=send.receipt.message_id,
            message_id=self._world.new_id(),
            address=self._world.letterhead.address,
        )
        target = None if status is None else self._world.target(send.instance)
        if status is None:
            self._settle(send.attempt, Outcome.ANSWERED, None)
        elif isinstance(target, Target):
            self._carriage.carry(
                target,
                [status],
                lambda refusal: self._settle(
                    send.attempt, Outcome.ANSWERED if refusal is None else Outcome.UNREACHED, refusal
                ),
            )
        else:
            # Nobody is left to tell: a receipt is for who still shows that it is there.
            is_gone = not self._world.is_listed(send.instance)
            self._settle(send.attempt, Outcome.UNREACHED, target, is_gone=is_gone)

    def _settle(
        self, attempt: int, outcome: Outcome, refusal: Refusal | None, *, is_gone: bool = False
    ) -> None:
        """Tell the driver when what is being done now is done: it is in the middle of a turn."""
        settled = Settle(attempt, outcome, refusal=refusal, is_gone=is_gone)
        self._world.defer(lambda: self._world.submit(settled))

    def _tell_status(self, address: str, status: StatusFrame) -> None:
        target = self._world.target_at(address) if self._statuses_count < STATUSES_MAX else None
        if not isinstance(target, Target):
            self._counts["window_receipts_untold"] += 1
            return
        self._statuses_count += 1
        self._carriage.carry(target, [status], self._status_told)

    def _status_told(self, refusal: Refusal | None) -> None:
        self._statuses_count -= 1
        self._counts["window_receipts_untold"] += refusal is not None

    # ------------------------------------------------------------ what sockets tell

    def accepted(self, line: Line) -> int | None:
        """Somebody connected. Returns the link's number, or None when it was turned away."""
        if self.is_closed:
            line.close()
            return None
        if len(self._visits) >= INBOUND_MAX:
            self._counts["window_links_crowded_out"] += 1
            longest = min(self._visits.values(), key=lambda one: (one.grade is not None, one.used_ms))
            self._drop(longest)
        now_ms = self._world.now().mono_ms
        visit = _Visit(self._new_number(), line, Inbound(self._world.verify, now_ms), now_ms)
        self._visits[visit.number] = visit
        self._world.rearm()
        return visit.number

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in; what comes over a connection of ours means nothing."""
        visit = self._visits.get(number)
        if visit is not None:
            visit.used_ms = self._world.now().mono_ms
            visit.inbound.receive_data(data, visit.used_ms)
            self._drain(visit)

    def lost(self, number: int) -> None:
        """The socket is closed."""
        visit = self._visits.get(number)
        if visit is None:
            self._carriage.lost(number)
            return
        if not visit.inbound.is_closed:
            visit.inbound.receive_eof()
            self._drain(visit)
        self._drop(visit)

    def _drain(self, visit: _Visit) -> None:
        for event in visit.inbound.events_received():
            match event:
                case Authenticated():
                    visit.grade = event.grade
                case FrameReceived():
                    assert visit.grade is not None, "a frame comes after the proof"
                    self._reception.take(visit.number, event.frame, visit.grade, visit.line.pid)
                case Closed():
                    self._drop(visit)
                case _:
                    assert_never(event)
        self._world.rearm()

    def _drop(self, visit: _Visit) -> None:
        if self._visits.pop(visit.number, None) is not None:
            visit.line.close()

    # ------------------------------------------------------------ time

    @property
    def deadline_ms(self) -> int | None:
        """The next monotonic moment at which something here is due."""
        dues = [visit.inbound.deadline_ms for visit in self._visits.values()]
        return min((due for due in (*dues, self._carriage.deadline_ms) if due is not None), default=None)

    def tick(self) -> None:
        """Time passed: end what has no time left."""
        now_ms = self._world.now().mono_ms
        for visit in list(self._visits.values()):
            due = visit.inbound.deadline_ms
            if due is not None and due <= now_ms:
                visit.inbound.expire(now_ms)
                self._drain(visit)
        self._carriage.tick(now_ms)

    def close(self) -> None:
        """Hang up everywhere."""
        self.is_closed = True
        for visit in list(self._visits.values()):
            self._drop(visit)
        self._carriage.close()
