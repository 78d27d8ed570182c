"""The world as one root's driver and switchboard need it: clock, chance, timers, store, presence, sockets.

Rule 1: this is the one place that reads clocks and draws chance; the simulator has another one.
Rule 2: one timer, set anew once per turn of the loop, for whatever is due next.

Source: STYLE.md 2 "each outside thing is touched in one file"; reference/reliability.md 2.1.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tieline.engine.contract import Answer, Command, Offer, Row, Send
from tieline.engine.directory import relation
from tieline.errors import RecoveryRequired, Refusal, Refused, TielineError
from tieline.model.identity import Peer, wire_of
from tieline.model.moment import Moment
from tieline.model.receipt import Event
from tieline.model.traits import INTERCOM, NATIVE
from tieline.runtime import answers
from tieline.shell import link
from tieline.shell.driver import Committed
from tieline.shell.endpoint import owner_state
from tieline.shell.peers import FIRST_LINK as FIRST_WINDOW_LINK
from tieline.shell.switchboard import Far, Line
from tieline.wire.native import mapping
from tieline.wire.peers.mapping import WIRE as WINDOWS_WIRE

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["World", "new_id", "now"]

REOPEN_FIRST_S, REOPEN_LAST_S = 1.0, 30.0
"""Pauses between two tries to open a store that is in doubt."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> Moment:
    """Return the clocks; the monotonic one counts suspended time where the system tells it."""
    return Moment(time.time_ns() // 1_000_000, time.clock_gettime_ns(_CLOCK) // 1_000_000)


def new_id() -> str:
    """Return a fresh UUID of version 7: it sorts by time, and every wire takes it as a message id."""
    number = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | 0x7 << 76 | 0b10 << 62
    chance = secrets.randbits(74)
    return str(uuid.UUID(int=number | (chance >> 62) << 64 | chance & (1 << 62) - 1))


def _wire_of_link(number: int) -> str:
    """Return whose link that is: each carrier numbers its own from a place of its own."""
    if number >= INTERCOM.first_link:
        return INTERCOM.name
    return WINDOWS_WIRE if number >= FIRST_WINDOW_LINK else NATIVE.name


class World:
    """The ports of one root's driver and of its switchboard."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_rearming = False
        self._is_stopped = False
        self._due_ms: int | None = None

    def stop(self) -> None:
        """Ring no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------ clock, chance, timers

    def now(self) -> Moment:
        """Return the clocks."""
        return now()

    def nonce(self) -> bytes:
        """Return 32 fresh random bytes."""
        return secrets.token_bytes(32)

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back on the loop's next turn."""
        self._loop.call_soon(callback)

    def arm(self, deadline_ms: int | None) -> None:
        """The driver's next moment; see `rearm`."""
        self._due_ms = deadline_ms
        self.rearm()

    def rearm(self) -> None:
        """Set the one timer anew, once per turn of the loop."""
        if not self._is_rearming and not self._is_stopped:
            self._is_rearming = True
            self._loop.call_soon(self._set_timer)

    def _set_timer(self) -> None:
        self._is_rearming = False
        if self._is_stopped:
            return
        carried = (carrier.deadline_ms for carrier in self._node.carriers)
        dues = [due for due in (self._due_ms, *carried) if due is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if dues:
            delay_ms = max(1, min(dues) - self.now().mono_ms)
            self._timer = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        for carrier in self._node.carriers:
            carrier.tick()
        self._node.driver.tick()
        self.rearm()

    # ------------------------------------------------------------ the driver's ports

    def commit(
        self,
        rows: Sequence[Row],
        *,
        admits: bool,
        reserve_bytes: int,
        done: Callable[[Committed], None],
    ) -> None:
        """Make rows durable."""
        self._node.custody.commit(rows, admits=admits, reserve_bytes=reserve_bytes, done=done)

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """Open the store again."""
        self._node.tasks.start(self._reopen(done))

    async def _reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """Try until it opens, or the root ends: a disk may be mounted, freed or repaired meanwhile."""
        pause_s = REOPEN_FIRST_S
        while True:
            try:
                rows = await self._loop.run_in_executor(None, self._node.custody.reopen)
            except RecoveryRequired as error:
                self._node.log.failure("reopen", error)
                done(None)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, REOPEN_LAST_S)
                continue
            done(rows)
            return

    def load(self) -> Sequence[Row]:
        """Return the rows of the healthy store."""
        return self._node.custody.load()

    def send(self, send: Send) -> None:
        """Carry out a send: an answer over the wire that asked, anything else over its instance's."""
        self._node.seam("world.sending")
        wire = _wire_of_link(send.asked.link) if isinstance(send, Answer) else wire_of(send.instance)
        foreign = {WINDOWS_WIRE: self._node.windows, INTERCOM.name: self._node.intercom}
        carrier = foreign.get(wire) or self._node.switchboard
        carrier.send(send)

    def failed(self, error: Exception) -> None:
        """Log that a decision failed by a defect of ours."""
        self._node.log.failure("decision", error)

    def tell(self, event: Event) -> None:
        """Tell whoever listens here."""
        self._node.announce(event)

    # ------------------------------------------------------------ the switchboard's world

    def lookup(self, instance: str, *, is_fresh: bool) -> Far | None:  # noqa: ARG002 - one file is read either way
        """Return what presence says of an instance."""
        try:
            return self._node.neighbours.far(instance)
        except (TielineError, OSError):
            return None

    def is_gone(self, instance: str) -> bool:
        """Return whether an incarnation is proven dead."""
        return owner_state(self._node.places.runtime, instance) == "gone"

    def dial(self, far: Far, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect to a far end."""
        self._node.tasks.start(self._dial(far, done))

    async def _dial(self, far: Far, done: Callable[[Line | None, Refusal | None], None]) -> None:
        try:
            line = await link.dial(self._node.switchboard, far)
        except TielineError as error:
            done(None, link.refusal_of(error))
        else:
            done(line, None)

    def submit(self, command: Command) -> None:
        """Give a command of a link to the driver; a run that was given a narrower scope is out of reach."""
        if isinstance(command, Offer) and not self._is_reached(
            command.envelope.recipient, command.sender_instance
        ):
            standing = msgspec.structs.replace(command.standing, is_in_scope=False)
            command = msgspec.structs.replace(command, standing=standing)
        self._node.driver.submit(command)

    def _is_reached(self, peer: Peer, instance: str) -> bool:
        """Return whether a far end is within the scope that a run of ours was given, if any was."""
        scope = None if peer.run is None else self._node.host.scopes.get(peer.run)
        if scope is None:
            return True
        place = self._node.neighbours.place_of(instance)
        return place is not None and relation(self._node.place, place).rank <= scope.rank

    def own_peer(self, peer_id: str) -> Peer | None:
        """Return the local peer of that id."""
        peer: Peer | None = self._node.engine.own_peer(peer_id)
        return peer

    def directory(self, far: Far) -> list[dict[str, Any]]:
        """Return our live runs, when that far end is in scope."""
        if not far.standing.is_in_scope:
            return []
        return [
            mapping.child(
                self._node.instance,
                item.run,
                item.alias,
                item.capabilities,
                self._node.session,
                self._node.project,
            )
            for item in self._node.engine.live_runs()
            if self._is_reached(Peer(self._node.instance, item.run), far.advertised.instance)
        ]

    def last(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        """Return a page of a finished answer to a far end in scope."""
        asked = mapping.last_asked(params)
        if isinstance(asked, Refusal):
            return asked
        peer = self.own_peer(asked.to) if far.standing.is_in_scope else None
        if peer is None:
            return Refusal("SCOPE_DENIED", "no such peer for you")
        try:
            return answers.page(self._node.host.answers.get(peer.run), asked.entry, asked.offset)
        except Refused as error:
            return Refusal(error.code, str(error))

    def probed(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        """Take a probe of who waits for whom, of a far end in scope; the answer tells nothing."""
        if not far.standing.is_in_scope:
            return Refusal("SCOPE_DENIED", "no such peer for you")
        return self._node.waits.probed(params, far)
