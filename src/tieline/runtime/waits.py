"""Which peers wait for whom, as far as this root knows, and the rings of it: found, told, and watched.

Theory. Three things show here: the questions that calls of this root wait for, the requests for resources
that name its peers, and the questions of intercom sessions. Rings among them are found at once. Others lead
over other roots, and probes find them (`engine.probing`). A ring that is new is told to each of our peers in
it, a moment later: a peer that is told stops waiting, and the others of the ring have to find it before.

Rule 1: a wait is known from before its question is stored until the call that waits has ended.
Rule 2: a peer is told of a ring once, until its reader's flush confirmed it; a ring that is broken is told no
    more, and shown no more.
Rule 3: of another root's waits nothing is known but what a probe of ours brought back.

Source: reference/reliability.md I30; docs/decisions.md, D18; docs/wire-native.md "Who waits for whom".
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.probing import Found, Probe, Prober
from tieline.engine.waiting import Cycle, Graph, Wait
from tieline.errors import Refusal, Refused
from tieline.model.identity import Peer
from tieline.model.receipt import State
from tieline.model.resource import Document, key_digest
from tieline.model.traits import NATIVE
from tieline.runtime import rings
from tieline.runtime.calls import Actor, Params, Reply
from tieline.runtime.resources.watching import Glance
from tieline.runtime.signals import Signal, Watch
from tieline.wire.native import mapping

if TYPE_CHECKING:
    from tieline.runtime.node import Node
    from tieline.shell.switchboard import Far

__all__ = ["TABLE", "Waits"]

TELL_S: Final = 1.0
"""From finding a ring to telling it: so long the others of the ring have to find it as well."""
GRANT_MS: Final = 3_000
"""A free resource that is not granted for so long waits for its controller."""
FRESH_S: Final = 1.0
OTHERS_MS: Final = 5_000
"""Where resources name our peers, others are looked at so often: a busy one beside costs little."""
WAIT_MS_MAX: Final = 60_000
ANSWERS_LOOKED_AT: Final = 8
PROBES_AT_ONCE: Final = 64
FOREIGN_MAX: Final = 4_096
_ANSWERED: Final = frozenset({State.REPLIED, State.REJECTED, State.EXPIRED})


class Waits:
    """The waits of one root."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._asks: dict[object, tuple[Peer, Peer | None, Wait]] = {}
        self._peers: dict[str, Peer] = {}
        self._graph = Graph()
        self._prober = Prober()
        self._documents: tuple[Document, ...] = ()
        self._glance = Glance(f"{node.places.coordination}/peer-resources")
        self._stamps: tuple[tuple[int, int, int] | None, ...] = ()
        self._looked_mono_ms = 0
        self._foreign: set[str] = set()
        self._standing: dict[tuple[str, ...], Cycle] = {}
        self._telling: dict[tuple[str, ...], asyncio.TimerHandle] = {}
        self._unread: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        self._read: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        self._changed = Signal()
        self._timer: asyncio.TimerHandle | None = None
        self._is_looking = False
        self._sending_count = 0

    # ------------------------------------------------------------ our own questions

    @contextlib.contextmanager
    def waiting(self, asker: Peer, asked: Peer | None, message_id: str = "") -> Iterator[None]:
        """Say that a peer of ours waits for an answer, until the block ends; None: of whom, is not known."""
        key = object()
        since_ms = self._node.now().wall_ms
        awaited = "" if asked is None else asked.id
        self._asks[key] = asker, asked, Wait(asker.id, awaited, "ask", message_id, since_ms)
        self._look_soon()
        try:
            yield
        finally:
            del self._asks[key]
            self._look_soon()

    def is_waiting(self, asker: Peer, asked: Peer) -> bool:
        """Return whether a peer of ours waits for an answer of `asked` now, or may."""
        return any(one == asker and other in (asked, None) for one, other, _ in self._asks.values())

    # ------------------------------------------------------------ what is known

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        """The rings that stand."""
        return tuple(self._standing[peers] for peers in sorted(self._standing))

    @property
    def known(self) -> tuple[Wait, ...]:
        """Every wait that this root knows."""
        return self._graph.waits

    def waits_for(self, peer_id: str) -> list[str]:
        """Return for whom a peer waits, as far as this root knows, by peer id."""
        return sorted({wait.awaited for wait in self.known if wait.waiter == peer_id})

    def watch(self) -> Watch:
        """Return a watch over the waits and rings."""
        return Watch(self._changed)

    @property
    def generation(self) -> int:
        """A number that grows with every change."""
        return self._changed.generation

    def view(self) -> dict[str, Any]:
        """Return the waits and the rings as doors show them: docs/json-shapes.md, "log"."""
        return rings.view(self.known, self.cycles, rings.names(self._node), self._own_ids())

    async def freshen(self) -> None:
        """Look at the resources where this root does not watch them by itself."""
        desk = self._node.desk
        if not desk.is_passive or not self._is_look_due():
            return  # also where no resource was ever used: then nothing of them is loaded
        own, held = self._own_ids(), {document.resource: document for document in self._documents}
        for document in await desk.changed():
            held[document.resource] = document
        self.take_documents(document for document in held.values() if own & _named(document))
        await asyncio.sleep(0)  # until they were looked at

    def _is_look_due(self) -> bool:
        """Return whether a resource that names our peers has changed, or others may name them by now."""
        names = [f"{key_digest(document.resource)}.json" for document in self._documents]
        stamps, now_ms = self._glance.stamps(names), self._node.now().mono_ms
        is_own_changed = stamps != self._stamps
        self._stamps = stamps
        if not names or now_ms - self._looked_mono_ms >= OTHERS_MS:
            self._looked_mono_ms = now_ms
            return self._glance.is_changed() or is_own_changed
        return is_own_changed

    def take_documents(self, documents: Iterable[Document]) -> None:
        """Take these for the resources that name our peers."""
        self._documents = tuple(documents)
        self._look_soon()

    # ------------------------------------------------------------ telling models

    def unread(self, peer: Peer) -> list[dict[str, Any]]:
        """Return the rings that a peer of ours was not told of yet."""
        out = {key for read in self._read.values() for key in read}
        return [shape for key, shape in self._unread.items() if key[0] == peer.id and key not in out]

    def read(self, token: str, peer: Peer) -> None:
        """Take what is unread for read under `token` until it is settled."""
        self._read[token] = [key for key in self._unread if key[0] == peer.id]

    def settle(self, token: str, *, is_taken: bool) -> None:
        """Confirm that what was read under `token` reached its reader, or that it did not."""
        for key in self._read.pop(token, ()):
            if is_taken:
                self._unread.pop(key, None)

    # ------------------------------------------------------------ looking

    def _look_soon(self) -> None:
        if not self._is_looking and not self._node.is_closing:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _own_ids(self) -> frozenset[str]:
        return frozenset(peer.id for peer in self._node.owners())

    def _ours(self) -> dict[str, list[Wait]]:
        own, found = self._own_ids(), dict[str, list[Wait]]()
        for wait in self._graph.waits:
            if wait.waiter in own:
                found.setdefault(wait.waiter, []).append(wait)
        return found

    def _all(self) -> set[Wait]:
        """Return every wait that shows here now, and note whose peers they are."""
        found: set[Wait] = set()
        self._peers.clear()
        for asker, asked, wait in self._asks.values():
            if asked is not None:
                found.add(wait)
                self._peers[asker.id], self._peers[asked.id] = asker, asked
        for document in self._documents:
            for claimant in (ticket.claimant for ticket in document.tickets):
                self._peers[claimant.peer_id] = Peer(claimant.instance_id, claimant.run_id)
            found |= rings.of_document(document, self._node.now().wall_ms - GRANT_MS)
        if self._node.intercom is not None:
            root, now = Peer(self._node.instance).id, self._node.now()
            found |= {
                Wait(ask.sender, root, "ask", ask.message_id, now.wall_ms - (now.mono_ms - ask.at_ms))
                for ask in self._node.intercom.asks.waiting(now.mono_ms)
            }
        return found

    def _look(self) -> None:
        """Bring what is known up to date; find, tell and forget rings."""
        self._is_looking = False
        if self._node.is_closing:
            return
        now, before = self._all(), set(self._graph.waits)
        # The moment at which an intercom question came is computed anew each time.
        same = {(wait.waiter, wait.awaited, wait.subject): wait for wait in before}
        now = {same.get((wait.waiter, wait.awaited, wait.subject), wait) for wait in now}
        for wait in before - now:
            self._graph.remove(wait)
        for wait in sorted(now - before, key=lambda wait: (wait.since_ms, wait.waiter, wait.awaited)):
            self._graph.add(wait)
        ours = [wait for waits in self._ours().values() for wait in waits if self._is_probed(wait)]
        self._prober.follow(ours, lambda: secrets.token_hex(16), self._node.now().mono_ms)
        self._stand(is_changed=before != now)
        self._arm()

    def _is_probed(self, wait: Wait) -> bool:
        peer = self._peers.get(wait.awaited)
        return peer is not None and peer.wire == NATIVE.name and peer.instance not in self._foreign

    def _stand(self, *, is_changed: bool) -> None:
        """Compare the rings that stand with those that stood."""
        found = {cycle.peers: cycle for cycle in self._prober.cycles}
        found |= {cycle.peers: cycle for cycle in self._graph.cycles}
        broken = [self._standing[peers] for peers in self._standing if peers not in found]
        closed = [found[peers] for peers in found if peers not in self._standing]
        self._standing = found
        for cycle in broken:
            self._broken(cycle)
        for cycle in closed:
            loop = asyncio.get_running_loop()
            self._telling[cycle.peers] = loop.call_later(TELL_S, self._tell, cycle.peers)
        if broken or closed or is_changed:
            self._changed.tell()

    def _tell(self, peers: tuple[str, ...]) -> None:
        """Tell each of our peers in a ring, if it still stands."""
        self._telling.pop(peers, None)
        cycle = self._standing.get(peers)
        if cycle is None:
            return
        names = rings.names(self._node)
        for peer in peers:
            if peer in self._own_ids():
                shape = self._event(cycle, peer, names, is_standing=True)
                self._unread[peer, peers] = shape
                self._node.tell_window_event(shape)

    def _broken(self, cycle: Cycle) -> None:
        timer = self._telling.pop(cycle.peers, None)
        if timer is not None:
            timer.cancel()
            return  # nobody was told of it
        names = rings.names(self._node)
        for peer in cycle.peers:
            self._unread.pop((peer, cycle.peers), None)
            if peer in self._own_ids():
                self._node.tell_window_event(self._event(cycle, peer, names, is_standing=False))

    def _event(self, cycle: Cycle, peer: str, names: dict[str, str], *, is_standing: bool) -> dict[str, Any]:
        cursor, at_ms = self._node.engine.latest_cursor, self._node.now().wall_ms
        return rings.event(cycle, peer, names, cursor, at_ms, is_standing=is_standing)

    # ------------------------------------------------------------ probing

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._node.is_closing:
            return
        due_ms = self._prober.due_ms
        delays_s = [] if due_ms is None else [max(1, due_ms - self._node.now().mono_ms) / 1_000]
        if self._asks or any(rings.may_change_by_time(document) for document in self._documents):
            delays_s.append(FRESH_S)  # other wires, and time itself, say nothing when they change a wait
        if delays_s:
            self._timer = asyncio.get_running_loop().call_later(min(delays_s), self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._node.is_closing:
            return
        kinds = {(wait.waiter, wait.awaited): wait.kind for wait in self._graph.waits}
        for probe in self._prober.tick(lambda *pair: kinds.get(pair, "ask"), self._node.now().mono_ms):
            self._send(probe)
        self._look()

    def _send(self, probe: Probe) -> None:
        awaited, sender = self._peers.get(probe.to), self._peers.get(probe.path[-1])
        if awaited is None or sender is None or self._sending_count >= PROBES_AT_ONCE:
            return
        if awaited.instance == self._node.instance:
            self._take(probe, self._node.instance)
        elif awaited.wire == NATIVE.name and awaited.instance not in self._foreign:
            self._sending_count += 1
            self._node.tasks.start(self._ask(awaited.instance, mapping.probe(probe, sender)))

    async def _ask(self, instance: str, params: dict[str, Any]) -> None:
        try:
            features = self._node.switchboard.features(instance)
            if features is not None and "wait_probe" not in features:
                self._foreign.add(instance)
                return
            await self._node.ask_peer(instance, mapping.PROBE, params)
        except Refused as error:
            if len(self._foreign) >= FOREIGN_MAX:
                self._foreign.clear()  # each is asked once more
            if error.code == "CAPABILITY_DENIED":
                self._foreign.add(instance)  # no Tieline end: what it waits for is not known here
        finally:
            self._sending_count -= 1

    def probed(self, params: dict[str, Any], far: "Far") -> dict[str, Any] | Refusal:
        """Take a probe of a far end; the answer is the same whatever becomes of it."""
        probe = mapping.probe_asked(params, far.advertised.instance)
        if isinstance(probe, Refusal):
            return probe
        if self._node.engine.own_peer(probe.to) is not None and not self._node.is_closing:
            if self._node.desk.is_passive:
                self._node.tasks.start(self._take_later(probe, far.advertised.instance))
            else:
                self._take(probe, far.advertised.instance)
        return {}

    async def _take_later(self, probe: Probe, instance: str) -> None:
        await self.freshen()
        self._take(probe, instance)

    def _take(self, probe: Probe, instance: str) -> None:
        found: Found = self._prober.take(
            probe, instance, self._ours(), self._waited_by, self._node.now().mono_ms
        )
        for onward in found.onward:
            self._send(onward)
        self._stand(is_changed=False)
        self._arm()

    def _waited_by(self, own: str, waiter: str, kind: str) -> Wait | None:
        """Return the wait of a peer for one of ours, as far as it shows here."""
        if kind == "resource":
            return next(
                (
                    wait
                    for wait in self._graph.waits
                    if (wait.waiter, wait.awaited, wait.kind) == (waiter, own, kind)
                ),
                None,
            )
        owner = self._node.engine.own_peer(own)
        if owner is None:
            return None
        held = self._node.engine.held(owner, from_peer=waiter, unread_only=False, count_max=ANSWERS_LOOKED_AT)
        open_ones = [item for item in reversed(held) if item.state not in _ANSWERED]
        asked: Sequence[Any] = [item for item in open_ones if item.envelope.is_ask] or open_ones
        if not asked:
            return None
        return Wait(waiter, own, "ask", asked[0].envelope.message_id, asked[0].at_ms)


class WaitsParams(Params, frozen=True):
    """`local.waits`; with `wait_ms` the answer comes once something is another than at `after`."""

    after: int | None = None
    wait_ms: int = 0
    run: str | None = None


async def waits(node: "Node", actor: Actor, asked: WaitsParams, _call: str | None) -> Reply:
    """Return who waits for whom, as far as this root knows, the rings that stand, and who asks.

    Raises:
        Refused: INVALID_PARAMS, a wait that is none; TARGET_ENDED, the run's token proves no live run.
    """
    if not 0 <= asked.wait_ms <= WAIT_MS_MAX:
        raise Refused("INVALID_PARAMS", f"waitMs is a whole number from 0 to {WAIT_MS_MAX}")
    peer = actor.peer if asked.run is None else node.acting_peer(actor, asked.run)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + asked.wait_ms / 1_000
    while True:
        await node.waits.freshen()
        watch = node.waits.watch()
        left = deadline - loop.time()
        if left <= 0 or asked.after != node.waits.generation:
            break
        await watch.wait(min(left, FRESH_S) if node.desk.is_passive else left)
    return Reply({**node.waits.view(), "self": peer.id, "generation": node.waits.generation})


TABLE: dict[str, Any] = {"local.waits": (WaitsParams, waits)}


def _named(document: Document) -> set[str]:
    return {ticket.claimant.peer_id for ticket in document.tickets}
