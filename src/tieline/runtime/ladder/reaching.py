"""How a door of a harness reaches that harness: its own host process, by a socket or by a command of its.

Source: reference/harnesses.md 4, 5.
"""

import asyncio

from tieline.shell.knock import is_ancestor, knock

__all__ = ["is_our_host", "tell_process"]

TELL_S = 3.0


def is_our_host(pid: int, start_ticks: int) -> bool:
    """Return whether this very process runs below that one."""
    return is_ancestor(pid, start_ticks)


async def tell_process(path: str, data: bytes, pid: int, start_ticks: int) -> bool:
    """Write `data` to the socket at `path` once it is proven that this process listens there.

    Returns:
        False when certainly nothing was taken.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, knock, path, data, pid, start_ticks, TELL_S)
