"""Signals to the processes of one launch, and to no others.

Rule 1: only the supervisor calls this, for what runs below itself; a probe or a recovery never does.
Rule 2: a number is checked after a descriptor holds its process, and the signal goes to the
descriptor: a number that went to another process meanwhile is not hit.
Rule 3: a process group is signalled by number only while its leader is a child not yet reaped; the
number cannot have been given away then.

Source: reference/native.md 197, 5 "pidfd"; reference/reliability.md I37; reference/open-bugs.md O41.
"""

import os
import select
import signal

from tieline.shell.tree import descendants, is_descendant

__all__ = ["signal_group", "signal_tree"]


def signal_tree(number: int) -> int:
    """Send a signal to every process below this one; return how many got it.

    One that is started meanwhile is missed: who wants the end calls again until nothing is left.
    """
    ours = os.getpid()
    return sum(_signal_below(pid, ours, number) for pid in descendants(ours))


def signal_group(leader: int, number: int) -> bool:
    """Send a signal to the group of a child that this process has not yet reaped."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal_below(pid: int, ancestor: int, number: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_descendant(pid, ancestor) or _has_ended(descriptor):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False  # it ended just now, or became another user's
    finally:
        os.close(descriptor)
    return True


def _has_ended(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
