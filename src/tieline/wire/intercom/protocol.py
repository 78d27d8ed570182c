"""One socket of the broker: bytes in, commands out; the hub's outputs in, bytes of its dialect out; no I/O.

Rule 1: how a socket registers picks its dialect; nothing is sent to it that it did not announce.
Rule 2: what breaks the framing, the form of a registration or presence, or the legal order closes exactly
    this socket, without a word; commands that were whole before it still count.
Rule 3: this module knows no other socket, no clock and no chance: moments and fresh tokens are told to it.

Source: reference/intercom.md 1.1 to 1.8.
"""

from collections.abc import Callable

from tieline.engine.brokering.contract import Command, Output
from tieline.model.moment import Moment

__all__ = ["BrokerLink"]


class BrokerLink:
    """The broker's end of one socket.

    Per read: `receive_data`, hand its commands to the hub, give each output for this link to `send`, write
    `data_to_send()`. When `is_closed`: write what is left, close the socket, tell the hub `Lost`.
    """

    def __init__(self, link: int, mint: Callable[[], str]) -> None:
        """Wait for the registration.

        Args:
            link: The number that commands bear; never used again for another socket.
            mint: Returns a fresh random UUID v4 at each call.
        """
        self._link = link
        self._mint = mint
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the far end broke the rules: nothing more is read from it."""
        return self._is_closed

    def receive_data(self, data: bytes, now: Moment) -> list[Command]:
        """Return what the far end said with these bytes, in order; nothing once closed. Never raises."""
        raise NotImplementedError

    def send(self, output: Output) -> None:
        """Say `output` in this socket's dialect; nothing where it has no frame for it."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """Return the bytes to write, in order, once."""
        raise NotImplementedError
