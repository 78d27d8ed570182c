"""What one root may ask of us, however many links it opens.

Rule: charged by who was proved, never by link: more links buy nothing (S18).

Source: reference/reliability.md S18; reference/open-bugs.md O57.
"""

from tieline.config import Limits

__all__ = ["Budget"]

REQUESTS_PER_SECOND_MIN = 200
"""Requests of one root per second, whatever they ask; a flood costs the flooder (S18, O57)."""
REQUESTS_PER_MESSAGE = 20
ROOTS_MAX = 4_096


class Budget:
    """A bucket of requests per root: two seconds' worth at most, refilled with time."""

    def __init__(self, limits: Limits) -> None:
        self.per_second = max(REQUESTS_PER_SECOND_MIN, REQUESTS_PER_MESSAGE * limits.rate_per_second)
        self._left: dict[str, tuple[float, int]] = {}

    def charge(self, instance: str, now_ms: int) -> bool:
        """Charge one request to a root; return whether it may be asked."""
        full = 2.0 * self.per_second
        left, at_ms = self._left.pop(instance, (full, now_ms))
        left = min(full, left + (now_ms - at_ms) * self.per_second / 1000)
        # Put back at the end: who asked longest ago is forgotten first, and its bucket is full by then.
        self._left[instance] = (left - 1 if left >= 1 else left, now_ms)
        if len(self._left) > ROOTS_MAX:
            del self._left[next(iter(self._left))]
        return left >= 1
