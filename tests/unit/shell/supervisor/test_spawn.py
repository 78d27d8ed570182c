"""A command forked, held at a gate, and told apart from one that cannot run."""

import os
import signal
import time
from pathlib import Path

import pytest

from tieline.shell.supervisor.spawn import abandon, fork_command, release

ENVIRONMENT = {b"PATH": b"/usr/bin:/bin"}


def code_of(pid: int) -> int:
    """Return how a child ended."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def run(*command: str, environment: dict[bytes, bytes] = ENVIRONMENT) -> int:
    """Run a command through the gate and return its code, or that of its failure."""
    child = fork_command(command, environment, ignored=frozenset(), terminal=None)
    failure = release(child)
    code = code_of(child.pid)
    if failure is None:
        return code
    assert code in (126, 127, 125)
    return failure.exit_code


@pytest.mark.clause("native-190", "I32", "mutant-18")
def test_command_at_the_gate_has_run_nothing(tmp_path: Path) -> None:
    """Before it is released nothing of the program runs; abandoned it never does."""
    mark = tmp_path / "ran"
    child = fork_command(("touch", str(mark)), ENVIRONMENT, ignored=frozenset(), terminal=None)
    time.sleep(0.1)
    assert not mark.exists()
    abandon(child)
    assert code_of(child.pid) == 125
    assert not mark.exists()
    child = fork_command(("touch", str(mark)), ENVIRONMENT, ignored=frozenset(), terminal=None)
    assert release(child) is None
    assert code_of(child.pid) == 0
    assert mark.exists()


@pytest.mark.clause("I32")
def test_command_whose_supervisor_dies_at_the_gate_never_runs(tmp_path: Path) -> None:
    """A supervisor that is killed before it opens the gate has started nothing."""
    mark = tmp_path / "ran"
    supervisor = os.fork()
    if supervisor == 0:
        fork_command(("touch", str(mark)), ENVIRONMENT, ignored=frozenset(), terminal=None)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(supervisor, 0)
    time.sleep(0.2)
    assert not mark.exists()


def test_command_leads_a_group_of_its_own(tmp_path: Path) -> None:
    """The command's process group bears its own number, before it runs already."""
    child = fork_command(("true",), ENVIRONMENT, ignored=frozenset(), terminal=None)
    assert os.getpgid(child.pid) == child.pid
    abandon(child)
    code_of(child.pid)


def test_program_that_cannot_be_executed_gets_the_code_of_a_shell(tmp_path: Path) -> None:
    """126 for one that is there and may not run, 127 for one that is not there."""
    closed = tmp_path / "closed"
    closed.write_text("x")
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    assert run(str(closed)) == 126
    assert run(str(tmp_path)) == 126
    assert run(str(broken)) == 127
    assert run("no-such-program-anywhere") == 127
    assert run(str(closed / "below")) == 127
    assert run("") == 127


def test_program_that_may_not_run_is_told_over_folders_without_it(tmp_path: Path) -> None:
    """A program found without permission is told as such, unless a later folder has one that runs."""
    (tmp_path / "true").write_text("x")
    folder = os.fsencode(tmp_path)
    assert run("true", environment={b"PATH": folder + b":/nowhere"}) == 126
    assert run("true", environment={b"PATH": folder + b":/usr/bin:/bin"}) == 0


def test_script_without_first_line_is_given_to_the_shell(tmp_path: Path) -> None:
    """A script that names no interpreter runs as it does from a shell."""
    script = tmp_path / "script"
    script.write_text('exit "$1"\n')
    script.chmod(0o755)
    assert run(str(script), "7") == 7


def test_failure_names_the_program_and_the_reason() -> None:
    """What a person reads of a failed start names the program."""
    child = fork_command(("no-such-program",), ENVIRONMENT, ignored=frozenset(), terminal=None)
    failure = release(child)
    code_of(child.pid)
    assert failure is not None
    assert failure.text == "no-such-program: No such file or directory"


def test_child_that_was_killed_at_the_gate_is_a_failure() -> None:
    """A child that ended before its gate was opened never ran its program."""
    child = fork_command(("true",), ENVIRONMENT, ignored=frozenset(), terminal=None)
    os.kill(child.pid, signal.SIGKILL)
    assert code_of(child.pid) == -signal.SIGKILL
    failure = release(child)
    assert failure is not None
    assert failure.exit_code == 126


def test_signals_of_the_command_are_those_of_the_caller(tmp_path: Path) -> None:
    """What the caller ignores is ignored; what this interpreter ignores for itself is not."""
    said = tmp_path / "said"
    child = fork_command(
        ("sh", "-c", f"exec grep -E 'SigIgn|SigBlk' /proc/self/status > {said}"),
        ENVIRONMENT,
        ignored=frozenset({int(signal.SIGHUP)}),
        terminal=None,
    )
    assert release(child) is None
    code_of(child.pid)
    fields = dict(line.split(":\t") for line in said.read_text().splitlines())
    named = (1 << 31) - 1  # the numbers above belong to the C library, and to whoever started this run
    inherited = {one for one in (signal.SIGINT, signal.SIGQUIT) if signal.getsignal(one) == signal.SIG_IGN}
    expected = sum(1 << (one - 1) for one in {signal.SIGHUP, *inherited})
    assert int(fields["SigIgn"], 16) & named == expected
    assert int(fields["SigBlk"], 16) & named == 0


def test_descriptors_of_ours_do_not_reach_the_command(tmp_path: Path) -> None:
    """A command sees none of the pipes that its start needs."""
    said = tmp_path / "said"
    child = fork_command(
        ("sh", "-c", f"ls /proc/$$/fd > {said}"), ENVIRONMENT, ignored=frozenset(), terminal=None
    )
    own = {child.gate, child.failure}
    assert release(child) is None
    code_of(child.pid)
    seen = {int(word) for word in said.read_text().split()}
    assert not seen & {number for number in own if not os.path.exists(f"/proc/self/fd/{number}")} - {3}
