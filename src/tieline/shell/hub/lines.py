"""The sockets of a broker's sessions: who may connect, and what a far end that does not read costs.

Rule 1: the kernel's word on who is at the other end comes before the first byte is read.
Rule 2: what waits for a far end is bounded; one that lets more wait is hung up on, and loses it visibly.
    Until then nothing is dropped, and nobody else waits for it.
Rule 3: a far end that does not read is not read either, so that what it asks for cannot pile up; nor is one
    whose words still wait to be heard.

Source: reference/intercom.md 6.2; reference/reliability.md S7, K14.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol, cast

from tieline.shell.link import Listener
from tieline.shell.process import peer_credentials

__all__ = ["CLOSE_SECONDS_MAX", "UNREAD_BYTES_MAX", "HubLine", "Sessions", "serve"]

UNREAD_BYTES_MAX = 12_582_912
"""12 MiB: with the copies that the loop may make of the newest frame, below 20 MB for one far end."""

CLOSE_SECONDS_MAX = 2.0


class Sessions(Protocol):
    """What the lines feed."""

    def accepted(self, line: "HubLine") -> int:
        """A far end of this user connected; return the number of its link."""

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in."""

    def readable(self, number: int) -> None:
        """The far end took what waited for it: more may be written."""

    def lost(self, number: int) -> None:
        """The socket is closed."""


class HubLine(asyncio.Protocol):
    """One session's socket; `process_id` is the kernel's, 0 where it does not say."""

    def __init__(self, sessions: Sessions) -> None:
        self.process_id = 0
        self._sessions = sessions
        self._number: int | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_held = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the far end's user, then take it."""
        self._transport = cast("asyncio.Transport", transport)
        try:
            credentials = peer_credentials(transport.get_extra_info("socket"))
        except OSError:
            self._transport.abort()
            return
        if credentials.uid != os.geteuid():
            self._transport.abort()
            return
        self.process_id = credentials.pid
        self._number = self._sessions.accepted(self)

    @property
    def is_open(self) -> bool:
        """Whether the socket is not closed yet."""
        return self._transport is not None

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_paused(self) -> bool:
        """Whether the far end leaves so much unread that no more should be written now."""
        return self._is_paused

    @property
    def unread_bytes(self) -> int:
        """How many bytes were handed over and not taken by the kernel yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def data_received(self, data: bytes) -> None:
        """Hand bytes on."""
        if self._number is not None:
            self._sessions.received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the hub needs no reason
        """Tell that the socket is closed."""
        self._transport = None
        if self._number is not None:
            self._sessions.lost(self._number)

    def write(self, data: bytes) -> None:
        """Hand over bytes; a far end that lets too much wait is hung up on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            transport.abort()

    def close(self) -> None:
        """Send what was handed over, then close; a far end that does not take it is given up soon."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            asyncio.get_running_loop().call_later(CLOSE_SECONDS_MAX, self.abort)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def hold(self, *, is_held: bool) -> None:
        """Read no more for now, or again: what was read has not been heard yet."""
        self._is_held = is_held
        self._settle_reading()

    def pause_writing(self) -> None:
        """The far end does not read: nor do we."""
        self._is_paused = True
        self._settle_reading()

    def resume_writing(self) -> None:
        """The far end reads again."""
        self._is_paused = False
        self._settle_reading()
        if self._number is not None:
            self._sessions.readable(self._number)

    def _settle_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_paused or self._is_held:
            transport.pause_reading()
        else:
            transport.resume_reading()


def serve(sessions: Sessions, sock: socket.socket, failed: Callable[[BaseException], None]) -> Listener:
    """Accept on a broker's listening socket; `failed` is told what goes wrong there."""
    return Listener(sock, lambda: HubLine(sessions), failed)
