"""The system's table of processes, as /proc shows it at one moment, and who stands below whom in it.

Rule 1: a number of /proc is a name for an instant: what ended meanwhile is not there, and nobody asks why.
Rule 2: nothing here signals a process, and this module knows no launch.

Source: reference/native.md 3.5, 5; reference/reliability.md K11, I36; reference/open-bugs.md O41, O42.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

__all__ = [
    "ANCESTORS_MAX",
    "Entry",
    "descendants",
    "entry_of",
    "has_empty_environment",
    "is_descendant",
    "listed",
    "strays",
    "uids_of",
]

ANCESTORS_MAX = 4_096
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD."""


class Entry(NamedTuple):
    """One process in /proc at one moment."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    thread_count: int
    start_ticks: int
    name: str
    is_kernel_thread: bool

    @property
    def is_running(self) -> bool:
        """Return whether it is more than a zombie."""
        # A leader that ended its own thread while others run is shown as a zombie and is not one.
        return self.state not in ("Z", "X", "x") or self.thread_count > 1


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, parents before their children; zombies are among them.

    One that is started meanwhile may be missing.
    """
    if os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return _below(pid, _children)
    table: dict[int, list[int]] = {}
    for entry in (entry_of(one) for one in listed()):
        if entry is not None:
            table.setdefault(entry.parent, []).append(entry.pid)
    return _below(pid, lambda one: table.get(one, []))


def strays(pid: int) -> list[int]:
    """Return the running processes below `pid` that have left its session."""
    found = (entry_of(one) for one in descendants(pid))
    return [one.pid for one in found if one is not None and one.is_running and one.session != pid]


def is_descendant(pid: int, ancestor: int) -> bool:
    """Return whether `pid` is below `ancestor` at this moment."""
    for _ in range(ANCESTORS_MAX):
        entry = entry_of(pid)
        if entry is None:
            return False
        if entry.parent == ancestor:
            return True
        pid = entry.parent
    return False


def _below(pid: int, children: Callable[[int], list[int]]) -> list[int]:
    found: list[int] = []
    seen = {pid}
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop(0)):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            continue  # the thread ended: its children are another thread's now
    return found


def listed() -> list[int]:
    """Return the numbers of all processes that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def entry_of(pid: int) -> Entry | None:
    """Return what /proc says of a process, None when it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold some itself: the fields follow the last one.
    end = text.rfind(b")")
    fields = text[end + 2 :].split()
    if len(fields) < 20:
        return None
    parent, group, session = (int(fields[index]) for index in (1, 2, 3))
    name = text[text.find(b"(") + 1 : end].decode("utf-8", "replace")
    printable = "".join(letter if letter.isprintable() else "?" for letter in name)
    return Entry(
        pid,
        fields[0].decode("ascii"),
        parent,
        group,
        session,
        int(fields[17]),
        int(fields[19]),
        printable,
        bool(int(fields[6]) & KERNEL_THREAD),
    )


def has_empty_environment(pid: int) -> bool:
    """Return whether a process has an environment without a variable; False while it has none at all."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return True
    return len(fields) > 48 and fields[47] == fields[48] != b"0"


def uids_of(pid: int) -> set[int]:
    """Return the real, effective, saved and file user of a process; empty when it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return set()
    return {int(word) for line in lines if line.startswith(b"Uid:") for word in line.split()[1:]}
