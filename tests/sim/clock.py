"""The one clock of a simulated machine, and what is due on it.

Theory. Time moves only from one callback to the next. Of two that are due at the same moment the one
scheduled first goes first, so nothing depends on the order of a set or of a hash.

Rule 1: monotonic time never goes back; wall time may jump.
Rule 2: a callback belongs to an owner: while the owner is stopped it waits, once it is dead it is dropped.

Source: reference/reliability.md 2.1, K9, K13.
"""

import heapq
from collections.abc import Callable

from tieline.model.moment import Moment

__all__ = ["Clock"]

START_WALL_MS = 1_750_000_000_000
START_MONO_MS = 5_000_000


class Clock:
    """Both clocks and the heap of callbacks."""

    def __init__(self) -> None:
        self.mono_ms = START_MONO_MS
        self.wall_offset_ms = START_WALL_MS - START_MONO_MS
        self.steps_count = 0
        self._heap: list[tuple[int, int, str, Callable[[], None]]] = []
        self._number = 0
        self._stopped: dict[str, list[Callable[[], None]]] = {}
        self._dead: dict[str, None] = {}

    def now(self) -> Moment:
        """Return both clocks."""
        return Moment(max(0, self.mono_ms + self.wall_offset_ms), self.mono_ms)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self.wall_offset_ms += by_ms

    def after(self, delay_ms: int, owner: str, callback: Callable[[], None]) -> None:
        """Call back in `delay_ms`; owner "" is the world itself, which never stops."""
        self._number += 1
        due_ms = self.mono_ms + delay_ms if delay_ms > 0 else self.mono_ms
        heapq.heappush(self._heap, (due_ms, self._number, owner, callback))

    def stop(self, owner: str) -> None:
        """Let the owner's callbacks wait."""
        self._stopped.setdefault(owner, [])

    def go_on(self, owner: str) -> None:
        """Let what waited run, in its order."""
        for callback in self._stopped.pop(owner, ()):
            self.after(0, owner, callback)

    def is_stopped(self, owner: str) -> bool:
        """Return whether the owner is stopped."""
        return owner in self._stopped

    def kill(self, owner: str) -> None:
        """Drop the owner's callbacks, those to come too."""
        self._dead[owner] = None
        self._stopped.pop(owner, None)

    def run_until(self, end_ms: int) -> None:
        """Run what is due until `end_ms`, then stand there."""
        heap, dead, stopped = self._heap, self._dead, self._stopped
        while heap and heap[0][0] <= end_ms:
            due_ms, _, owner, callback = heapq.heappop(heap)
            self.mono_ms = max(self.mono_ms, due_ms)
            if owner in dead:
                continue
            if owner in stopped:
                stopped[owner].append(callback)
                continue
            self.steps_count += 1
            callback()
        self.mono_ms = max(self.mono_ms, end_ms)
