"""Who stands below whom in the table of processes."""

import os
import signal
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.faults.launches import wait_until
from tests.unit.shell.tree.kit import Stand, end_all
from tieline.shell.tree import descendants, is_descendant, strays

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


def test_descendants_are_found_at_any_depth(nonce: str, ended: list[Stand]) -> None:
    """Children and theirs are below, and nobody else is."""
    stand = Stand("sh -c 'sleep 60 & echo $$ $!; wait' & wait", nonce)
    ended.append(stand)
    assert descendants(stand.process.pid) == stand.pids
    assert all(is_descendant(pid, stand.process.pid) for pid in stand.pids)
    assert not is_descendant(stand.process.pid, stand.pids[0])
    assert not is_descendant(9_999_999, stand.process.pid)


def test_descendants_are_found_without_the_kernels_lists(
    nonce: str, ended: list[Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel keeps no list of children the whole table is read."""
    stand = Stand("sh -c 'sleep 60 & echo $$ $!; wait' & wait", nonce)
    ended.append(stand)
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: not str(path).endswith("/children") and exists(path))
    assert descendants(stand.process.pid) == stand.pids


def test_stray_is_a_process_that_left_the_session(nonce: str, ended: list[Stand]) -> None:
    """Only what leads or joined another session is astray."""
    stand = Stand("sleep 60 & setsid sleep 60 & echo $!; wait", nonce)
    ended.append(stand)
    wait_until(lambda: strays(stand.process.pid) == stand.pids)
    os.killpg(stand.process.pid, signal.SIGKILL)
