"""The number of a launch among the limits of its processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.shell.tree.kit import gone_identity, python
from tieline.shell.tree import limits
from tieline.shell.tree.limits import MARKS, bear_mark, borne_mark, mark_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BEARER = (
    "import resource, time\n"
    "from tieline.shell.tree.limits import bear_mark, mark_of\n"
    "{before}\ntaken = bear_mark('n')\n{after}\nprint(taken, flush=True)\ntime.sleep(60)\n"
)


def said(before: str = "", after: str = "") -> tuple[int, int | None]:
    """Return what a process got for its launch `n`, and what is to be read of it afterwards."""
    with python(BEARER.format(before=before, after=after)) as one:
        assert one.stdout is not None
        return int(one.stdout.readline()), borne_mark(one.pid)


def test_marks_are_exact_in_json_and_differ_between_launches() -> None:
    """Every number lies where a reader of JSON keeps it whole, and two launches have two."""
    marks = {mark_of(str(number)) for number in range(1_000)}
    assert len(marks) == 1_000
    assert all(mark in MARKS for mark in marks)
    assert MARKS.stop <= 2**53


@pytest.mark.clause("K30", "native-192")
def test_mark_that_was_taken_is_borne_and_inherited() -> None:
    """A child, its session, its program and its environment of none bear the number."""
    assert said() == (mark_of("n"), mark_of("n"))
    code = (
        "import os; from tieline.shell.tree.limits import bear_mark; bear_mark('n')\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid(); os.execve('/bin/cat', ['cat', '/proc/self/limits'], {})\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, check=True, env=os.environ | {"PYTHONPATH": "src"}, text=True,
    ).stdout  # fmt: skip
    assert f"Max file locks            {mark_of('n')}" in told


def test_mark_keeps_the_hard_limit_and_gives_way_to_an_inner_launch() -> None:
    """Only the soft limit is set, so that the next launch can set its own."""
    after = "assert resource.getrlimit(10)[1] == -1; bear_mark('inner')"
    assert said(after=after) == (mark_of("n"), mark_of("inner"))


def test_mark_that_cannot_be_had_is_none() -> None:
    """A hard limit below the number leaves the process as it was."""
    assert said("resource.setrlimit(10, (5, 6))") == (0, 5)


def test_mark_is_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without the limit has no numbers."""
    monkeypatch.setattr(limits, "PLATFORM", "darwin")
    assert bear_mark("n") == 0


def test_borne_mark_of_others() -> None:
    """No number is 0, and a process that has ended says nothing."""
    with python("import time; print(flush=True); time.sleep(60)") as one:
        assert one.stdout is not None
        one.stdout.readline()
        text = Path(f"/proc/{one.pid}/limits").read_text()
        assert borne_mark(one.pid) == 0 or "Max file locks            unlimited" not in text
    assert borne_mark(gone_identity().pid) is None
