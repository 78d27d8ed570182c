"""Where sockets of the pi-peers wire lie, and which of them a sweep may take.

Rule 1: a socket is removed by its inode, or by a name that does not recur; never one that another process
may have bound meanwhile.
Rule 2: this module connects to nothing.

Source: reference rules 9, 16, U8, U22.
"""

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from tieline.errors import Refused
from tieline.store.files import Seam, open_directory

__all__ = [
    "is_socket",
    "is_swept_name",
    "open_socket_place",
    "remove_socket",
    "socket_inode",
    "socket_places",
]

SOCKETS = "socks"
SOCKET_PATH_BYTES_MAX = 100
"""The kernel takes 107 on Linux and 103 on macOS; the rest is room for other people's tools."""
SOCKET_NAME_BYTES_MAX = len("tieline-.sock") + 32

_SWEPT_NAME = re.compile(r"tieline-[0-9a-f]{32}\.sock", re.ASCII)


def socket_places(registry: str) -> tuple[str, ...]:
    """Return where our socket may lie, the best first: in the registry, or in a short private directory.

    A place whose paths would not fit is left out; the last one always fits. Nothing is looked at.
    """
    mark = hashlib.sha256(os.fsencode(registry)).hexdigest()[:12]
    short = f"pi-peers-{os.geteuid()}-{mark}"
    bases = (f"{registry.rstrip('/')}/{SOCKETS}", f"{tempfile.gettempdir().rstrip('/')}/{short}")
    room = SOCKET_PATH_BYTES_MAX - SOCKET_NAME_BYTES_MAX - 1
    fitting = [base for base in bases if len(os.fsencode(base)) <= room]
    return tuple(dict.fromkeys((*fitting, f"/tmp/{short}")))  # noqa: S108 - verified 0700


def open_socket_place(registry: str, seam: Seam) -> str:
    """Return the first of our places that is private and ours, made when it is missing.

    A program that makes `socks` open to others does no harm inside a private registry. Such a directory is
    not ours to change, and no place for our socket either: then the next one is.

    Raises:
        Refused: none of them is, for the reason of the last one.
    """
    places = socket_places(registry)
    for place in places[:-1]:
        try:
            open_directory(place, create=True, seam=seam).close()
        except Refused:
            continue
        return place
    open_directory(places[-1], create=True, seam=seam).close()
    return places[-1]


def is_swept_name(registry: str, socket_path: str) -> bool:
    """Return whether this is one of our random names in our own place: it never belongs to a second life."""
    place, _, name = socket_path.rpartition("/")
    return place in socket_places(registry) and _SWEPT_NAME.fullmatch(name) is not None


def socket_inode(socket_path: str) -> int:
    """Return the inode of our socket at this path, 0 when there is none."""
    try:
        status = os.stat(socket_path, follow_symlinks=False)
    except OSError:
        return 0
    is_ours = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()
    return status.st_ino if is_ours else 0


def is_socket(socket_path: str, inode: int) -> bool:
    """Return whether that very socket is still at the path."""
    return inode != 0 and socket_inode(socket_path) == inode


def remove_socket(socket_path: str, inode: int, seam: Seam) -> None:
    """Remove that very socket; do nothing when it is gone or another is there."""
    if is_socket(socket_path, inode):
        seam("registry.remove_socket")
        Path(socket_path).unlink(missing_ok=True)
