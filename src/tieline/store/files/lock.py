"""A lock that ends with its holder.

Rule 1: a lock is the kernel's. No age and no process id decides who holds it.
Rule 2: a forked child neither holds nor frees what its parent locked.

Source: reference/native.md 3.5, 5; reference/open-bugs.md O34, O36, O37; reference/reliability.md K29.
"""

import fcntl
import os
from types import TracebackType
from typing import Self

from tieline.store.files.checks import Seam

__all__ = ["Lock"]


class Lock:
    """A held lock; the kernel frees it when this process ends, however it ends."""

    __slots__ = ("_seam", "fd", "path")

    def __init__(self, descriptor: int, path: str, seam: Seam) -> None:
        """Take over `descriptor`, on which the lock was taken."""
        self.fd = descriptor
        self.path = path
        self._seam = seam
        _held.add(self)

    @property
    def is_held(self) -> bool:
        """Whether this process still holds it."""
        return self.fd >= 0

    def release(self) -> None:
        """Free the lock; a second call, and a call in a forked child, does nothing."""
        descriptor, self.fd = self.fd, -1
        if descriptor < 0:
            return
        _held.discard(self)
        try:
            # Unlock first: a close alone frees nothing while some other copy of the descriptor lives.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)
        self._seam("files.unlocked")

    def __enter__(self) -> Self:
        """Return this lock."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the lock."""
        self.release()


_held: set[Lock] = set()
"""Every lock of this process: also one whose variable was dropped is closed in a child."""


def _let_go_in_child() -> None:
    """Close the child's copies, so that it neither frees its parent's locks nor outlives them."""
    for lock in list(_held):
        descriptor, lock.fd = lock.fd, -1
        if descriptor >= 0:
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
