"""The windows of pi and oh-my-pi for a short-lived process that has no root to ask.

Rule 1: it only reads: nothing is swept, tidied or published, and nobody is connected to.
Rule 2: a window is shown as a root would show it; one that is a native root shown already is left out.
Rule 3: nothing is looked at where the wire is switched off.

Source: reference/pi-peers-and-harness-doors.md rules 11 to 13, 45 to 47; DESIGN.md 4 "peers".
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tieline.config import Scope
from tieline.engine import directory
from tieline.engine.directory import Listing, Place
from tieline.model.moment import Moment
from tieline.model.process import Life
from tieline.runtime import render
from tieline.runtime.options import RootOptions, settings
from tieline.runtime.windows.project import project_of
from tieline.runtime.windows.surroundings import Surroundings
from tieline.runtime.windows.windows import DEFAULT_DIRECTORY
from tieline.shell.process_start import life_of
from tieline.store.registry import Listed, Registry

__all__ = ["WindowSight", "look_for_windows"]

SHOWN_MAX: Final = 4_096


class WindowSight(NamedTuple):
    """What one look showed: descriptors by peer id, how many sessions of other projects, how many faults."""

    peers: list[dict[str, Any]]
    others_count: int = 0
    faults_count: int = 0


class _Unswept(Registry):
    """A registry that judges who lives only after the scan, so that the scan has nobody to sweep."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, life=lambda _pid, _start, _domain: Life.FOREIGN)

    def scan(self, now_ms: int, *, fresh: bool = False) -> tuple[Listed, ...]:
        """Return the windows as they stand there, each with what is proven of its process."""
        found = super().scan(now_ms, fresh=fresh)
        return tuple(
            msgspec.structs.replace(
                one, life=life_of(one.window.pid, one.window.process_start, one.window.pid_domain)
            )
            for one in found
        )


def look_for_windows(
    environment: Mapping[str, str],
    workspace: str,
    *,
    is_crossing: bool,
    query: str = "",
    sessions: frozenset[str] = frozenset(),
) -> WindowSight:
    """Return the windows that a root of `workspace` would list.

    Args:
        environment: The variables that settings are read from.
        workspace: A canonical path. Runs git there.
        is_crossing: Also those of other projects.
        query: As for a root's listing.
        sessions: Of native roots that are shown already.

    Raises:
        UsageError: a setting is wrong.
        Refused: the registry is not private and ours, or may not be read.
    """
    held = settings(RootOptions(), environment).wires.pi_peers
    if not held.enabled:
        return WindowSight([])
    path = Path(held.directory or DEFAULT_DIRECTORY).expanduser()
    registry = _Unswept(path)
    own = Place(os.path.realpath(workspace), "", Scope.MACHINE)
    try:
        around = Surroundings(registry, project=project_of(workspace), parent=None, now=_now)
        roots = [root for root in around.roots([], {}) if not root.session or root.session not in sessions]
        faults_count = len(registry.faults)
    finally:
        registry.close()
    found = directory.listing(
        own,
        roots,
        scope=Scope.MACHINE,
        query=query,
        cursor=None,
        page_size=SHOWN_MAX,
        is_crossing=is_crossing,
    )
    peers = [render.descriptor(item) for item in found.peers] if isinstance(found, Listing) else []
    return WindowSight(peers, 0 if is_crossing else directory.others_count(roots), faults_count)


def _now() -> Moment:
    return Moment(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)
