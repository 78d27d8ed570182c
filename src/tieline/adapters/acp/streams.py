"""The two ends of the client: bytes in, bytes out, by blocking calls in a thread for each.

Rule 1: a pipe, a socket, a terminal, a file: each will do, and stays in the mode that the client gave it.
Rule 2: one piece is kept in either direction: who reads slowly slows down who writes.
Rule 3: a client that does not read holds nobody's end up: what waits for it can be given up.

Source: reference/substrate.md 6; docs/harnesses/acp.md.
"""

import asyncio
import os
import select
from _queue import SimpleQueue
from _thread import start_new_thread
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from tieline.adapters.stdio.pipes import Outlet

__all__ = ["CHUNK_BYTES", "Sink", "Source", "lines"]

CHUNK_BYTES: Final = 65_536


class _Reader(Protocol):
    async def read(self, bytes_max: int, /) -> bytes:
        """Return what is there next; b'' at the end."""


async def lines(reader: _Reader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream with their ends, as they came; the last may have none."""
    rest = bytearray()
    while data := await reader.read(CHUNK_BYTES):
        pieces = data.split(b"\n")
        for piece in pieces[:-1]:
            rest += piece + b"\n"
            yield bytes(rest)
            rest.clear()
        rest += pieces[-1]
    if rest:
        yield bytes(rest)


class _Thread:
    """Carries out calls one after the other; it keeps no process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[tuple[asyncio.Future[Any], Callable[[Any], object], object] | None] = (
            SimpleQueue()
        )
        self._is_begun = False

    def call(self, function: Callable[[Any], object], given: object) -> "asyncio.Future[Any]":
        """Return a future of what `function`, which raises nothing, returns for `given`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asked.put((future, function, given))
        if not self._is_begun:
            self._is_begun = True
            start_new_thread(self._serve, ())
        return future

    def close(self) -> None:
        """End it, once it is through with what it does."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, function, given = asked
            found = function(given)
            try:
                self._loop.call_soon_threadsafe(_settle, future, found)
            except RuntimeError:  # the loop has ended meanwhile
                return


def _settle(future: "asyncio.Future[Any]", found: object) -> None:
    if not future.done():
        future.set_result(found)


class Source:
    """What the client writes."""

    def __init__(self, descriptor: int) -> None:
        """Read from `descriptor`."""
        self._descriptor = descriptor
        self._thread = _Thread()

    async def read(self, bytes_max: int) -> bytes:
        """Return what is there next; b'' at the end."""
        found: bytes = await self._thread.call(self._read, bytes_max)
        return found

    def close(self) -> None:
        """Read no more."""
        self._thread.close()

    def _read(self, bytes_max: int) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, bytes_max)
            except BlockingIOError:  # the client may have made the pipe it shares with us non-blocking
                select.select([self._descriptor], [], [])
            except OSError:
                return b""


class Sink:
    """What the client reads."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`."""
        self._outlet = Outlet(descriptor)
        self._thread = _Thread()
        self._lock = asyncio.Lock()
        self._piece: asyncio.Future[bool] | None = None
        self.moved_count = 0
        """Pieces that the client took."""
        self.broken = asyncio.Event()
        """Set once the client takes no more."""

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the client."""
        return self._lock.locked()

    async def write(self, data: bytes) -> None:
        """Write all of it, in the order of the calls; nothing where the client takes no more."""
        async with self._lock:
            for start in range(0, len(data), CHUNK_BYTES):
                if self.broken.is_set():
                    return
                self._piece = self._thread.call(self._outlet.write, data[start : start + CHUNK_BYTES])
                if not await self._piece:
                    self.broken.set()
                    return
                self.moved_count += 1

    def close(self) -> None:
        """Write no more, and wait for the client no more."""
        self.broken.set()
        if self._piece is not None:
            _settle(self._piece, found=False)
        self._thread.close()
