"""A launch's number among the limits of its processes: a mark that a process does not lose by chance.

Theory. Linux keeps a limit for file locks that it has not applied since version 2.4. A child inherits it,
and `setsid`, a double fork, another program, an emptied environment and another user leave it as it is.
Everybody may read it, also of a process whose environment is closed. So a process that bears no number
of a launch is of no launch's tree, whatever else of it cannot be read. Only the soft limit is set: the
hard one stays as it was, and nothing that counts is limited.

Rule 1: the number is set before the command is forked, or the launch has none.
Rule 2: an inner launch puts its own number in the place of the outer one's: another launch's number
excludes nobody.
Rule 3: who sets the limit itself, as a login or `ulimit -x` does, has left this mark: it is one of several.

Source: reference/native.md 3.5 "tree membership"; reference/reliability.md K30, I34, I36; getrlimit(2),
RLIMIT_LOCKS.
"""

import hashlib
import sys

__all__ = ["MARKS", "bear_mark", "borne_mark", "mark_of"]

LIMIT_LOCKS = 10
"""RLIMIT_LOCKS; the standard library has no name for it."""
MARKS = range(1 << 51, 1 << 52)
"""What marks are taken from: above what anybody sets by hand, and exact in every reader of JSON."""
LINE = b"Max file locks"

# A variable, so that a type checker for one system still reads the branches of the others.
PLATFORM: str = sys.platform


def mark_of(nonce: str) -> int:
    """Return the number of a launch."""
    return MARKS.start + int.from_bytes(hashlib.sha256(nonce.encode()).digest()[:8], "big") % len(MARKS)


def bear_mark(nonce: str) -> int:
    """Have this process and all that it starts bear a launch's number.

    Returns:
        The number, 0 where this system has no such limit or this user may not set it.
    """
    if PLATFORM != "linux":
        return 0
    import resource  # noqa: PLC0415 - only a supervisor pays for it

    mark = mark_of(nonce)
    try:
        _, hard = resource.getrlimit(LIMIT_LOCKS)
        resource.setrlimit(LIMIT_LOCKS, (mark, hard))
        return mark if resource.getrlimit(LIMIT_LOCKS) == (mark, hard) else 0
    except (ValueError, OSError):
        return 0


def borne_mark(pid: int) -> int | None:
    """Return the limit that a process bears, 0 for none, None when it cannot be read or has ended."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in lines:
        if line.startswith(LINE):
            soft = line.removeprefix(LINE).split()[0]
            return int(soft) if soft.isdigit() else 0
    return None
