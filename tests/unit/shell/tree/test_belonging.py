"""Whether a process is proven to run in a launch's tree."""

import os
import sys
import uuid
from collections.abc import Iterator

import msgspec
import pytest

from tests.faults.launches import wait_until
from tests.unit.shell.tree.kit import Stand, end_all, gone_identity, python
from tieline.shell.process import identify, self_identity
from tieline.shell.tree import MARKS_VARIABLE, LaunchEvidence, is_inside
from tieline.shell.tree.limits import mark_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def nonce() -> str:
    """Give a mark that no other process has."""
    return uuid.uuid4().hex


@pytest.fixture
def ended() -> Iterator[list[Stand]]:
    """Give a list; whatever stands in it is ended with all that it named."""
    stands: list[Stand] = []
    yield stands
    end_all(stands)


@pytest.mark.clause("I31", "I36", "native-192")
def test_process_with_a_copied_environment_is_not_inside(nonce: str, ended: list[Stand]) -> None:
    """The mark alone proves nothing: the launch runs elsewhere."""
    launch = Stand("sleep 60 & echo $!; wait", nonce, environment={MARKS_VARIABLE: nonce})
    thief = Stand("sleep 60 & echo $!; wait", nonce, environment={MARKS_VARIABLE: nonce})
    ended += [launch, thief]
    assert not is_inside(launch.evidence, thief.pids[0])
    assert not is_inside(launch.evidence, os.getpid())
    assert is_inside(launch.evidence, launch.pids[0])


@pytest.mark.clause("I31", "native-192")
def test_process_that_left_the_session_is_inside_while_its_supervisor_lives(
    nonce: str, ended: list[Stand]
) -> None:
    """The supervisor is above it, whatever session it leads, and without any mark."""
    stand = Stand("setsid sh -c 'sleep 60 & echo $!; wait' & wait", nonce)
    ended.append(stand)
    wait_until(lambda: os.getsid(stand.pids[0]) != stand.process.pid)
    assert is_inside(stand.evidence, stand.pids[0])


@pytest.mark.clause("I31", "I36")
def test_process_of_the_session_is_inside_after_the_supervisor(nonce: str, ended: list[Stand]) -> None:
    """The session outlives its leader; one whose number went to another process does not."""
    stand = Stand("sleep 60 & echo $!; wait", nonce)
    ended.append(stand)
    stand.end()
    assert is_inside(stand.evidence, stand.pids[0])
    other = Stand("sleep 60 & echo $!; wait", nonce)
    ended.append(other)
    now = other.evidence.supervisor
    before = msgspec.structs.replace(now, start_ticks=now.start_ticks - 10, pidfd_inode=None)
    assert not is_inside(LaunchEvidence("l", nonce, before), other.pids[0])


def test_process_below_a_recorded_one_is_inside(nonce: str, ended: list[Stand]) -> None:
    """The command, and what was seen outside of the session, hand it on to what they start."""
    stand = Stand("sleep 60 & echo $!; wait", nonce)
    ended.append(stand)
    here, gone = identify(stand.process.pid), gone_identity()
    assert here is not None
    assert is_inside(LaunchEvidence("l", nonce, gone, command=here), stand.pids[0])
    assert is_inside(LaunchEvidence("l", nonce, gone, members=(here,)), stand.pids[0])
    assert not is_inside(LaunchEvidence("l", nonce, gone), stand.pids[0])


def test_process_that_bears_the_number_is_inside(nonce: str) -> None:
    """A number among the limits is inherited, and copied by nobody."""
    code = (
        f"from tieline.shell.tree.limits import bear_mark; bear_mark({nonce!r})\n"
        "import time; print(flush=True); time.sleep(60)"
    )
    with python(code, new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        gone = gone_identity()
        assert is_inside(LaunchEvidence("l", nonce, gone, limit_mark=mark_of(nonce)), process.pid)
        assert not is_inside(LaunchEvidence("l", nonce, gone, limit_mark=mark_of("x")), process.pid)


@pytest.mark.clause("I31", "I36", "native-192")
def test_process_that_copied_the_number_is_not_inside_while_the_supervisor_lives(
    nonce: str, ended: list[Stand]
) -> None:
    """Mark and number can be set by hand; that a living supervisor is above a process cannot."""
    stand = Stand("sleep 60 & echo $!; wait", nonce, environment={MARKS_VARIABLE: nonce})
    ended.append(stand)
    code = (
        f"from tieline.shell.tree.limits import bear_mark; bear_mark({nonce!r})\n"
        "import time; print(flush=True); time.sleep(60)"
    )
    with python(code, new_session=True, environment={MARKS_VARIABLE: nonce}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        launch = msgspec.structs.replace(stand.evidence, limit_mark=mark_of(nonce))
        assert not is_inside(launch, process.pid)
        assert is_inside(launch, stand.pids[0])
        assert is_inside(msgspec.structs.replace(launch, supervisor=gone_identity()), process.pid)


@pytest.mark.parametrize("changes", [{"pid_namespace": 1}, {"boot_id": "x"}, {"platform": "darwin"}])
def test_process_of_elsewhere_is_not_inside(changes: dict[str, object]) -> None:
    """A launch of another boot or container has no process here."""
    identity = msgspec.structs.replace(self_identity(), **changes)
    assert not is_inside(LaunchEvidence("l", "n" * 32, identity), os.getpid())
    assert is_inside(LaunchEvidence("l", "n" * 32, self_identity()), os.getpid())
