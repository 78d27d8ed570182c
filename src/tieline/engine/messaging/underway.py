"""What is under way: attempts, receipts on their way, exposures, questions.

Rule: none of it is a record. Forgetting it costs a repeated attempt, never a message.

Source: reference/native.md 2.6b, 2.8, 3.4; STYLE.md 4 "attempt".
"""

from collections import OrderedDict
from enum import Enum, auto

import msgspec

from tieline.engine.contract import Offer
from tieline.model.identity import Peer

__all__ = ["Courier", "Errand", "Exposure", "Flight", "Question", "Verified"]


class Errand(Enum):
    """What an attempt of ours carries."""

    TRANSMIT = auto()
    STATUS = auto()
    RECEIPT = auto()


class Flight(msgspec.Struct, frozen=True, gc=False):
    """One attempt under way."""

    errand: Errand
    cursor: int
    instance: str
    told_cursor: int = 0  # of the receipt it carries
    is_earlier: bool = False  # it began before a restore: its numbers are not counted any more


class Courier:
    """Receipts and questions that wait to be told to one instance."""

    __slots__ = ("carried", "failure_count", "queue", "retry_at_ms")

    def __init__(self) -> None:
        self.queue: OrderedDict[tuple[Errand, int], None] = OrderedDict()
        self.carried: dict[tuple[Errand, int], None] = {}
        self.failure_count = 0
        self.retry_at_ms: int | None = None


class Exposure(msgspec.Struct, frozen=True):
    """One token's messages on their way into a model's context; `due_ms` is monotonic."""

    owner: Peer
    cursors: tuple[int, ...]
    due_ms: int


class Question(msgspec.Struct, frozen=True):
    """An offer that waits until its sender's root has named its runs."""

    offer: Offer
    after_attempt: int  # an answer to an attempt above this was asked after the offer came


class Verified(msgspec.Struct, frozen=True):
    """Runs that a root named, and when (monotonic milliseconds)."""

    runs: frozenset[str]
    at_ms: int
