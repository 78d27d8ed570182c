"""A broker for whoever needs one: the one that answers, or one that is started now.

Rule 1: what is started outlives its starter, gets the starter's environment, and is this very program.
Rule 2: losing a race is no failure; a live broker is never ended, whatever it does not answer.

Source: reference/intercom.md 6.4; DESIGN.md 2.
"""

import sys
import time
from collections.abc import Mapping, Sequence

from tieline.shell.hub import Paths, Place, place_of, start_if_missing

__all__ = ["broker_command", "ensure_broker"]


def broker_command(paths: Paths = Paths.SHARED) -> list[str]:
    """Return the words that start a broker of this installation."""
    return [sys.executable, "-m", "tieline.adapters.cli.main", "broker", "--paths", paths.value]


def ensure_broker(
    environment: Mapping[str, str], paths: Paths = Paths.SHARED, command: Sequence[str] = ()
) -> Place:
    """Return where a broker answers, after starting one where none did.

    Blocks its thread for up to 13 s: a loop calls it in a thread of its own.

    Args:
        environment: Names the place, and is what a started broker gets.
        paths: Whose rules say where it is.
        command: What is started instead of this program.

    Raises:
        UsageError: the named directory is no place for a broker.
        Refused: as `shell.hub.start_if_missing`.
    """
    place = place_of(environment, paths)
    start_if_missing(
        place, command or broker_command(paths), environment, lambda: time.time_ns() // 1_000_000
    )
    return place
