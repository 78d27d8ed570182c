"""`tieline hook HARNESS EVENT`: a harness's hook never fails and prints nothing but an answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from tests.unit.adapters.cli.fake import Result
from tieline.adapters.cli import hook_event
from tieline.errors import Refused

Runner = Callable[..., Result]


@pytest.mark.parametrize("harness", ["gemini", "claude", "claude-code", "codex", "shell"])
def test_hook_without_a_root_prints_nothing_and_ends_well(run: Runner, harness: str) -> None:
    """A harness without Tieline's server, or a broken input, goes on as if nothing were there."""
    for stdin in (b"", b"{", b'{"session_id": "s-1"}', b'{"session_id": "../x"}', b"x" * 3_000_001):
        assert run("hook", harness, "AfterTool", stdin=stdin) == Result(0, "", "")


def test_hook_says_why_there_was_no_answer_where_that_is_asked_for(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person looks for the cause with TIELINE_DEBUG=1."""
    monkeypatch.setenv("TIELINE_DEBUG", "1")
    assert "NO_ROOT" in run("hook", "gemini", "AfterTool", stdin=b"{}").err


def test_hook_asks_the_root_at_the_door_of_its_session_and_says_that_it_wrote(
    run: Runner, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door's file goes before every other way to a root."""
    asked: list[tuple[str, str, dict[str, str]]] = []

    class Client:
        def __init__(self, path: str) -> None:
            self.path = path

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def call(self, method: str, params: dict[str, str], _seconds: float) -> dict[str, str]:
            asked.append((self.path, method, params))
            return {"output": b"{}".hex(), "token": "t"} if method == "host.hook" else {}

    monkeypatch.setattr(hook_event, "Client", Client)
    monkeypatch.setenv("TIELINE_HOME", str(private_home))
    endpoint = private_home / "c"
    endpoint.touch()
    (private_home / "mail").mkdir()
    (private_home / "mail" / "s-1.door").write_text(str(endpoint))
    stdin = b'{"session_id": "s-1"}'
    assert run("hook", "gemini", "AfterTool", stdin=stdin).out == "{}"
    hook = {"harness": "gemini", "event": "AfterTool", "input": stdin.hex()}
    assert asked == [
        (str(endpoint), "host.hook", hook),
        (str(endpoint), "host.carried", {"token": "t"}),
    ]


def test_command_that_waits_finds_its_root_later_and_ends_with_the_mail_and_code_2(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root may open after it; an empty answer sends it home."""
    answers = [b"mail", b""]
    looks = [Refused("NO_ROOT", "none"), "c", "c"]

    class Client:
        def __init__(self, path: str) -> None:
            assert path == "c"

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def call(self, method: str, params: dict[str, str], _seconds: float) -> dict[str, str]:
            assert (method, params) == ("host.hook", {"harness": "claude-code", "event": "Wait"})
            return {"output": answers.pop(0).hex(), "token": ""}

    def endpoint(*_: object) -> str:
        found = looks.pop(0)
        if isinstance(found, Refused):
            raise found
        return found

    monkeypatch.setattr(hook_event, "Client", Client)
    monkeypatch.setattr(hook_event, "_endpoint", endpoint)
    assert run("hook", "claude-code", "Wait") == Result(2, "", "mail")
    assert run("hook", "claude-code", "Wait") == Result(0, "", "")


def test_command_that_waits_gives_up_where_no_root_opens(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A harness may run without our server."""
    monkeypatch.setattr(hook_event, "APPEAR_S", 0.1)
    assert run("hook", "claude-code", "Wait") == Result(0, "", "")
