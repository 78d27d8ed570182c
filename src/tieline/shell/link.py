"""One live socket and the carrier it feeds (a switchboard, a post); and the sockets that listen and dial.

Rule 1: the kernel's word on who is at the other end comes before the first byte is read (S7).
Rule 2: bytes are handed on as they come; a carrier that asks for a pause gets one.
Rule 3: nothing here knows a frame.
Rule 4: who connected and does not read its answers is not read either: what waits for it is bounded (K14).
    A line that we dialled is always read, so that two ends that write at once cannot wait for each other.
Rule 5: where no descriptor is left, accepting rests for `REST_SECONDS` and is noted once; links go on (K7).

Source: reference/native.md 3.4 "peer credentials"; reference/reliability.md S7, F8, F15, K7, K14;
reference/open-bugs.md O32.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol, cast

from tieline.errors import Refusal, Refused, TielineError
from tieline.shell.endpoint import NATIVE_SUFFIX, connect, verify_target, verify_window
from tieline.shell.process import peer_credentials
from tieline.shell.switchboard import Far

__all__ = ["Carrier", "Listener", "SocketLine", "dial", "dial_window", "join", "refusal_of", "serve"]

WRITE_HIGH_BYTES = 4_194_304
"""A far end that lets this much wait unread is hung up on: loss is visible, memory is bounded (K14)."""
REST_SECONDS = 0.5
ACCEPTS_PER_TURN = 16
"""More would let a crowd at the door keep the links that are open waiting."""


class Carrier(Protocol):
    """What a line feeds."""

    def accepted(self, line: "SocketLine") -> int | None:
        """A far end connected; return the number of its link, or None when it was turned away."""

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in."""

    def lost(self, number: int) -> None:
        """The socket is closed."""


class SocketLine(asyncio.Protocol):
    """A carrier's line over one Unix socket."""

    def __init__(self, carrier: Carrier, ready: Callable[["SocketLine"], None] | None = None) -> None:
        self.pid: int | None = None
        self.number: int | None = None
        self._carrier = carrier
        self._ready = ready
        self._transport: asyncio.Transport | None = None
        self._is_paused = False  # reading, at present
        self._is_paused_by_board = False
        self._is_unread = False  # the far end leaves our answers where they are

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the far end's user, then join the carrier."""
        self._transport = cast("asyncio.Transport", transport)
        try:
            credentials = peer_credentials(transport.get_extra_info("socket"))
        except OSError:
            self._transport.abort()
            return
        if credentials.uid != os.geteuid():
            self._transport.abort()
            return
        self.pid = credentials.pid
        if self._ready is None:
            self.number = self._carrier.accepted(self)
        else:
            self._ready(self)

    def data_received(self, data: bytes) -> None:
        """Hand bytes on."""
        if self.number is not None:
            self._carrier.received(self.number, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the carrier needs no reason
        """Tell that the socket is closed."""
        self._transport = None
        if self.number is not None:
            self._carrier.lost(self.number)

    def write(self, data: bytes) -> None:
        """Hand over bytes; a far end that does not read is hung up on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > WRITE_HIGH_BYTES:
            transport.abort()

    def finish(self) -> None:
        """Send what was handed over, then say that nothing more comes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Send what was handed over, then close."""
        if self._transport is not None:
            self._transport.close()

    def pause(self, *, is_paused: bool) -> None:
        """Stop or go on reading."""
        self._is_paused_by_board = is_paused
        self._pause()

    def pause_writing(self) -> None:
        """The far end does not read; who asks on and on reads answers first."""
        self._is_unread = self._ready is None
        self._pause()

    def resume_writing(self) -> None:
        """The far end reads again."""
        self._is_unread = False
        self._pause()

    def _pause(self) -> None:
        is_paused = self._is_paused_by_board or self._is_unread
        if is_paused != self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


class Listener:
    """Accepts on one listening socket until it is closed.

    asyncio's own server, out of descriptors, tells its exception handler once per place in the backlog
    and starts as many timers; this one tells `failed` once and rests.
    """

    def __init__(
        self,
        sock: socket.socket,
        made: Callable[[], asyncio.BaseProtocol],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._sock, self._made, self._failed = sock, made, failed
        self._loop = asyncio.get_running_loop()
        self._joining: set[asyncio.Task[Any]] = set()
        self._rest: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._listen()

    def _listen(self) -> None:
        self._rest = None
        if not self._is_closed:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.remove_reader(self._sock.fileno())
                self._rest = self._loop.call_later(REST_SECONDS, self._listen)
                self._failed(error)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._join(accepted))
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    async def _join(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._made, accepted)
        except OSError as error:
            accepted.close()
            self._failed(error)

    def stop(self) -> None:
        """Accept no more; the socket stays as it is, and so do the links."""
        if not self._is_closed:
            self._is_closed = True
            if self._rest is not None:
                self._rest.cancel()
            else:
                self._loop.remove_reader(self._sock.fileno())

    def close(self) -> None:
        """Accept no more and close the socket: who connects now is refused at once. The links stay."""
        self.stop()
        self._sock.close()


def serve(carrier: Carrier, sock: socket.socket, failed: Callable[[BaseException], None]) -> Listener:
    """Accept on an endpoint's listening socket; `failed` is told what goes wrong there."""
    return Listener(sock, lambda: SocketLine(carrier), failed)


async def dial(carrier: Carrier, far: Far) -> SocketLine:
    """Return a line to a far end whose endpoint passed every check.

    The line is not joined yet: its `number` is the circuit that asked for it.

    Raises:
        Refused: PEER_OFFLINE, UNSAFE_ENDPOINT, RESOURCE_BUSY, PERMISSION_DENIED.
    """
    verify_target(far.endpoint, far.advertised.instance, NATIVE_SUFFIX)
    return await _connected(carrier, far.endpoint)


async def dial_window(carrier: Carrier, path: str) -> SocketLine:
    """Return a line to a window's socket, which is this user's own and no link; not joined yet, as `dial`.

    Raises:
        Refused: as `dial`.
    """
    verify_window(path)
    return await _connected(carrier, path)


async def _connected(carrier: Carrier, path: str) -> SocketLine:
    return await join(carrier, connect(path))


async def join(carrier: Carrier, sock: socket.socket) -> SocketLine:
    """Return a line over a connected socket; not joined yet, as `dial`.

    Raises:
        Refused: PEER_OFFLINE, the connection is over already.
    """
    try:
        _, line = await asyncio.get_running_loop().create_unix_connection(
            lambda: SocketLine(carrier, lambda _line: None), sock=sock
        )
    except OSError as error:
        sock.close()
        raise Refused("PEER_OFFLINE", f"the connection failed: {error.strerror}") from error
    return line


def refusal_of(error: TielineError) -> Refusal:
    """Return an error as the value that the engine reads."""
    return Refusal(error.code, str(error), is_retryable=getattr(error, "is_retryable", True))
