"""`tieline run` between its claim and its start."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.resources.kit import KEY, NONCE, begin, claim, claimant, principal, start
from tieline.engine.coordination import Claim, Grant, SetPolicy, Status
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.model.process import ProcessIdentity
from tieline.model.resource import ResourceKey
from tieline.runtime.resources import coordinator as coordinator_module
from tieline.runtime.resources import running, viewing
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.running import (
    Order,
    Run,
    Standing,
    command_digest,
    lost,
)
from tieline.shell.process import identify, self_identity
from tieline.shell.tree import MARKS_VARIABLE

LEAD = Peer("lead").id


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give a coordinator in a place of its own."""
    made = Coordinator(str(private_home))
    yield made
    made.close()


def govern(coordinator: Coordinator, *participants: str) -> None:
    """Put the build under a policy of `lead`."""
    peers = tuple(Peer(name).id for name in participants)
    policy = SetPolicy(principal("lead", "resource.control"), KEY, LEAD, peers)
    coordinator.decide([KEY], policy, peers={LEAD: "alive"})


def run_of(
    coordinator: Coordinator, name: str, home: Path, timeout_ms: int = 300, *, controls: bool = False
) -> Run:
    """Return a run that has claimed the build."""
    order = Order((KEY,), ("true",), timeout_ms)
    who = principal(name, "resource.control") if controls else principal(name)
    made = Run(coordinator, str(home), who, claimant(name), order)
    made._keys = (KEY,)
    made._claim()
    return made


def test_controllers_own_command_waits_for_a_grant_as_well(
    coordinator: Coordinator, private_home: Path
) -> None:
    """Waiting is not granting: under a manual policy the controller grants itself by its own act."""
    govern(coordinator, "a")
    run = run_of(coordinator, "lead", private_home, controls=True)
    with pytest.raises(Refused) as caught:
        run._wait(lambda _shape: None)
    assert caught.value.code == "RESOURCE_WAIT_TIMEOUT"
    (ticket,) = coordinator.store.read(KEY).queue
    grant = Grant(principal("lead", "resource.control"), ticket.request_id)
    coordinator.decide([KEY], grant, peers={LEAD: "alive"})
    assert run._wait(lambda _shape: None) == {KEY: 1}


@pytest.mark.clause("native-188", "native-215")
def test_ticket_that_a_policy_made_void_ends_the_wait(coordinator: Coordinator, private_home: Path) -> None:
    """The reason is told, and nothing starts."""
    run = run_of(coordinator, "a", private_home)
    govern(coordinator)
    with pytest.raises(Refused) as caught:
        run._wait(lambda _shape: None)
    assert caught.value.code == "STALE_POLICY"
    assert lost(None).code == "RESERVATION_EXPIRED"


def test_policy_adds_what_an_enrolled_command_must_hold(coordinator: Coordinator, private_home: Path) -> None:
    """A command that names nothing still waits for what a strict policy asks of its root."""
    govern(coordinator, "a")
    order = Order((), ("true",), 300)
    assert Run(coordinator, str(private_home), principal("a"), claimant("a"), order)._gated() == (KEY,)
    assert Run(coordinator, str(private_home), principal("z"), claimant("z"), order)._gated() == ()


def test_right_that_lapses_wakes_who_waits(
    coordinator: Coordinator, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes in the directory when a right lapses: the waiter looks when it is due."""
    monkeypatch.setattr("tieline.engine.coordination.turn.RESERVATION_MS", 700)
    claim(coordinator, "sleeper", KEY)
    run = run_of(coordinator, "a", private_home, 5_000)
    begun = coordinator_module.now().mono_ms
    assert run._wait(lambda _shape: None) == {KEY: 2}
    assert coordinator_module.now().mono_ms - begun < 3_000


@pytest.mark.clause("I31", "I36", "native-187", "native-3.6.10")
def test_copied_mark_of_a_live_launch_gives_nothing(
    coordinator: Coordinator, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command with another launch's environment waits like any other, and is told why, once."""
    elsewhere = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        claim(coordinator, "holder", KEY)
        begin(coordinator, "holder", 1, identify(elsewhere.pid))
        monkeypatch.setenv(MARKS_VARIABLE, NONCE)
        run = run_of(coordinator, "a", private_home)
        assert run._inherited == frozenset()
        told: list[str] = []
        with pytest.raises(Refused) as caught:
            run._wait(lambda _shape: None, told.append)
    finally:
        elsewhere.kill()
        elsewhere.wait()
    assert caught.value.code == "RESOURCE_WAIT_TIMEOUT"
    assert [f"names the launch launch-holder (make), which holds {KEY}" in text for text in told] == [True]


@pytest.mark.clause("native-3.6.10")
def test_mark_of_a_launch_above_this_process_is_believed(
    coordinator: Coordinator, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the launch around this process holds is not waited for."""
    claim(coordinator, "holder", KEY)
    begin(coordinator, "holder", 1, identify(os.getppid()))
    monkeypatch.setenv(MARKS_VARIABLE, f"{'x' * 32} {NONCE}")
    assert run_of(coordinator, "a", private_home)._inherited == {KEY}
    monkeypatch.delenv(MARKS_VARIABLE)
    assert run_of(coordinator, "b", private_home)._inherited == frozenset()


def test_mark_of_a_launch_whose_host_has_not_yet_told_its_process_is_waited_for(
    coordinator: Coordinator, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host tells the process after it has started it: the command may be quicker."""
    claim(coordinator, "holder", KEY)
    begin(coordinator, "holder", 1)
    monkeypatch.setenv(MARKS_VARIABLE, NONCE)
    looks = iter([lambda: None, lambda: start(coordinator, "holder", 1, self_identity())])
    monkeypatch.setattr(running.time, "sleep", lambda _seconds: next(looks)())
    assert run_of(coordinator, "a", private_home)._inherited == {KEY}


def test_digest_binds_program_arguments_and_directory() -> None:
    """Each of the three changes it."""
    digests = {
        command_digest(("a", "b"), "/x"), command_digest(("a", "c"), "/x"), command_digest(("a", "b"), "/y"),
        command_digest(("a b",), "/x"), command_digest(("a", "b"), "/x"),
    }  # fmt: skip
    assert len(digests) == 4


def govern_by(coordinator: Coordinator, owner: ProcessIdentity, *participants: str) -> None:
    """Put the build under a policy of `lead`, whose root is this process."""
    peers = tuple(Peer(name).id for name in participants)
    lead = principal("lead", "resource.control")
    policy = SetPolicy(lead, KEY, LEAD, peers, controller_alias="lead", controller_owner=owner)
    coordinator.decide([KEY], policy, peers={LEAD: "alive"})


@pytest.mark.clause("native-194")
def test_controller_that_dies_is_told_at_once_and_the_queue_outlives_it(
    coordinator: Coordinator, private_home: Path
) -> None:
    """Who waits learns it without waiting its time out; a replacement grants the same ticket."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    owner = identify(child.pid)
    assert owner is not None
    govern_by(coordinator, owner, "a")
    run = run_of(coordinator, "a", private_home, 4_000)
    told: list[Standing] = []

    def tell(standing: Standing) -> None:
        told.append(standing)
        if standing.snapshot.controller_life == "alive":
            child.kill()
            child.wait()
        else:
            next_lead = principal("next", "resource.control")
            new = Peer("next").id
            policy = SetPolicy(next_lead, KEY, new, None, None, controller_owner=self_identity())
            coordinator.decide([KEY], policy, peers={new: "alive"})
            (ticket,) = coordinator.store.read(KEY).queue
            coordinator.decide([KEY], Grant(next_lead, ticket.request_id), peers={new: "alive"})

    begun = coordinator_module.now().mono_ms
    assert run._wait(tell) == {KEY: 1}
    assert [one.snapshot.controller_life for one in told] == ["alive", "gone"]
    assert coordinator_module.now().mono_ms - begun < 3_500


def test_wait_for_an_ended_controller_ends_with_its_own_code(
    coordinator: Coordinator, private_home: Path
) -> None:
    """Nobody came to replace it: the code and the next action say so."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    owner = identify(child.pid)
    assert owner is not None
    govern_by(coordinator, owner, "a")
    child.kill()
    child.wait()
    run = run_of(coordinator, "a", private_home, 100)
    with pytest.raises(Refused) as caught:
        run._wait(lambda _standing: None)
    assert caught.value.code == "CONTROLLER_UNAVAILABLE"
    assert f"tieline resource policy {KEY} --controller me" in caught.value.action


def test_peer_that_a_policy_left_out_is_told_who_can_help(
    coordinator: Coordinator, private_home: Path
) -> None:
    """Which policy refuses it, whose it is, and the two commands that help."""
    govern_by(coordinator, self_identity(), "a")
    govern_by(coordinator, self_identity(), "b")
    with pytest.raises(Refused) as caught:
        run_of(coordinator, "a", private_home)
    assert (caught.value.code, "epoch 2" in str(caught.value)) == ("SCOPE_DENIED", True)
    for words in (":lead", f"policy {KEY} --enrol :a", f"policy {KEY} --unenrol :a"):
        assert words in caught.value.action
    shape = viewing.status(coordinator, KEY, principal("a"))
    assert "--enrol :a" in shape["nextAction"]


@pytest.mark.clause("native-3.6.11")
def test_wait_costs_nothing_for_what_becomes_of_other_resources(
    coordinator: Coordinator, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits looks again when its own resource changes, however much others are used beside it."""
    claim(coordinator, "holder", KEY)
    run = run_of(coordinator, "a", private_home, 1_500)
    looks: list[None] = []
    observe = run._coordinator.observe

    def counted(*arguments: Any, **named: Any) -> Any:
        looks.append(None)
        return observe(*arguments, **named)

    monkeypatch.setattr(run._coordinator, "observe", counted)
    is_over = threading.Event()

    def use_others() -> None:
        elsewhere = Coordinator(str(private_home))
        for number in range(200):
            if is_over.wait(0.01):
                break
            claim(elsewhere, f"other{number}", ResourceKey("machine/other"))
        elsewhere.close()

    beside = threading.Thread(target=use_others)
    beside.start()
    with pytest.raises(Refused):
        run._wait(lambda _standing: None)
    is_over.set()
    beside.join()
    assert len(looks) <= 3


@pytest.mark.clause("I31", "I34")
def test_reserved_holder_that_died_is_not_waited_out(coordinator: Coordinator, private_home: Path) -> None:
    """A right whose owner is proven gone ends then, and not when its 30 s are over."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    owner = identify(child.pid)
    assert owner is not None
    dying = claimant("dying", owner)
    coordinator.decide([KEY], Claim(principal("dying"), dying, "l", "digest", "make", "build", "request-d"))
    coordinator.observe([KEY], principal("dying"))
    run = run_of(coordinator, "a", private_home, 10_000)
    begun = coordinator_module.now().mono_ms

    def tell(_standing: Standing) -> None:
        child.kill()
        child.wait()

    assert run._wait(tell) == {KEY: 2}
    assert coordinator_module.now().mono_ms - begun < 3_000


def test_crowd_at_the_locks_ends_no_wait(
    coordinator: Coordinator, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked up only to be told is waited for like everything else."""
    claim(coordinator, "holder", KEY)
    run = run_of(coordinator, "a", private_home, 700)
    decide = run._coordinator.decide
    crowded = [True, True]

    def busy(keys: Any, command: Any, **named: Any) -> Any:
        if isinstance(command, Status) and crowded:
            crowded.pop()
            raise Refused("RESOURCE_BUSY", "the lock is held by another process", is_retryable=True)
        return decide(keys, command, **named)

    monkeypatch.setattr(run._coordinator, "decide", busy)
    told: list[Standing] = []
    with pytest.raises(Refused) as caught:
        run._wait(told.append)
    assert caught.value.code == "RESOURCE_WAIT_TIMEOUT"
    assert len(told) == 1
    assert not crowded
