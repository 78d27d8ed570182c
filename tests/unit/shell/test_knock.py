"""A line for a process that is known: proven first, then told."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.shell.knock import is_ancestor, knock
from tieline.shell.process import ProcessIdentity, identify

SECONDS = 2.0


@pytest.fixture
def own() -> ProcessIdentity:
    """Give this process, which listens in these tests."""
    found = identify(os.getpid())
    assert found is not None
    return found


@pytest.fixture
def server(private_home: Path) -> Iterator[socket.socket]:
    """Give a listening socket at `s`."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(private_home / "s"))
        made.listen()
        made.settimeout(SECONDS)
        yield made


def took(server: socket.socket) -> bytes:
    """Return all that one connection brought."""
    link, _ = server.accept()
    with link:
        return link.makefile("rb").read()


def test_knock_tells_the_process_that_listens(
    private_home: Path, server: socket.socket, own: ProcessIdentity
) -> None:
    """All of it arrives, and the connection is closed behind it."""
    assert knock(str(private_home / "s"), b"one\ntwo\n", own.pid, own.start_ticks, SECONDS)
    assert took(server) == b"one\ntwo\n"


@pytest.mark.parametrize(("pid_off", "start_off"), [(1, 0), (0, 1)])
def test_knock_tells_no_other_process(
    private_home: Path, server: socket.socket, own: ProcessIdentity, pid_off: int, start_off: int
) -> None:
    """Another number, or a number that was given out anew, gets not a byte."""
    path = str(private_home / "s")
    assert not knock(path, b"one\n", own.pid + pid_off, own.start_ticks + start_off, SECONDS)
    assert took(server) == b""


def test_knock_follows_no_link_and_connects_to_no_file(
    private_home: Path, server: socket.socket, own: ProcessIdentity
) -> None:
    """The path itself must be the socket."""
    (private_home / "link").symlink_to("s")
    (private_home / "file").write_text("")
    server.settimeout(0.1)
    for name in ("link", "file", "absent"):
        assert not knock(str(private_home / name), b"one\n", own.pid, own.start_ticks, SECONDS)
    with pytest.raises(TimeoutError):
        server.accept()


def test_knock_at_a_socket_left_behind_is_not_taken(private_home: Path, own: ProcessIdentity) -> None:
    """A crashed session leaves its socket; nobody listens there."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(private_home / "s"))
    assert not knock(str(private_home / "s"), b"one\n", own.pid, own.start_ticks, SECONDS)


def test_ancestor_is_known_by_number_and_start() -> None:
    """The number alone recurs."""
    parent = identify(os.getppid())
    assert parent is not None
    assert is_ancestor(parent.pid, parent.start_ticks)
    assert not is_ancestor(parent.pid, parent.start_ticks + 1)
