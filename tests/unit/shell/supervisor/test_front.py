"""The caller's side: it looks like the command itself, and may be killed at any instant."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.launches import CHECKOUT, PROGRAM, Launched, wait_until
from tieline.shell.process import probe
from tieline.shell.supervisor.front import Supervisor, run_under_supervisor
from tieline.shell.tree import LaunchEvidence, LaunchSpec, probe_launch


@pytest.mark.clause("native-190", "native-191", "I32")
def test_launch_is_admitted_then_started_then_completed(tmp_path: Path) -> None:
    """The ledger knows of the launch and its supervisor first, of the command next, of the end last."""
    launched = Launched(tmp_path, ["sh", "-c", "exit 3"])
    assert launched.front.wait(20) == 3
    assert launched.kinds() == ["admitted", "started", "completed", "end"]
    admitted, started, completed, end = (line["value"] for line in launched.lines())
    assert admitted["command"] is None
    assert started["supervisor"] == admitted["supervisor"]
    assert started["command"]["pid"] != started["supervisor"]["pid"]
    assert completed["is_orderly"]
    assert end["is_tree_gone"]


def test_output_and_input_pass_untouched(tmp_path: Path) -> None:
    """A command reads the caller's stdin and writes to the caller's streams, byte for byte."""
    data = bytes(range(256)) * 4_000
    launched = Launched(
        tmp_path,
        ["sh", "-c", "cat; echo err >&2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = launched.front.communicate(data, timeout=20)
    assert (out, err, launched.front.returncode) == (data, b"err\n", 0)


def test_end_of_output_comes_with_the_command(tmp_path: Path) -> None:
    """Nobody but the command's side holds its output open: a reader sees the end while the launch is held."""
    launched = Launched(
        tmp_path, ["sh", "-c", "sleep 3 >&- 2>&- & echo x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = launched.front.communicate(timeout=20)
    assert (out, err) == (b"x\n", b"")
    assert "completed" not in launched.kinds()
    launched.wait_for("completed")


def test_descriptors_handed_down_reach_the_command_and_leave_with_it(tmp_path: Path) -> None:
    """What the caller hands down beside the streams is the command's, and not kept by us."""
    reading, writing = os.pipe()
    ledger = tmp_path / "l.jsonl"
    front = subprocess.Popen(
        [
            sys.executable,
            "-m",
            PROGRAM,
            str(ledger),
            "{}",
            "sh",
            "-c",
            f"echo x > /proc/self/fd/{writing}; sleep 0.2",
        ],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'src'}"},
        stdin=subprocess.DEVNULL,
        pass_fds=(writing,),
    )
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.read() == b"x\n"
    assert front.wait(20) == 0


def test_command_that_cannot_be_executed_is_a_proven_failure(tmp_path: Path) -> None:
    """The code is a shell's, and the ledger is told that the command never ran."""
    for command, code in (("no-such-program", 127), ("/etc/passwd", 126)):
        launched = Launched(tmp_path, [command])
        assert launched.front.wait(20) == code
        assert launched.kinds() == ["admitted", "started", "failed", "end"]
        assert launched.lines()[-1]["value"]["outcome"] == "not_started"


def test_signal_that_ended_the_command_is_in_its_code(tmp_path: Path) -> None:
    """A command that was killed gives 128 and the signal's number."""
    launched = Launched(tmp_path, ["sh", "-c", "kill -9 $$"])
    assert launched.front.wait(20) == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_the_front_end_reaches_the_commands_group(tmp_path: Path, number: int) -> None:
    """Whoever ends the front end as a shell would ends the command, its children included."""
    launched = Launched(tmp_path, ["sh", "-c", "sleep 60; true"])
    launched.wait_for("started")
    launched.front.send_signal(number)
    assert launched.front.wait(20) == 128 + number
    launched.wait_for("completed")


def test_command_that_handles_a_signal_decides_itself(tmp_path: Path) -> None:
    """The front end does not leave before its command does."""
    launched = Launched(
        tmp_path,
        ["sh", "-c", "trap 'exit 9' TERM; echo; while :; do sleep 0.05; done"],
        stdout=subprocess.PIPE,
    )
    assert launched.front.stdout is not None
    launched.front.stdout.read(1)
    launched.front.terminate()
    assert launched.front.wait(20) == 9
    launched.front.stdout.close()


@pytest.mark.clause("I32", "I35")
def test_launch_that_is_not_admitted_starts_nothing(tmp_path: Path) -> None:
    """What the ledger raises is raised, and the supervisor has ended without a command."""
    seen: list[LaunchEvidence] = []

    def refuse(evidence: LaunchEvidence) -> None:
        seen.append(evidence)
        raise PermissionError("no")

    spec = LaunchSpec("l", "n" * 32, ("touch", str(tmp_path / "ran")))
    with pytest.raises(PermissionError):
        run_under_supervisor(spec, program=PROGRAM, admit=refuse)
    wait_until(lambda: probe(seen[0].supervisor) == "gone")
    assert probe_launch(seen[0]).state == "gone"
    assert not (tmp_path / "ran").exists()


def test_supervisor_that_was_killed_before_its_launch_is_told(tmp_path: Path) -> None:
    """A supervisor that is not there is named before anything is recorded."""
    spec = LaunchSpec("l", "n" * 32, ("true",))
    with Supervisor.start(PROGRAM) as supervisor:
        os.kill(supervisor._pid, signal.SIGKILL)
        wait_until(lambda: not _is_running(supervisor._pid))
        with pytest.raises(ProcessLookupError):
            supervisor.evidence(spec)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.clause("I34", "native-195")
def test_supervisor_that_was_killed_leaves_an_end_that_is_not_known(tmp_path: Path) -> None:
    """A front end whose supervisor was killed does not claim how its command ended."""
    launched = Launched(tmp_path, ["sleep", "2"])
    launched.wait_for("started")
    os.kill(launched.evidence().supervisor.pid, signal.SIGKILL)
    assert launched.front.wait(20) == 125
    end = launched.lines()[-1]["value"]
    assert (end["outcome"], end["is_tree_gone"]) == ("lost", False)
    assert probe_launch(launched.evidence()).state == "alive"
    wait_until(lambda: probe_launch(launched.evidence()).state == "gone")


def test_signal_that_the_caller_ignores_is_ignored_by_the_command(tmp_path: Path) -> None:
    """A launch under nohup survives a hang-up, as the bare command does."""
    ledger = tmp_path / "l.jsonl"
    front = subprocess.Popen(
        [
            *("sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", PROGRAM, str(ledger), "{}"),
            *("sh", "-c", "kill -HUP $$; kill -HUP $PPID; exit 4"),
        ],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'src'}"},
        stdin=subprocess.DEVNULL,
    )
    assert front.wait(20) == 4
