"""How a door of a harness reaches that harness: its own host process, by a socket or by a command of its.

Source: reference/harnesses.md 4, 5.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tieline.shell import looking
from tieline.shell.knock import is_ancestor, knock
from tieline.shell.process import identify
from tieline.shell.talk import Conversation, is_listening, talk_at, talk_to

__all__ = ["Conversation", "Host", "converse_at", "converse_with", "is_our_host", "tell_process"]

TELL_S = 3.0
CONVERSE_S = 10.0


class Host(NamedTuple):
    """The process that started this one, as far as the kernel shows it.

    Attributes:
        program: The path of what it runs, or ''.
        words: What it was started with.
    """

    pid: int
    start_ticks: int
    program: str
    words: tuple[str, ...]

    @classmethod
    def ours(cls) -> "Host | None":
        """Return the process that started this one, or None where it is gone."""
        pid = os.getppid()
        identity = identify(pid)
        if identity is None:
            return None
        return cls(pid, identity.start_ticks, looking.program(pid), looking.words(pid))

    def held_files(self, folder: str) -> tuple[str, ...]:
        """Return the names of the files straight below `folder` that it holds open."""
        return looking.held_files(self.pid, os.path.realpath(folder))

    def listens_at(self, path: str) -> bool:
        """Return whether it listens at this socket."""
        return is_listening(path, self.pid, self.start_ticks)


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


async def converse_at(path: str, host: Host, talk: Callable[[Conversation], bool]) -> bool:
    """Return what a conversation with the host at this socket of its comes to; False where there was none."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, talk_at, path, host.pid, host.start_ticks, CONVERSE_S, talk)


async def converse_with(
    command: Sequence[str], environment: Mapping[str, str], talk: Callable[[Conversation], bool]
) -> bool:
    """Return what a conversation with a program started for it comes to; False where there was none."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, talk_to, command, environment, CONVERSE_S, talk)
