"""The supervisor holds until nothing of the tree runs, and says so once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.faults.launches import Launched, wait_until
from tieline.shell.process import probe
from tieline.shell.tree import probe_launch


def pid_in(path: Path) -> int:
    """Return the number that a process wrote."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


@pytest.mark.clause("I40", "I33", "mutant-18")
def test_command_refused_by_the_ledger_never_runs(tmp_path: Path) -> None:
    """The last word before the program is the ledger's, and its code reaches the caller."""
    mark = tmp_path / "ran"
    launched = Launched(tmp_path, ["touch", str(mark)], refuses="STALE_POLICY")
    assert launched.front.wait(20) == 125
    end = launched.lines()[-1]["value"]
    assert (end["outcome"], end["code"]) == ("not_started", "STALE_POLICY")
    assert "failed" in launched.kinds()
    assert not mark.exists()


@pytest.mark.clause("native-191", "I32", "mutant-18")
def test_command_waits_until_its_start_is_durable(tmp_path: Path) -> None:
    """A ledger that takes its time is waited for."""
    mark = tmp_path / "ran"
    launched = Launched(tmp_path, ["touch", str(mark)], waits_s=0.5)
    launched.wait_for("admitted")
    started_at = launched.wait_for("started")["at"]
    assert launched.front.wait(20) == 0
    offset = time.time() - time.monotonic()
    assert mark.stat().st_mtime - offset >= started_at - 0.01


@pytest.mark.clause("native-192", "I31", "I34", "O42")
def test_launch_is_held_by_what_outlives_its_command(tmp_path: Path) -> None:
    """The front end returns with the command; the launch ends with its last process, and not before."""
    launched = Launched(tmp_path, ["sh", "-c", "setsid sleep 1.5 & exit 5"])
    assert launched.front.wait(20) == 5
    assert not launched.lines()[-1]["value"]["is_tree_gone"]
    assert probe_launch(launched.evidence()).state == "alive"
    started_at = launched.wait_for("started")["at"]
    completed = launched.wait_for("completed")
    assert completed["at"] - started_at >= 1.5
    assert not completed["value"]["is_orderly"]
    wait_until(lambda: probe_launch(launched.evidence()).state == "gone")


@pytest.mark.clause("native-193", "I31")
def test_orphan_is_kept_until_it_ends_by_itself(tmp_path: Path) -> None:
    """A front end killed with -9 ends nothing."""
    launched = Launched(tmp_path, ["sleep", "1"])
    started_at = launched.wait_for("started")["at"]
    launched.front.kill()
    launched.front.wait()
    completed = launched.wait_for("completed")
    assert completed["value"]["exit_code"] == 0
    assert completed["at"] - started_at >= 1.5


@pytest.mark.clause("native-197", "I37")
def test_orphan_is_stopped_on_request_alone(tmp_path: Path) -> None:
    """`stop` asks the whole tree, then ends what does not heed it, in any session, and no other process."""
    canary = subprocess.Popen(["sleep", "60"])
    stray = tmp_path / "stray"
    script = (
        f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {stray}; while :; do sleep 1; done' & wait"
    )
    launched = Launched(tmp_path, ["sh", "-c", script], on_orphan="stop", stop_grace_ms=300)
    pid_in(stray)
    launched.front.kill()
    launched.front.wait()
    completed = launched.wait_for("completed")
    assert completed["value"]["exit_code"] == 128 + signal.SIGKILL
    assert not Path(f"/proc/{pid_in(stray)}").exists()
    assert canary.poll() is None
    canary.kill()
    canary.wait()


@pytest.mark.clause("native-197")
def test_supervisor_that_is_asked_to_end_ends_its_tree(tmp_path: Path) -> None:
    """SIGTERM to the supervisor is how a person stops an orphan: a stopped process heeds it as well."""
    launched = Launched(tmp_path, ["sh", "-c", "kill -STOP $$; sleep 60"])
    launched.wait_for("started")
    command = launched.evidence().command
    assert command is not None
    wait_until(lambda: Path(f"/proc/{command.pid}/stat").read_text().split()[2] == "T")
    os.kill(launched.evidence().supervisor.pid, signal.SIGTERM)
    assert launched.front.wait(20) == 128 + signal.SIGTERM
    launched.wait_for("completed")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_supervisor_outlives_what_ends_its_surroundings(tmp_path: Path, number: int) -> None:
    """A hang-up or Ctrl-C for everything around leaves the holder in its place."""
    launched = Launched(tmp_path, ["sleep", "0.7"])
    launched.wait_for("started")
    os.kill(launched.evidence().supervisor.pid, number)
    assert launched.front.wait(20) == 0
    assert launched.kinds()[-2:] == ["completed", "end"]


@pytest.mark.clause("I34")
def test_end_is_told_again_until_the_ledger_takes_it(tmp_path: Path) -> None:
    """A ledger that is busy for a while learns of the end all the same."""
    launched = Launched(tmp_path, ["true"], fails=2)
    assert launched.front.wait(20) == 0
    launched.wait_for("completed")


@pytest.mark.clause("native-192", "O42")
def test_process_that_left_the_session_is_told_to_the_ledger(tmp_path: Path) -> None:
    """What stays outside the session is recorded, so that the supervisor's death does not lose it."""
    script = "setsid env -i /bin/sleep 8 & wait"
    launched = Launched(tmp_path, ["sh", "-c", script])
    launched.wait_for("started")
    if launched.evidence().ownership != "supervised":
        os.kill(launched.evidence().supervisor.pid, signal.SIGTERM)
        launched.front.wait(20)
        pytest.skip("a control group holds the tree here: nobody can leave it")
    launched.wait_for("members")
    evidence = launched.evidence()
    os.kill(evidence.supervisor.pid, signal.SIGKILL)
    assert evidence.command is not None
    command = evidence.command
    os.kill(command.pid, signal.SIGKILL)
    wait_until(lambda: probe(evidence.supervisor) == probe(command) == "gone")
    found = probe_launch(evidence)
    assert found.state == "alive"
    assert list(found.pids) == [evidence.members[0].pid]
    os.kill(evidence.members[0].pid, signal.SIGKILL)
    wait_until(lambda: probe_launch(evidence).state == "gone")
    launched.front.wait(20)


@pytest.mark.clause("native-192", "K30", "O42")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_process_that_dropped_everything_just_before_its_supervisor_died_holds(tmp_path: Path) -> None:
    """A new session and an emptied environment, not yet told to the ledger, do not hide a process."""
    mark = tmp_path / "there"
    launched = Launched(
        tmp_path, ["setsid", "env", "-i", "sh", "-c", f"(touch {mark}; exec sleep 60) & exit"]
    )
    wait_until(mark.exists)
    evidence = launched.evidence()
    assert evidence.limit_mark != 0
    os.kill(evidence.supervisor.pid, signal.SIGKILL)
    wait_until(lambda: probe(evidence.supervisor) == "gone")
    found = probe_launch(msgspec.structs.replace(evidence, members=(), cgroup=""))
    assert found.state == "alive"
    wait_until(lambda: len(probe_launch(evidence).pids) == 1)
    os.kill(probe_launch(evidence).pids[0], signal.SIGKILL)
    wait_until(lambda: probe_launch(evidence).state == "gone")
    launched.front.wait(20)


@pytest.mark.clause("native-3.6.8")
def test_zombies_of_the_tree_are_reaped_while_it_runs(tmp_path: Path) -> None:
    """What the tree leaves behind unreaped does not pile up under the supervisor."""
    orphan = tmp_path / "orphan"
    launched = Launched(tmp_path, ["sh", "-c", f"(sh -c 'echo $$ > {orphan}; exit 0' &) ; exec sleep 2"])
    pid = pid_in(orphan)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 2)
    assert launched.front.wait(20) == 0


def test_supervisor_waits_without_work(tmp_path: Path) -> None:
    """Holding a quiet tree for 4 s takes at most 30 ms of processor time."""
    launched = Launched(tmp_path, ["sleep", "60"])
    launched.wait_for("started")
    pid = launched.evidence().supervisor.pid

    def spent_ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = spent_ticks()
    time.sleep(4)
    assert spent_ticks() - before <= 3  # a tick is 10 ms
    os.kill(pid, signal.SIGTERM)
    launched.front.wait(20)
