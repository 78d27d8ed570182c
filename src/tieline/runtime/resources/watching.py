"""Waiting for a change of the resources' directory.

Rule: the watch is a help, the look is the truth: a watch that fails costs a second, never a message.

Source: reference/native.md 3.5 "watch"; reference/substrate.md 8.
"""

import ctypes
import os
import select
from types import TracebackType
from typing import Self

__all__ = ["DirectoryWatch"]

CLOEXEC_NONBLOCK = 0o2000000 | 0o4000
MOVED_TO, CREATE, DELETE = 0x80, 0x100, 0x200
READ_BYTES = 65_536


class DirectoryWatch:
    """A wait for files that are put into a directory; where the system offers none, it only waits."""

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        try:
            library = ctypes.CDLL(None, use_errno=True)
            descriptor = library.inotify_init1(CLOEXEC_NONBLOCK)
            if descriptor >= 0:
                self._descriptor = descriptor
                library.inotify_add_watch(descriptor, os.fsencode(path), MOVED_TO | CREATE | DELETE)
        except (OSError, AttributeError):
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the watch."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def wait(self, seconds: float) -> bool:
        """Return True when something changed, False after `seconds`."""
        if self._descriptor < 0:
            select.select([], [], [], seconds)
            return False
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return False
        try:
            os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        return True
