"""Waits and the rings among them: named when they close, gone when they break, bounded in a crowd."""

import time

import pytest

from tieline.engine import waiting
from tieline.engine.waiting import Cycle, Graph, Wait, WayOut, cycle_of, cycles_of, gives_way, ways_out

AB, BA = Wait("a", "b", "ask", "m-1", 5), Wait("b", "a", "ask", "m-2", 6)
BC, CA = Wait("b", "c", "resource", "machine/x", 7, "r-1"), Wait("c", "a", "ask", "m-3", 8)


def test_wait_that_closes_a_ring_names_it_once_from_its_smallest_peer() -> None:
    """The ring is told by the wait that closed it, and by no later one."""
    graph = Graph()
    assert graph.add(BC) == graph.add(CA) == ()
    assert graph.add(AB) == (Cycle((AB, BC, CA)),)
    assert graph.cycles[0].peers == ("a", "b", "c")
    assert graph.add(AB) == ()
    assert graph.add(Wait("a", "b", "ask", "m-9")) == ()
    assert graph.waits == (AB, Wait("a", "b", "ask", "m-9"), BC, CA)


def test_ring_stands_until_the_last_wait_of_a_hop_has_ended() -> None:
    """Of two waits between the same two one may end; the ring then shows the other."""
    graph = Graph()
    other = Wait("a", "b", "resource", "machine/y", 9)
    for wait in (AB, other, BA):
        graph.add(wait)
    assert graph.remove(AB) == ()
    assert graph.cycles == (Cycle((other, BA)),)
    assert graph.remove(AB) == ()
    assert graph.remove(Wait("x", "y")) == ()
    assert graph.remove(other) == (("a", "b"),)
    assert graph.cycles == ()
    assert graph.remove(BA) == ()
    assert graph.waits == ()


def test_peer_that_waits_for_itself_is_a_ring_of_one() -> None:
    """Nobody else can end that wait."""
    assert cycles_of([Wait("a", "a")]) == (Cycle((Wait("a", "a"),)),)


def test_wait_out_of_a_ring_is_in_none() -> None:
    """Who waits for a ring is not in it, and what leads nowhere is not searched twice."""
    waits = [AB, BA, Wait("d", "a"), Wait("b", "e"), Wait("e", "f"), Wait("f", "e")]
    assert [cycle.peers for cycle in cycles_of(waits)] == [("a", "b"), ("e", "f")]


def test_crowd_names_a_bounded_number_and_names_others_when_some_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Past the bound no ring is added; what had no place comes in, all of it, when there is one."""
    monkeypatch.setattr(waiting, "RINGS_MAX", 12)
    graph = Graph()
    for one in "abcd":
        for other in "abcd":
            if one != other:
                graph.add(Wait(one, other))
    assert len(graph.cycles) == 12
    assert graph.remove(Wait("a", "b"))
    assert len(graph.cycles) == 12
    assert graph.remove(Wait("b", "a"))
    assert len(graph.cycles) == 11
    assert graph.cycles == cycles_of(graph.waits)


def test_cost_of_a_wait_stands_with_five_hundred_peers() -> None:
    """A long chain that closes, and a crowd with many ways, are searched in moments."""
    graph = Graph()
    names = [f"p{number:03}" for number in range(500)]
    begun = time.process_time()
    for at, name in enumerate(names):
        for step in (1, 2, 3):
            if at + step < 500:
                graph.add(Wait(name, names[at + step]))
    (ring, *_) = graph.add(Wait(names[-1], names[0]))
    assert len(ring.peers) >= 500 // 3
    assert len(graph.cycles) == waiting.RINGS_MAX
    assert graph.remove(Wait(names[-1], names[0]))
    assert graph.cycles == ()
    assert time.process_time() - begun < 5


def test_who_gives_way_is_decided_by_kind_and_name_alone() -> None:
    """A question gives way before a request, and the greater name before the smaller: whoever looks."""
    ring = cycle_of([BC, CA, AB])
    assert ring == Cycle((AB, BC, CA))
    assert gives_way(ring) == CA
    assert gives_way(cycle_of([BC, Wait("c", "b", "resource")])) == Wait("c", "b", "resource")


def test_ways_out_are_those_of_the_peer_that_asks() -> None:
    """Who is asked can answer, who holds can let go, who waits can give up; the surest comes first."""
    ring = cycle_of([AB, BC, CA])
    assert ways_out(ring, "a") == (WayOut("answer", "c", CA), WayOut("give_up", "b", AB))
    assert ways_out(ring, "b") == (WayOut("answer", "a", AB), WayOut("cancel", "c", BC))
    assert ways_out(ring, "c") == (WayOut("give_up", "a", CA), WayOut("release", "b", BC))
    assert ways_out(ring, "z") == ()
