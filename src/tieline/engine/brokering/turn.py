"""What one command has ordered so far.

Rule: outputs, rows and closes keep the order in which they were ordered.

Source: reference/intercom.md 1.3 "Write order".
"""

from tieline.engine.brokering.contract import Drop, Output, Plan, Put
from tieline.model.moment import Moment

__all__ = ["Turn"]


class Turn:
    """One command's moment and orders."""

    __slots__ = ("closes", "now", "outputs", "rows")

    def __init__(self, now: Moment) -> None:
        """Begin with nothing ordered."""
        self.now = now
        self.outputs: list[tuple[int, Output]] = []
        self.rows: list[Put | Drop] = []
        self.closes: list[int] = []

    def say(self, link: int, output: Output) -> None:
        """Order an output."""
        self.outputs.append((link, output))

    def plan(self, deadline_ms: int | None, idle_since_ms: int | None) -> Plan:
        """Return all that was ordered."""
        return Plan(tuple(self.rows), tuple(self.outputs), tuple(self.closes), deadline_ms, idle_since_ms)
