"""The event loop of a long-running door: uvloop where it is installed, asyncio's own elsewhere.

Rule: nothing may depend on which it is; `TIELINE_LOOP=asyncio` chooses the other one for a comparison.

Source: DESIGN.md 6; reference/substrate.md 1.
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["new_loop", "run"]

_T = TypeVar("_T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop of the better kind that is here."""
    if os.environ.get("TIELINE_LOOP") != "asyncio":
        try:
            import uvloop  # noqa: PLC0415 - an extra that may be absent
        except ImportError:
            return asyncio.new_event_loop()
        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a door's coroutine in a loop of its own and return what it returns."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
