"""Shared resources with real git, pytest, ports and processes: the scenarios of reference/native.md 6."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tieline.errors import Refused
from tieline.model.identity import Peer, Principal
from tieline.model.moment import Moment
from tieline.model.resource import Claimant, ResourceKey
from tieline.runtime.resources import coordinator as coordinator_module
from tieline.runtime.resources import running
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.running import Order, Run
from tieline.shell.process import self_identity
from tieline.shell.supervisor.front import Supervisor

TIELINE = [sys.executable, "-m", "tieline.adapters.cli.main"]
WORK_S = 0.3
CPU_S_PER_MINUTE_MAX = 0.1
MEASURED_S = 10.0
FIRST_BEAT_S = 6.5


class Place:
    """A home, a working folder, and the commands that run in them."""

    def __init__(self, home: Path) -> None:
        self.home, self.work = home / "h", home / "w"
        for folder in (self.home, self.work):
            folder.mkdir(mode=0o700)
        self.environment = {**os.environ, "TIELINE_HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, new_session: bool = False) -> "subprocess.Popen[str]":
        """Start `tieline` with these words."""
        process = subprocess.Popen(
            [*TIELINE, *words], cwd=self.work, env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=new_session,
        )  # fmt: skip
        self.started.append(process)
        return process

    def hold(self, key: str, *command: str, options: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        """Start a command under a resource."""
        return self.start("run", "--resource", key, *options, "--", *command)

    def status(self, key: str) -> dict[str, Any]:
        """Return a resource as a person sees it."""
        done = self.start("resource", "status", key, "--json")
        found: dict[str, Any] = json.loads(done.communicate(timeout=30)[0])["resources"][0]
        return found

    def close(self) -> None:
        """End what this test itself started and is still there."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)


@pytest.fixture
def place(private_home: Path) -> Iterator[Place]:
    """Give a place, and end what was started in it."""
    made = Place(private_home)
    yield made
    made.close()


def until(condition: Callable[[], bool], what: str, seconds: float = 25.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def ended(process: "subprocess.Popen[str]", code: int = 0, seconds: float = 40.0) -> tuple[str, str]:
    """Wait for a process, and return what it printed."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == code, err
    return out, err


def says(process: "subprocess.Popen[str]", words: str) -> str:
    """Return the next line on stderr, which says `words`."""
    assert process.stderr is not None
    text = process.stderr.readline()
    assert words in text
    return text


def noting(log: Path, seconds: float = WORK_S) -> list[str]:
    """Return a command that notes its fence and the instants between which it worked."""
    code = (
        "import os, sys, time; begun = time.monotonic(); time.sleep(float(sys.argv[2]));"
        "line = f\"{os.environ['TIELINE_FENCE']} {begun} {time.monotonic()}\\n\";"
        "f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600); os.write(f, line.encode())"
    )
    return [sys.executable, "-c", code, str(log), str(seconds)]


def overlaps(log: Path) -> tuple[list[int], int]:
    """Return the fences in the order of work, and how many pieces of work began before another ended."""
    work = [tuple(map(float, text.split())) for text in log.read_text().splitlines()]
    work.sort(key=lambda one: one[1])
    return [int(one[0]) for one in work], sum(later[1] < earlier[2] for earlier, later in pairwise(work))


@pytest.mark.clause("native-187", "I31", "I33", "I38")
def test_builds_that_race_run_one_after_the_other(place: Place) -> None:
    """Three at once: no overlap as the builds themselves measured it, and each has a higher fence."""
    log = place.work / "log"
    for process in [place.hold("machine/build", *noting(log)) for _ in range(3)]:
        ended(process)
    assert overlaps(log) == ([1, 2, 3], 0)


TESTS = """
import sqlite3, time

def test_rows():
    base = sqlite3.connect("shared.db")
    base.execute("drop table if exists rows")
    base.execute("create table rows (name)")
    base.commit()
    for name in "abc":
        base.execute("insert into rows values (?)", (name,))
        base.commit()
        time.sleep(0.3)
    assert base.execute("select count(*) from rows").fetchone() == (3,)
"""


@pytest.mark.clause("native-192")
def test_second_pytest_waits_says_for_whom_and_starts_by_itself(place: Place) -> None:
    """Two test runs on one database both pass, though each empties it; nobody had to configure anything."""
    subprocess.run(["git", "init", "-q", str(place.work)], check=True)
    (place.work / "test_rows.py").write_text(TESTS)
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rows.py"]
    first = place.hold("repository/tests", *pytest_run)
    until((place.work / "shared.db").exists, "the first run began")
    second = place.hold("repository/tests", *pytest_run)
    text = says(second, "waiting for repository/")
    assert "/tests; held by :w-" in text
    assert "1 passed" in ended(first)[0]
    assert "1 passed" in ended(second)[0]


@pytest.mark.clause("native-198", "native-214")
def test_second_server_on_a_port_is_told_the_holder_and_times_out_without_a_start(place: Place) -> None:
    """124 and nothing was started; once the first has gone the port is free and the next one binds it."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    server = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    key = f"machine/port-{port}"

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    first = place.hold(key, *server)
    until(answers, "the first server answers")
    mark = place.work / "started"
    late = place.hold(key, "touch", str(mark), options=("--timeout", "0.5", "--json"))
    out, err = ended(late, 124)
    assert json.loads(out)["error"]["code"] == "RESOURCE_WAIT_TIMEOUT"
    assert f"waiting for {key}; held by :w-" in err
    assert "next: " in err
    assert not mark.exists()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=20)
    second = place.hold(key, *server)
    until(answers, "the second server answers")
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=20)


def test_gate_serialises_commits(place: Place) -> None:
    """Commits of several agents in one checkout: every one is made, none finds index.lock."""
    (place.home / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
    subprocess.run(["git", "init", "-q", str(place.work)], check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    hook = place.work / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nsleep 0.2\n")  # with the index locked
    hook.chmod(0o755)
    for number in range(3):
        (place.work / f"file{number}").write_text("x")
    commits = []
    for number in range(3):
        text = f"git add file{number} && git {' '.join(identity)} commit -q -m {number}"
        commits.append(place.start("run", "--gate", "--", "sh", "-c", text))
    for process in commits:
        assert "index.lock" not in ended(process)[1]
    done = subprocess.run(
        ["git", "-C", str(place.work), "log", "--format=%s"], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == ["0", "1", "2"]
    assert place.start("run", "--gate", "--", "git", "status", "--short").wait(30) == 0


@pytest.mark.clause("native-192", "native-193", "I32", "I34")
def test_build_of_a_killed_agent_keeps_the_resource_until_it_ends(place: Place) -> None:
    """SIGKILL of the front end in the middle frees nothing early; the next one starts soon after the end."""
    log = place.work / "log"
    first = place.hold("machine/build", *noting(log, 4.0))
    until(lambda: place.status("machine/build")["state"] == "running", "the build runs")
    first.kill()
    first.wait()
    second = place.hold("machine/build", *noting(log))
    says(second, "waiting for machine/build")
    shape = place.status("machine/build")
    assert shape["holder"]["isOrphan"] is True
    assert f"kill -TERM {shape['holder']['supervisor']}" in shape["nextAction"]
    ended(second)
    fences, overlap_count = overlaps(log)
    assert (fences, overlap_count) == ([1, 2], 0)
    times = [list(map(float, text.split())) for text in log.read_text().splitlines()]
    assert times[1][1] - times[0][2] < 4.0  # 2 s are promised for a machine that does nothing else


@pytest.mark.clause("I37")
def test_orphan_that_shall_stop_ends_its_own_tree_and_nothing_else(place: Place) -> None:
    """A bystander of the same name and session folder lives on."""
    bystander = subprocess.Popen(["sleep", "60"], cwd=place.work)
    try:
        first = place.hold("machine/build", "sleep", "60", options=("--on-orphan", "stop"))
        until(lambda: place.status("machine/build")["state"] == "running", "the build runs")
        first.kill()
        first.wait()
        until(lambda: place.status("machine/build")["state"] == "unconfigured", "its tree has ended")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def processor_s(pids: list[int]) -> float:
    """Return the processor time that all threads of these processes have used, in seconds."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(path.read_text().split()[0])
    return total / 1e9


def children_of(pid: int) -> list[int]:
    """Return the children of a process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


@pytest.mark.parametrize("is_busy", [False, True], ids=["quiet", "beside others"])
def test_waiting_worker_uses_next_to_no_processor_time(place: Place, *, is_busy: bool) -> None:
    """At most 0.1 s a minute, supervisor included, also while commands run on other resources beside it."""
    holder = place.hold("machine/build", "sleep", "60")
    until(lambda: place.status("machine/build")["state"] == "running", "the build runs")
    waiter = place.hold("machine/build", "true")
    says(waiter, "waiting for machine/build")
    time.sleep(FIRST_BEAT_S)  # its own root has tidied by then, which it does once
    pids = [waiter.pid, *children_of(waiter.pid)]
    before, begun = processor_s(pids), time.monotonic()
    while time.monotonic() - begun < MEASURED_S:
        if is_busy:
            ended(place.hold("machine/other", "true"))
        else:
            time.sleep(1.0)
    used, measured_s = processor_s(pids) - before, time.monotonic() - begun
    assert len(pids) >= 2
    holder.terminate()
    holder.communicate(timeout=20)
    ended(waiter)
    assert used * 60 / measured_s <= CPU_S_PER_MINUTE_MAX


@pytest.mark.clause("I33", "I40")
def test_paused_holder_is_refused_with_its_old_fence(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that lapsed while its owner slept went to the next; the sleeper wakes up and starts nothing."""
    monkeypatch.chdir(place.work)
    me, peer = self_identity(), Peer("sleeper")
    principal = Principal(peer, frozenset({"resource.request"}))
    claimant = Claimant(peer.id, "sleeper", "sleeper", me, waiter=me)
    key = ResourceKey("machine/build")
    coordinator = Coordinator(str(place.home))
    order = Order((key,), ("touch", "never"), 1_000)
    sleeper = Run(coordinator, str(place.home), principal, claimant, order)
    sleeper._keys = (key,)
    with Supervisor.start(running.PROGRAM) as supervisor:
        sleeper._claim()
        fences = sleeper._wait(print)
        real = coordinator_module.now

        def later() -> Moment:
            moment = real()
            return Moment(moment.wall_ms, moment.mono_ms + 31_000)

        monkeypatch.setattr(coordinator_module, "now", later)
        second = Run(coordinator, str(place.home), principal, claimant, order)
        second._keys = (key,)
        second._claim()
        assert second._wait(print) == {key: fences[key] + 1}
        with pytest.raises(Refused) as caught:
            sleeper._begin(fences, supervisor, sleeper._spec(fences))
        assert caught.value.code == "RESERVATION_EXPIRED"
        assert caught.value.action
    coordinator.close()
    assert not (place.work / "never").exists()
