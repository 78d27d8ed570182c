"""Commands that wait in a ring for what the next one's launch holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.resources.kit import KEY, OTHER, begin, claim
from tieline.model.resource import Document, Launch, ResourceKey, Ticket
from tieline.runtime.resources import crossing
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


@pytest.mark.clause("native-192")
def test_ring_through_a_third_launch_is_refused_to_its_latest_wait(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`theirs` waits for what `between` holds, and that one for what is held around us."""
    around = hold_ours(coordinator)
    third = ResourceKey("machine/third")
    claim(coordinator, "between", third)
    begin(coordinator, "between", 1, self_identity(), third)
    claim(coordinator, "in-theirs", third)
    claim(coordinator, "in-between", OTHER)
    inside = {"launch-theirs": "in-theirs", "launch-between": "in-between"}

    def waits(launch: Launch, ticket: Ticket, mine: Ticket) -> bool:
        return ticket.request_id == f"request-{inside[launch.launch_id]}" and ticket is not mine

    monkeypatch.setattr(crossing, "_waits_inside", waits)
    claim(coordinator, "late", KEY)
    refused = crossed(coordinator, "launch-late", around, wanted(coordinator))
    assert refused is not None
    assert f"--resource {OTHER} --resource {KEY}" in refused.action
    inside["launch-between"] = "nobody"
    assert crossed(coordinator, "launch-late", around, wanted(coordinator)) is None
