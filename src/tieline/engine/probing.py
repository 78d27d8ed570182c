"""Probes: how roots find a ring of waits that none of them sees whole.

Theory. A peer that waits sends a probe to whom it waits for; who waits as well passes it on to whom it waits
for, with its own name added. A probe that comes back to its starter went along a ring. Each wait's probe has
an id of its own that nobody can guess: it travels along real waits only, so who brings it back was reached
by them. A peer that finds itself in another's probe starts its own at once, and a peer that has found its
ring sends the path round once, so that all of a ring find it within a moment; after that each asks again,
seldom.

Rule 1: a probe is taken from a peer only where that peer is known to wait for ours: its question is
    unanswered here, or its request waits for what ours holds. Everything else is dropped without a word.
Rule 2: a ring that our peer is in is named on its own probe's return only, and only while its wait stands.
Rule 3: a probe goes on once per peer that brought it, over at most `FAN_MAX` waits and `HOPS_MAX` hops; what
    one root sends, and what one peer is sent, is paced, so a flood costs a look at a number.
Rule 4: what a probe tells is the path that it came, to nobody but whom its sender waits for.
Rule 5: this module knows no clock, no chance and no wire; it is told.

Source: Chandy, Misra, Haas, "Distributed deadlock detection", 1983; reference/reliability.md I30, S18.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from tieline.engine.waiting import Cycle, Wait, cycle_of

__all__ = ["FAN_MAX", "HOPS_MAX", "NAMED_MS", "Found", "Probe", "Prober"]

HOPS_MAX: Final = 32
"""Peers of the longest ring that is found: more would take longer than a wait lasts."""
FAN_MAX: Final = 16
OWN_MAX: Final = 256
"""Waits of one root that are probed."""
SEEN_MAX: Final = 2_048
ROOTS_MAX: Final = 1_024
NAMED_MAX: Final = 64
FIRST_MS: Final = 150
"""From the start of a wait to its first probe: the question itself has to be there before."""
PAUSE_MS: Final = 500
PAUSE_MS_MAX: Final = 5_000
AGAIN_MS: Final = 2_000
"""Between two probes of a wait whose ring is named."""
PROMPT_MS: Final = 100
"""Least time between two probes of one wait, whoever prompts."""
NAMED_MS: Final = 7_000
"""So long a ring is believed without a new round: three rounds may get lost."""
PROBES_MAX: Final = 64
PROBES_PER_S: Final = 32

_Kind = Literal["ask", "resource"]
WaitedBy = Callable[[str, str, str], Wait | None]
"""Returns the wait of a peer (second) for one of ours (first) of that kind (third), where it shows here."""


class Probe(msgspec.Struct, frozen=True):
    """One probe on its way: `path` are the peers that wait for each other, the last one for `to`."""

    id: str
    to: str
    path: tuple[str, ...]
    kinds: tuple[_Kind, ...]


class Found(NamedTuple):
    """What a probe led to: probes to pass on, and a ring that was named or seen again."""

    onward: tuple[Probe, ...] = ()
    cycle: Cycle | None = None
    is_new: bool = False


class _Own(msgspec.Struct):
    """One of our waits, as far as it is probed."""

    id: str
    due_ms: int
    pause_ms: int = PAUSE_MS
    sent_ms: int = -PAUSE_MS_MAX


class _Budget(msgspec.Struct):
    left: float
    at_ms: int


class Prober:
    """One root's part in finding rings. Moments are monotonic milliseconds."""

    def __init__(self) -> None:
        self.dropped_count = 0
        self._own: dict[tuple[str, str], _Own] = {}
        self._seen: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._named: OrderedDict[tuple[str, ...], tuple[Cycle, tuple[str, str], int]] = OrderedDict()
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        """The rings that stand, as far as probes told."""
        return tuple(self._named[peers][0] for peers in sorted(self._named))

    @property
    def due_ms(self) -> int | None:
        """When `tick` has something to do."""
        dues = [one.due_ms for one in self._own.values()]
        dues += [until_ms for _, _, until_ms in self._named.values()]
        return min(dues, default=None)

    # ------------------------------------------------------------ our waits

    def follow(self, waits: Iterable[Wait], new_id: Callable[[], str], now_ms: int) -> None:
        """Take these for our waits from now on; what was named over one that ended stands no more."""
        pairs: dict[tuple[str, str], None] = {}
        for wait in waits:
            if len(pairs) < OWN_MAX:
                pairs[wait.waiter, wait.awaited] = None
        for pair in [pair for pair in self._own if pair not in pairs]:
            del self._own[pair]
        for pair in pairs:
            if pair not in self._own:
                self._own[pair] = _Own(new_id(), now_ms + FIRST_MS)
        for peers in [peers for peers, named in self._named.items() if named[1] not in self._own]:
            del self._named[peers]

    def tick(self, kind_of: Callable[[str, str], _Kind], now_ms: int) -> tuple[Probe, ...]:
        """Return the probes that are due; rings that nobody confirmed for long are forgotten."""
        for peers in [peers for peers, named in self._named.items() if named[2] <= now_ms]:
            del self._named[peers]
        standing = {hop for _, hop, _ in self._named.values()}
        probes: list[Probe] = []
        for pair, own in self._own.items():
            if own.due_ms > now_ms:
                continue
            probes.append(Probe(own.id, pair[1], (pair[0],), (kind_of(*pair),)))
            own.sent_ms = now_ms
            if pair in standing:
                own.due_ms, own.pause_ms = now_ms + AGAIN_MS, PAUSE_MS
            else:
                own.due_ms = now_ms + own.pause_ms
                own.pause_ms = min(2 * own.pause_ms, PAUSE_MS_MAX)
        return tuple(probes)

    # ------------------------------------------------------------ a probe that came

    def take(
        self,
        probe: Probe,
        sender_root: str,
        ours: Mapping[str, Sequence[Wait]],
        waited_by: WaitedBy,
        now_ms: int,
    ) -> Found:
        """Return what follows from a probe of another root, or of a peer of our own.

        Args:
            probe: Its last peer was proved to be one of the sender's.
            sender_root: The sending instance.
            ours: The waits of our peers.
            waited_by: See `WaitedBy`.
            now_ms: Now.
        """
        path, me = probe.path, probe.to
        is_formed = 0 < len(path) <= HOPS_MAX and len(path) == len(probe.kinds) == len(set(path))
        if not is_formed or path[-1] == me or not self._is_within(sender_root, now_ms):
            self.dropped_count += 1
            return Found()
        if not ours.get(me):
            return Found()  # who waits for nobody closes no ring, whoever asks
        closing = waited_by(me, path[-1], probe.kinds[-1])
        if closing is None:
            self.dropped_count += 1
            return Found()
        if me in path:
            return self._returned(probe, closing, ours, now_ms)
        seen = path[-1], probe.id, me
        if self._seen.get(seen, 0) > now_ms or len(path) == HOPS_MAX:
            return Found()
        self._seen[seen] = now_ms + PROMPT_MS
        self._seen.move_to_end(seen)
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        ahead = {wait.awaited: wait.kind for wait in ours.get(me, ())}
        onward = [
            Probe(probe.id, awaited, (*path, me), (*probe.kinds, kind))
            for awaited, kind in list(ahead.items())[:FAN_MAX]
            if self._is_within("to " + awaited, now_ms)
        ]
        return Found(tuple(onward))

    def _returned(
        self, probe: Probe, closing: Wait, ours: Mapping[str, Sequence[Wait]], now_ms: int
    ) -> Found:
        """A probe came that our own peer is in the path of."""
        place = probe.path.index(probe.to)
        path, kinds = probe.path[place:], probe.kinds[place:]
        hop = path[0], path[1]
        own = self._own.get(hop)
        first = next((wait for wait in ours.get(hop[0], ()) if wait.awaited == hop[1]), None)
        if own is None or first is None:
            return Found()
        if place > 0 or probe.id != own.id:
            own.due_ms = min(own.due_ms, max(now_ms, own.sent_ms + PROMPT_MS))
            return Found()
        between = [Wait(path[at], path[at + 1], kinds[at]) for at in range(1, len(path) - 1)]
        cycle = cycle_of([first, *between, closing])
        is_new = cycle.peers not in self._named
        if is_new and len(self._named) >= NAMED_MAX:
            return Found()
        self._named[cycle.peers] = cycle, hop, now_ms + NAMED_MS
        if not is_new:
            return Found(cycle=cycle)
        # Once round: whoever of the ring has not found it starts a probe of its own.
        lap = Probe(own.id, path[1], (*path[1:], path[0]), (*kinds[1:], kinds[0]))
        return Found((lap,), cycle, is_new=True)

    def _is_within(self, root: str, now_ms: int) -> bool:
        """Charge one probe to the root that sent it, or to whom it goes; return whether one was left."""
        budget = self._budgets.get(root)
        if budget is None:
            budget = self._budgets[root] = _Budget(PROBES_MAX, now_ms)
        self._budgets.move_to_end(root)
        while len(self._budgets) > ROOTS_MAX:
            self._budgets.popitem(last=False)
        gained = (now_ms - budget.at_ms) * PROBES_PER_S / 1_000
        budget.left, budget.at_ms = min(PROBES_MAX, budget.left + gained), now_ms
        if budget.left < 1:
            return False
        budget.left -= 1
        return True
