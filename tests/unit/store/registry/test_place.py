"""Where our socket lies, and which sockets are ours to take."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.store.files import no_seam
from tieline.store.registry.place import (
    is_socket,
    is_swept_name,
    open_socket_place,
    remove_socket,
    socket_inode,
    socket_places,
)

NAME = f"tieline-{'0a' * 16}.sock"


@pytest.fixture
def bound(private_home: Path) -> Iterator[Path]:
    """Give a socket that listens."""
    path = private_home / "s.sock"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    yield path
    listening.close()


@pytest.mark.clause("pi-peers-9", "pi-peers-U22")
def test_place_is_in_the_registry_while_its_paths_fit() -> None:
    """A long registry sends the socket to a short directory; every path fits the kernel with room."""
    assert socket_places("/home/me/.pi-peers")[0] == "/home/me/.pi-peers/socks"
    for length in range(1, 200):
        for place in socket_places("/" + "x" * length):
            assert len(f"{place}/{NAME}") <= 100
    assert socket_places("/" + "x" * 90)[0] != socket_places("/" + "y" * 90)[0]


@pytest.mark.clause("pi-peers-9")
def test_place_is_made_private(place: Path) -> None:
    """It is there, and nobody else's."""
    made = Path(open_socket_place(str(place), no_seam))
    assert made == place / "socks"
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.clause("pi-peers-9", "pi-peers-U22")
def test_place_that_another_program_made_open_is_left_for_a_private_one(place: Path) -> None:
    """We neither change its directory nor put our socket there."""
    (place / "socks").mkdir(mode=0o755)
    (place / "socks").chmod(0o755)
    made = Path(open_socket_place(str(place), no_seam))
    assert made != place / "socks"
    assert made.stat().st_mode & 0o777 == 0o700
    assert (place / "socks").stat().st_mode & 0o777 == 0o755
    shutil.rmtree(made)


@pytest.mark.clause("pi-peers-16")
def test_name_is_swept_only_in_our_place_and_form() -> None:
    """Random names of ours do not recur; all others may."""
    assert is_swept_name("/r", f"/r/socks/{NAME}")
    for path in (
        f"/r/{NAME}",
        f"/r/socks/x/{NAME}",
        "/r/socks/5.sock",
        f"/r/socks/../socks/{NAME}",
        f"/r/socks/{NAME}x",
    ):
        assert not is_swept_name("/r", path)


def test_socket_is_told_by_its_inode(bound: Path, private_home: Path) -> None:
    """A file or a link at the path is no socket, and neither is another one."""
    inode = socket_inode(str(bound))
    assert inode == bound.stat().st_ino
    assert is_socket(str(bound), inode)
    assert not is_socket(str(bound), inode + 1)
    assert not is_socket(str(private_home / "none"), 0)
    (private_home / "link").symlink_to(bound)
    (private_home / "file").touch()
    assert socket_inode(str(private_home / "link")) == socket_inode(str(private_home / "file")) == 0


def test_socket_is_removed_only_while_it_is_that_one(bound: Path) -> None:
    """What another bound meanwhile stays."""
    inode = socket_inode(str(bound))
    remove_socket(str(bound), inode + 1, no_seam)
    assert bound.exists()
    remove_socket(str(bound), inode, no_seam)
    assert not os.path.lexists(bound)
    remove_socket(str(bound), inode, no_seam)
