"""Named places in a root's work at which a test may end the process, as a power key would.

Theory. Every effect that others can see lies between two seams. The shell and the store pass theirs by
name; `TIELINE_TEST_SEAM=journal.after_commit:7` lets the process kill itself at the seventh passing of
that one, `*:40` at the fortieth passing of any. Nothing is caught, flushed or closed: that is the point.

Rule: without the variable a seam costs one call and does nothing; a wrong value stops the start.

Source: reference/reliability.md 2.1 "Seams", K1.
"""

import itertools
import os
import signal
from collections.abc import Mapping

from tieline.errors import UsageError
from tieline.store.files import Seam, no_seam

__all__ = ["VARIABLE", "of_environment"]

VARIABLE = "TIELINE_TEST_SEAM"
PASSINGS_MAX = 1_000_000


def of_environment(environment: Mapping[str, str]) -> Seam:
    """Return what a root calls at each of its seams.

    Raises:
        UsageError: the variable is set, and is not a name, a colon and a number from 1 to 1000000.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return no_seam
    wanted, _, number = text.rpartition(":")
    if not wanted or not number.isascii() or not number.isdigit() or not 1 <= int(number) <= PASSINGS_MAX:
        raise UsageError(f"{VARIABLE} is NAME:NUMBER, the number from 1 to {PASSINGS_MAX}", "INVALID_PARAMS")
    passings = itertools.count(1)

    def seam(name: str) -> None:
        # Counting is one step of the interpreter: the writer's thread and the loop share it.
        if wanted in ("*", name) and next(passings) == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    return seam
