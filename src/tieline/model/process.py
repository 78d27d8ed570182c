"""One life of one process, as records keep it, and what can be said of its end.

Rule 1: a process id is not an identity, and neither is a process id with a start time: both were
made to recur together. A part that is missing makes an identity weaker, never equal.
Rule 2: there are three answers to "does it live". `gone` is proven; `unknown` frees nothing.
Rule 3: this module reads no process; `shell/process` does.

Source: reference/native.md 2.14, 3.5, 5; reference/reliability.md I36, K11; reference/open-bugs.md O36.
"""

from enum import StrEnum
from typing import Literal

import msgspec

__all__ = ["Life", "Liveness", "ProcessIdentity"]

Liveness = Literal["alive", "gone", "unknown"]
"""What is known of a life: `alive`, proven `gone`, or `unknown`, which frees nothing."""


class Life(StrEnum):
    """What can be said of a process that a record names by number, start and domain, all three as text.

    Such a record says less than a `ProcessIdentity`: who cannot be compared is never taken for dead.
    """

    ALIVE = "alive"
    """That very process lives, as far as number and start time tell."""
    DEAD = "dead"
    """Proven: no such process, an ended one, or another one under its number."""
    FOREIGN = "foreign"
    """Its number counts in another machine or container: nothing can be said of it from here."""
    UNPROVED = "unproved"
    """A process has the number; whether it is that one cannot be read. A connection decides."""


class ProcessIdentity(msgspec.Struct, frozen=True, gc=False):
    """One life of one process, for records that outlive it.

    Attributes:
        boot_id: The kernel's boot; empty when it could not be read.
        pid_namespace: Inode of the namespace in which `pid` counts; 0 when it could not be read.
        pid: The process id.
        start_ticks: Linux: clock ticks (10 ms) from boot to its start. macOS: seconds since 1970.
        pidfd_inode: Inode of its pidfd where the kernel numbers them (Linux 6.9), else None.
        platform: As `sys.platform` names it.
        time_namespace: Inode of the time namespace in which `start_ticks` was read, 0 for none.
    """

    boot_id: str
    pid_namespace: int
    pid: int
    start_ticks: int
    pidfd_inode: int | None
    platform: str
    time_namespace: int = 0
