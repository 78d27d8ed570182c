"""Who wants to be told when somebody is idle: one notice each, in both directions.

Rule 1: a subscription is told once and is over; after `LIFE_MS` it is over untold.
Rule 2: bounded for each who asks and in all: asking again and again replaces the oldest of the same asker.
Rule 3: a notice counts only while the nonce that it bears is awaited, once; one that names another address
    than that which was asked is none, and uses nothing up.
Rule 4: memory only: who restarts has no window to tell.

Source: reference/pi-peers-and-harness-doors.md rules 34, 36, 37, U11, U17.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from tieline.model.identity import Peer

__all__ = ["Awaited", "Subscriber", "Subscriptions"]

LIFE_MS: Final = 12 * 3_600_000
EACH_MAX: Final = 8
"""Subscriptions of one address; a window needs one for each that waits in it."""
ALL_MAX: Final = 1_024


class Subscriber(NamedTuple):
    """Where a notice goes, and under which nonce."""

    address: str
    nonce: str
    until_ms: int


class Awaited(NamedTuple):
    """A notice that a peer of ours waits for."""

    owner: Peer
    window: Peer
    address: str
    until_ms: int


class Subscriptions:
    """The subscriptions of one root."""

    def __init__(self) -> None:
        self._subscribers: OrderedDict[tuple[str, str], Subscriber] = OrderedDict()
        self._awaited: OrderedDict[str, Awaited] = OrderedDict()

    def subscribe(self, address: str, nonce: str, now_ms: int) -> None:
        """Remember who is to be told when our host is idle."""
        self._subscribers.pop((address, nonce), None)
        of_address = [key for key in self._subscribers if key[0] == address]
        if len(of_address) >= EACH_MAX:
            del self._subscribers[of_address[0]]
        elif len(self._subscribers) >= ALL_MAX:
            self._subscribers.popitem(last=False)
        self._subscribers[address, nonce] = Subscriber(address, nonce, now_ms + LIFE_MS)

    def idle(self, now_ms: int) -> list[Subscriber]:
        """Our host is idle: return who is to be told, each for the last time."""
        told = [one for one in self._subscribers.values() if one.until_ms > now_ms]
        self._subscribers.clear()
        return told

    def wait(self, nonce: str, owner: Peer, window: Peer, address: str, now_ms: int) -> None:
        """Remember that a peer of ours waits for the notice of a window that was asked at `address`."""
        self._awaited[nonce] = Awaited(owner, window, address, now_ms + LIFE_MS)
        while len(self._awaited) > ALL_MAX:
            self._awaited.popitem(last=False)

    def told(self, nonce: str, address: str, now_ms: int) -> Awaited | None:
        """A notice came from `address` ("": not stated); return who waited for it, or None: nobody did."""
        known = self._awaited.get(nonce)
        if known is not None and address not in ("", known.address):
            return None
        awaited = self._awaited.pop(nonce, None)
        return awaited if awaited is not None and awaited.until_ms > now_ms else None
