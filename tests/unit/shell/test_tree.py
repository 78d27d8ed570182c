"""What is proven of a launch's end: three answers, from every trace that its tree leaves."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.launches import wait_until
from tieline.shell import tree
from tieline.shell.process import identify, self_identity
from tieline.shell.tree import (
    MARKS_VARIABLE,
    LaunchEvidence,
    LaunchSpec,
    cgroup_state,
    child_environment,
    descendants,
    is_descendant,
    probe_launch,
    strays,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SLEEP = ["/bin/sleep", "60"]


class Stand:
    """A process that stands where a supervisor would: it leads a session and can be killed."""

    def __init__(self, script: str, nonce: str, *, environment: dict[str, str] | None = None) -> None:
        self.nonce = nonce
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            start_new_session=True,
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", **(environment or {})},
        )
        assert self.process.stdout is not None
        identity = identify(self.process.pid)
        assert identity is not None
        self.evidence = LaunchEvidence("launch", nonce, identity)
        self.pids = [int(word) for word in self.process.stdout.readline().split()]

    def end(self) -> None:
        """Kill the stand-in and reap it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def nonce() -> str:
    """Give a mark that no other process has."""
    return uuid.uuid4().hex


@pytest.fixture
def ended() -> Iterator[list[Stand]]:
    """Give a list; whatever stands in it is ended with all that it named."""
    stands: list[Stand] = []
    yield stands
    for stand in stands:
        stand.end()
        for pid in stand.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert stand.process.stdout is not None
        stand.process.stdout.close()


def gone_identity() -> tree.ProcessIdentity:
    """Return the identity of a process that has ended and was reaped."""
    process = subprocess.Popen(SLEEP)
    identity = identify(process.pid)
    process.kill()
    process.wait()
    assert identity is not None
    return identity


@pytest.mark.clause("native-192", "K30", "I34")
def test_launch_with_live_supervisor_is_alive(nonce: str, ended: list[Stand]) -> None:
    """While the supervisor lives the launch is held, whatever else is to be seen."""
    stand = Stand("echo; exec sleep 60", nonce)
    ended.append(stand)
    found = probe_launch(stand.evidence)
    assert (found.state, found.pids) == ("alive", (stand.process.pid,))


@pytest.mark.clause("native-192", "K30")
def test_launch_whose_session_has_members_is_alive_after_its_supervisor(
    nonce: str, ended: list[Stand]
) -> None:
    """A process left in the session holds the launch, without any mark in its environment."""
    stand = Stand("sleep 60 & echo $!; wait", nonce)
    ended.append(stand)
    wait_until(lambda: Path(f"/proc/{stand.pids[0]}/comm").read_text() == "sleep\n")
    stand.end()
    found = probe_launch(stand.evidence)
    assert (found.state, found.pids) == ("alive", tuple(stand.pids))
    assert f"1 still running: {stand.pids[0]} (sleep)" in found.lines[-1]
    os.kill(stand.pids[0], signal.SIGKILL)
    wait_until(lambda: probe_launch(stand.evidence).state == "gone")


@pytest.mark.clause("native-192", "native-3.6.8", "K30", "O42")
def test_launch_whose_marked_process_left_the_session_is_alive(nonce: str, ended: list[Stand]) -> None:
    """A process that called setsid is found by the launch's mark."""
    marks = {MARKS_VARIABLE: f"{uuid.uuid4().hex} {nonce}"}
    stand = Stand("setsid sleep 60 & echo $!; wait", nonce, environment=marks)
    ended.append(stand)
    wait_until(lambda: os.getsid(stand.pids[0]) == stand.pids[0])
    stand.end()
    assert probe_launch(stand.evidence).state == "alive"
    assert probe_launch(msgspec.structs.replace(stand.evidence, nonce=uuid.uuid4().hex)).state == "gone"


@pytest.mark.clause("native-192", "K30", "O42")
def test_launch_with_recorded_member_is_alive_without_mark(nonce: str, ended: list[Stand]) -> None:
    """A process that left the session and dropped its environment holds when the ledger knows it."""
    stand = Stand("setsid sleep 60 & echo $!; wait", nonce)
    ended.append(stand)
    wait_until(lambda: os.getsid(stand.pids[0]) == stand.pids[0])
    member = identify(stand.pids[0])
    assert member is not None
    stand.end()
    known = msgspec.structs.replace(stand.evidence, members=(member,))
    assert probe_launch(known).state == "alive"
    assert probe_launch(stand.evidence).state == "gone"


@pytest.mark.clause("native-3.6.8", "O42")
def test_launch_whose_last_process_is_a_zombie_is_gone(nonce: str) -> None:
    """A process of the session that has ended and is not reaped holds nothing."""
    code = (
        "import subprocess, time\n"
        "from tieline.shell.supervisor.holding import become_reaper\n"
        "become_reaper()\n"
        "subprocess.Popen(['sh', '-c', 'sleep 60 & echo $$ $!; wait'], start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    keeper = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "src"}
    )
    try:
        assert keeper.stdout is not None
        leader, member = (int(word) for word in keeper.stdout.readline().split())
        identity = identify(leader)
        assert identity is not None
        evidence = LaunchEvidence("launch", nonce, identity)
        os.kill(leader, signal.SIGKILL)
        wait_until(lambda: probe_launch(evidence).pids == (member,))
        os.kill(member, signal.SIGKILL)
        wait_until(lambda: probe_launch(evidence).state == "gone", 2)
        state, _, group, session = Path(f"/proc/{member}/stat").read_text().rsplit(") ", 1)[1].split()[:4]
        assert (state, int(group), int(session)) == ("Z", leader, leader)
    finally:
        keeper.kill()
        keeper.wait()
        assert keeper.stdout is not None
        keeper.stdout.close()


@pytest.mark.clause("native-3.6.9", "K3", "I36", "O36")
def test_launch_of_another_boot_is_gone(nonce: str) -> None:
    """After a reboot nothing of a launch runs, whoever has its numbers now."""
    mine = msgspec.structs.replace(self_identity(), boot_id="11111111-0000-4000-8000-000000000000")
    assert probe_launch(LaunchEvidence("launch", nonce, mine)).state == "gone"


@pytest.mark.clause("I36", "K11", "native-195")
@pytest.mark.parametrize(
    "changes",
    [{"pid_namespace": 1}, {"boot_id": ""}, {"platform": "darwin"}, {"pid_namespace": 0}],
)
def test_launch_that_cannot_be_judged_here_is_unknown(nonce: str, changes: dict[str, object]) -> None:
    """Evidence of another container, or with a part missing, proves no end."""
    identity = msgspec.structs.replace(gone_identity(), **changes)
    assert probe_launch(LaunchEvidence("launch", nonce, identity)).state == "unknown"


@pytest.mark.clause("native-3.6.9", "K11", "I36", "O41", "mutant-16")
@pytest.mark.parametrize("is_numbered", [True, False])
def test_launch_whose_number_went_to_another_process_is_gone(
    nonce: str, ended: list[Stand], is_numbered: bool
) -> None:
    """A number that names another process now proves that the old session has ended."""
    other = Stand("sleep 60 & echo $!; wait", uuid.uuid4().hex)
    ended.append(other)
    now = other.evidence.supervisor
    before = msgspec.structs.replace(
        now,
        start_ticks=now.start_ticks - 10,
        pidfd_inode=now.pidfd_inode - 1 if is_numbered and now.pidfd_inode is not None else None,
    )
    assert probe_launch(LaunchEvidence("launch", nonce, before, command=before)).state == "gone"
    assert probe_launch(LaunchEvidence("launch", nonce, now)).state == "alive"


@pytest.mark.clause("I36", "native-195")
def test_launch_is_unknown_while_a_young_process_is_closed_to_us(nonce: str, ended: list[Stand]) -> None:
    """A process of this user that shows no environment may be of the tree, when it is young enough."""
    before = gone_identity()
    code = (
        "import ctypes, sys, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        "print(flush=True)\ntime.sleep(60)\n"
    )
    closed = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert closed.stdout is not None
        closed.stdout.readline()
        found = probe_launch(LaunchEvidence("launch", nonce, before))
        assert found.state == "unknown"
        assert f"cannot look into {closed.pid}" in found.lines[-1]
        time.sleep(0.02)  # start times count in 10 ms
        assert probe_launch(LaunchEvidence("launch", nonce, gone_identity())).state == "gone"
    finally:
        closed.kill()
        closed.wait()
        assert closed.stdout is not None
        closed.stdout.close()


def group_in(folder: Path, events: str | None) -> str:
    """Return a folder that looks like a control group below another."""
    (folder / "cgroup.procs").touch()
    group = folder / "g"
    if events is not None:
        group.mkdir()
        (group / "cgroup.events").write_text(events, encoding="ascii")
    return str(group)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("populated 1\nfrozen 0\n", "populated"),
        ("populated 0\nfrozen 0\n", "empty"),
        ("", "unreadable"),
        (None, "empty"),
    ],
)
def test_control_group_is_empty_only_when_the_kernel_says_so(
    tmp_path: Path, events: str | None, state: str
) -> None:
    """A control group is empty when its events say it or it was removed; else it is not."""
    assert cgroup_state(group_in(tmp_path, events)) == state


def test_control_group_out_of_sight_is_unreadable(tmp_path: Path) -> None:
    """A control group whose parent is not to be seen either was not removed: it is elsewhere."""
    assert cgroup_state(str(tmp_path / "elsewhere" / "g")) == "unreadable"


@pytest.mark.clause("native-192", "I36")
@pytest.mark.parametrize(
    ("events", "state"), [("populated 1\n", "alive"), ("populated 0\n", "gone"), ("", "unknown")]
)
def test_launch_with_control_group_is_judged_by_it(
    tmp_path: Path, nonce: str, events: str, state: str
) -> None:
    """A populated control group holds the launch, an unreadable one keeps it unknown."""
    evidence = LaunchEvidence(
        "launch", nonce, gone_identity(), ownership="cgroup", cgroup=group_in(tmp_path, events)
    )
    assert probe_launch(evidence).state == state


@pytest.mark.clause("I36")
def test_launch_is_unknown_while_processes_keep_coming(nonce: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process table that never holds still proves nothing."""
    numbers = iter(range(10_000_000, 20_000_000))
    monkeypatch.setattr(tree, "_listed", lambda: [next(numbers)])
    assert probe_launch(LaunchEvidence("launch", nonce, gone_identity())).state == "unknown"


@pytest.mark.clause("K30")
def test_launch_is_found_in_a_process_that_started_between_two_looks(
    nonce: str, ended: list[Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended before it was looked at may have left a child: the table is read again."""
    before = gone_identity()
    stand = Stand("echo; exec sleep 60", nonce, environment={MARKS_VARIABLE: nonce})
    ended.append(stand)
    looks = iter([[9_999_999], [9_999_999, stand.process.pid], [9_999_999, stand.process.pid]])
    monkeypatch.setattr(tree, "_listed", lambda: next(looks))
    assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "alive"


@pytest.mark.clause("K30")
def test_launch_is_found_in_a_process_that_shows_its_environment_late(
    nonce: str, ended: list[Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that reads as empty once is read again: its process may be changing its program."""
    before = gone_identity()
    stand = Stand("echo; exec sleep 60", nonce, environment={MARKS_VARIABLE: nonce})
    ended.append(stand)
    inside = tree._Search._look_inside
    blanks = iter([True])

    def blank_once(search: tree._Search, entry: tree._Entry) -> bool:
        if entry.pid == stand.process.pid and next(blanks, False):
            return False
        return inside(search, entry)

    monkeypatch.setattr(tree._Search, "_look_inside", blank_once)
    assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "alive"


@pytest.mark.clause("I37", "native-197")
def test_probe_of_a_launch_signals_nobody(
    nonce: str, ended: list[Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking sends no signal, not even the empty one, to a process that lives."""
    sent: list[tuple[int, int]] = []
    stand = Stand("sleep 60 & echo $!; wait", nonce)
    ended.append(stand)
    stand.end()
    kill = os.kill

    def watch(pid: int, number: int) -> None:
        sent.append((pid, number))
        kill(pid, number)

    monkeypatch.setattr(os, "kill", watch)
    assert probe_launch(stand.evidence).state == "alive"
    assert {number for _, number in sent} <= {0}
    monkeypatch.undo()


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


@pytest.mark.clause("I40")
def test_environment_of_a_command_names_its_launch() -> None:
    """A command learns its fences, its launch and its resources, and keeps the marks around it."""
    spec = LaunchSpec("l-1", "b" * 32, ("x",), ("machine/a", "machine/é"), (7, 12))
    given = {b"A": b"\xff", MARKS_VARIABLE.encode(): b"a" * 32}
    assert child_environment(spec, given) == {
        b"A": b"\xff",
        b"TIELINE_FENCE": b"7 12",
        b"TIELINE_LAUNCH_ID": b"l-1",
        b"TIELINE_RESOURCE": "machine/a machine/é".encode(),
        MARKS_VARIABLE.encode(): b"a" * 32 + b" " + b"b" * 32,
    }
    assert child_environment(spec, {})[MARKS_VARIABLE.encode()] == b"b" * 32


@pytest.mark.clause("K30", "I36")
def test_launch_is_unknown_while_a_process_has_no_environment_yet(
    nonce: str, ended: list[Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stays between two programs may be of the tree: nothing is proven."""
    before = gone_identity()
    stand = Stand("echo; exec env -i /bin/sleep 60", nonce)
    ended.append(stand)
    wait_until(lambda: Path(f"/proc/{stand.process.pid}/environ").read_bytes() == b"")
    assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "gone"
    monkeypatch.setattr(tree, "_has_empty_environment", lambda _: False)
    assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "unknown"
