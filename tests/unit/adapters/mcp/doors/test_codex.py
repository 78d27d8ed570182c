"""The ways into a session of Codex, against frames that its server was seen to answer."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.mcp.doors import codex
from tieline.adapters.mcp.doors.codex import Codex, lone_thread
from tieline.runtime.ladder import reaching
from tieline.runtime.ladder.reaching import Host

THREAD = "01a23026-9342-7be2-841a-11d2993e43cb"
TURN = "01a23026-9f54-7183-8c25-fa574fb965c7"
PROGRAM = "/opt/codex/bin/codex"
INPUT = [{"type": "text", "text": "hello"}]
GREETED = {"id": 1, "result": {"userAgent": "codex-tui/0.171.0", "codexHome": "/h", "platformOs": "linux"}}
RUNNING = {
    "id": 2,
    "result": {"data": [{"id": TURN, "items": [], "status": "inProgress"}], "nextCursor": None},
}
ENDED = {"id": 2, "result": {"data": [{"id": TURN, "items": [], "status": "completed"}], "nextCursor": None}}
STEERED = {"id": 3, "result": {"turnId": TURN}}
LATE = {"id": 3, "error": {"code": -32600, "message": "no active turn to steer"}}
STARTED = {"id": 2, "result": {"turn": {"id": TURN, "items": [], "status": "inProgress"}}}
QUEUED = {"id": 2, "result": {"queuedSubmission": {"id": "q", "input": INPUT, "clientUserMessageId": "c"}}}
NO_ROLLOUT = {"id": 2, "error": {"code": -32603, "message": f"no rollout found for thread id {THREAD}"}}


class Server:
    """Answers as Codex did, and keeps what it was asked."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []
        self.commands: list[Any] = []

    def tell(self, method: str) -> None:
        """Take a notification."""
        self.asked.append((method, None))

    def ask(self, method: str, params: Any) -> dict[str, Any] | None:
        """Answer the next."""
        self.asked.append((method, params))
        return self.answers.pop(0)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Codex, Server]]:
    """Give a way to a window with or without a server, which answers so."""

    def make(*answers: dict[str, Any] | None, has_server: bool, thread: str = THREAD) -> tuple[Codex, Server]:
        server = Server(*answers)
        host = Host(7, 1, PROGRAM, ("codex", "--no-alt-screen"))
        monkeypatch.setattr(Host, "ours", lambda: host)
        monkeypatch.setattr(Host, "listens_at", lambda _host, _path: has_server)

        async def converse_at(path: str, to: Host, talk: Callable[[Any], bool]) -> bool:
            server.commands.append((path, to.pid))
            return talk(server)

        async def converse_with(command: Any, environment: Any, talk: Callable[[Any], bool]) -> bool:
            server.commands.append((command, environment))
            return talk(server)

        monkeypatch.setattr(reaching, "converse_at", converse_at)
        monkeypatch.setattr(reaching, "converse_with", converse_with)
        door = Codex.of({"CODEX_HOME": "/h"}, lambda: thread)
        assert door is not None
        return door, server

    return make


@pytest.mark.asyncio
async def test_idle_session_at_a_server_begins_a_turn(way: Any) -> None:
    """One request, and its answer says that it was taken."""
    door, server = way(GREETED, STARTED, has_server=True)
    assert await door.push("hello", is_busy=False)
    assert server.commands == [("/h/app-server-control/app-server-control.sock", 7)]
    assert [name for name, _ in server.asked] == ["initialize", "initialized", "turn/start"]
    assert server.asked[-1][1] == {"threadId": THREAD, "input": INPUT}
    assert not door.wakes_only
    assert door.is_busy() is None


@pytest.mark.asyncio
async def test_busy_session_at_a_server_is_steered_into_the_running_turn_or_not_at_all(way: Any) -> None:
    """A turn that ended meanwhile is not begun anew: nobody asked for a wake."""
    door, server = way(GREETED, RUNNING, STEERED, has_server=True)
    assert await door.push("hello", is_busy=True)
    given = {"threadId": THREAD, "input": INPUT, "expectedTurnId": TURN}
    assert server.asked[-1] == ("turn/steer", given)
    for answers in ((GREETED, RUNNING, LATE), (GREETED, ENDED), (GREETED, {"id": 2, "result": {"data": []}})):
        door, server = way(*answers, has_server=True)
        assert not await door.push("hello", is_busy=True)
        assert "turn/start" not in [name for name, _ in server.asked]
    door, _ = way(GREETED, None, has_server=True)
    assert not await door.push("hello", is_busy=True)


@pytest.mark.asyncio
async def test_window_without_a_server_gets_it_in_its_queue_when_idle(way: Any) -> None:
    """The text goes to the program's input; its words everybody could read."""
    door, server = way(GREETED, QUEUED, has_server=False)
    assert door.wakes_only
    assert door.evidence_s > 10
    assert await door.push("hello", is_busy=False)
    assert server.commands == [((PROGRAM, "app-server"), {"CODEX_HOME": "/h"})]
    name, given = server.asked[-1]
    assert (name, given["threadId"], given["input"]) == ("thread/queue/add", THREAD, INPUT)
    assert not await door.push("hello", is_busy=True)
    assert len(server.commands) == 1


@pytest.mark.asyncio
async def test_push_that_was_refused_took_nothing_and_one_without_an_answer_may_have(way: Any) -> None:
    """Only an error says that nothing was taken."""
    door, _ = way(GREETED, NO_ROLLOUT, has_server=False)
    assert not await door.push("hello", is_busy=False)
    door, _ = way(GREETED, None, has_server=False)
    assert await door.push("hello", is_busy=False)
    door, server = way(None, has_server=False)
    assert not await door.push("hello", is_busy=False)
    assert [name for name, _ in server.asked] == ["initialize"]
    door, server = way(has_server=True, thread="")
    assert not await door.push("hello", is_busy=False)
    assert server.commands == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/usr/bin/python3", ("python3", "bench.py")),
        (PROGRAM, ("codex", "exec", "--json", "do")),
        (PROGRAM, ("codex", "-m", "x", "e", "do")),
        ("", ()),
    ],
)
def test_host_without_a_window_or_that_is_no_codex_has_no_way(
    monkeypatch: pytest.MonkeyPatch, program: str, words: tuple[str, ...]
) -> None:
    """What is queued for a run that ends with its turn would be lost."""
    monkeypatch.setattr(Host, "ours", lambda: Host(7, 1, program, words))
    assert Codex.of({}, lambda: THREAD) is None


def test_thread_is_known_by_its_lock_where_the_host_has_one_alone(
    monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    """Among several nobody says whose this server is."""
    folder = private_home / codex.LOCKS
    folder.mkdir()
    own = Host(os.getpid(), 1, PROGRAM, ())
    monkeypatch.setattr(Host, "ours", lambda: own)
    environment = {"CODEX_HOME": str(private_home)}
    assert lone_thread(environment) == ""
    with open(folder / "a.lock", "w"):
        assert lone_thread(environment) == "a"
        with open(folder / "b.lock", "w"):
            assert lone_thread(environment) is None
    monkeypatch.setattr(Host, "ours", lambda: None)
    assert lone_thread(environment) == ""
