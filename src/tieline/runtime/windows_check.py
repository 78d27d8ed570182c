"""What `tieline doctor` sees of the windows' registry, without a root and without a touch.

Rule 1: nothing is swept, tidied or written: a look that proves nothing of anybody removes nothing.
Rule 2: what cannot be used is named with its file and reason; a record of another domain is no fault.

Source: reference/pi-peers-and-harness-doors.md rules 11 to 13, U1, U2; DESIGN.md 4 "doctor".
"""

import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from tieline.config import PiPeersSettings
from tieline.model.process import Life
from tieline.shell.process_start import life_of
from tieline.store.registry import Registry

__all__ = ["DEFAULT_DIRECTORY", "WindowsFound", "look_at_windows"]

DEFAULT_DIRECTORY: Final = "~/.pi-peers"
FAULTS_SHOWN_MAX: Final = 8


class WindowsFound(NamedTuple):
    """What is in the registry: how many live, are dead, or cannot be judged from here; what is unusable."""

    text: str
    faults: tuple[str, ...]  # "file: reason"
    counts: dict[str, int]


def look_at_windows(settings: PiPeersSettings) -> WindowsFound:
    """Return what stands in the registry that these settings name.

    Raises:
        Refused: the directory is not private and ours, or may not be read.
    """
    directory = Path(settings.directory or DEFAULT_DIRECTORY).expanduser()
    registry = Registry(directory, life=_unjudged)
    try:
        listed = registry.scan(time.monotonic_ns() // 1_000_000, fresh=True)
        faults = [f"{one.file_name}: {one.reason}" for one in registry.faults]
    finally:
        registry.close()
    lives: Counter[Life] = Counter()
    for one in listed:
        window = one.window
        life = life_of(window.pid, window.process_start, window.pid_domain)
        lives[life] += 1
        # A dead one's leavings are the next root's to sweep; of another domain's key nothing is known here.
        if one.fault is not None and life not in (Life.DEAD, Life.FOREIGN):
            faults.append(f"{window.pid}.json: {one.fault}")
    counts = {
        "windows": lives[Life.ALIVE],
        "windowsDead": lives[Life.DEAD],
        "windowsUnjudged": lives[Life.FOREIGN] + lives[Life.UNPROVED],
        "windowFaults": len(faults),
    }
    text = f"{directory}: {counts['windows']} live, {counts['windowsDead']} dead and not yet swept"
    text += f", {counts['windowsUnjudged']} that cannot be judged from here, {len(faults)} unusable"
    return WindowsFound(text, tuple(faults[:FAULTS_SHOWN_MAX]), counts)


def _unjudged(_pid: int, _process_start: str, _pid_domain: str) -> Life:
    return Life.FOREIGN
