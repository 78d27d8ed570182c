"""Taking away what ended roots left behind: dead sockets, dead presence, finished stores.

Rule 1: it runs on a thread, beside a living root: it shares no handle with that root's loop.
Rule 2: only what is proven dead, or final and past its retention, is touched; the rooms below judge that.

Source: reference/native.md 35, 44, 3.4 "old instance directories"; DESIGN.md 8 "Housekeeping".
"""

from tieline.config import HEARTBEAT_MS, STALE_MS
from tieline.runtime.custody import Custody
from tieline.runtime.options import Places
from tieline.runtime.world import now
from tieline.shell.endpoint import owner_state, sweep
from tieline.store.presence import PresenceStore

__all__ = ["tidy"]


def tidy(places: Places, custody: Custody, retention_ms: int) -> None:
    """Take away what proven-dead roots left in the directories of `places`; blocks.

    Raises:
        Refused: a directory is not safe, or its lock is held.
    """
    # Presence first: the proof of death stands in the owner file that the sweep takes away. Beside a proof
    # the age of a record says nothing, so each is judged as if it were stale.
    presence = PresenceStore(places.active_agents)
    try:
        presence.prune(
            lambda instance: owner_state(places.runtime, instance), now().wall_ms + STALE_MS + HEARTBEAT_MS
        )
    finally:
        presence.close()
    try:
        sweep(places.runtime)
    finally:  # the private stores do not depend on what is shared
        custody.housekeep(retention_ms)
