"""The finder of rings against one that tries every order of peers.

Source: tieline.engine.waiting; reference/reliability.md I30.
"""

import random
from itertools import combinations, permutations

import pytest

from tieline.engine.waiting import Graph, Wait

GRAPHS = 100_000
PEERS = "abcde"
_ORDERS = {
    1: [(peer,) for peer in PEERS],
    **{
        count: [
            (least, *rest)
            for chosen in combinations(PEERS, count)
            for least in (chosen[0],)
            for rest in permutations(chosen[1:])
        ]
        for count in range(2, len(PEERS) + 1)
    },
}
_RINGS = [
    (order, frozenset(zip(order, order[1:] + order[:1], strict=True)))
    for orders in _ORDERS.values()
    for order in orders
]


def rings_tried(hops: frozenset[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return every ring of these hops, by trying all."""
    return sorted(order for order, needed in _RINGS if needed <= hops)


@pytest.mark.clause("I30")
def test_rings_of_random_graphs_are_those_that_trying_everything_finds() -> None:
    """Rings are named when they close, each once, and go when a hop goes: 100,000 random graphs agree."""
    chance = random.Random(7)
    pairs = [(one, other) for one in PEERS for other in PEERS]
    found_count = broken_count = 0
    for _ in range(GRAPHS):
        hops = chance.sample(pairs, chance.randint(1, 9))
        graph = Graph()
        told: list[tuple[str, ...]] = []
        for one, other in hops:
            told += [cycle.peers for cycle in graph.add(Wait(one, other))]
        expected = rings_tried(frozenset(hops))
        assert sorted(told) == expected, hops
        assert [cycle.peers for cycle in graph.cycles] == expected
        found_count += len(expected)
        taken = chance.choice(hops)
        broken = graph.remove(Wait(*taken))
        left = rings_tried(frozenset(hops) - {taken})
        assert [cycle.peers for cycle in graph.cycles] == left
        assert sorted(broken) == sorted(set(expected) - set(left))
        broken_count += len(broken)
    print(f"{GRAPHS} graphs, {found_count} rings named, {broken_count} broken")
    assert found_count > GRAPHS // 4
    assert broken_count > GRAPHS // 16
