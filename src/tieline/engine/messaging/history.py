"""The events of one store, per mailbox.

Rule 1: cursors come from one counter and only grow; what was pruned shows as a gap, never as silence.
Rule 2: a page holds exactly the events after its cursor, in order.

Source: reference/native.md 2.8 "event", 3.2 "event cursor", 3.4 "retention job";
reference/reliability.md I12.
"""

import bisect
from collections import deque
from operator import attrgetter

from tieline.engine.contract import Page
from tieline.errors import Refusal
from tieline.model.receipt import Event

__all__ = ["History"]

_cursor = attrgetter("cursor")


class History:
    """Events in memory; `oldest_cursor` is the first cursor from which nothing is missing."""

    def __init__(self) -> None:
        self.oldest_cursor = 1
        self._lists: dict[str, list[Event]] = {}
        self._order: deque[tuple[int, str, int]] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        """Forget all events; the rows will bring them again."""
        self.oldest_cursor = 1
        self._lists.clear()
        self._order.clear()

    def add(self, event: Event, mono_ms: int) -> None:
        """Add the newest event."""
        self._lists.setdefault(event.owner, []).append(event)
        self._order.append((event.cursor, event.owner, mono_ms))

    def oldest_ms(self) -> int | None:
        """Return the monotonic age mark of the oldest event, or None."""
        return self._order[0][2] if self._order else None

    def page(self, owner: str, after: int, count_max: int, latest_cursor: int) -> Page | Refusal:
        """Return the events of `owner` after a cursor, at most `count_max`.

        A cursor above the latest is INVALID_PARAMS: it is from another store.
        """
        if not 0 <= after <= latest_cursor:
            return Refusal("INVALID_PARAMS", f"the cursor is above the latest, {latest_cursor}")
        events = self._lists.get(owner, [])
        start = bisect.bisect_right(events, after, key=_cursor)
        return Page(
            events=tuple(events[start : start + count_max]),
            latest_cursor=latest_cursor,
            oldest_cursor=self.oldest_cursor,
            has_gap=after + 1 < self.oldest_cursor,
        )

    def of(self, owner: str, first_cursor: int, message_id: str, sender: str) -> tuple[Event, ...]:
        """Return the events of one message in a mailbox, from a cursor on."""
        events = self._lists.get(owner, [])
        start = bisect.bisect_left(events, first_cursor, key=_cursor)
        return tuple(
            event for event in events[start:] if event.message_id == message_id and event.sender == sender
        )

    def prunable_through(self, kept_max: int, before_ms: int) -> int:
        """Return the cursor up to which events go: those past `kept_max`, those not after `before_ms`."""
        through = self.oldest_cursor - 1
        excess = len(self._order) - kept_max
        for number, (cursor, _owner, mono_ms) in enumerate(self._order):
            if number >= excess and mono_ms > before_ms:
                break
            through = cursor
        return through

    def prune(self, oldest_cursor: int) -> None:
        """Forget the events before `oldest_cursor`."""
        self.oldest_cursor = max(self.oldest_cursor, oldest_cursor)
        owners: dict[str, None] = {}
        while self._order and self._order[0][0] < self.oldest_cursor:
            owners[self._order.popleft()[1]] = None
        for owner in owners:
            events = self._lists[owner]
            del events[: bisect.bisect_left(events, self.oldest_cursor, key=_cursor)]
            if not events:
                del self._lists[owner]
