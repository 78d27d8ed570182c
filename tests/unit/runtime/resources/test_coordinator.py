"""One process's door to shared resources."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.resources.kit import KEY, NONCE, OTHER, begin, claim, claimant, principal, start
from tieline.engine.coordination import Claim, Complete, SetPolicy, Started, identify_launch
from tieline.errors import RecoveryRequired, Refusal, Refused
from tieline.model.resource import Launch, Probe, TicketState, key_digest
from tieline.runtime.resources.coordinator import Coordinator, evidence_of
from tieline.shell.process import identify


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give a coordinator in a place of its own."""
    made = Coordinator(str(private_home))
    yield made
    made.close()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """Give a process that leads its own session and runs until it is ended."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def state_of(coordinator: Coordinator, name: str) -> TicketState | None:
    """Return where a claim stands."""
    ticket = coordinator.store.read(KEY).ticket(f"request-{name}")
    return None if ticket is None else ticket.state


@pytest.mark.clause("native-190", "I33")
def test_refusal_of_the_ledger_undoes_the_whole(coordinator: Coordinator) -> None:
    """What cannot enter the ledger has not begun either."""
    claim(coordinator, "a", KEY)
    command = Complete("launch-a", NONCE, {}, Probe("gone"))
    with pytest.raises(Refused) as caught:
        coordinator.decide([KEY], command, change=lambda _ledger, _documents: Refusal("STALE_POLICY", "no"))
    assert caught.value.code == "STALE_POLICY"
    begin(coordinator, "a", 1)
    with pytest.raises(Refused):
        begin(coordinator, "b", 1)
    assert [one.launch_id for one in coordinator.store.read_ledger().launches] == ["launch-a"]


def test_control_group_that_a_killed_supervisor_left_is_removed(
    coordinator: Coordinator,
    sleeper: "subprocess.Popen[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever proves the end removes the empty group, and not before."""
    group = tmp_path / f"tieline-{NONCE[:24]}"
    group.mkdir()
    (tmp_path / "cgroup.procs").touch()
    monkeypatch.setattr("tieline.shell.tree.proof.cgroup_state", lambda _directory: "empty")
    identity = identify(sleeper.pid)
    assert identity is not None
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1, identity)
    coordinator.decide(
        [KEY],
        Started("launch-a", NONCE, {KEY: 1}, (identity,), "cgroup"),
        change=lambda ledger, _documents: identify_launch(
            ledger, "launch-a", NONCE, (identity,), "cgroup", str(group)
        ),
    )
    sleeper.kill()
    sleeper.wait()
    coordinator.observe([KEY], principal("b"))
    assert group.exists()
    time.sleep(0.6)
    for _look in range(2):
        coordinator.observe([KEY], principal("b"))
    assert coordinator.store.read_ledger().launches == ()
    assert not group.exists()


@pytest.mark.clause("I34", "I36", "mutant-15", "mutant-16")
def test_holder_is_freed_on_the_proven_end_and_on_nothing_else(
    coordinator: Coordinator, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """Alive it holds, however long nobody spoke; gone it lets go after the quarantine."""
    identity = identify(sleeper.pid)
    assert identity is not None
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1)
    start(coordinator, "a", 1, identity)
    claim(coordinator, "b", KEY)
    for _look in range(3):
        time.sleep(0.3)  # longer than the quarantine, together
        coordinator.observe([KEY], principal("b"))
        assert (state_of(coordinator, "a"), state_of(coordinator, "b")) == ("running", "queued")
    sleeper.kill()
    sleeper.wait()
    coordinator.observe([KEY], principal("b"))
    assert state_of(coordinator, "a") == "running"  # seen once: the quarantine runs
    time.sleep(0.6)
    coordinator.observe([KEY], principal("b"))
    assert (state_of(coordinator, "a"), state_of(coordinator, "b")) == ("completed", "reserved")
    coordinator.observe([KEY], principal("b"))
    assert coordinator.store.read_ledger().launches == ()


def test_number_that_went_to_another_process_frees_nothing_wrongly(
    coordinator: Coordinator, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """A waiter is judged by its whole identity: the same number with another start is another process."""
    identity = identify(sleeper.pid)
    assert identity is not None
    other = msgspec.structs.replace(identity, start_ticks=identity.start_ticks - 1, pidfd_inode=None)
    command = Claim(principal("a"), claimant("a", other), "launch-a", "d", "make", "x", "request-a")
    coordinator.decide([KEY], command)
    coordinator.observe([KEY], principal("b"))
    assert state_of(coordinator, "a") == "ended"


def test_waiter_that_died_leaves_the_line(
    coordinator: Coordinator, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """Its ticket ends, and the next one is due."""
    identity = identify(sleeper.pid)
    assert identity is not None
    coordinator.decide(
        [KEY], Claim(principal("a"), claimant("a", identity), "launch-a", "d", "make", "x", "request-a")
    )
    sleeper.kill()
    sleeper.wait()
    claim(coordinator, "b", KEY)
    assert (state_of(coordinator, "a"), state_of(coordinator, "b")) == ("ended", "reserved")


def test_bundle_is_decided_with_all_its_documents(coordinator: Coordinator) -> None:
    """A look at one resource of a bundle reads the others as well."""
    claim(coordinator, "a", OTHER)
    claim(coordinator, "b", KEY, OTHER)
    coordinator.observe([KEY], principal("b"))
    assert state_of(coordinator, "b") is None  # a bundle's tickets are numbered
    queue = coordinator.store.read(KEY).queue
    assert [ticket.request_id for ticket in queue] == ["request-b.1"]


@pytest.mark.clause("native-216", "I38")
def test_record_that_was_lost_is_never_started_anew(coordinator: Coordinator) -> None:
    """Not by a look, and not by a command."""
    claim(coordinator, "a", KEY)
    os.unlink(f"{coordinator.store.path}/{key_digest(KEY)}.json")
    for _try in range(2):
        with pytest.raises(RecoveryRequired):
            coordinator.observe([KEY], principal("a"))


def test_evidence_of_a_launch_without_supervisor_is_its_command(sleeper: "subprocess.Popen[bytes]") -> None:
    """A host that starts commands itself: the command leads its session; nothing recorded, nothing known."""
    identity = identify(sleeper.pid)
    assert identity is not None
    launch = Launch("l", NONCE, "d", "make", "c", claimant("a"), 1, identity.boot_id, processes=(identity,))
    found = evidence_of(launch)
    assert found is not None
    assert (found.supervisor, found.command, found.members) == (identity, identity, ())
    assert evidence_of(msgspec.structs.replace(launch, processes=())) is None


@pytest.mark.clause("native-188", "I33")
def test_damaged_record_asks_only_whom_its_policy_asked(coordinator: Coordinator) -> None:
    """Other commands go on past a damaged record; one that its policy gates does not slip past it."""
    alice = principal("alice", "resource.control")
    command = SetPolicy(alice, KEY, alice.peer.id, (principal("bob").peer.id,), "strict")
    coordinator.decide([KEY], command, peers={alice.peer.id: "alive"})
    claim(coordinator, "carol", OTHER)
    (Path(coordinator.store.path) / f"{key_digest(KEY)}.json").write_bytes(b"garbled")
    gated = coordinator.gated_by(frozenset({principal("bob").peer.id}), frozenset({"build"}))
    assert gated == (KEY,)
    assert coordinator.gated_by(frozenset({principal("carol").peer.id}), frozenset({"build"})) == ()
    assert [one.resource for one in coordinator.readable(coordinator.known_keys())] == [OTHER]
    claim(coordinator, "dave", OTHER)


def test_refusal_says_what_helps_at_a_resource(coordinator: Coordinator) -> None:
    """The next action of a code that messages share speaks of the resource here."""
    alice = principal("alice", "resource.control")
    command = SetPolicy(alice, KEY, alice.peer.id, (principal("bob").peer.id,), "strict")
    coordinator.decide([KEY], command, peers={alice.peer.id: "alive"})
    with pytest.raises(Refused) as caught:
        claim(coordinator, "carol", KEY)
    assert (caught.value.code, KEY in caught.value.action) == ("SCOPE_DENIED", True)
