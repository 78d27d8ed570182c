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

from tieline.store.files import Seam

__all__ = ["is_socket", "is_swept_name", "remove_socket", "socket_inode", "sockets_place"]

SOCKETS = "socks"
SOCKET_PATH_BYTES_MAX = 100
"""The kernel takes 107 on Linux and 103 on macOS; the rest is room for other people's tools."""
SOCKET_NAME_BYTES_MAX = len("tieline-.sock") + 32

_SWEPT_NAME = re.compile(r"tieline-[0-9a-f]{32}\.sock", re.ASCII)


def sockets_place(registry: str) -> str:
    """Return the directory of our socket: in the registry, or a short one when its path would not fit.

    Nothing is created or looked at.
    """
    mark = hashlib.sha256(os.fsencode(registry)).hexdigest()[:12]
    short = f"pi-peers-{os.geteuid()}-{mark}"
    bases = (f"{registry.rstrip('/')}/{SOCKETS}", f"{tempfile.gettempdir().rstrip('/')}/{short}")
    for base in bases:
        if len(os.fsencode(base)) + 1 + SOCKET_NAME_BYTES_MAX <= SOCKET_PATH_BYTES_MAX:
            return base
    return f"/tmp/{short}"  # noqa: S108 - verified 0700


def is_swept_name(registry: str, socket_path: str) -> bool:
    """Return whether this is one of our random names in our own place: it never belongs to a second life."""
    place, _, name = socket_path.rpartition("/")
    return place == sockets_place(registry) and _SWEPT_NAME.fullmatch(name) is not None


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
