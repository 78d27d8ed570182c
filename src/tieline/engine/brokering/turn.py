"""What one command has ordered so far.

Rule 1: outputs, rows and closes keep the order in which they were ordered.
Rule 2: where a command is answered with `otherwise` when its rows cannot be kept, `undo` takes back, from its
    end, all that it changed in the rooms.

Source: reference/intercom.md 1.3 "Write order".
"""

from collections.abc import Callable

from tieline.engine.brokering.contract import Drop, Output, Plan, Put
from tieline.model.moment import Moment

__all__ = ["Turn"]


class Turn:
    """One command's moment and orders."""

    __slots__ = ("closes", "now", "otherwise", "outputs", "rows", "undo")

    def __init__(self, now: Moment) -> None:
        """Begin with nothing ordered."""
        self.now = now
        self.outputs: list[tuple[int, Output]] = []
        self.rows: list[Put | Drop] = []
        self.closes: list[int] = []
        self.otherwise: tuple[int, Output] | None = None
        self.undo: list[Callable[[], object]] = []

    def say(self, link: int, output: Output) -> None:
        """Order an output."""
        self.outputs.append((link, output))

    @property
    def is_refusable(self) -> bool:
        """Whether somebody is refused when the rows cannot be kept."""
        return self.otherwise is not None and any(isinstance(row, Put) for row in self.rows)

    def plan(self, deadline_ms: int | None, idle_since_ms: int | None, refusable: int = 0) -> Plan:
        """Return all that was ordered."""
        return Plan(
            tuple(self.rows),
            tuple(self.outputs),
            tuple(self.closes),
            deadline_ms,
            idle_since_ms,
            refusable,
        )
