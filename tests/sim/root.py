"""One simulated root: the product's driver, switchboard and engine over fake ports.

Rule 1: all that decides is the product's own code; this file only carries, and notes what passes.
Rule 2: a root that died keeps its store and nothing else; who starts after it is another instance.

Source: reference/reliability.md 2.1; STYLE.md 2, 3.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.sim.disk import Disk
from tests.sim.frames import sha
from tests.sim.network import End
from tieline.config import Limits
from tieline.engine.contract import (
    Act,
    BeginRun,
    Command,
    Draft,
    EndRun,
    Expose,
    Held,
    Mute,
    Row,
    Send,
    Standing,
    Submit,
    Taken,
    Untaken,
    UserPrompt,
)
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.keys import PrivateKey
from tieline.model.identity import Capability, Peer
from tieline.model.moment import Moment
from tieline.model.receipt import Event, Receipt
from tieline.shell.driver import Committed, Driver
from tieline.shell.switchboard import Far, Line, Switchboard
from tieline.wire.native import mapping
from tieline.wire.native.protocol import Advertised

if TYPE_CHECKING:
    from tests.sim.world import SimWorld

__all__ = ["CAPABILITIES", "SimRoot", "key_of"]

CAPABILITIES = tuple(
    item.value for item in (Capability.SEND, Capability.RECEIVE, Capability.WAIT, Capability.REQUEST)
)
PROJECT = "sim"
_keys: dict[str, PrivateKey] = {}


def key_of(name: str) -> PrivateKey:
    """Return the key of an instance, the same for the same name."""
    if name not in _keys:
        _keys[name] = PrivateKey(hashlib.sha256(name.encode()).digest())
    return _keys[name]


class SimRoot:
    """A living root."""

    def __init__(
        self, world: "SimWorld", name: str, slot: int, pid: int, limits: Limits, disk: Disk, *, is_auto: bool
    ) -> None:
        self.world, self.name, self.slot, self.pid, self.limits, self.disk = (
            world,
            name,
            slot,
            pid,
            limits,
            disk,
        )
        self.alias = f"agent-{slot}"
        self.is_auto = is_auto
        self.is_alive = True
        self.tokens: list[tuple[str, Peer, tuple[Held, ...]]] = []
        self.runs: list[str] = []
        self._nonce_count = 0
        self._token_count = 0
        self._due_ms: int | None = None
        self._timer = 0
        self._is_rearming = False
        behavior = "auto" if is_auto else "notify"
        self.engine = Messaging(name, limits, idle_behavior=behavior, alias=self.alias, project=PROJECT)
        self.driver = Driver(self.engine, self)
        self.switchboard = Switchboard(
            instance=name, key=key_of(name), capabilities=CAPABILITIES, limits=limits, world=self
        )

    @property
    def peer(self) -> Peer:
        """The root itself."""
        return Peer(self.name)

    def note(self, event: str, **data: Any) -> None:
        """Write one entry of the history."""
        self.world.history.add(self.world.clock.mono_ms, self.name, event, **data)

    # ------------------------------------------------------------ clock, chance, timers

    def now(self) -> Moment:
        """Return the clocks."""
        return self.world.clock.now()

    def nonce(self) -> bytes:
        """Return 32 bytes that no other link has."""
        self._nonce_count += 1
        return hashlib.sha256(f"{self.name}/{self._nonce_count}".encode()).digest()

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back on the next turn of this root's loop."""
        self.world.clock.after(0, self.name, callback)

    def arm(self, deadline_ms: int | None) -> None:
        """Take the driver's next moment."""
        self._due_ms = deadline_ms
        self.rearm()

    def rearm(self) -> None:
        """Set the one timer anew, once per turn."""
        if not self._is_rearming:
            self._is_rearming = True
            self.defer(self._set_timer)

    def _set_timer(self) -> None:
        self._is_rearming = False
        dues = [due for due in (self._due_ms, self.switchboard.deadline_ms) if due is not None]
        self._timer += 1
        if dues:
            number = self._timer
            delay_ms = max(1, min(dues) - self.world.clock.mono_ms)
            self.world.clock.after(delay_ms, self.name, lambda: self._ring(number))

    def _ring(self, number: int) -> None:
        if number == self._timer:
            self.switchboard.tick()
            self.driver.tick()
            self.rearm()

    # ------------------------------------------------------------ the driver's ports

    def commit(
        self, rows: Sequence[Row], admits: bool, reserve_bytes: int, done: Callable[[Committed], None]
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
        self.switchboard.send(send)

    def failed(self, error: Exception) -> None:
        """A decision failed by a defect of ours: no history may go on over that."""
        raise error

    def tell(self, event: Event) -> None:
        """Note what listeners are told, and let an automatic host wake."""
        self.note(
            "event",
            cursor=event.cursor,
            kind=event.kind,
            owner=event.owner,
            message=event.message_id,
            sender=event.sender,
            recipient=event.recipient,
            state=None if event.state is None else event.state.value,
        )
        if event.kind == "message" and self.is_auto and not self.engine.is_muted(event.sender):
            self.world.clock.after(
                50, self.name, lambda: self.answer_by_itself(event.owner, event.message_id)
            )

    # ------------------------------------------------------------ the switchboard's world

    def lookup(self, instance: str, *, is_fresh: bool) -> Far | None:
        """Return what presence says."""
        return self.world.far(self, instance)

    def is_gone(self, instance: str) -> bool:
        """Return whether an incarnation is proven dead."""
        return self.world.is_proven_dead(instance)

    def dial(self, far: Far, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect."""
        self.world.network.dial(self, far.endpoint, done)

    def submit(self, command: Command) -> None:
        """Give a command of a link to the driver."""
        self.driver.submit(command)

    def own_peer(self, peer_id: str) -> Peer | None:
        """Return the local peer of that id."""
        return self.engine.own_peer(peer_id)

    def directory(self, far: Far) -> list[dict[str, Any]]:
        """Return our live runs."""
        if not far.standing.is_in_scope:
            return []
        return [
            mapping.child(self.name, row.run, row.alias, row.capabilities, self.name, PROJECT)
            for row in self.engine.live_runs()
        ]

    def last(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        """No host here ever finished an answer."""
        return Refusal("SCOPE_DENIED", "no such peer for you")

    def probed(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        """Nobody here waits for anybody: the conversations of this world are messages."""
        return {}

    # ------------------------------------------------------------ the network's host

    def connected(self, end: End) -> None:
        """A line was accepted."""
        end.number = self.switchboard.accepted(end)

    def received(self, end: End, data: bytes) -> None:
        """Bytes came."""
        if end.number is not None:
            self.switchboard.received(end.number, data)

    def lost(self, end: End) -> None:
        """The line is closed."""
        if end.number is not None:
            self.switchboard.lost(end.number)

    # ------------------------------------------------------------ what people and models do

    def ask(
        self, command: Command, what: str, done: Callable[[object], None] | None = None, **data: Any
    ) -> None:
        """Give a command of a door to the driver, and note both it and its answer."""
        number = self.world.next_call()
        self.note(what, call=number, **data)

        def answered(answer: object) -> None:
            self.note("answer", call=number, **_said(answer))
            if done is not None:
                done(answer)

        self.driver.submit(command, answered)

    def say(
        self,
        sender: Peer,
        recipient: Peer,
        message_id: str,
        content: str,
        *,
        act: Act = Act.PERSON,
        reply_to: str | None = None,
        topic: str | None = None,
        expiry_ms: int | None = None,
        is_ask: bool = False,
    ) -> None:
        """Send a message."""
        standing = self.world.standing(self, recipient)
        draft = Draft(
            message_id=message_id,
            sender=sender,
            recipient=recipient,
            standing=standing,
            content=content,
            act=act,
            topic=topic,
            reply_to=reply_to,
            expiry_ms=expiry_ms,
            is_ask=is_ask,
        )
        self.ask(
            Submit(draft),
            "submit",
            message=message_id,
            sender=sender.id,
            recipient=recipient.id,
            recipient_instance=recipient.instance,
            sha=sha(content),
            topic=topic,
            reply_to=reply_to,
            act=act.value,
            is_ask=is_ask,
        )

    def expose(self, owner: Peer, cursors: tuple[int, ...] | None = None, fate: str = "") -> None:
        """Show mail to the model; `fate` says what becomes of it at once: taken, untaken or nothing yet."""
        self._token_count += 1
        token = f"{self.name}-t{self._token_count}"
        command = Expose(
            owner, token, "boundary", self.limits.boundary_messages, self.limits.boundary_bytes, cursors
        )

        def shown(answer: object) -> None:
            if isinstance(answer, tuple) and answer:
                self.tokens.append((token, owner, answer))
                if fate:
                    self.finish(len(self.tokens) - 1, is_taken=fate == "taken")

        self.ask(command, "expose", shown, token=token, owner=owner.id)

    def finish(self, place: int, *, is_taken: bool) -> None:
        """Tell what became of an exposure."""
        if self.tokens:
            token, _, _ = self.tokens.pop(place % len(self.tokens))
            if is_taken:
                self.ask(Taken(token), "taken", token=token)
            else:
                self.ask(Untaken(token), "untaken", token=token)

    def answer_by_itself(self, owner_id: str, message_id: str) -> None:
        """A model wakes, takes a message in and answers it without a person."""
        owner = self.engine.own_peer(owner_id)
        if owner is None or not self.is_alive:
            return
        found = self.engine.held(owner, message_id=message_id, unread_only=False, count_max=1)
        if found:
            self.expose(owner, (found[0].cursor,), "taken")
            envelope = found[0].envelope
            self.say(
                owner,
                envelope.sender,
                f"{self.name}-auto-{self.world.next_call()}",
                "and you",
                act=Act.AUTOMATIC,
                reply_to=message_id,
            )

    def begin_run(self) -> None:
        """Start a child execution."""
        run = f"run-{self.world.next_call()}"
        self.runs.append(run)
        self.ask(BeginRun(run, f"child-{len(self.runs)}", frozenset(CAPABILITIES)), "begin_run", run=run)

    def end_run(self, place: int) -> None:
        """End a child execution."""
        if self.runs:
            run = self.runs.pop(place % len(self.runs))
            self.ask(EndRun(run), "end_run", run=run)

    def prompt(self, owner: Peer) -> None:
        """A person begins a turn."""
        self.ask(UserPrompt(owner), "prompt", owner=owner.id)

    def mute(self, peer: str, *, is_muted: bool) -> None:
        """Silence a peer, or not."""
        self.ask(Mute(peer, is_muted), "mute", peer=peer, is_muted=is_muted)

    # ------------------------------------------------------------ what readers see

    def peers(self) -> list[Peer]:
        """Return the root and its live runs."""
        return [self.peer, *(Peer(self.name, row.run) for row in self.engine.live_runs())]

    def read_page(self, owner: Peer, after: int, count_max: int) -> None:
        """Note one page of events."""
        page = self.engine.page(owner, after, count_max)
        if isinstance(page, Refusal):
            self.note("page", owner=owner.id, after=after, refused=page.code)
            return
        self.note(
            "page",
            owner=owner.id,
            after=after,
            count_max=count_max,
            cursors=[one.cursor for one in page.events],
            messages=[one.message_id for one in page.events],
            latest=page.latest_cursor,
            oldest=page.oldest_cursor,
            gap=page.has_gap,
        )

    def read_list(self, owner: Peer) -> None:
        """Note what a reader of a mailbox is shown."""
        found = self.engine.held(owner, unread_only=False, count_max=200)
        self.note(
            "listed",
            owner=owner.id,
            held=[
                [one.cursor, one.envelope.message_id, one.envelope.sender.instance, one.envelope.recipient.id]
                for one in found
            ],
        )

    def read_outbox(self) -> None:
        """Note what is known of every message this root sent."""
        for owner in self.peers():
            for one in self.engine.outbox(owner):
                self.note(
                    "viewed",
                    message=one.envelope.message_id,
                    recipient=one.receipt.recipient,
                    state=one.receipt.state.value,
                    outcome=one.receipt.outcome,
                    refusal=None if one.last_refusal is None else one.last_refusal.code,
                )

    # ------------------------------------------------------------ ends

    def crash(self) -> None:
        """Die at once."""
        self.is_alive = False
        self.world.clock.kill(self.name)
        self.world.network.gone(self)
        self.disk.crash()
        self.note("crash")

    def close(self) -> None:
        """End in order."""
        self.note("close")
        self.driver.close(self._closed)

    def _closed(self) -> None:
        self.switchboard.close()
        self.defer(self._leave)

    def _leave(self) -> None:
        self.world.forget(self)
        self.crash()


def _said(answer: object) -> dict[str, Any]:
    """Return an answer as the history keeps it."""
    match answer:
        case Receipt():
            return {
                "kind": "receipt",
                "message": answer.message_id,
                "recipient": answer.recipient,
                "state": answer.state.value,
                "cursor": answer.cursor,
            }
        case Refusal():
            return {"kind": "refusal", "code": answer.code}
        case tuple():
            return {
                "kind": "held",
                "held": [[one.cursor, one.envelope.message_id, one.envelope.recipient.id] for one in answer],
            }
        case int():
            return {"kind": "count", "count": answer}
        case _:
            return {"kind": "none"}


def standing_in_scope() -> Standing:
    """Return the standing of a root whose scope holds ours."""
    return Standing(frozenset(CAPABILITIES), is_in_scope=True, alias="peer", project=PROJECT)


def advertised(name: str) -> Advertised:
    """Return what presence says of an instance."""
    return Advertised(name, key_of(name).public, CAPABILITIES)
