"""Process numbers that are given away again: nobody is taken for somebody else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
REUSES = int(os.environ.get("TIELINE_TEST_REUSES", "500"))
TIMEOUT_S = 55 + REUSES / 10
# A process namespace of its own, in which this user may say what number comes next.
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def why_not() -> str:
    """Return why no such namespace can be had here, empty when one can."""
    if sys.platform != "linux":
        return "process namespaces are Linux's"
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    script = "echo 100 > /proc/sys/kernel/ns_last_pid"
    done = subprocess.run([*NAMESPACE, "sh", "-c", script], capture_output=True, check=False)
    if done.returncode:
        return f"no process namespace for an ordinary user: {done.stderr.decode(errors='replace').strip()}"
    return ""


@pytest.mark.timeout(TIMEOUT_S + 5)
@pytest.mark.clause("K11", "I36", "I37", "O36", "O41", "mutant-16", "native-191")
def test_reused_numbers_are_never_taken_for_the_process_that_had_them() -> None:
    """Of some hundred forced reuses, most within one tick of the clock, none is judged wrongly."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    done = subprocess.run(
        [*NAMESPACE, sys.executable, "-m", "tests.faults.reuse", str(REUSES)],
        capture_output=True,
        check=False,
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'src'}"},
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    print(told["counts"])
    assert told["wrong"] == []
    assert told["counts"]["reused"] == REUSES
    # Number and start time recurred together: they alone would have been wrong.
    assert told["counts"]["equal start"] > REUSES / 4
