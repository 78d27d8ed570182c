"""Crowds at one resource with real commands: many that begin at once, real git, and copied environments."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.test_resources import TIELINE, Place, ended, noting, overlaps, says, until

CONTENDER_COUNT = 20
COMMIT_COUNT = 6
FREED_S_MAX = 2.0
STARTED_S_MAX = 2.0
"""From the grant to the first instruction of the next command, on a machine that does other things too."""
STRANGER = "import ctypes, sys\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint(flush=True)\nsys.stdin.read()\n"


@pytest.fixture
def place(private_home: Path) -> Iterator[Place]:
    """Give a place, and end what was started in it."""
    made = Place(private_home)
    yield made
    made.close()


@pytest.mark.timeout(300)
@pytest.mark.clause("native-187", "I31", "I33", "I38")
def test_crowd_that_begins_at_once_runs_one_after_the_other(place: Place) -> None:
    """Of 20 commands at one open resource every one runs, none is refused, and no two at a time."""
    log = place.work / "log"
    crowd = [place.hold("machine/build", *noting(log, 0.02)) for _ in range(CONTENDER_COUNT)]
    for process in crowd:
        ended(process, seconds=240)
    assert overlaps(log) == (list(range(1, CONTENDER_COUNT + 1)), 0)


@pytest.mark.timeout(180)
def test_commits_that_begin_at_once_are_all_made(place: Place) -> None:
    """Six commits of one repository through the gate: none finds index.lock."""
    (place.home / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
    subprocess.run(["git", "init", "-q", str(place.work)], check=True)
    hook = place.work / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nsleep 0.2\n")  # with the index locked
    hook.chmod(0o755)
    for number in range(COMMIT_COUNT):
        (place.work / f"file{number}").write_text("x")
    subprocess.run(["git", "-C", str(place.work), "add", "."], check=True)
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@t.invalid", "commit", "-q")
    commits = [
        place.start("run", "--gate", "--", *git, "-m", str(number), "--", f"file{number}")
        for number in range(COMMIT_COUNT)
    ]
    for process in commits:
        assert "index.lock" not in ended(process, seconds=150)[1]
    done = subprocess.run(
        ["git", "-C", str(place.work), "log", "--format=%s"], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == [str(number) for number in range(COMMIT_COUNT)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.clause("I31", "native-187", "native-3.6.10")
def test_copied_environment_of_a_holder_gives_nothing(place: Place) -> None:
    """A command with the holder's own variables waits for it, and is told that its mark was not believed."""
    log = place.work / "log"
    mark = place.work / "pid"
    first = place.hold("machine/build", "sh", "-c", f'echo $$ > {mark}; exec "$@"', "sh", *noting(log, 2.0))
    until(lambda: mark.exists() and mark.read_text().endswith("\n"), "the build runs")
    copied = Path(f"/proc/{mark.read_text().strip()}/environ").read_bytes().split(b"\0")
    place.environment |= dict(os.fsdecode(one).split("=", 1) for one in copied if one.startswith(b"TIELINE_"))
    second = place.hold("machine/build", *noting(log))
    says(second, "waiting for machine/build")
    says(second, "the mark was not believed")
    ended(second)
    ended(first)
    assert overlaps(log) == ([1, 2], 0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.clause("I31", "I34", "K30", "native-192")
def test_tree_of_a_killed_supervisor_is_freed_beside_programs_that_show_nothing(place: Place) -> None:
    """Young programs of the same user that nobody may look into delay nobody; the tree holds to its end."""
    log = place.work / "log"
    first = place.hold("machine/build", *noting(log, 4.0))
    until(lambda: place.status("machine/build")["state"] == "running", "the build runs")
    closed = [
        subprocess.Popen(
            words,
            cwd=place.work,
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for words in ([sys.executable, "-S", "-c", STRANGER], [*TIELINE, "attach"])  # a root holds keys
    ]
    try:
        for one in closed:
            assert one.stdout is not None
            one.stdout.readline()
            with pytest.raises(PermissionError):
                Path(f"/proc/{one.pid}/environ").read_bytes()
        os.kill(place.status("machine/build")["holder"]["supervisor"], signal.SIGKILL)
        ended(first, 125)
        ended(place.hold("machine/build", *noting(log)))
        assert [one.poll() for one in closed] == [None, None]
    finally:
        for one in closed:
            one.communicate(timeout=20)
    assert overlaps(log) == ([1, 2], 0)
    times = [list(map(float, text.split())) for text in log.read_text().splitlines()]
    assert times[1][1] - times[0][2] < FREED_S_MAX + STARTED_S_MAX
