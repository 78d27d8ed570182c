"""Brokers of the intercom, one after another, in many seeded histories.

Source: reference/reliability.md 2.1, 2.4 I30, I39, I41, I42, I44.
"""

from collections import Counter

import pytest

from tests.sim.brokers.checker import INVARIANTS, check
from tests.sim.brokers.world import RoomWorld

BLOCKS, SEEDS_PER_BLOCK = 8, 50


@pytest.mark.clause("I4", "I30", "I39", "I41", "I42", "I44", "intercom-131")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_histories_of_a_place_break_no_promise(block: int) -> None:
    """Whatever dies, stops, parks or crosses, each promise holds, and each was really looked at."""
    counts: Counter[str] = Counter()
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        verdict = check(RoomWorld(seed).run().entries)
        assert verdict.violations == [], f"seed {seed}: {sorted({name for name, _ in verdict.violations})}"
        counts += verdict.counts
    looked_at = {name: counts[name] for name in (*INVARIANTS, "I41 whole", "I41 changed")}
    assert all(looked_at.values()), looked_at


def test_same_seed_of_a_place_gives_the_same_history() -> None:
    """Nothing but the seed decides what happens."""
    assert RoomWorld(3).run().digest() == RoomWorld(3).run().digest()
