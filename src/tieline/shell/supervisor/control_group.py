"""A control group for one launch, where this user may make one below its own.

Rule 1: only control groups of version 2, and only below the group of this process: what the system
delegated is used, nothing is asked for.
Rule 2: where it cannot be had the answer is an empty name, and the launch is held without it.
Rule 3: the group is named after the launch's nonce, so that no two launches share one.

Source: reference/native.md 3.5 "tree membership", 5 "process-tree ownership".
"""

import contextlib
import os

__all__ = ["end_group", "make_group", "remove_group", "remove_left_group"]

NONCE_LETTERS = 24


def make_group(nonce: str, pid: int) -> str:
    """Return the directory of a new control group that holds `pid`, empty where none can be had."""
    own = _own_group()
    if not own or not nonce.isalnum():
        return ""
    directory = f"{own}/{_name_of(nonce)}"
    try:
        os.mkdir(directory, 0o755)
    except OSError:
        return ""
    try:
        with open(f"{directory}/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(pid))
    except OSError:
        remove_group(directory)
        return ""
    return directory


def end_group(directory: str) -> bool:
    """End every process of the group at once; return whether the system could (Linux 5.14)."""
    try:
        with open(f"{directory}/cgroup.kill", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        return False
    return True


def remove_group(directory: str) -> None:
    """Remove a group; one that is in use stays, the system removes no other than an empty one."""
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def remove_left_group(nonce: str, directory: str) -> None:
    """Remove what a killed supervisor has left of its launch's group; what is in use or another's stays.

    Args:
        nonce: The launch's, after which the group is named.
        directory: As the ledger has it; empty when the supervisor was killed before it told, and then the
            group may stand below this process's own.
    """
    own = _own_group()
    place = directory or (f"{own}/{_name_of(nonce)}" if own and nonce.isalnum() else "")
    is_group = os.path.exists(f"{os.path.dirname(place)}/cgroup.procs")
    if place and os.path.basename(place) == _name_of(nonce) and is_group:
        remove_group(place)


def _name_of(nonce: str) -> str:
    return f"tieline-{nonce[:NONCE_LETTERS]}"


def _own_group() -> str:
    """Return the directory of this process's control group of version 2, empty for none."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            paths = [line[3:].rstrip("\n") for line in file if line.startswith("0::")]
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except OSError:
        return ""
    for fields in mounts:
        # Field 4 is the part of the hierarchy that is mounted, field 5 where.
        root, place = fields[3], fields[4]
        for path in paths:
            if path == root or path.startswith(root.rstrip("/") + "/"):
                below = path[len(root.rstrip("/")) :]
                return (place + below).rstrip("/")
    return ""
