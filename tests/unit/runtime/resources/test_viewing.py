"""Looking at a resource, and answering for what nothing proves."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.resources.kit import KEY, OTHER, begin, claim, principal, start
from tieline.engine.coordination import SetPolicy
from tieline.errors import RecoveryRequired, Refused
from tieline.model.identity import Peer
from tieline.model.resource import ResourceKey, key_digest
from tieline.runtime.resources import viewing
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.viewing import (
    events,
    evidence,
    glimpse,
    local_viewer,
    recover,
    status,
    status_of_all,
)
from tieline.shell.process import identify


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give a coordinator in a place of its own."""
    made = Coordinator(str(private_home))
    yield made
    made.close()


def test_status_shows_every_resource_that_was_used(coordinator: Coordinator) -> None:
    """A look makes nothing, and what was used stays listed."""
    assert status_of_all(coordinator, local_viewer()) == []
    assert status(coordinator, KEY, local_viewer())["state"] == "unconfigured"
    assert status_of_all(coordinator, local_viewer()) == []
    claim(coordinator, "a", KEY)
    (shape,) = status_of_all(coordinator, local_viewer())
    assert (shape["state"], shape["holder"]["alias"]) == ("reserved", "a")
    assert glimpse(coordinator, KEY, local_viewer())["holder"]["reference"] == shape["holder"]["reference"]


@pytest.mark.clause("native-195", "I34")
def test_holder_whose_start_was_never_told_is_shown_as_unprovable(coordinator: Coordinator) -> None:
    """The next action is the operator's, and the evidence says what is not known."""
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1)
    shape = status(coordinator, KEY, local_viewer())
    assert (shape["state"], shape["holder"]["canEnd"]) == ("starting", False)
    assert "recover machine/build --launch launch-a" in shape["nextAction"]
    assert any("never confirmed" in text for text in evidence(coordinator, KEY, "launch-a"))


def test_recover_records_who_and_why_and_frees(coordinator: Coordinator) -> None:
    """The history has the operator's words; the ledger lets go."""
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1)
    shape = recover(coordinator, KEY, "launch-a", "the machine was looked at", local_viewer())
    assert shape["state"] == "unconfigured"
    assert coordinator.store.read_ledger().launches == ()
    found, has_gap = events(coordinator.store.read(KEY), frozenset(), 0, local_viewer())
    note = next(one["note"] for one in found if one["state"] == "recovered")
    assert note.endswith(": the machine was looked at")
    assert not has_gap


def test_recover_of_what_lives_or_is_not_there_is_refused(coordinator: Coordinator) -> None:
    """Neither changes anything."""
    with pytest.raises(Refused) as caught:
        evidence(coordinator, KEY, "launch-a")
    assert caught.value.code == "INVALID_PARAMS"
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1)
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        identity = identify(child.pid)
        assert identity is not None
        start(coordinator, "a", 1, identity)
        before = coordinator.store.read(KEY)
        with pytest.raises(Refused) as caught:
            recover(coordinator, KEY, "launch-a", "sure", local_viewer())
        assert caught.value.code == "RESOURCE_BUSY"
        assert coordinator.store.read(KEY) == before
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_orphan_is_shown_with_its_supervisor(coordinator: Coordinator) -> None:
    """Its agent has ended, its command goes on: how to ask that to stop is said."""
    ended = subprocess.Popen(["sleep", "30"], start_new_session=True)
    gone = identify(ended.pid)
    ended.kill()
    ended.wait()
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    supervisor = identify(child.pid)
    try:
        assert gone is not None
        claim(coordinator, "a", KEY)
        begin(coordinator, "a", 1, supervisor)
        launch = coordinator.store.read_ledger().launches[0]
        owner = msgspec.structs.replace(launch.claimant, owner=gone, waiter=gone)
        life = viewing._life(coordinator, msgspec.structs.replace(launch, claimant=owner))
        assert (life["supervisor"], life["isOrphan"]) == (child.pid, True)
        assert viewing._life(coordinator, launch)["isOrphan"] is None
    finally:
        child.kill()
        child.wait()


def test_events_of_a_governed_resource_are_for_their_audience(coordinator: Coordinator) -> None:
    """On an open resource everybody who may claim sees them all; under a policy each its own."""
    claim(coordinator, "a", KEY)
    document = coordinator.store.read(KEY)
    assert len(events(document, frozenset(), 0, local_viewer())[0]) == 2
    lead = principal("lead", "resource.control")
    policy = SetPolicy(lead, KEY, Peer("lead").id, (Peer("a").id,))
    coordinator.decide([KEY], policy, peers={Peer("lead").id: "alive"})
    document = coordinator.store.read(KEY)
    assert events(document, frozenset(), 0, local_viewer())[0] == []
    told = [one["state"] for one in events(document, frozenset({Peer("a").id}), 0, principal("a"))[0]]
    assert told == ["queued", "reserved", "policy_changed", "stale"]
    assert status(coordinator, ResourceKey("machine/build"), local_viewer())["state"] == "free"


def test_damaged_resource_is_shown_beside_the_others(coordinator: Coordinator) -> None:
    """One damaged record is its own resource's: the list has it as such, with what ends it."""
    claim(coordinator, "a", KEY)
    claim(coordinator, "b", OTHER)
    (Path(coordinator.store.path) / f"{key_digest(KEY)}.json").write_bytes(b"garbled")
    damaged, whole = status_of_all(coordinator, local_viewer())
    assert (damaged["resource"], damaged["state"], whole["state"]) == (KEY, "damaged", "reserved")
    assert "damaged" in damaged["fault"]
    assert f"tieline resource recover {KEY}" in damaged["nextAction"]
    with pytest.raises(RecoveryRequired) as caught:
        status(coordinator, KEY, local_viewer())
    assert f"tieline resource recover {KEY}" in caught.value.action


def test_damaged_resource_with_a_living_command_names_it(coordinator: Coordinator) -> None:
    """Who looks is told that it still runs, and to wait for its end first."""
    process = identify(os.getpid())
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1, process)
    (Path(coordinator.store.path) / f"{key_digest(KEY)}.json").write_bytes(b"garbled")
    (shape,) = status_of_all(coordinator, local_viewer())
    assert [one["launchId"] for one in shape["living"]] == ["launch-a"]
    assert shape["nextAction"].startswith("a command of it still runs")
