"""A few fixed seeds, each in a moment: what a mutant is held against, and a first look for a person.

Source: reference/reliability.md 2.5, 2.6; STYLE.md 6 "simulator".
"""

import pytest

from tests.sim.run import HASHED_SEEDS, digests, kept_seeds, run_seed

FIXED_SEEDS = tuple(range(101, 113))


@pytest.mark.clause("K15", "K27", "K9", "K13")
@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_fixed_seed_breaks_no_promise(seed: int) -> None:
    """A history with mixed faults holds every invariant."""
    assert run_seed(seed).violations == []


def test_same_seed_twice_gives_the_same_history() -> None:
    """Nothing but the seed decides what happens."""
    assert digests(HASHED_SEEDS[:1]) == digests(HASHED_SEEDS[:1])


def test_kept_seeds_are_numbers_with_a_reason() -> None:
    """Each line of seeds.txt names a seed; they are read in their order."""
    seeds = kept_seeds()
    assert seeds
    assert len(set(seeds)) == len(seeds)
