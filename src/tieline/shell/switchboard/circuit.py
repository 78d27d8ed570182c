"""One link, its protocol, and who waits on it.

Rule: a circuit holds what is so; `switchboard` and `serving` decide what changes.

Source: reference/native.md 2.6, 3.4; reference/reliability.md S13, K15.
"""

from collections import deque
from typing import Any

from tieline.errors import Refusal
from tieline.shell.switchboard.ports import Call, Far, Line, Told
from tieline.wire.native.protocol import Connection

__all__ = ["Circuit"]


class Circuit:
    """One link, its protocol, and who waits on it."""

    __slots__ = (
        "attempts",
        "connection",
        "far",
        "far_read_ms",
        "features",
        "given_up",
        "heard_ms",
        "instance",
        "is_dialled",
        "is_dirty",
        "is_ready",
        "line",
        "methods",
        "number",
        "used_ms",
        "waiting",
    )

    def __init__(self, number: int, instance: str, *, is_dialled: bool, now_ms: int) -> None:
        self.number, self.instance, self.is_dialled = number, instance, is_dialled
        self.line: Line | None = None
        self.connection: Connection | None = None
        self.far: Far | None = None
        self.far_read_ms = now_ms
        self.features: frozenset[str] | None = None  # None: not told yet; empty: a foreign end
        self.is_ready = False
        self.given_up: Refusal | None = None  # why this link is of no use and is to be hung up
        self.is_dirty = False
        self.used_ms = now_ms
        self.heard_ms = now_ms
        self.waiting: deque[Call | tuple[str, dict[str, Any], Told, int]] = deque()
        self.attempts: dict[str, Call | Told] = {}
        self.methods: dict[str | int, str] = {}
