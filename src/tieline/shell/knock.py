"""One line handed to the private socket of a process that is known: proven first, then told, nothing asked.

Rule 1: before the first byte the kernel says who listens: that very process, of this user; a path that is
a link, or no socket, or another user's, is not connected to.
Rule 2: what was certainly not taken is False; whatever may have been taken in part is True, because only the
far end's own deeds can say more.

Source: reference/harnesses.md 4; reference/pi-peers-and-harness-doors.md 2.1; reference/reliability.md S7.
"""

import os
import socket
import stat

from tieline.shell.process import ancestors, identify, peer_credentials

__all__ = ["is_ancestor", "knock"]


def is_ancestor(pid: int, start_ticks: int) -> bool:
    """Return whether this process was started below process `pid`, begun at `start_ticks` after boot."""
    return any((one.pid, one.start_ticks) == (pid, start_ticks) for one in ancestors(os.getpid()))


def knock(path: str, data: bytes, pid: int, start_ticks: int, seconds: float) -> bool:
    """Write `data` to the Unix socket at `path`, where process `pid` listens.

    Args:
        path: Absolute path of the socket.
        data: Whole lines.
        pid: The process that must listen there.
        start_ticks: When it began, in clock ticks from boot.
        seconds: For all of it.

    Returns:
        False when nothing of `data` was taken: nobody listens, or not that process. Else True.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(seconds)
        try:
            link.connect(path)
            owner = peer_credentials(link)
        except OSError:
            return False
        identity = identify(owner.pid)
        if owner.uid != os.geteuid() or owner.pid != pid:
            return False
        if identity is None or identity.start_ticks != start_ticks:
            return False
        return _told(link, data)


def _told(link: socket.socket, data: bytes) -> bool:
    """Write all of `data`; False when the very first of it was refused."""
    try:
        taken = link.send(data)
    except OSError:
        return False
    try:
        link.sendall(data[taken:])
        link.shutdown(socket.SHUT_WR)
    except OSError:
        return True
    return True
