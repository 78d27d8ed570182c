"""The dispatch: what is imported, which exit code, and what a person never sees."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ErrorAnswer, FakeRoot, Result
from tieline import __version__
from tieline.adapters.cli import main as module
from tieline.adapters.cli.main import COMMANDS, EXIT_CODES, commands_here, exit_code

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]
COMMAND = [sys.executable, "-m", "tieline.adapters.cli.main"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("QUEUE_FULL", 1),
        ("AMBIGUOUS_TARGET", 1),
        ("USAGE", 2),
        ("INVALID_PARAMS", 2),
        ("DELIVERY_UNKNOWN", 3),
        ("NO_ROOT", 4),
        ("UNKNOWN_TARGET", 4),
        ("PEER_OFFLINE", 4),
        ("TARGET_ENDED", 4),
        ("RECOVERY_REQUIRED", 5),
        ("WAIT_TIMEOUT", 124),
    ],
)
def test_exit_code_of_each_branch_is_as_documented(code: str, expected: int) -> None:
    """Each typed code ends in the documented exit code."""
    assert exit_code(code) == expected
    assert expected in EXIT_CODES


def test_main_refusal_of_root_is_told_on_both_streams(run: Run, fake_root: Make) -> None:
    """With --json an error is one shape on stdout and one line with its next action on stderr."""

    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("RECOVERY_REQUIRED", "the store is in doubt")

    fake_root({"local.log": refuse})
    result = run("log", "--json")
    assert result.code == 5
    assert set(result.json) == {"version", "command", "error"}
    assert set(result.json["error"]) == {"code", "text", "action", "retryable"}
    assert result.json["version"] == 1
    assert "RECOVERY_REQUIRED: the store is in doubt" in result.err
    assert "next: " in result.err
    assert run("log").out == ""


@pytest.mark.parametrize("words", [["nix", "--json"], ["--json"], ["--json", "peers"]])
def test_main_unknown_command_in_json_is_one_object(run: Run, words: list[str]) -> None:
    """A program that asked for JSON gets the error as JSON, also where there is no command."""
    result = run(*words)
    assert (result.code, result.json["error"]["code"]) == (2, "USAGE")


def test_main_unknown_command_names_near_ones(run: Run) -> None:
    """A word that is no command is wrong usage, with those that begin alike."""
    result = run("peer")
    assert result.code == 2
    assert "peers" in result.err


def test_main_help_lists_every_command_and_exit_code(run: Run) -> None:
    """Asked for, help is data on stdout; not asked for, it is an error on stderr."""
    result = run("--help")
    assert result.code == 0
    for name in commands_here():
        assert f"\n  {name} " in result.out
    for code in EXIT_CODES:
        assert f"\n  {code:>3}  " in result.out
    assert run().code == 2
    assert run().out == ""


def test_main_version_is_the_packages(run: Run) -> None:
    """--version prints the package's version, also as JSON."""
    assert run("--version").out == f"tieline {__version__}\n"
    assert run("--version", "--json").json == {"version": 1, "command": "version", "tieline": __version__}


def test_main_defect_is_a_sentence_without_trace(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours ends in a sentence; the trace is shown only where it was asked for."""

    def broken(name: str, words: list[str]) -> int:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(module, "_run", broken)
    result = run("peers")
    assert result.code == 3
    assert "Traceback" not in result.err
    assert "INTERNAL_ERROR" in result.err
    monkeypatch.setenv("TIELINE_DEBUG", "1")
    assert "ZeroDivisionError: secret" in run("peers").err


def test_main_absent_adapter_is_an_absent_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that is not installed takes its command away, and breaks no other."""
    monkeypatch.setitem(COMMANDS, "nothing", ("nothing_here", "not there"))
    assert "nothing" not in commands_here()
    assert run("nothing").code == 2
    assert "nothing_here" not in run("--help").out


def test_main_doors_get_their_words(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A door outside the command line is imported when it is called, and is given its own words."""
    import types

    seen: list[list[str]] = []
    fake = types.ModuleType("tieline.adapters.fakedoor")
    fake.main = lambda words: seen.append(words) or 7  # type: ignore[attr-defined]
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "tieline.adapters.fakedoor", fake)
    monkeypatch.setitem(COMMANDS, "fakedoor", ("fakedoor", "a door"))
    assert run("fakedoor", "--x", "y").code == 7
    assert seen == [["--x", "y"]]


@pytest.mark.clause("K33")
def test_main_interrupt_ends_quietly_with_130(fake_root: Make) -> None:
    """Ctrl-C while waiting ends the command at once, without a word."""
    import threading

    asked = threading.Event()

    def wait(params: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        time.sleep(1.0)
        return {"messages": []}

    fake_root({"local.inbox": wait})
    process = subprocess.Popen(
        [*COMMAND, "inbox", "--wait", "20"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert asked.wait(20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.clause("K33")
@pytest.mark.parametrize("words", [["--help"], ["peers"], ["completion", "bash"], ["doctor", "--json"]])
def test_main_stdout_closed_from_the_start_ends_quietly(place: Any, words: list[str]) -> None:
    """A command whose stdout is closed says nothing about it."""
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *COMMAND, *words], stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_main_full_disk_on_stdout_is_told_once(place: Any) -> None:
    """A stdout that takes nothing more is an error with a name, not a trace."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "doctor", "--json"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"IO_ERROR" in done.stderr
    assert b"Traceback" not in done.stderr


def test_main_peers_without_root_stays_light_and_quick(place: Any) -> None:
    """From a cold shell `peers` starts within five times an empty interpreter, also without a root."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(place / "cache")
    heavy = "('asyncio', 'msgspec', 'socket', 'dataclasses', 'pathlib', 'shutil', 'hashlib', 'datetime')"
    text = (
        "import sys; from tieline.adapters.cli.main import main; main(['peers', '--json']);"
        f" print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert done.stderr.splitlines()[-1] == b"[]"

    def cost_s(words: list[str]) -> float:
        """Return the processor time of one start: the clock on the wall measures the neighbours, too."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, capture_output=True, env=environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    empty = [sys.executable, "-c", "pass"]
    costs = [(cost_s(command), cost_s(empty)) for _ in range(15)]
    assert sum(sorted(cost for cost, _ in costs)[:8]) <= 5 * sum(sorted(cost for _, cost in costs)[:8])
