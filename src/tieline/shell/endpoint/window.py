"""The socket of a window on the pi-peers wire: bound under a name of chance, checked before it is dialled.

Rule 1: our name is drawn anew for every window, so that nothing is ever taken away to make room for it.
Rule 2: the socket is private from its first instant, in a verified directory of this user alone.
Rule 3: a socket of another window is dialled only when the name itself, and not a link, is a socket of this
    user. Its mode is that window's own choice: the key file is what keeps strangers out there.

Source: reference/pi-peers-and-harness-doors.md rules 9, 23, U8, 3.3 no. 9;
reference/reliability.md S4, S6.
"""

import os
import socket
import stat

from tieline.errors import Refused
from tieline.shell.endpoint.address import KERNEL_PATH_BYTES_MAX
from tieline.shell.endpoint.listening import BACKLOG, listen_private
from tieline.store.files import Directory, Seam, no_seam, open_directory

__all__ = ["WindowEndpoint", "bind_window", "verify_window"]


def verify_window(path: str) -> None:
    """Return when a window's socket may be connected to.

    Raises:
        Refused: UNSAFE_ENDPOINT, it is no socket of this user, or is reached over a link; PEER_OFFLINE,
            there is none.
    """
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > KERNEL_PATH_BYTES_MAX:
        raise Refused("UNSAFE_ENDPOINT", "the window's address is not an absolute path of at most 107 bytes")
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        raise Refused("PEER_OFFLINE", "this window's socket is gone", is_retryable=True) from None
    except PermissionError:
        raise Refused("UNSAFE_ENDPOINT", "the window's address may not be looked at") from None
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise Refused("UNSAFE_ENDPOINT", "the window's address is not a socket of yours")


class WindowEndpoint:
    """Our bound, listening, non-blocking socket on this wire.

    Attributes:
        sock: Listens; accepting is the caller's.
        path: Where it is bound, as the record is to say.
    """

    def __init__(self, sock: socket.socket, path: str, inode: int, directory: Directory) -> None:
        """Take over what `bind_window` made."""
        self.sock, self.path = sock, path
        self._inode, self._directory = inode, directory
        self._process = os.getpid()

    def missing(self) -> bool:
        """Return whether the name is gone or leads elsewhere."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return True
        return status.st_ino != self._inode or not self._directory.is_current()

    def close(self) -> None:
        """Stop listening and take the name away if it is still ours."""
        self.sock.close()
        if self._process == os.getpid():
            try:
                if self._directory.is_current():
                    self._directory.remove(self.path.rpartition("/")[2], inode=self._inode)
            except (Refused, OSError):
                self._inode = 0  # a name nobody listens at is what a window that crashed leaves, too
        self._directory.close()


def bind_window(path: str, *, seam: Seam = no_seam) -> WindowEndpoint:
    """Return a listening endpoint at `path`, whose directory is made private when it is missing.

    Raises:
        Refused: UNSAFE_ENDPOINT, PERMISSION_DENIED.
    """
    folder, _, name = path.rpartition("/")
    directory = open_directory(folder, create=True, seam=seam)
    try:
        sock, status = listen_private(directory, name, path, BACKLOG, seam)
    except BaseException:
        directory.close()
        raise
    return WindowEndpoint(sock, path, status.st_ino, directory)
