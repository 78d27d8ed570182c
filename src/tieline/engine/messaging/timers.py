"""What is due when.

Rule: an entry may be outlived by what it was set for; whoever set it can tell, and it is then dropped
unread. So nothing is ever searched for to be taken out, and the cost does not grow with history.

Source: STYLE.md 2; reference/native.md 3.4 "head retry".
"""

import heapq
from collections.abc import Callable
from enum import IntEnum

__all__ = ["Timer", "TimerKind", "Timers"]


class TimerKind(IntEnum):
    """What a timer is for; of equal moments the lower kind goes first."""

    DEADLINE = 0  # key: cursor of a record
    RETRY = 1  # key: cursor of a sent message
    TOKEN = 2  # key: an exposure's token
    COURIER = 3  # key: an instance
    DIRECTORY = 4  # key: an instance


Timer = tuple[int, TimerKind, int, str]


class Timers:
    """A heap of (monotonic milliseconds, kind, number, name)."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []

    def __len__(self) -> int:
        return len(self._heap)

    def clear(self) -> None:
        """Forget every timer."""
        self._heap.clear()

    def add(self, due_ms: int, kind: TimerKind, *, cursor: int = 0, name: str = "") -> None:
        """Set a timer; one for the same thing that is there already is not looked for."""
        heapq.heappush(self._heap, (due_ms, kind, cursor, name))

    def next_ms(self, is_armed: Callable[[Timer], bool]) -> int | None:
        """Return when the first timer that still stands is due, or None."""
        while self._heap and not is_armed(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int, is_armed: Callable[[Timer], bool]) -> Timer | None:
        """Take out and return the first standing timer that is due at `now_ms`, or None."""
        due_ms = self.next_ms(is_armed)
        if due_ms is None or due_ms > now_ms:
            return None
        return heapq.heappop(self._heap)
