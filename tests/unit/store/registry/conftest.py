"""What the tests of the registry share: a private directory, processes that are told, windows of others."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tieline.model.process import Life
from tieline.store.registry import Registry, Window, key_name

DOMAIN = "linux:m:pid:[1]"
START = "500"
TOKEN = "a" * 32
OTHER = 2**31 - 5
"""A process id that no system gives away."""


class Lives:
    """Who lives, as a test says; others are alive."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Life] = {}
        self.by_start: dict[str, Life] = {}
        self.asked = 0

    def __call__(self, pid: int, process_start: str, domain: str) -> Life:
        """Answer as `life_of` does."""
        self.asked += 1
        if domain != DOMAIN:
            return Life.FOREIGN
        return self.by_start.get(process_start, self.by_pid.get(pid, Life.ALIVE))


class Seams:
    """Every seam that was passed, and what is done at one."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.at: dict[str, Callable[[], object]] = {}

    def __call__(self, name: str) -> None:
        """Note the seam, and do what a test wants done there, once."""
        self.passed.append(name)
        if (act := self.at.pop(name, None)) is not None:
            act()


@pytest.fixture
def place(private_home: Path) -> Path:
    """Give the path of a private registry that exists."""
    path = private_home / "reg"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def lives() -> Lives:
    """Give the answers about processes."""
    return Lives()


@pytest.fixture
def seams() -> Seams:
    """Give the seams of `registry`."""
    return Seams()


@pytest.fixture
def registry(place: Path, lives: Lives, seams: Seams) -> Iterator[Registry]:
    """Give a registry in which nothing is published."""
    opened = Registry(place, life=lives, seam=seams)
    yield opened
    opened.withdraw()
    opened.close()


@pytest.fixture
def own_socket(registry: Registry) -> Iterator[str]:
    """Give the path of our socket, which listens."""
    path = str(registry.socket_directory / "own.sock")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    yield path
    listening.close()


def own_window(socket_path: str, **changes: Any) -> Window:
    """Return a window of this process."""
    fields: dict[str, Any] = {
        "pid": os.getpid(),
        "session": "s-own",
        "cwd": "/w",
        "name": "own",
        "status": "idle",
        "status_updated_ms": 1_000,
        "process_start": START,
        "pid_domain": DOMAIN,
        "socket_path": socket_path,
        "features": frozenset({"notify_idle"}),
    }
    return Window(**{**fields, **changes})


def put(place: Path, name: str, contents: object, *, mode: int = 0o600) -> Path:
    """Write a file as a foreign program does: beside it first, then under its name."""
    text = contents if isinstance(contents, str) else json.dumps(contents)
    temporary = place / f"foreign-{name}-unfinished"
    temporary.write_text(text)
    temporary.chmod(mode)
    temporary.rename(place / name)
    return place / name


def put_window(place: Path, pid: int = OTHER, *, key: bool = True, **changes: Any) -> str:
    """Publish a foreign window; return its address."""
    fields: dict[str, Any] = {
        "pid": pid,
        "sessionId": f"s-{pid}",
        "cwd": "/w",
        "name": f"w-{pid}",
        "status": "idle",
        "procStart": START,
        "pidDomain": DOMAIN,
        "socketPath": f"/s/{pid}.sock",
        "peerProtocol": 1,
    }
    fields.update(changes)
    if key:
        put_key(
            place, pid, fields["socketPath"], procStart=fields["procStart"], pidDomain=fields["pidDomain"]
        )
    put(place, f"{pid}.json", fields, mode=0o644)
    return str(fields["socketPath"])


def put_key(place: Path, pid: int, socket_path: str, **fields: Any) -> Path:
    """Publish a foreign key."""
    return put(place, key_name(pid, socket_path), {"peerToken": TOKEN, **fields})


def names(place: Path) -> set[str]:
    """Return what lies in the registry, without the directory of sockets."""
    return {path.name for path in place.iterdir()} - {"socks"}
