"""Which resource events a root's peers were told, and which not yet.

Theory. A resource keeps its own journal: its events are numbered there and stay for a while. A root's
journal of messages has no place for them, so they are delivered from there: each peer of the root is told
each event once it is seen, again as long as no reader's flush confirmed it. An instance never comes back,
so what was told need not outlive it.

Rule 1: (resource, sequence, recipient) is told under one identity, however often.
Rule 2: told is what a flush confirmed; a read that was lost is told again.
Rule 3: bounded: past `KEPT_MAX` the oldest go, and the resource's own history still has them.

Source: reference/native.md 2.13 "Events", 203; reference/reliability.md I38.
"""

from collections import deque
from typing import Final, NamedTuple

from tieline.engine import coordination
from tieline.model.resource import Document, ResourceEvent, ResourceKey

__all__ = ["Feed", "Told"]

KEPT_MAX: Final = 1_024
READ_MAX: Final = 100


class Told(NamedTuple):
    """One event for one peer; `position` is where the peer's own history stood then."""

    recipient: str
    event: ResourceEvent
    position: int

    @property
    def identity(self) -> tuple[str, ResourceKey, int]:
        """What names it."""
        return self.recipient, self.event.resource, self.event.sequence


class Feed:
    """The resource events of one root's peers."""

    def __init__(self) -> None:
        self._seen: dict[ResourceKey, int] = {}
        self._kept: deque[Told] = deque()
        self._unread: dict[tuple[str, ResourceKey, int], Told] = {}
        self._read: dict[str, list[Told]] = {}

    def take(self, document: Document, peer_ids: frozenset[str], position: int) -> list[Told]:
        """Return the events of a document that concern these peers and were not seen before, and keep them.

        Args:
            document: As it was read last.
            peer_ids: The peers of this root.
            position: Where the root's own history stands.
        """
        key = document.resource
        page = coordination.events_after(document, peer_ids, self._seen.get(key, 0))
        self._seen[key] = max(page.sequence, self._seen.get(key, 0))
        found = [
            Told(recipient, event, position)
            for event in page.events
            for recipient in sorted(peer_ids.intersection(event.audience))
        ]
        for told in found:
            self._kept.append(told)
            self._unread[told.identity] = told
        while len(self._kept) > KEPT_MAX:
            self._unread.pop(self._kept.popleft().identity, None)
        return found

    def unread(self, recipient: str) -> list[Told]:
        """Return what a peer was not told yet, oldest first."""
        if not self._unread:
            return []
        out = {told.identity for read in self._read.values() for told in read}
        found = (one for one in self._unread.values() if one.recipient == recipient)
        return [one for one in found if one.identity not in out][:READ_MAX]

    def after(self, recipient: str, position: int) -> list[Told]:
        """Return everything that is kept for a peer after a place in its own history, told or not."""
        found = [one for one in self._kept if one.recipient == recipient and one.position >= position]
        return found[-READ_MAX:]

    def read(self, token: str, told: list[Told]) -> None:
        """Take these for read under `token` until it is settled."""
        self._read[token] = told

    def settle(self, token: str, *, is_taken: bool) -> None:
        """Confirm that what was read under `token` has reached its reader, or that it has not."""
        for told in self._read.pop(token, ()):
            if is_taken:
                self._unread.pop(told.identity, None)
