"""One simulated session at a broker: a root's post over its real engine, or a client that no model drives.

Rule 1: all that decides is the product's own code; this file carries, and plays host and model.
Rule 2: a line that the product gave up still brings what was under way on it: that must mean nothing.
Rule 3: a model that waits for an answer gives none.

Source: reference/reliability.md 2.1, I30, I39, I41; reference/intercom.md 2, 4.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.sim.brokers.broker import Reader
from tests.sim.disk import FakeDisk
from tests.sim.network import End
from tieline.config import Limits
from tieline.engine.contract import Command, Draft, Offer, Row, Send, Settle, Standing, Submit, Transmit
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer
from tieline.model.message import Delivery
from tieline.model.moment import Moment
from tieline.model.receipt import Event, State
from tieline.runtime.intercom.context import Context
from tieline.runtime.intercom.lineage import Lineage
from tieline.runtime.intercom.postal import SHARED, Postal
from tieline.runtime.intercom.reads import Reads
from tieline.shell.driver import Committed, Driver
from tieline.shell.intercom import Line, Post, Registration
from tieline.shell.intercom.post import ABLE
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import (
    ClientLink,
    Closed,
    LastAsked,
    MessageCame,
    ReceiptAsked,
    WakeAsked,
    WakeFailed,
)

if TYPE_CHECKING:
    from tests.sim.brokers.world import RoomWorld

__all__ = ["SimMember", "Visitor"]

PATIENCE_MS = 60_000


class _Line:
    """A socket that the product may give up while bytes are under way on it."""

    def __init__(self, member: "SimMember", end: End, connection: int) -> None:
        self.number: int | None = None
        self.end, self.connection = end, connection
        self.said, self.heard = Reader(), Reader()
        self.is_given_up = False
        self._member = member

    def write(self, data: bytes) -> None:
        """Hand over bytes."""
        for frame in self.said.feed(data):
            self._member.note("wrote", connection=self.connection, frame=frame)
        self.end.write(data)

    def close(self) -> None:
        """Give it up; the socket itself goes a little later."""
        self.give_up()
        world = self._member.world
        world.clock.after(world.late_ms(), self._member.name, self.end.close)

    def give_up(self) -> None:
        """From now on nothing that comes here counts."""
        if not self.is_given_up:
            self.is_given_up = True
            self._member.note("gave_up", connection=self.connection)


class SimMember:
    """A root on the intercom, in one of its lives."""

    def __init__(self, world: "RoomWorld", slot: int, life: int, session: str, parent: str) -> None:
        self.world, self.slot = world, slot
        self.name, self.pid = f"member-{slot}-{life}", 1_000 + 10 * slot + life
        self.instance = f"m{slot}-{life}"
        self.context = Context(Lineage(parent), session, world.new_id)
        self.is_alive = True
        self.can_wake = True
        self.waiting: dict[str, tuple[str, int]] = {}  # questions of ours: whom, and until when
        self._lines: dict[End, _Line] = {}
        self._connections = 0
        self._via = 0  # the connection whose bytes are being heard
        self._due_ms: int | None = None
        self._timer = 0
        self._is_rearming = False
        self.disk = FakeDisk(self.name, world.clock, world.history, world.chance)
        self.engine = Messaging(self.instance, Limits(), idle_behavior="notify", alias=f"agent-{slot}")
        self.driver = Driver(self.engine, self)
        self.post = Post(self, (SHARED,))
        node = SimpleNamespace(
            now=self.now,
            new_message_id=world.new_id,
            engine=self.engine,
            instance=self.instance,
            log=SimpleNamespace(note=lambda *_args, **_more: None),
        )
        facade = cast("Any", SimpleNamespace(node=node, context=self.context, post=self.post))
        self._postal, self._reads = Postal(facade, {}), Reads(facade)
        self.post.members[SHARED].join()

    @property
    def peer(self) -> Peer:
        """The root itself."""
        return Peer(self.instance)

    @property
    def session_id(self) -> str:
        """Its id at the broker; "" while it has none."""
        return self.post.members[SHARED].session_id

    def note(self, event: str, **data: Any) -> None:
        """Write one entry of the history."""
        self.world.history.add(self.world.clock.mono_ms, self.name, event, **data)

    # ------------------------------------------------------------ what the model does

    def say(
        self, session_id: str, *, is_ask: bool = False, passive: bool = False, reply_to: str = ""
    ) -> None:
        """Send to one that the roster shows."""
        self.post.rows()
        peer = Peer(mapping.instance_of(session_id))
        if self.post.session_of(peer.instance) is None:
            return
        message_id = self.world.next_message()
        draft = Draft(
            message_id=message_id,
            sender=self.peer,
            recipient=peer,
            standing=Standing(frozenset(ABLE), is_in_scope=True),
            content=message_id,
            is_ask=is_ask,
            delivery=Delivery.PASSIVE if passive else Delivery.STEER,
            reply_to=reply_to or None,
        )
        if is_ask:
            self.waiting[message_id] = peer.id, self.world.clock.mono_ms + PATIENCE_MS
            self.note("asks", message=message_id, whom=peer.id)
        self.driver.submit(Submit(draft), lambda answer: self._submitted(message_id, answer))

    def _submitted(self, message_id: str, answer: object) -> None:
        if isinstance(answer, Refusal):
            self.stop_waiting(message_id, answer.code)

    def stop_waiting(self, message_id: str, why: str) -> None:
        """Wait no more for an answer."""
        if self.waiting.pop(message_id, None) is not None:
            self.note("waits_no_more", message=message_id, why=why)

    def tell(self, event: Event) -> None:
        """Take a record's move: an answer ends a wait, a question is answered after a while."""
        is_end = event.state in (State.REPLIED, State.REJECTED, State.EXPIRED)
        if is_end:
            self.stop_waiting(event.message_id, str(event.state))
        elif event.kind == "message":
            self.note("took", message=event.message_id, waits=sorted(self.waiting))
            self.world.clock.after(200, self.name, lambda: self.answer(event.message_id))

    def answer(self, message_id: str) -> None:
        """Answer a question, as soon as this model waits for nothing itself."""
        now_ms = self.world.clock.mono_ms
        for own, (_, until_ms) in list(self.waiting.items()):
            if until_ms <= now_ms:
                self.stop_waiting(own, "patience")
        found = self.engine.held(self.peer, message_id=message_id, unread_only=False, count_max=1)
        if not found or not found[0].envelope.is_ask or not self.is_alive:
            return
        if self.waiting:
            self.world.clock.after(1_000, self.name, lambda: self.answer(message_id))
            return
        session_id = self.post.session_of(found[0].envelope.sender.instance)
        if session_id is not None:
            self.say(session_id, reply_to=message_id)

    def guard(self, revision: str | None) -> None:
        """Set or withdraw the application guard."""
        target = {
            "rootSessionId": self.context.root,
            "peerId": self.session_id,
            "incarnation": self.context.incarnation,
        }
        if self.context.set_guard(target, revision, self.session_id) is None:
            self.note("guard", **self.truth())
            self.post.tell_presence({"applicationGuard": revision})

    def replace(self) -> None:
        """Become another life of the same session."""
        self.context.replace(self.context.session)
        self.note("guard", **self.truth())
        self.post.members[SHARED].join_again()

    def truth(self) -> dict[str, Any]:
        """Return what a guard must name."""
        return {
            "group": self.context.root,
            "peer": self.session_id,
            "incarnation": self.context.incarnation,
            "guard": self.context.guard,
        }

    def park(self) -> None:
        """End, and say that mail is to wait."""
        self.post.close(is_parked=True)
        self.world.clock.after(self.world.late_ms() + 50, "", self.die)

    def die(self) -> None:
        """Be gone."""
        if self.is_alive:
            self.is_alive = False
            self.note("gone")
            self.world.clock.kill(self.name)
            self.world.network.gone(self)

    # ------------------------------------------------------------ the driver's ports

    def now(self) -> Moment:
        """Return the clocks."""
        return self.world.clock.now()

    def commit(
        self, rows: Sequence[Row], *, admits: bool, reserve_bytes: int, done: Callable[[Committed], None]
    ) -> None:
        """Make rows durable."""
        self.disk.commit(rows, admits, reserve_bytes, done)

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """Open the store again."""
        self.disk.reopen(done)

    def load(self) -> Sequence[Row]:
        """Return the rows of the healthy store."""
        return self.disk.load()

    def send(self, send: Send) -> None:
        """Carry out a send."""
        if isinstance(send, Transmit):
            self.note("transmits", attempt=send.attempt, message=send.envelope.message_id)
        self.post.send(send)

    def failed(self, error: Exception) -> None:
        """A decision failed by a defect of ours: no history may go on over that."""
        raise error

    def arm(self, deadline_ms: int | None) -> None:
        """Take the driver's next moment."""
        self._due_ms = deadline_ms
        self.rearm()

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back on the next turn."""
        self.world.clock.after(0, self.name, callback)

    def rearm(self) -> None:
        """Set the one timer anew, once per turn."""
        if not self._is_rearming:
            self._is_rearming = True
            self.defer(self._set_timer)

    def _set_timer(self) -> None:
        self._is_rearming = False
        dues = [due for due in (self._due_ms, self.post.deadline_ms) if due is not None]
        self._timer += 1
        if dues:
            number = self._timer
            delay_ms = max(1, min(dues) - self.world.clock.mono_ms)
            self.world.clock.after(delay_ms, self.name, lambda: self._ring(number))

    def _ring(self, number: int) -> None:
        if number == self._timer:
            self.post.tick()
            self.driver.tick()
            self.rearm()

    # ------------------------------------------------------------ the post's world

    def new_id(self) -> str:
        """Return a fresh UUID."""
        return self.world.new_id()

    def recipient(self, came: MessageCame) -> Peer:
        """Return the root."""
        return self.peer

    def registration(self) -> Registration:
        """Return what a broker is told of us now."""
        session = {"cwd": "/w", "model": "m", "name": f"agent-{self.slot}", **self.context.fields()}
        return Registration(session, mapping.peer_id_of(self.context.session))

    def dial(self, broker: str, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect to the place's broker, which is started where there is none."""

        def dialled(end: End | None, refusal: Refusal | None) -> None:
            line = None
            if end is not None:
                self._connections += 1
                line = self._lines[end] = _Line(self, end, self._connections)
            done(line, refusal)

        self.world.reach(self, dialled)

    def admits(self, broker: str, came: MessageCame) -> bool:
        """Return whether a guard holds, in the product's own words."""
        return self._postal.admits(broker, came)

    def changed(self, broker: str) -> None:
        """We joined a broker, or lost it."""

    def left(self, session_id: str) -> None:
        """A session is gone: nobody waits for it any more."""
        peer = Peer(mapping.instance_of(session_id)).id
        for message_id, (whom, _) in list(self.waiting.items()):
            if whom == peer:
                self.stop_waiting(message_id, "left")

    def arrived(self, came: MessageCame) -> None:
        """A message was taken into custody."""

    def turned_away(self, broker: str, came: MessageCame, refusal: Refusal) -> None:
        """Tell the sender, in the product's own words."""
        self.note("turned_away", message=came.message["id"], code=refusal.code)
        self._reads.turned_away(broker, came, refusal)

    def asked_last(self, broker: str, asked: LastAsked) -> None:
        """No host here ever finished an answer."""

    def asked_receipt(self, broker: str, asked: ReceiptAsked) -> None:
        """Answer that nothing is told of it."""
        member = self.post.members[broker]
        if member.link is not None:
            member.link.answer_receipt(asked.token, {"error": mapping.NOT_RECORDED})
            member.flush()

    def asked_wake(self, broker: str, asked: WakeAsked) -> None:
        """Wake a parked child, or fail to."""
        member = self.post.members[broker]
        if member.link is not None:
            member.link.answer_wake(asked.token, is_woken=self.can_wake, detail="")
            member.flush()
        if self.can_wake:
            self.world.wake(asked.session_id)

    def wake_failed(self, told: WakeFailed) -> None:
        """A wake failed: the question still waits for the child, the model does not."""
        self.stop_waiting(told.message_id, "wake failed")

    def is_waiting(self, asker: Peer, asked: Peer) -> bool:
        """Return whether we wait for an answer of a session now."""
        now_ms = self.world.clock.mono_ms
        return any(whom == asked.id and until_ms > now_ms for whom, until_ms in self.waiting.values())

    def submit(self, command: Command) -> None:
        """Give a command to the driver; note what a connection brought about."""
        if isinstance(command, Offer):
            message_id = command.envelope.message_id
            self.note("offered", connection=self._via, message=message_id)
        elif isinstance(command, Settle):
            outcome = command.outcome.value
            self.note("settled", connection=self._via, attempt=command.attempt, outcome=outcome)
        self.driver.submit(command)

    # ------------------------------------------------------------ the network's host

    def connected(self, end: End) -> None:
        """Nobody connects to a member."""

    def received(self, end: End, data: bytes) -> None:
        """Bytes came, perhaps over a line that was given up."""
        line = self._lines[end]
        frames = line.heard.feed(data)
        for frame in frames:
            self.note("heard", connection=line.connection, frame=frame, **self.truth())
        if line.number is not None:
            self._via = line.connection
            self.post.received(line.number, data)
            self._via = 0

    def lost(self, end: End) -> None:
        """The line is closed."""
        line = self._lines[end]
        if line.number is not None:
            self.post.lost(line.number)
        line.give_up()


class Visitor:
    """A client that no model drives: one connection, one purpose, then it goes."""

    def __init__(
        self, world: "RoomWorld", number: int, session: dict[str, Any], wanted_id: str | None, act: str
    ) -> None:
        self.world, self.act = world, act
        self.name, self.pid = f"visitor-{number}", 9_000 + number
        told = {"cwd": "/w", "model": "m", "name": f"visitor-{number}", **session}
        self.link = ClientLink(told, wanted_id, world.clock.mono_ms)
        self._end: End | None = None
        world.reach(self, self._dialled)

    def _dialled(self, end: End | None, _refusal: Refusal | None) -> None:
        self._end = end
        if end is not None:
            self._flush()
            self.world.clock.after(4_000, self.name, end.close)

    def _flush(self) -> None:
        if self._end is not None:
            self._end.write(self.link.data_to_send())

    def received(self, end: End, data: bytes) -> None:
        """The broker spoke: once we are taken, do what we came for."""
        was_registered = self.link.is_registered
        self.link.receive_data(data)
        if any(isinstance(event, Closed) for event in self.link.events_received()):
            raise AssertionError("the broker said what a client must hang up on")
        if self.link.is_registered and not was_registered:
            self.world.visit(self)
            self._flush()

    def send(self, to: str, message: dict[str, Any]) -> None:
        """Send, where this broker takes it."""
        told = {"id": self.world.next_message(), "timestamp": 1, "content": {"text": "x"}, **message}
        try:
            self.link.send(to, told, self.world.clock.mono_ms)
        except Refused as error:
            raise AssertionError(str(error)) from error

    def say_raw(self, frame: bytes) -> None:
        """Write what no client of ours would."""
        assert self._end is not None
        self._end.write(len(frame).to_bytes(4, "big") + frame)

    def connected(self, end: End) -> None:
        """Nobody connects to a visitor."""

    def lost(self, end: End) -> None:
        """The line is closed."""
