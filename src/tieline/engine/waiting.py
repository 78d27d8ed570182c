"""Who waits for whom, and the rings in which nobody goes on before the others do.

Theory. A peer that waits for an answer, or for a resource that another one holds, is an edge from who
waits to whom it waits for. A wait that is added closes exactly the rings that lead from its awaited peer
back to its waiter; so each ring is found once, at the moment it closes, and the search looks at nothing
that is not on such a way. The search blocks what led nowhere until something behind it changes, so its
cost per ring is that of one walk over the edges.

Rule 1: a ring is named once, from its smallest peer id on; several waits between the same two are one hop.
Rule 2: a ring stands as long as each of its hops has a wait.
Rule 3: the number of rings is bounded: of a crowd in which everybody waits for everybody, a few say it all.
Rule 4: who gives way is decided by names alone, so that all of a ring decide alike.

Source: D. B. Johnson, "Finding all the elementary circuits of
a directed graph", 1975; reference/reliability.md I30.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

__all__ = [
    "RINGS_MAX",
    "Cycle",
    "Graph",
    "Wait",
    "WayOut",
    "cycle_of",
    "cycles_of",
    "gives_way",
    "ways_out",
]

RINGS_MAX: Final = 256
"""Rings that are named at a time; see rule 3."""

Kind = Literal["ask", "resource"]


class Wait(msgspec.Struct, frozen=True):
    """One peer waits for another; both by peer id.

    Attributes:
        waiter: Who waits.
        awaited: For whom: who was asked, or who holds the resource.
        kind: "ask" or "resource".
        subject: The question's message id, or the resource's key; empty where only another root knows it.
        since_ms: Wall milliseconds; 0 where only another root knows it.
        request: Of a resource: the request that waits.
    """

    waiter: str
    awaited: str
    kind: Kind = "ask"
    subject: str = ""
    since_ms: int = 0
    request: str = ""


class Cycle(msgspec.Struct, frozen=True):
    """A ring: each wait's awaited peer is the next one's waiter, the last one's the first one's."""

    waits: tuple[Wait, ...]

    @property
    def peers(self) -> tuple[str, ...]:
        """Its peers, the smallest id first; they name it."""
        return tuple(wait.waiter for wait in self.waits)


class WayOut(NamedTuple):
    """What one peer may do to break a ring.

    Attributes:
        act: "answer" a question, "give_up" one's own, "release" what one holds, "cancel" one's own request.
        other: The peer at the other end of that wait.
        wait: The wait that ends by it.
    """

    act: Literal["answer", "give_up", "release", "cancel"]
    other: str
    wait: Wait


def cycle_of(waits: Iterable[Wait]) -> Cycle:
    """Return the ring of these waits, which follow each other, in its one order."""
    found = tuple(waits)
    start = min(range(len(found)), key=lambda place: found[place].waiter)
    return Cycle(found[start:] + found[:start])


def gives_way(cycle: Cycle) -> Wait:
    """Return the wait of a ring that should end: a question before a request, then the greatest waiter's."""
    return max(cycle.waits, key=lambda wait: (wait.kind == "ask", wait.waiter))


def ways_out(cycle: Cycle, peer: str) -> tuple[WayOut, ...]:
    """Return what `peer` can do about a ring, the surest first; nothing where it is not in the ring."""
    found: list[WayOut] = []
    for wait in cycle.waits:
        if wait.awaited == peer:
            found.append(WayOut("answer" if wait.kind == "ask" else "release", wait.waiter, wait))
        if wait.waiter == peer:
            found.append(WayOut("give_up" if wait.kind == "ask" else "cancel", wait.awaited, wait))
    order = ("answer", "give_up", "cancel", "release")
    return tuple(sorted(found, key=lambda way: order.index(way.act)))


def cycles_of(waits: Iterable[Wait]) -> tuple[Cycle, ...]:
    """Return the rings of these waits, at most `RINGS_MAX`, by their names."""
    graph = Graph()
    for wait in waits:
        graph.add(wait)
    return graph.cycles


class Graph:
    """The waits that are known, and the rings among them."""

    def __init__(self) -> None:
        self._ahead: dict[str, dict[str, list[Wait]]] = {}
        self._behind: dict[str, set[str]] = {}
        self._rings: set[tuple[str, ...]] = set()
        self._is_cut = False

    @property
    def waits(self) -> tuple[Wait, ...]:
        """Every wait, in the order of who waits."""
        return tuple(
            wait
            for waiter in sorted(self._ahead)
            for awaited in sorted(self._ahead[waiter])
            for wait in self._ahead[waiter][awaited]
        )

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        """The rings that stand, by their names."""
        return tuple(self._cycle(peers) for peers in sorted(self._rings))

    def add(self, wait: Wait) -> tuple[Cycle, ...]:
        """Add a wait; return the rings that it closed."""
        ahead = self._ahead.setdefault(wait.waiter, {})
        known = ahead.get(wait.awaited)
        if known is not None:
            if wait not in known:
                known.append(wait)
            return ()
        ahead[wait.awaited] = [wait]
        self._behind.setdefault(wait.awaited, set()).add(wait.waiter)
        closed = self._close(wait.waiter, wait.awaited)
        self._rings.update(closed)
        return tuple(self._cycle(peers) for peers in closed)

    def remove(self, wait: Wait) -> tuple[tuple[str, ...], ...]:
        """Take a wait out; return the names of the rings that it breaks; none for an unknown one."""
        known = self._ahead.get(wait.waiter, {}).get(wait.awaited, [])
        if wait not in known:
            return ()
        known.remove(wait)
        if known:
            return ()
        del self._ahead[wait.waiter][wait.awaited]
        if not self._ahead[wait.waiter]:
            del self._ahead[wait.waiter]
        self._behind[wait.awaited].discard(wait.waiter)
        if not self._behind[wait.awaited]:
            del self._behind[wait.awaited]
        hop = wait.waiter, wait.awaited
        broken = tuple(sorted(peers for peers in self._rings if hop in _hops(peers)))
        self._rings.difference_update(broken)
        if broken and self._is_cut:
            self._name_anew()
        return broken

    def _name_anew(self) -> None:
        """Look for rings that had no place before."""
        self._is_cut = False
        for waiter, ahead in self._ahead.items():
            for awaited in ahead:
                self._rings.update(self._close(waiter, awaited))

    def _cycle(self, peers: tuple[str, ...]) -> Cycle:
        return Cycle(tuple(self._ahead[waiter][awaited][0] for waiter, awaited in _hops(peers)))

    def _close(self, waiter: str, awaited: str) -> list[tuple[str, ...]]:
        """Return the names of rings over this hop that are not named yet, as many as there is room for."""
        between = self._between(waiter, awaited)
        if not between:
            return []
        found: list[tuple[str, ...]] = []
        for way in _ways(between, waiter, awaited):
            peers = _named(way)
            if peers in self._rings:
                continue
            if len(self._rings) + len(found) >= RINGS_MAX:
                self._is_cut = True
                break
            found.append(peers)
        return sorted(found)

    def _between(self, waiter: str, awaited: str) -> dict[str, list[str]]:
        """Return the hops that lie on a way from `awaited` back to `waiter`; none where there is no way."""
        reached, ahead = {awaited}, [awaited]
        while ahead:
            for other in self._ahead.get(ahead.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    ahead.append(other)
        if waiter not in reached:
            return {}
        leading, ahead = {waiter}, [waiter]
        while ahead:
            for other in self._behind.get(ahead.pop(), ()):
                if other in reached and other not in leading:
                    leading.add(other)
                    ahead.append(other)
        return {
            peer: sorted(other for other in self._ahead.get(peer, ()) if other in leading) for peer in leading
        }


def _hops(peers: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(zip(peers, peers[1:] + peers[:1], strict=True))


def _named(way: list[str]) -> tuple[str, ...]:
    start = way.index(min(way))
    return (*way[start:], *way[:start])


def _ways(between: dict[str, list[str]], start: str, first: str) -> Iterator[list[str]]:
    """Give every ring that goes from `start` to `first` and comes back without meeting a peer twice."""
    if first == start:
        yield [start]
        return
    way = [start, first]
    untried = [iter(between[first])]
    has_closed = [False]
    blocked = {start, first}
    waiting: dict[str, set[str]] = {}  # who is freed together with a blocked peer
    while untried:
        step = next((other for other in untried[-1] if other == start or other not in blocked), None)
        if step == start:
            has_closed[-1] = True
            yield list(way)
        elif step is not None:
            way.append(step)
            blocked.add(step)
            untried.append(iter(between[step]))
            has_closed.append(False)
        else:
            untried.pop()
            left = way.pop()
            if has_closed.pop():
                if has_closed:
                    has_closed[-1] = True
                _free(left, blocked, waiting)
            else:
                for other in between[left]:
                    waiting.setdefault(other, set()).add(left)


def _free(peer: str, blocked: set[str], waiting: dict[str, set[str]]) -> None:
    freed = [peer]
    while freed:
        other = freed.pop()
        if other in blocked:
            blocked.discard(other)
            freed += waiting.pop(other, ())
