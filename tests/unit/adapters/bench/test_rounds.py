"""The parts of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.bench import rounds
from tieline.adapters.bench.crew import Crew
from tieline.adapters.bench.rounds import Paths, Plan, Run

SMALL = Plan(peers=2, size_bytes=64, samples=4, rounds=2, seconds=0.6, stored=150)


class Store:
    """A recipient whose store holds what a test says."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.instance = "i-1"
        self._counts = counts

    def do(self, do: str) -> dict[str, Any]:
        """Return the counts."""
        assert do == "stored"
        return {"counts": self._counts}


@pytest.fixture
def run(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Give a small run in a folder of this test, without echo servers."""
    monkeypatch.setenv("TMPDIR", str(private_home))
    monkeypatch.setattr(rounds, "SENDERS", 2)
    monkeypatch.setattr(rounds, "RUNS", 3)
    with Crew(SMALL.size_bytes) as crew:
        yield Run(SMALL, crew, Paths("", "", ""))


@pytest.mark.clause("native-205")
@pytest.mark.parametrize(
    ("counts", "lost", "duplicates"),
    [({"a": 1, "b": 1}, 0, 0), ({"a": 1}, 1, 0), ({}, 2, 0), ({"a": 2, "b": 1, "c": 3}, 0, 3)],
)
def test_settle_counts_lost_and_duplicates_from_the_store(
    run: Run, counts: dict[str, int], lost: int, duplicates: int
) -> None:
    """Accepted and not in the store is lost; more than once in the store is a duplicate."""
    run.crew.accepted["i-1"] = ["a", "b"]
    run.settle(Store(counts))  # type: ignore[arg-type]
    assert run.counts == {"accepted": 2, "lost": lost, "duplicates": duplicates}


@pytest.mark.clause("native-205")
@pytest.mark.parametrize(
    ("part", "figures"),
    [
        (rounds.ring, {"ring_cold", "ring_warm", "inbox_told", "inbox_read"}),
        (
            rounds.routes,
            {"routes_serial_rate", "routes_32_rate", "ping_idle", "ping_no_store", "ping_at_routes"},
        ),
        (rounds.history, {"accept_little_stored", "accept_much_stored"}),
        (rounds.defaults, {"send_at_defaults"}),
    ],
)
def test_part_of_a_run_gives_its_figures_and_ends_its_processes(
    run: Run, part: Any, figures: set[str]
) -> None:
    """Every part finds all that it said was accepted, and leaves no process to the next."""
    part(run)
    assert set(run.figures) == figures
    assert run.crew.members == []
    assert run.counts["accepted"] > 0
    assert (run.counts["lost"], run.counts["duplicates"], dict(run.crew.failures)) == (0, 0, {})
