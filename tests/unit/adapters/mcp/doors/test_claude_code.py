"""Claude Code's inbox: written only by the session's own child, to the process that listens."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.mcp.doors.claude_code import ClaudeCode
from tieline.runtime.ladder import reaching
from tieline.shell.process import identify


class Session:
    """A session as its files show it; this process plays it."""

    def __init__(self, home: Path) -> None:
        own = identify(os.getpid())
        assert own is not None
        self.path = str(home / "inbox.sock")
        self.folder = home / "claude" / "sessions"
        self.folder.mkdir(parents=True)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen()
        self.server.settimeout(0.5)
        self.entry: dict[str, Any] = {
            "pid": own.pid,
            "procStart": str(own.start_ticks),
            "peerProtocol": 1,
            "messagingSocketPath": self.path,
            "status": "idle",
        }
        self.environment = {
            "CLAUDE_CODE_MESSAGING_SOCKET": self.path,
            "CLAUDE_CONFIG_DIR": str(home / "claude"),
        }
        self.write()

    def write(self, **members: Any) -> None:
        self.entry |= members
        (self.folder / "77.json").write_text(json.dumps(self.entry))

    def door(self, **more: str) -> ClaudeCode:
        door = ClaudeCode.of({**self.environment, **more})
        assert door is not None
        return door

    def took(self) -> list[Any]:
        link, _ = self.server.accept()
        with link:
            return [json.loads(line) for line in link.makefile("rb")]


@pytest.fixture
def session(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Give a session of which this process is taken for a child."""
    one = Session(private_home)
    own = one.entry["pid"], int(one.entry["procStart"])
    monkeypatch.setattr(reaching, "is_our_host", lambda pid, start: (pid, start) == own)
    yield one
    one.server.close()


def push(door: ClaudeCode) -> bool:
    return asyncio.run(door.push("mail", is_busy=False))


def test_push_writes_one_user_line(session: Session) -> None:
    """The form that the inbox takes."""
    assert push(session.door())
    assert session.took() == [{"type": "user", "message": {"role": "user", "content": "mail"}}]


def test_push_with_a_token_says_it_first(session: Session) -> None:
    """Where the session gave its children one."""
    assert push(session.door(CLAUDE_CODE_MESSAGING_TOKEN="secret"))
    assert session.took()[0] == {"type": "auth", "token": "secret"}


@pytest.mark.parametrize(
    "members",
    [
        {"messagingSocketPath": "/elsewhere"},
        {"peerProtocol": 2},
        {"procStart": "soon"},
        {"procStart": 5},
        {"pid": "1"},
        {"pid": 1},
    ],
)
def test_push_without_the_session_s_own_entry_writes_nothing(session: Session, members: Any) -> None:
    """An entry of another socket, protocol or process opens no door."""
    session.write(**members)
    assert not push(session.door())


def test_push_into_a_session_that_is_not_our_host_writes_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable may be inherited from somewhere else."""
    monkeypatch.setattr(reaching, "is_our_host", lambda _pid, _start: False)
    assert not push(session.door())
    with pytest.raises(TimeoutError):
        session.took()


def test_entry_that_cannot_be_read_is_passed_over(session: Session) -> None:
    """Broken files beside the right one break nothing; none at all is no door."""
    (session.folder / "1.json").write_text("{")
    (session.folder / "2.json").write_text("[]")
    assert push(session.door())
    (session.folder / "77.json").unlink()
    assert not push(session.door())
    assert session.door().is_busy() is None
    assert not push(session.door(CLAUDE_CONFIG_DIR="/nonexistent"))


@pytest.mark.parametrize(
    ("status", "is_busy"), [("idle", False), ("busy", True), ("shell", True), ("", None)]
)
def test_status_of_the_session_says_busy_or_idle(
    session: Session,
    status: str,
    is_busy: bool | None,
) -> None:
    """Everything but idle is at work; what is not said is not known."""
    session.write(status=status)
    assert session.door().is_busy() is is_busy


@pytest.mark.parametrize("path", ["", "relative.sock", "/with\0zero"])
def test_environment_without_a_socket_has_no_door(path: str) -> None:
    """Another version, or another harness."""
    assert ClaudeCode.of({"CLAUDE_CODE_MESSAGING_SOCKET": path}) is None
