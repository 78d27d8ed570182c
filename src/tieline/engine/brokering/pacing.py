"""How fast one socket may speak: a bucket of frames that fills with time.

Rule: an empty bucket refuses; what was refused costs nothing.

Source: reference/intercom.md 1.5 "Limits".
"""

from typing import Final

__all__ = ["BUCKET_FRAMES", "FRAMES_PER_SECOND", "Bucket"]

BUCKET_FRAMES: Final = 240
FRAMES_PER_SECOND: Final = 120


class Bucket:
    """Frames that may still come at once."""

    __slots__ = ("_at_ms", "_thousandths")

    def __init__(self) -> None:
        self._thousandths = BUCKET_FRAMES * 1_000
        self._at_ms: int | None = None

    def take(self, now_ms: int) -> bool:
        """Take one frame out at this monotonic moment; False where the bucket is empty."""
        if self._at_ms is not None:
            filled = max(0, now_ms - self._at_ms) * FRAMES_PER_SECOND
            self._thousandths = min(BUCKET_FRAMES * 1_000, self._thousandths + filled)
        self._at_ms = now_ms
        if self._thousandths < 1_000:
            return False
        self._thousandths -= 1_000
        return True
