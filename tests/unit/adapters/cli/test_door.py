"""A root of the command's own: opened for one message, asked as any other, closed before the command ends."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ErrorAnswer, FakeRoot, Result, message, receipt
from tieline.adapters.cli.door import OwnRoot
from tieline.config import Settings
from tieline.errors import Refused
from tieline.runtime import root as root_module
from tieline.runtime.locate import places

Run = Callable[..., Result]


class Opened:
    """Stands for a real root: its control endpoint is a fake's."""

    def __init__(self, control: Path, events: list[str]) -> None:
        self._control, self._events = control, events
        self.node = SimpleNamespace(settings=Settings(), places="places", custody="custody", log=self)

    def failure(self, where: str, error: BaseException) -> None:
        self._events.append(where)

    def who(self) -> dict[str, Any]:
        return {"control": str(self._control)}

    async def close(self) -> None:
        self._events.append("closed")


@pytest.fixture
def opened(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the opening of a root; gives the fake, the options and what happened in order."""
    events: list[Any] = []
    fake = FakeRoot(place / "own.control", {})

    async def open_root(options: Any) -> Opened:
        events.append(options)
        await asyncio.sleep(0)
        return Opened(fake.path, events)

    monkeypatch.setattr(root_module, "open_root", open_root)
    monkeypatch.setattr("tieline.runtime.tidying.tidy", lambda *words: None)
    yield fake, events
    fake.close()


def test_own_root_sends_where_no_root_is_found(run: Run, opened: Any) -> None:
    """Without a root, one is opened for the message, in command mode, and closed after it; that is said."""
    fake, events = opened
    fake.answers["local.send"] = lambda params: (
        events.append("sent") or {"receipts": [receipt()], "errors": []}
    )
    result = run("send", "api", "x", "--json")
    assert result.code == 0
    assert result.json["root"]["foundBy"] == "own"
    assert "cannot be answered" in result.err
    assert events[0].mode == "command"
    assert events[1:] == ["sent", "closed"]


def test_own_root_sweeps_before_it_ends(run: Run, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only commands run, each takes away what dead roots left; a failure of that is only logged."""
    fake, events = opened
    fake.answers["local.send"] = {"receipts": [receipt()], "errors": []}

    def tidy(places: Any, custody: Any, retention_ms: int) -> None:
        events.append((places, custody, retention_ms))
        raise Refused("RESOURCE_BUSY", "its lock is held")

    monkeypatch.setattr("tieline.runtime.tidying.tidy", tidy)
    assert run("send", "api", "x").code == 0
    assert events[1:] == [("places", "custody", 86_400_000), "tidy", "closed"]


def test_own_root_waits_as_long_as_the_message_lives(run: Run, opened: Any) -> None:
    """Nothing else would retry the message: the command waits until it expires, or as it was told."""
    fake, _ = opened
    fake.answers["local.send"] = {"receipts": [receipt()], "errors": []}
    run("send", "api", "x")
    assert 600_000 < fake.params("local.send")["waitMs"] <= 602_500
    run("send", "api", "x", "--expires", "60")
    assert 60_000 < fake.params("local.send")["waitMs"] <= 62_500
    run("send", "api", "x", "--wait", "1")
    assert fake.params("local.send")["waitMs"] <= 1_000


@pytest.mark.clause("O03")
@pytest.mark.parametrize("state", ["pending", "unknown"])
def test_own_root_that_ends_early_promises_nothing(run: Run, opened: Any, state: str) -> None:
    """Once the command's own root has ended nothing retries, and a repeat would be a second message."""
    fake, _ = opened
    answer = receipt(state, text="it is retried until it expires")
    fake.answers["local.send"] = {"receipts": [answer], "errors": []}
    result = run("send", "api", "x", "--wait", "0")
    assert result.code == 3
    assert "nothing retries it" in result.out
    assert "would be a second message" in result.out
    told = run("send", "api", "x", "--wait", "0", "--json")
    assert "nothing retries it" in told.json["receipts"][0]["text"]
    fake.answers["local.ask"] = {"receipt": answer, "reply": None, "timedOut": True}
    asked = run("ask", "api", "x", "--timeout", "0")
    for text in (result.out, told.out, asked.err):
        for promise in ("retried until", "retries until", "same id again is the same message"):
            assert promise not in text


@pytest.mark.parametrize("words", [("send",), ("ask",)])
def test_own_root_interrupted_names_the_id_and_what_is_known(
    run: Run, opened: Any, words: tuple[str, ...]
) -> None:
    """Ctrl-C leaves a person with the id, what is known, and that nothing retries it."""
    fake, events = opened

    def interrupt(params: dict[str, Any]) -> dict[str, Any]:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.2)
        return {}

    fake.answers["local.status"] = {"sent": [{"receipt": receipt("pending")}], "received": []}
    fake.answers["local.send"] = fake.answers["local.ask"] = interrupt
    result = run(*words, "api", "x", "--id", "m-7")
    assert result.code == 130
    assert "interrupted: to api  id m-7" in result.err
    assert "nothing retries it" in result.err
    assert events[-1] == "closed"

    def silent(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("UNKNOWN_TARGET", "no such message")

    fake.answers["local.status"] = silent
    assert "nothing of it was stored" in run(*words, "api", "x", "--id", "m-7").err


def test_own_root_asks_and_says_that_it_ends(run: Run, opened: Any) -> None:
    """A question may have a root of its own, too."""
    fake, events = opened
    fake.answers["local.ask"] = {"receipt": receipt("replied"), "reply": message(), "timedOut": False}
    result = run("ask", "api", "q")
    assert (result.code, result.out) == (0, "one\ntwo\n")
    assert "ends with it" in result.err
    assert events[-1] == "closed"


def test_own_root_is_closed_after_a_refusal(run: Run, opened: Any) -> None:
    """Whatever comes of the message, the root is closed."""
    fake, events = opened

    def refuse(params: dict[str, Any]) -> dict[str, Any]:
        raise ErrorAnswer("SCOPE_DENIED", "no")

    fake.answers["local.send"] = refuse
    assert run("send", "api", "x").code == 1
    assert events[-1] == "closed"


def test_own_root_that_cannot_open_tells_why(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a root from opening is the command's answer."""

    async def refuse(options: Any) -> Any:
        raise Refused("COMMUNICATION_DISABLED", "switched off")

    monkeypatch.setattr(root_module, "open_root", refuse)
    result = run("send", "api", "x", "--json")
    assert (result.code, result.json["error"]["code"]) == (1, "COMMUNICATION_DISABLED")


@pytest.mark.parametrize(
    "words", [["reply", "m", "x"], ["mute", "api"], ["inbox", "--consume"], ["log"], ["last", "api"]]
)
def test_commands_that_need_a_mailbox_open_no_root(run: Run, opened: Any, words: list[str]) -> None:
    """Only a message may have a root of its own; nothing else could be found in it."""
    _, events = opened
    assert run(*words).code == 4
    assert events == []


def test_root_that_cannot_be_opened_in_time_is_told_with_what_helps(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd at the start is no missing agent: who is late is told to try again."""
    monkeypatch.setattr("tieline.adapters.cli.door.OPEN_S_MAX", 0.01)
    monkeypatch.setattr(OwnRoot, "_serve", lambda _self: None)
    with pytest.raises(Refused) as caught:
        OwnRoot(places({"TIELINE_HOME": str(place)})).__enter__()
    assert caught.value.code == "NO_ROOT"
    assert "try again" in caught.value.action
