"""One simulated broker: the product's hub and links over fake sockets and a journal that takes its time.

Rule 1: all that decides is the product's own code; this file carries plans out, rows first, and in their
    order for each session: what waits for the disk holds up nobody else.
Rule 2: a broker that died keeps its journal and nothing else; of the commit under way all or nothing.
Rule 3: what comes late over a socket that was given up is handed to the product all the same.

Source: reference/reliability.md 2.1, I39; reference/intercom.md 6.3.
"""

import json
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.sim.network import End
from tieline.engine.brokering.contract import Command, Drop, Kept, Lost, Opened, Plan, Put, Registered, Tick
from tieline.engine.brokering.hub import Hub
from tieline.wire.intercom.protocol import BrokerLink
from tieline.wire.intercom.saying import FrameCodec

if TYPE_CHECKING:
    from tests.sim.brokers.world import RoomWorld

__all__ = ["IDLE_MS", "Mail", "Reader", "SimBroker"]

IDLE_MS = 5_000


class Reader:
    """A bystander at a port: bytes in, frames out, with a reader of its own."""

    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the frames that are whole now."""
        self._bytes += data
        found = []
        while len(self._bytes) >= 4:
            length = int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < 4 + length:
                break
            found.append(json.loads(self._bytes[4 : 4 + length]))
            self._bytes = self._bytes[4 + length :]
        return found


class Mail:
    """The journal of the place: rows that outlive brokers."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Put] = {}

    def store(self, rows: tuple[Put | Drop, ...]) -> None:
        """Keep and drop these."""
        for row in rows:
            if isinstance(row, Drop):
                self.rows.pop((row.kind, row.key), None)
            else:
                self.rows[row.kind, row.key] = row


class _Far:
    """One socket's end here."""

    def __init__(self, number: int, end: End, link: BrokerLink) -> None:
        self.number, self.end, self.link = number, end, link
        self.heard, self.said = Reader(), Reader()
        self.is_lost = self.was_registered = False


class SimBroker:
    """A living broker."""

    def __init__(self, world: "RoomWorld", generation: int) -> None:
        self.world, self.generation = world, generation
        self.name, self.pid = f"broker-{generation}", 100 + generation
        self.is_alive = True
        self.slow_ms = 0
        self._codec = FrameCodec()
        self._fars: dict[int, _Far] = {}
        self._plans: deque[Plan] = deque()
        self._writing: Plan | None = None
        self._deadline_ms: int | None = None
        self._idle_since_ms: int | None = None
        self._timer = 0
        self.hub = Hub(self._codec, world.clock.now())
        world.network.listen(self)
        self._take(self.hub.restore(list(world.mail.rows.values()), world.clock.now()))

    def note(self, event: str, **data: Any) -> None:
        """Write one entry of the history."""
        self.world.history.add(self.world.clock.mono_ms, self.name, event, gen=self.generation, **data)

    # ------------------------------------------------------------ the network's host

    def connected(self, end: End) -> None:
        """A line was accepted."""
        end.number = len(self._fars) + 1
        self._fars[end.number] = _Far(end.number, end, BrokerLink(end.number, self._mint, self._codec))
        self.note("opened", link=end.number, who=end.far.owner.name)
        self._ask(Opened(end.number, end.pid or 0))

    def received(self, end: End, data: bytes) -> None:
        """Bytes came."""
        far = self._fars[end.number or 0]
        commands = far.link.receive_data(data, self.world.clock.now())
        for frame in far.heard.feed(data):
            self.note("heard", link=far.number, late=far.is_lost, frame=frame)
        for command in commands:
            # Who was lost before it registered has no number here any more, as in the product.
            if not far.is_lost or far.was_registered:
                self._ask(command, of=far)
        self._write(far)
        if far.link.is_closed:
            self._hang_up(far)

    def lost(self, end: End) -> None:
        """The line is closed."""
        if end.number is not None:
            self._lose(self._fars[end.number])

    def _lose(self, far: _Far) -> None:
        if not far.is_lost:
            far.is_lost = True
            self.note("lost", link=far.number)
            self._ask(Lost(far.number))

    def _hang_up(self, far: _Far) -> None:
        self._lose(far)
        self.world.clock.after(self.world.late_ms(), self.name, far.end.close)

    def _mint(self) -> str:
        return str(uuid.UUID(int=self.world.chance.getrandbits(128), version=4))

    # ------------------------------------------------------------ plans

    def _ask(self, command: Command, of: _Far | None = None) -> None:
        plan = self.hub.handle(command, self.world.clock.now())
        told = sorted({number for number, _ in plan.outputs})
        granted = {number: one.session_id for number, one in plan.outputs if isinstance(one, Registered)}
        for number in granted:
            self._fars[number].was_registered = True
        self.note(
            "ordered",
            link=0 if of is None else of.number,
            late=of is not None and of.is_lost,
            told=told,
            granted=list(granted.items()),
            closes=list(plan.closes),
            rows=len(plan.rows),
        )
        self._take(plan)

    def _take(self, plan: Plan) -> None:
        self._deadline_ms, self._idle_since_ms = plan.deadline_ms, plan.idle_since_ms
        links = _links_of(plan)
        if plan.rows or any(links & _links_of(one) for one in self._plans):
            self._plans.append(plan)
        else:
            self._say(plan)  # nothing that waits for the disk is for the same sessions
        self._pump()
        self._arm()

    def _pump(self) -> None:
        while self._plans and self._writing is None:
            if self._plans[0].rows:
                self._writing = self._plans[0]
                delay_ms = self.world.chance.randint(0, 3 + self.slow_ms)
                self.world.clock.after(delay_ms, self.name, self._kept)
                return
            self._say(self._plans.popleft())

    def _kept(self) -> None:
        assert self._writing is not None
        self.world.mail.store(self._writing.rows)
        if self._writing.refusable:
            told = self.hub.handle(Kept(self._writing.refusable), self.world.clock.now())
            self._deadline_ms = told.deadline_ms
        self._writing = None
        self._say(self._plans.popleft())
        self._pump()

    def _say(self, plan: Plan) -> None:
        for number, output in plan.outputs:
            far = self._fars[number]
            if not far.is_lost:
                far.link.send(output)
                self._write(far)
        for number in plan.closes:
            self._hang_up(self._fars[number])

    def _write(self, far: _Far) -> None:
        data = far.link.data_to_send()
        for frame in far.said.feed(data):
            self.note("said", link=far.number, who=far.end.far.owner.name, frame=frame)
        far.end.write(data)

    # ------------------------------------------------------------ time

    def _arm(self) -> None:
        self._timer += 1
        dues = [] if self._deadline_ms is None else [self._deadline_ms]
        if self._idle_since_ms is not None:
            dues.append(self._idle_since_ms + IDLE_MS)
        if dues:
            number = self._timer
            delay_ms = max(1, min(dues) - self.world.clock.mono_ms)
            self.world.clock.after(delay_ms, self.name, lambda: self._ring(number))

    def _ring(self, number: int) -> None:
        if number != self._timer:
            return
        now_ms = self.world.clock.mono_ms
        if self._idle_since_ms is not None and now_ms >= self._idle_since_ms + IDLE_MS:
            self.note("idle")
            self.die()
        elif self._deadline_ms is not None and now_ms >= self._deadline_ms:
            unread = [n for n, far in self._fars.items() if not far.is_lost and far.end.far.has_waiting]
            self._ask(Tick(frozenset(unread)))
        else:
            self._arm()

    def die(self) -> None:
        """Be killed: the kernel closes what it had, and gives the place free."""
        if self.is_alive:
            self.is_alive = False
            if self._writing is not None and self.world.chance.random() < 0.5:
                self.world.mail.store(self._writing.rows)
            self.note("died")
            self.world.clock.kill(self.name)
            self.world.network.gone(self)
            self.world.left(self)


def _links_of(plan: Plan) -> set[int]:
    return {*(number for number, _ in plan.outputs), *plan.closes}
