"""One reading of the clocks, taken once per turn of the loop.

Rule: deadlines are kept in monotonic milliseconds; wall time is for people and for the wire.

Source: reference/native.md 3.2 "times"; reference/reliability.md K9, K10.
"""

from datetime import UTC, datetime, timedelta

import msgspec

__all__ = ["NEVER_MS", "Moment", "from_iso", "to_iso"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WALL_MS_MAX = 253_402_300_799_999  # the end of year 9999: what ISO-8601 with four digits can say
NEVER_MS = WALL_MS_MAX
"""The instant, on either clock, of what has no end: mail that waits until it is consumed."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Wall and monotonic time in milliseconds. `mono_ms` counts suspended time where the kernel tells it."""

    wall_ms: int
    mono_ms: int


def to_iso(wall_ms: int) -> str:
    """Return ISO-8601 UTC with milliseconds and `Z`."""
    clamped = min(max(wall_ms, 0), WALL_MS_MAX)
    moment = _EPOCH + timedelta(milliseconds=clamped)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def from_iso(text: str) -> int:
    """Return wall milliseconds.

    Raises:
        ValueError: `text` is not ISO-8601 with a zone, or outside 1970 to 9999.
    """
    if len(text) > 40 or not text.isascii():
        raise ValueError("not a time")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    wall_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= wall_ms <= WALL_MS_MAX:
        raise ValueError("out of range")
    return wall_ms
