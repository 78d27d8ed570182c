"""How the desk opens and ends: first the root, then the screen over it, and the other way round.

Rule: a signal that ends the desk ends it in order: the terminal is as it was, the root is closed.

Source: DESIGN.md 2.
"""

import asyncio
import signal

from tieline.adapters.desk.app import Desk
from tieline.adapters.desk.port import RootPort
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root

__all__ = ["serve"]


async def serve(options: RootOptions) -> int:
    """Open a root, show its desk, close it; return the exit code.

    Raises:
        Refused, UsageError, RecoveryRequired: the root does not open.
    """
    root = await open_root(options)
    try:
        desk = Desk(RootPort(root))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, desk.exit)
        ending = loop.create_task(_end_with(root.shutdown, desk))
        try:
            await desk.run_async()
        finally:
            ending.cancel()
    finally:
        await root.close()
    if desk.failure is not None:
        raise desk.failure
    return desk.return_code or 0


async def _end_with(shutdown: asyncio.Event, desk: Desk) -> None:
    await shutdown.wait()
    desk.exit()
