"""Seeing that the resources' directory has changed: at once where the system tells, by a look where not.

Rule 1: the watch is a help, the look is the truth: a watch that fails costs a second, never a message.
Rule 2: a look that finds nothing new reads no file.

Source: reference/native.md 3.5 "watch"; reference/substrate.md 8.
"""

import ctypes
import os
import select
from collections.abc import Iterable
from types import TracebackType
from typing import Self

__all__ = ["DirectoryWatch", "Glance"]

CLOEXEC_NONBLOCK = 0o2000000 | 0o4000
# A file is made under another name and then put into its place: only that is news.
MOVED_TO, DELETE = 0x80, 0x200
READ_BYTES = 65_536


class Glance:
    """Which files of a directory are not what they were at the last look.

    Files there are replaced whole, so each change is another inode or another time.

    Attributes:
        path: The directory.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._stamp: int | None = None
        self._files: dict[str, tuple[int, int, int]] = {}

    def is_changed(self) -> bool:
        """Return whether anything was put into the directory since the last call; one call of the system."""
        try:
            stamp: int | None = os.stat(self.path).st_mtime_ns
        except OSError:
            stamp = None
        is_changed = stamp != self._stamp
        self._stamp = stamp
        return is_changed

    def stamps(self, names: Iterable[str]) -> tuple[tuple[int, int, int] | None, ...]:
        """Return what tells a file from the one that replaces it, for each name; None where there is none."""
        return tuple(self._stamp_of(name) for name in names)

    def _stamp_of(self, name: str) -> tuple[int, int, int] | None:
        try:
            held = os.stat(f"{self.path}/{name}", follow_symlinks=False)
        except OSError:
            return None
        return held.st_ino, held.st_mtime_ns, held.st_size

    def changed(self) -> frozenset[str]:
        """Return the names of the documents that were put there since the last call."""
        now: dict[str, tuple[int, int, int]] = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if entry.name.endswith(".json"):
                        held = entry.stat(follow_symlinks=False)
                        now[entry.name] = (held.st_ino, held.st_mtime_ns, held.st_size)
        except OSError:
            now = {}
        before, self._files = self._files, now
        return frozenset(name for name, stamp in now.items() if before.get(name) != stamp)


class DirectoryWatch:
    """A wait for files that are put into a directory; where the system offers none, it only waits."""

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        try:
            library = ctypes.CDLL(None, use_errno=True)
            descriptor = library.inotify_init1(CLOEXEC_NONBLOCK)
            if descriptor >= 0:
                self.descriptor = descriptor
                library.inotify_add_watch(descriptor, os.fsencode(path), MOVED_TO | DELETE)
        except (OSError, AttributeError):
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the watch."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def wait(self, seconds: float) -> bool:
        """Return True when something changed, False after `seconds`."""
        if self.descriptor < 0:
            select.select([], [], [], seconds)
            return False
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        return bool(ready) and self.drain()

    def drain(self) -> bool:
        """Take what was told so far; return whether it was anything."""
        try:
            return bool(os.read(self.descriptor, READ_BYTES))
        except (BlockingIOError, OSError):
            return False
