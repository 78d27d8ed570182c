"""The machine and the processes that a measurement ran on.

Rule 1: every figure stands beside where it was taken: host, kernel, processors, file system, load.
Rule 2: a process tells its own memory and descriptors: a root lets no other process look into it.

Source: DESIGN.md 7; reference/native.md 205 to 207; reference/substrate.md 7.
"""

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from tieline import __version__

__all__ = ["busy_note", "file_system", "kib_of", "machine", "own_resources"]


def machine(folder: str) -> dict[str, Any]:
    """Return what a measurement in `folder` ran on, for the JSON shape."""
    return {
        "tieline": __version__,
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processors": os.cpu_count(),
        "placement": placement(),
        "fileSystem": file_system(folder),
        "load": [round(one, 2) for one in os.getloadavg()],
    }


def busy_note(load: float, processors: int) -> str:
    """Return what a reader must know of a run that began at this load, "" when it was quiet."""
    if load <= processors / 2:
        return ""
    return (
        f"the machine was busy when this began (load {load:g} on {processors} processors): a process that"
        " wakes waits for its turn, which changes the ratios, in either direction; no verdict stands on it"
    )


def placement() -> str:
    """Return which processors the run may use, and that the kernel chooses among them."""
    if not hasattr(os, "sched_getaffinity"):
        return "chosen by the system"
    allowed = ", ".join(str(number) for number in sorted(os.sched_getaffinity(0)))
    return f"not pinned; processors {allowed}"


def file_system(folder: str) -> str:
    """Return kind and source of the file system of a folder, or "unknown"."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    real, best, named = os.path.realpath(folder), "", "unknown"
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = fields[4]
        is_above = real == point or real.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best):
            best, named = point, f"{kind[0]} on {kind[1]}"
    return named


def kib_of(smaps: str, name: str) -> int | None:
    """Return a quantity of a `smaps_rollup` text in KiB, None where it has none of that name."""
    for line in smaps.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return None


def own_resources() -> dict[str, Any]:
    """Return what this process uses: memory in KiB (None where the system does not tell), CPU seconds."""
    found: dict[str, Any] = {"pid": os.getpid(), "pssKib": None, "rssKib": None, "descriptors": None}
    if sys.platform.startswith("linux"):
        smaps = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
        found |= {"pssKib": kib_of(smaps, "Pss"), "rssKib": kib_of(smaps, "Rss")}
        found["descriptors"] = len(os.listdir("/proc/self/fd")) - 1  # less the one of this listing
    found["cpuS"] = round(time.process_time(), 3)
    return found
