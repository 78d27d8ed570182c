"""Two commands that wait for what the other's launch holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.resources.kit import KEY, OTHER, begin, claim
from tieline.model.resource import Document
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.crossing import crossed
from tieline.shell.process import self_identity


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give one where `theirs` holds the build in this process's tree, and `ours` the database."""
    made = Coordinator(str(private_home))
    claim(made, "theirs", KEY)
    begin(made, "theirs", 1, self_identity())
    claim(made, "ours", OTHER)
    yield made
    made.close()


def hold_ours(coordinator: Coordinator) -> frozenset[str]:
    """Return the launch around this process, which holds the database."""
    holder = coordinator.store.read(OTHER).holder
    assert holder is not None
    return frozenset({str(holder.launch_id)})


def wanted(coordinator: Coordinator) -> list[Document]:
    """Return what `late` waits for."""
    return [coordinator.store.read(KEY)]


@pytest.mark.clause("native-192")
def test_later_of_two_crossed_waits_is_refused_with_the_line_that_holds_both(
    coordinator: Coordinator,
) -> None:
    """The earlier one goes on waiting: the later one's end lets it."""
    around = hold_ours(coordinator)
    claim(coordinator, "early", OTHER)
    claim(coordinator, "late", KEY)
    refused = crossed(coordinator, "launch-late", around, wanted(coordinator))
    assert refused is not None
    assert refused.code == "RESOURCE_BUSY"
    assert f"--resource {OTHER} --resource {KEY}" in refused.action


def test_wait_that_nothing_crosses_goes_on(coordinator: Coordinator) -> None:
    """Outside of every launch, or while nobody waits for what is held around, there is no ring."""
    around = hold_ours(coordinator)
    claim(coordinator, "late", KEY)
    assert crossed(coordinator, "launch-late", around, wanted(coordinator)) is None
    claim(coordinator, "early", OTHER)
    assert crossed(coordinator, "launch-late", frozenset(), wanted(coordinator)) is None
