"""Seeing that the resources' directory, or one file of it, has changed: told by the system, or by a look.

Rule 1: the watch is a help, the look is the truth: a watch that fails costs a second, never a message.
Rule 2: a look that finds nothing new reads no file.
Rule 3: who waits for some files is not woken by what becomes of the others: a busy directory costs nothing.

Source: reference/native.md 3.5 "watch"; reference/substrate.md 8.
"""

import ctypes
import os
import select
from collections.abc import Iterable
from types import TracebackType
from typing import Self

__all__ = ["DirectoryWatch", "FilesWatch", "Glance"]

CLOEXEC_NONBLOCK = 0o2000000 | 0o4000
# A file is made under another name and then put into its place: only that is news.
MOVED_TO, DELETE = 0x80, 0x200
# What a file tells that another one is put into the place of: it loses its name, then its end.
ATTRIB, DELETE_SELF, MOVE_SELF = 0x4, 0x400, 0x800
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

    def is_newer(self, name: str) -> bool:
        """Return whether a file is another one than `changed` has seen last."""
        return self._stamp_of(name) != self._files.get(name)

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
        self._library: ctypes.CDLL | None = None
        self.descriptor = -1
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self.descriptor = library.inotify_init1(CLOEXEC_NONBLOCK)
            self._library = library
        except (OSError, AttributeError):
            self.descriptor = -1
        self._begin(path)

    def _begin(self, path: str) -> None:
        self._add(path, MOVED_TO | DELETE)

    def _add(self, path: str, kinds: int) -> None:
        """Watch one more name; where that fails, the look finds its changes."""
        if self._library is not None and self.descriptor >= 0:
            self._library.inotify_add_watch(self.descriptor, os.fsencode(path), kinds)

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


class FilesWatch(DirectoryWatch):
    """A wait for other files in the place of some of a directory; the rest of it wakes nobody.

    It may end once more than was changed: compare the files' stamps.
    """

    def _begin(self, path: str) -> None:
        self._path = path

    def follow(self, names: Iterable[str]) -> None:
        """Watch the files that have these names now; one that is not there yet is found by a look.

        After a change the file in the place is another: call it again. What is no longer named may still
        tell its own end.
        """
        for name in names:
            self._add(f"{self._path}/{name}", ATTRIB | DELETE_SELF | MOVE_SELF)
