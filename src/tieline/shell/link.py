"""One live socket and the switchboard it feeds; and the sockets that listen and dial.

Rule 1: the kernel's word on who is at the other end comes before the first byte is read (S7).
Rule 2: bytes are handed on as they come; a switchboard that asks for a pause gets one.
Rule 3: nothing here knows a frame.

Source: reference/native.md 3.4 "peer credentials"; reference/reliability.md S7, F8, F15.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import cast

from tieline.errors import Refusal, Refused, TielineError
from tieline.shell.endpoint import NATIVE_SUFFIX, connect, verify_target
from tieline.shell.process import peer_credentials
from tieline.shell.switchboard import Far, Switchboard

__all__ = ["SocketLine", "dial", "serve"]

WRITE_HIGH_BYTES = 4_194_304
"""A far end that lets this much wait unread is hung up on: loss is visible, memory is bounded (K14)."""


class SocketLine(asyncio.Protocol):
    """A switchboard's line over one Unix socket."""

    def __init__(self, switchboard: Switchboard, ready: Callable[["SocketLine"], None] | None = None) -> None:
        self.pid: int | None = None
        self.number: int | None = None
        self._switchboard = switchboard
        self._ready = ready
        self._transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the far end's user, then join the switchboard."""
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
            self.number = self._switchboard.accepted(self)
        else:
            self._ready(self)

    def data_received(self, data: bytes) -> None:
        """Hand bytes on."""
        if self.number is not None:
            self._switchboard.received(self.number, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the switchboard needs no reason
        """Tell that the socket is closed."""
        self._transport = None
        if self.number is not None:
            self._switchboard.lost(self.number)

    def write(self, data: bytes) -> None:
        """Hand over bytes; a far end that does not read is hung up on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > WRITE_HIGH_BYTES:
            transport.abort()

    def close(self) -> None:
        """Send what was handed over, then close."""
        if self._transport is not None:
            self._transport.close()

    def pause(self, *, is_paused: bool) -> None:
        """Stop or go on reading."""
        if is_paused != self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


async def serve(switchboard: Switchboard, sock: socket.socket) -> asyncio.AbstractServer:
    """Accept on an endpoint's listening socket."""
    return await asyncio.get_running_loop().create_unix_server(lambda: SocketLine(switchboard), sock=sock)


async def dial(switchboard: Switchboard, far: Far) -> SocketLine:
    """Return a line to a far end whose endpoint passed every check.

    The line is not joined yet: its `number` is the circuit that asked for it.

    Raises:
        Refused: PEER_OFFLINE, UNSAFE_ENDPOINT, RESOURCE_BUSY, PERMISSION_DENIED.
    """
    verify_target(far.endpoint, far.advertised.instance, NATIVE_SUFFIX)
    sock = connect(far.endpoint)
    try:
        _, line = await asyncio.get_running_loop().create_unix_connection(
            lambda: SocketLine(switchboard, lambda _line: None), sock=sock
        )
    except OSError as error:
        sock.close()
        raise Refused("PEER_OFFLINE", f"the connection failed: {error.strerror}") from error
    return line


def refusal_of(error: TielineError) -> Refusal:
    """Return an error as the value that the engine reads."""
    return Refusal(error.code, str(error), is_retryable=getattr(error, "is_retryable", True))
