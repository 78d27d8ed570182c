"""The launcher runs what it was asked to, as nobody else, and away from the caller's environment.

Source: DESIGN.md 8, "Test machines".
"""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import run as launcher


def place_in(folder: Path) -> launcher.Place:
    """Return a place that runs as the present user."""
    return launcher.Place(folder, folder, Path(sys.prefix), None)


def is_running(process: Path) -> bool:
    """Return whether the process of a /proc/PID/stat runs; one that nobody reaped does not."""
    try:
        return process.read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_folder_of_this_run_belongs_to_this_user_alone() -> None:
    """The folders that the tests use as home and for temporary files are theirs, 0700."""
    for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR"):
        found = Path(os.environ[name]).stat()
        assert found.st_uid == os.geteuid() != 0
        assert stat.S_IMODE(found.st_mode) == 0o700


def test_suite_started_with_caller_variables_sees_only_listed_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the caller's variables a suite sees those of `PASSED_ON` and no other."""
    monkeypatch.setenv("TIELINE_INSTANCE", "someone")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("CI", "true")
    script = "import os, sys; sys.exit(sorted(os.environ.keys() - {'LC_CTYPE'}) != sys.argv[1:])"
    seen = {"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "USER", "LOGNAME", "PATH", "LANG"}
    seen |= {name for name in launcher.PASSED_ON if name in os.environ}
    assert "CI" in seen
    assert (
        launcher.run(place_in(tmp_path), [sys.executable, "-I", "-c", script, *sorted(seen)], tmp_path) == 0
    )


def test_suite_without_end_is_stopped_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A suite past its time ends with code 124, and the processes it started end with it."""
    monkeypatch.setattr(launcher, "SUITE_SECONDS_MAX", 0.5)
    script = f"sleep 60 & echo $! >{tmp_path}/child; wait"
    assert launcher.run(place_in(tmp_path), ["/bin/sh", "-c", script], tmp_path) == 124
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    give_up = time.monotonic() + 10
    while is_running(child) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not is_running(child)


def test_processes_of_a_user_are_found_by_number() -> None:
    """A process that is still running is listed under its user, with its pid and name."""
    with subprocess.Popen(["sleep", "60"]) as child:
        # The parent goes on a moment before the child has the name of its program.
        give_up = time.monotonic() + 20
        while f"{child.pid} sleep" not in (found := list(launcher.processes_of(os.geteuid()))):
            assert time.monotonic() < give_up, found
        child.kill()


def test_installed_command_copied_elsewhere_starts_the_interpreter_there(tmp_path: Path) -> None:
    """A copied script starts the interpreter beside its copy; a program that is no script is the same."""
    (tmp_path / "bin").mkdir()
    script, program = tmp_path / "script", tmp_path / "program"
    script.write_bytes(b"#!/elsewhere/bin/python\nprint(1)\n")
    program.write_bytes(b"\x7fELF python")
    for command in (script, program):
        launcher.copy_command(command, tmp_path / "bin" / command.name)
    assert (tmp_path / "bin" / "script").read_text() == f"#!{tmp_path}/bin/python\nprint(1)\n"
    assert (tmp_path / "bin" / "program").read_bytes() == program.read_bytes()
    assert os.access(tmp_path / "bin" / "script", os.X_OK)


@pytest.mark.parametrize("arguments", [["unit", "tests/unit"], ["lint", "--fast"]])
def test_suites_mixed_with_paths_are_refused(arguments: list[str]) -> None:
    """Suites and pytest's arguments do not go together."""
    with pytest.raises(launcher.CannotRunError):
        launcher.suites_of(arguments)


def test_suite_without_folder_is_refused_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A suite that is not there is no green suite."""
    monkeypatch.setattr(launcher, "CHECKOUT", tmp_path)
    with pytest.raises(launcher.CannotRunError, match="tests/unit"):
        launcher.suites_of(["unit"])


def test_suites_asked_for_by_nobody_are_all_that_exist() -> None:
    """Without arguments every suite runs whose folder exists."""
    assert {"lint", "tidy"} <= set(launcher.suites_of([]))
    assert launcher.suites_of(["tests/unit/test_errors.py", "-x"]) == []


def test_run_that_is_ended_ends_what_it_started(tmp_path: Path) -> None:
    """Its tests do not go on without it, and hold nobody's pipe open."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, time\n"
        "def test_it():\n"
        "    pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
        "    time.sleep(50)\n"
    )
    runner = Path(launcher.__file__)
    process = subprocess.Popen([sys.executable, str(runner), str(tmp_path / "test_it.py")])
    pid = tmp_path / "pid"
    give_up = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()) and time.monotonic() < give_up:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not is_running(Path("/proc", pid.read_text(), "stat"))


@pytest.mark.parametrize(
    ("failures", "code", "unsteady"),
    [(0, 0, []), (1, 0, ["test_it.py::test_0[a b - c]"]), (2, 1, []), (launcher.AGAIN_MAX + 1, 1, [])],
)
def test_failure_counts_only_when_the_test_fails_again_alone(
    tmp_path: Path, failures: int, code: int, unsteady: list[str]
) -> None:
    """One that passes is named; one that fails again, and more than a few at once, fail the suite."""
    # 1: fails the first time only. 2: fails each time. More: so many fail at once that none is tried again.
    (tmp_path / "test_it.py").write_text(
        f"""import pathlib, pytest
@pytest.mark.parametrize("word", ["a b - c"])
def test_0(word):
    mark = pathlib.Path(__file__).with_name("mark")
    is_first = not mark.exists()
    mark.touch()
    assert not ({failures} == 1 and is_first or {failures} == 2)
@pytest.mark.parametrize("number", range({launcher.AGAIN_MAX + 1}))
def test_1(number):
    assert {failures} <= {launcher.AGAIN_MAX}
"""
    )
    place = place_in(tmp_path)
    command = [sys.executable, *launcher.PYTEST, "test_it.py"]
    assert launcher.run_twice(place, command, seconds=60) == (code, unsteady)
