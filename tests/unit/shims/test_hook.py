"""The client of a command hook: what it hands on, what it prints, and that nothing of it blocks a harness."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from tieline.shims import hook

Answer = Callable[[dict[str, Any]], dict[str, Any]]
INPUT = b'{"session_id": "s", "prompt": "a \\u20ac"}'


class Endpoint:
    """A root's control endpoint that a test answers for."""

    def __init__(self, home: Path, answer: Answer) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home / "c"))
        self._listener.listen()
        (home / "door").write_text(str(home / "c"))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        link, _ = self._listener.accept()
        # A client that is refused goes without reading on.
        with self._listener, link, link.makefile("rb") as lines, contextlib.suppress(ConnectionError):
            self._answer_all(link, lines)

    def _answer_all(self, link: socket.socket, lines: IO[bytes]) -> None:
        for line in lines:
            self.asked.append(json.loads(line))
            told = {"jsonrpc": "2.0", "id": self.asked[-1]["id"], **self._answer(self.asked[-1])}
            link.sendall(json.dumps(told, separators=(",", ":")).encode() + b"\n")


def run(home: Path, data: bytes = INPUT, event: str = "AfterTool") -> tuple[int, bytes]:
    """Run the client as a harness does."""
    words = [sys.executable, "-I", "-S", hook.__file__, str(home / "door"), "gemini", event]
    done = subprocess.run(words, input=data, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout


def answering(output: bytes, token: str) -> Answer:
    """Return a root that answers this."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        is_hook = asked["method"] == "host.hook"
        return {"result": {"output": output.hex(), "token": token} if is_hook else {"version": 1}}

    return answer


def test_hook_hands_its_input_on_and_prints_the_answer_as_it_is(private_home: Path) -> None:
    """Neither side is parsed; that an answer with mail was printed is said behind it."""
    root = Endpoint(private_home, answering(b'{"x": "\xe2\x82\xac"}', "ab12"))
    assert run(private_home) == (0, b'{"x": "\xe2\x82\xac"}')
    hello, told, carried = root.asked
    assert (hello["method"], hello["params"]) == ("control.hello", {"version": 1})
    assert told["params"] == {"harness": "gemini", "event": "AfterTool", "input": INPUT.hex()}
    assert (carried["method"], carried["params"]) == ("host.carried", {"token": "ab12"})


def test_hook_without_mail_prints_nothing(private_home: Path) -> None:
    """And says nothing more."""
    root = Endpoint(private_home, answering(b"", ""))
    assert run(private_home) == (0, b"")
    assert len(root.asked) == 2


@pytest.mark.parametrize("method", ["control.hello", "host.hook"])
def test_hook_that_is_refused_ends_well_and_prints_nothing(private_home: Path, method: str) -> None:
    """A harness takes another code for a refusal of its own step."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        refused = {"error": {"code": -32000, "message": "no"}}
        return refused if asked["method"] == method else {"result": {"version": 1}}

    Endpoint(private_home, answer)
    assert run(private_home) == (0, b"")


def test_hook_without_a_root_at_its_door_becomes_the_whole_command(private_home: Path) -> None:
    """Which finds none here either, and lets the harness go on."""
    assert run(private_home) == (0, b"")


def test_hook_does_not_hand_on_what_is_too_long(private_home: Path) -> None:
    """The root is told of the event all the same."""
    root = Endpoint(private_home, answering(b"", ""))
    assert run(private_home, b"x" * (hook.INPUT_BYTES_MAX + 1)) == (0, b"")
    assert root.asked[1]["params"]["input"] == ""


def waited(home: Path) -> "subprocess.Popen[bytes]":
    """Start the client that waits."""
    words = [sys.executable, "-I", "-S", hook.__file__, str(home / "door"), "claude-code", "Wait"]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_client_that_waits_finds_a_door_that_comes_later_and_wakes_by_its_end(private_home: Path) -> None:
    """The hook of a session's begin is started before the root is; the mail is on stderr, with code 2."""
    with waited(private_home) as process:
        assert process.poll() is None
        root = Endpoint(private_home, answering("mail \u20ac".encode(), ""))
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (2, b"", "mail \u20ac".encode())
    assert root.asked[1]["params"] == {"harness": "claude-code", "event": "Wait"}


def test_client_that_waits_is_sent_home_by_an_empty_answer(private_home: Path) -> None:
    """It wakes nobody."""
    Endpoint(private_home, answering(b"", ""))
    with waited(private_home) as process:
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 0


def test_client_that_waits_ends_with_its_root(private_home: Path) -> None:
    """No process is left behind, and nobody is woken."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "host.hook":
            raise ConnectionError
        return {"result": {"version": 1}}

    Endpoint(private_home, answer)
    with waited(private_home) as process:
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 0


def judged(home: Path, data: bytes = INPUT) -> tuple[int, bytes]:
    """Run the client before a shell command, in a home with rules."""
    (home / "t").mkdir(exist_ok=True)
    (home / "t" / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
    words = [sys.executable, "-I", "-S", hook.__file__, str(home / "door"), "claude", "pre-tool"]
    environment = {"PATH": os.defpath, "HOME": str(home), "TIELINE_HOME": str(home / "t")}
    done = subprocess.run(words, input=data, capture_output=True, env=environment, timeout=60, check=False)
    return done.returncode, done.stdout


COMMIT = json.dumps({"tool_name": "Bash", "tool_input": {"command": "git commit"}, "cwd": "/"}).encode()


@pytest.mark.parametrize("output", [b"", b'{"deny": 1}\n'])
def test_hook_before_a_command_prints_what_the_root_judged(private_home: Path, output: bytes) -> None:
    """With the input handed on as it came."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"judged": True, "output": output.hex()}}

    root = Endpoint(private_home, answer)
    assert judged(private_home, COMMIT) == (0, output)
    assert root.asked[1]["method"] == "host.judge"
    assert root.asked[1]["params"] == {"input": COMMIT.hex()}


@pytest.mark.parametrize(
    "answered",
    [
        {"error": {"code": -32601, "message": "an older version"}},
        {"result": {"output": "", "token": ""}},
        {"result": {"judged": True, "output": "zz"}},
        None,
    ],
)
def test_hook_that_no_root_judged_becomes_the_whole_command_with_the_same_input(
    private_home: Path, answered: dict[str, Any] | None
) -> None:
    """Silence of a root is no allow."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        assert answered is not None
        return {"result": {"version": 1}} if asked["method"] == "control.hello" else answered

    if answered is not None:
        Endpoint(private_home, answer)
    code, output = judged(private_home, COMMIT)
    assert code == 0
    assert json.loads(output)["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_hook_with_an_input_that_is_too_long_refuses(private_home: Path) -> None:
    """What nobody can read was not judged."""
    code, output = judged(private_home, b"x" * (hook.KEPT_BYTES_MAX + 1))
    assert code == hook.REFUSED
    assert b"deny" in output
