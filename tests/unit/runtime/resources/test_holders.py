"""What a look without a lock shows of who is in the way."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.unit.runtime.resources.kit import KEY, begin, claim, claimant, principal, start
from tieline.engine.coordination import Claim
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Document
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.holders import (
    LOOK_S,
    PROOF_LOOK_S,
    SOON_LOOKS,
    UNPROVEN_LOOK_S_MAX,
    Doubt,
    is_seen_held,
    is_tended,
)
from tieline.shell.process import identify, self_identity


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give the door to an empty place."""
    made = Coordinator(str(private_home))
    yield made
    made.close()


def sleeper() -> tuple["subprocess.Popen[bytes]", ProcessIdentity]:
    """Start a process that does nothing."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    identity = identify(child.pid)
    assert identity is not None
    return child, identity


def test_is_tended_says_whether_somebody_alive_will_tell_the_end(coordinator: Coordinator) -> None:
    """Free, reserved, and held under a living supervisor: yes. Held by what nobody owns: no."""
    assert is_tended(Document(KEY))
    claim(coordinator, "a", KEY)
    assert is_tended(coordinator.store.read(KEY))
    begin(coordinator, "a", 1)
    assert not is_tended(coordinator.store.read(KEY))


def test_is_tended_with_a_living_supervisor(coordinator: Coordinator) -> None:
    """The supervisor tells the end itself."""
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1, self_identity())
    assert is_tended(coordinator.store.read(KEY))


def test_holder_without_a_supervisor_is_seen_by_its_command(coordinator: Coordinator) -> None:
    """A host's own command is looked at cheaply while it lives; its end is looked into at once."""
    child = subprocess.Popen(["/bin/sleep", "60"])
    process = identify(child.pid)
    assert process is not None
    claim(coordinator, "holder", KEY)
    begin(coordinator, "holder", 1)
    start(coordinator, "holder", 1, process)
    document = coordinator.store.read(KEY)
    assert not is_tended(document)
    assert is_seen_held(document)
    child.kill()
    child.wait()
    assert not is_seen_held(document)


@pytest.mark.clause("native-195")
def test_unproven_holder_is_looked_at_ever_more_rarely_and_named(coordinator: Coordinator) -> None:
    """Nothing of it will change by itself: the looks become rare, and who waits learns whom to answer for."""
    child, _ = sleeper()
    try:
        elsewhere = msgspec.structs.replace(self_identity(), pid_namespace=1)
        claim(coordinator, "holder", KEY)
        begin(coordinator, "holder", 1, elsewhere)
        documents = [coordinator.store.read(KEY)]
        doubt = Doubt(coordinator)
        pauses = []
        for number in range(1, 9):
            assert doubt.look(documents) == "unknown"
            assert doubt.unproven == ("launch-holder" if number >= SOON_LOOKS else "")
            pauses.append(doubt.pause_s(documents))
        assert pauses[: SOON_LOOKS - 1] == [PROOF_LOOK_S] * (SOON_LOOKS - 1)
        assert pauses[-1] == UNPROVEN_LOOK_S_MAX
        assert pauses == sorted(pauses)
    finally:
        child.kill()
        child.wait()


@pytest.mark.clause("I34")
def test_look_tells_a_living_holder_from_one_at_its_end(coordinator: Coordinator) -> None:
    """While its supervisor lives the look stays slow; the end is seen by the first look after it."""
    child, supervisor = sleeper()
    claim(coordinator, "holder", KEY)
    begin(coordinator, "holder", 1, supervisor)
    documents = [coordinator.store.read(KEY)]
    doubt = Doubt(coordinator)
    assert (doubt.look(documents), doubt.pause_s(documents)) == ("alive", LOOK_S)
    child.kill()
    child.wait()
    assert (doubt.look(documents), doubt.pause_s(documents)) == ("gone", PROOF_LOOK_S)
    assert doubt.unproven == ""


def test_look_finds_the_right_of_a_dead_owner_that_was_never_used(coordinator: Coordinator) -> None:
    """No launch is in the ledger yet, and none is asked for."""
    child, owner = sleeper()
    dying = claimant("dying", owner)
    coordinator.decide([KEY], Claim(principal("dying"), dying, "l", "digest", "make", "build", "request-d"))
    coordinator.observe([KEY], principal("dying"))
    documents = [coordinator.store.read(KEY)]
    assert Doubt(coordinator).look(documents) == "alive"
    child.kill()
    child.wait()
    assert Doubt(coordinator).look(documents) == "gone"
