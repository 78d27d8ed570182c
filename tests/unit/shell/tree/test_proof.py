"""What is proven of a launch's end: three answers, from every trace that its tree leaves."""

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.faults.launches import wait_until
from tests.unit.shell.tree.kit import Stand, end_all, gone_identity, python
from tieline.shell.process import identify, self_identity
from tieline.shell.tree import MARKS_VARIABLE, LaunchEvidence, cgroup_state, descendants, probe_launch, proof
from tieline.shell.tree.limits import mark_of
from tieline.shell.tree.table import Entry

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
    with python(code) as keeper:
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


CLOSED = (
    "import ctypes, os, sys, time\n"
    "from tieline.shell.tree.limits import bear_mark\n"
    "if {nonce!r}: bear_mark({nonce!r})\n"
    "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
    "print(flush=True)\ntime.sleep(60)\n"
)
"""A process whose environment nobody may read, which may bear the number of a launch."""


@contextmanager
def closed(nonce: str = "", *, new_session: bool = True) -> Iterator[int]:
    """Give the number of a process of this user that shows no environment."""
    with python(CLOSED.format(nonce=nonce), new_session=new_session) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(PermissionError):
            Path(f"/proc/{process.pid}/environ").read_bytes()
        yield process.pid


@pytest.mark.clause("I36", "native-195")
def test_launch_without_a_number_is_unknown_while_a_young_process_is_closed_to_us(nonce: str) -> None:
    """A process of this user that shows no environment may be of the tree, when it is young enough."""
    before = gone_identity()
    with closed() as pid:
        found = probe_launch(LaunchEvidence("launch", nonce, before))
        assert found.state == "unknown"
        assert f"cannot look into {pid}" in found.lines[-1]
        time.sleep(0.02)  # start times count in 10 ms
        assert probe_launch(LaunchEvidence("launch", nonce, gone_identity())).state == "gone"


@pytest.mark.clause("I34", "I36", "native-192", "native-195", "native-3.6.8", "K30")
@pytest.mark.parametrize("ownership", ["cgroup", "supervised", "group"])
def test_launch_is_gone_while_only_a_stranger_is_closed_to_us(nonce: str, ownership: str) -> None:
    """Who bears no launch's number is of no launch that gave one, whatever else of it cannot be read."""
    evidence = LaunchEvidence("launch", nonce, gone_identity(), ownership, limit_mark=mark_of(nonce))  # type: ignore[arg-type]
    with closed():
        assert probe_launch(evidence).state == "gone"


@pytest.mark.clause("I34", "native-192", "K30", "O42")
def test_launch_is_alive_in_a_process_that_is_closed_to_us(nonce: str) -> None:
    """A process of the tree that left the session and closed itself is found by the launch's number."""
    evidence = LaunchEvidence("launch", nonce, gone_identity(), limit_mark=mark_of(nonce))
    with closed(nonce) as pid:
        found = probe_launch(evidence)
        assert (found.state, found.pids) == ("alive", (pid,))


@pytest.mark.clause("I34", "native-192", "K30", "O42")
def test_launch_is_alive_in_a_process_that_dropped_its_environment(nonce: str) -> None:
    """An emptied environment and a new session do not take the launch's number away."""
    evidence = LaunchEvidence("launch", nonce, gone_identity(), limit_mark=mark_of(nonce))
    code = (
        f"import os\nfrom tieline.shell.tree.limits import bear_mark\nbear_mark({nonce!r})\n"
        "print(flush=True)\nos.execve('/bin/sleep', ['sleep', '60'], {})\n"
    )
    with python(code, new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        assert probe_launch(evidence).pids == (process.pid,)


@pytest.mark.clause("I36", "native-195")
def test_launch_is_unknown_while_a_process_of_another_launch_is_closed_to_us(nonce: str) -> None:
    """Another launch's number excludes nobody: that launch may run inside of this one."""
    evidence = LaunchEvidence("launch", nonce, gone_identity(), limit_mark=mark_of(nonce))
    with closed(uuid.uuid4().hex):
        assert probe_launch(evidence).state == "unknown"


@pytest.mark.clause("I34", "I36")
def test_launch_is_gone_while_a_closed_process_has_an_older_session(nonce: str) -> None:
    """A session that was begun before the launch has no process of its tree; a host's own launch may."""
    time.sleep(0.02)
    before = gone_identity()
    with closed(uuid.uuid4().hex, new_session=False):
        assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "gone"
        assert probe_launch(LaunchEvidence("launch", nonce, before, "group")).state == "unknown"


@pytest.mark.clause("I34", "I36")
def test_launch_is_gone_while_a_closed_process_has_a_stranger_for_a_leader(nonce: str) -> None:
    """Who is in the session of a process without the mark is of its tree, and of no other."""
    before = gone_identity()
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {CLOSED.format(nonce='x')!r}])\n"
        "child.wait()\n"
    )
    with python(code, new_session=True) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        found = probe_launch(LaunchEvidence("launch", nonce, before))
        (child,) = descendants(leader.pid)
        os.kill(child, signal.SIGKILL)
        assert found.state == "gone", found.lines


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
    monkeypatch.setattr(proof, "listed", lambda: [next(numbers)])
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
    monkeypatch.setattr(proof, "listed", lambda: next(looks))
    assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "alive"


@pytest.mark.clause("K30")
def test_launch_is_found_in_a_process_that_shows_its_environment_late(
    nonce: str, ended: list[Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment that reads as empty once is read again: its process may be changing its program."""
    before = gone_identity()
    stand = Stand("echo; exec sleep 60", nonce, environment={MARKS_VARIABLE: nonce})
    ended.append(stand)
    inside = proof._Search._look_inside
    blanks = iter([True])

    def blank_once(search: proof._Search, entry: Entry) -> bool:
        if entry.pid == stand.process.pid and next(blanks, False):
            return False
        return inside(search, entry)

    monkeypatch.setattr(proof._Search, "_look_inside", blank_once)
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
    monkeypatch.setattr(proof, "has_empty_environment", lambda _: False)
    assert probe_launch(LaunchEvidence("launch", nonce, before)).state == "unknown"
