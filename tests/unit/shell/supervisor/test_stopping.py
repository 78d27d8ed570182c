"""Signals reach what runs below this process, and nobody else."""

import os
import signal
import subprocess
import sys

import pytest

from tests.faults.launches import wait_until
from tieline.shell.supervisor import stopping
from tieline.shell.supervisor.stopping import signal_group, signal_tree

linux = pytest.mark.skipif(sys.platform != "linux", reason="signals through descriptors of processes")


@linux
@pytest.mark.clause("I37")
def test_signal_to_the_tree_reaches_all_below_and_nobody_beside() -> None:
    """Children, theirs and those in sessions of their own get it; a sibling of the caller does not."""
    canary = subprocess.Popen(["sleep", "60"])
    caller = (
        "import subprocess, sys, signal, time\n"
        "from tieline.shell.supervisor.holding import become_reaper\n"
        "from tieline.shell.supervisor.stopping import signal_tree\n"
        "become_reaper()\n"
        "p = subprocess.Popen(['sh', '-c', 'setsid sleep 60 & sleep 60 & wait'])\n"
        "time.sleep(0.3)\nprint(signal_tree(signal.SIGKILL))\np.wait()\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", caller],
            capture_output=True,
            env=os.environ | {"PYTHONPATH": "src"},
            check=True,
            timeout=30,
        )
        assert done.stdout == b"3\n"
        assert canary.poll() is None
    finally:
        canary.kill()
        canary.wait()


@linux
@pytest.mark.clause("I37", "O41", "K11")
def test_signal_to_a_number_that_went_to_a_stranger_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that was below us when it was listed and is a stranger's now is left alone."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        monkeypatch.setattr(stopping, "descendants", lambda _: [os.getppid(), child.pid, 9_999_999])
        assert signal_tree(0) == 1
        monkeypatch.setattr(stopping, "is_descendant", lambda *_: False)
        assert signal_tree(signal.SIGKILL) == 0
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_signal_to_a_group_tells_whether_there_is_one() -> None:
    """A group that has ended gets nothing, and that is said."""
    child = subprocess.Popen(["sleep", "60"], process_group=0)
    assert signal_group(child.pid, signal.SIGKILL)
    wait_until(lambda: child.poll() is not None)
    assert not signal_group(child.pid, signal.SIGKILL)
