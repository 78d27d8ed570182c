"""The ledger as a supervisor tells it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.runtime.resources.kit import KEY, NONCE, begin, claim, principal
from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import key_digest
from tieline.runtime.resources import launching
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.launching import SupervisorLedger
from tieline.shell.process import identify, self_identity
from tieline.shell.tree import CompletionProof, LaunchEvidence, LaunchSpec, SpawnFailure

DONE = CompletionProof(0, "supervised", True, ("its group is empty",))


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give a coordinator in whose place a command has begun."""
    made = Coordinator(str(private_home))
    claim(made, "a", KEY)
    begin(made, "a", 1, self_identity())
    yield made
    made.close()


def ledger_of(coordinator: Coordinator, fence: int = 1, nonce: str = NONCE) -> SupervisorLedger:
    """Return the supervisor's door to its launch."""
    folder = coordinator.store.path.removesuffix("/peer-resources")
    return SupervisorLedger(LaunchSpec("launch-a", nonce, ("make",), (KEY,), (fence,), context=folder))


def started(pid: int) -> LaunchEvidence:
    """Return what a supervisor tells of a start."""
    return LaunchEvidence("launch-a", NONCE, self_identity(), "supervised", identify(pid))


def states(coordinator: Coordinator) -> tuple[str, list[str]]:
    """Return the ticket's state and those of the ledger."""
    (ticket,) = coordinator.store.read(KEY).tickets
    return str(ticket.state), [str(one.state) for one in coordinator.store.read_ledger().launches]


@pytest.mark.clause("native-191", "native-193", "I32")
def test_launch_goes_from_its_start_to_its_end(coordinator: Coordinator) -> None:
    """Started and members are published, the end empties document and ledger; a repeat changes nothing."""
    ledger = ledger_of(coordinator)
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    try:
        evidence = started(child.pid)
        ledger.record_started(evidence)
        (launch,) = coordinator.store.read_ledger().launches
        assert (len(launch.processes), launch.limit_mark) == (1, 0)
        astray = msgspec.structs.replace(evidence, members=(self_identity(),), limit_mark=7)
        ledger.record_members(astray)
        (launch,) = coordinator.store.read_ledger().launches
        assert (launch.processes[1:], launch.limit_mark) == ((self_identity(),), 7)
        ledger.record_members(astray)
        assert states(coordinator) == ("running", ["identified"])
    finally:
        child.kill()
        child.wait()
    ledger.complete(DONE)
    assert states(coordinator) == ("completed", [])
    ledger.complete(DONE)
    assert states(coordinator) == ("completed", [])


def test_command_that_never_ran_gives_its_right_back(coordinator: Coordinator) -> None:
    """Before its process was published, and after."""
    ledger_of(coordinator).spawn_failed(SpawnFailure(127, "not found"))
    assert coordinator.store.read(KEY).holder is None
    assert coordinator.store.read_ledger().launches == ()


def test_command_that_could_not_be_executed_is_over_at_once(coordinator: Coordinator) -> None:
    """Its process was published and reaped: nothing has to be looked for."""
    ledger = ledger_of(coordinator)
    child = subprocess.Popen(["sleep", "30"], start_new_session=True)
    ledger.record_started(started(child.pid))
    child.kill()
    child.wait()
    ledger.spawn_failed(SpawnFailure(126, "cannot be executed"))
    assert states(coordinator) == ("completed", [])


@pytest.mark.clause("I33", "I40")
def test_supervisor_with_an_old_fence_or_nonce_is_refused(coordinator: Coordinator) -> None:
    """It starts nothing; and its late word of an end ends nobody else's right."""
    for ledger in (ledger_of(coordinator, fence=0), ledger_of(coordinator, nonce="m" * 32)):
        with pytest.raises(Refused):
            ledger.record_started(started(1))
    ledger_of(coordinator, fence=0).complete(DONE)
    assert states(coordinator)[0] == "starting"


@pytest.mark.clause("native-189")
def test_command_that_holds_nothing_is_refused_without_its_record(coordinator: Coordinator) -> None:
    """It is recorded like any other: one that was never admitted may not start."""
    before = coordinator.store.read_ledger()
    plain = SupervisorLedger(LaunchSpec("other", "m" * 32, ("true",), context=coordinator.store.path))
    with pytest.raises(Refused) as caught:
        plain.record_started(started(1))
    assert caught.value.code == "INVALID_PARAMS"
    plain.complete(DONE)
    assert coordinator.store.read_ledger() == before
    assert principal("a")


def test_end_of_a_launch_whose_place_was_removed_is_told_to_nobody(
    coordinator: Coordinator, private_home: Path
) -> None:
    """A supervisor does not live on for a folder that is gone, and makes none in its place."""
    ledger = ledger_of(coordinator)
    shutil.rmtree(private_home / "peer-resources")
    ledger.complete(DONE)
    ledger.spawn_failed(SpawnFailure(127, "not found"))
    assert not (private_home / "peer-resources").exists()


@pytest.mark.clause("I34")
def test_end_is_told_to_whose_record_is_whole_beside_a_damaged_one(coordinator: Coordinator) -> None:
    """The launch leaves the ledger; the damaged record keeps its bytes for who begins it anew."""
    path = Path(coordinator.store.path) / f"{key_digest(KEY)}.json"
    path.write_bytes(b"garbled")
    ledger_of(coordinator).complete(DONE)
    assert coordinator.store.read_ledger().launches == ()
    assert path.read_bytes() == b"garbled"


def test_end_is_not_told_past_a_damaged_ledger(coordinator: Coordinator) -> None:
    """It is for the supervisor to ask again: nothing is taken for stored."""
    (Path(coordinator.store.path) / "launches.json").write_bytes(b"garbled")
    with pytest.raises(RecoveryRequired):
        ledger_of(coordinator).complete(DONE)


@pytest.mark.clause("I32")
def test_start_waits_for_a_crowd_at_the_locks(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that others hold for long refuses no start; the patience has an end."""
    ledger = ledger_of(coordinator)
    decide, busy = ledger._coordinator.decide, Refused("RESOURCE_BUSY", "crowded", is_retryable=True)
    refusals = iter([busy, busy])

    def crowded(*asked: Any, **more: Any) -> Any:
        refusal = next(refusals, None)
        if refusal is not None:
            raise refusal
        return decide(*asked, **more)

    monkeypatch.setattr(ledger._coordinator, "decide", crowded)
    ledger.record_started(started(os.getpid()))
    assert states(coordinator) == ("running", ["identified"])
    refusals = iter([busy])
    monkeypatch.setattr(launching, "START_PATIENCE_S", 0.0)
    with pytest.raises(Refused, match="crowded"):
        ledger.record_started(started(os.getpid()))
