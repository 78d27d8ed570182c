"""The hub: one command in, one plan out.

Rule 1: same commands and moments, same plans, byte for byte.
Rule 2: this module routes commands to the rooms that know their rules; it holds no rule of its own.

Source: specification of the intercom; reference/intercom.md 1.2 to 1.7.
"""

from collections.abc import Iterable

from tieline.engine.brokering.contract import Codec, Command, Plan, Put
from tieline.model.moment import Moment

__all__ = ["Hub"]


class Hub:
    """Everything that one broker knows."""

    def __init__(self, codec: Codec, now: Moment) -> None:
        """Start without sessions; the idle time counts from here."""

    def restore(self, rows: Iterable[Put], now: Moment) -> Plan:
        """Take what an earlier broker kept, before the first command; its rows that nobody can read go."""
        raise NotImplementedError

    def handle(self, command: Command, now: Moment) -> Plan:
        """Return what `command` orders."""
        raise NotImplementedError
