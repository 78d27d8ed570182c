"""What a recipient durably stated of a message, and the event history of one store.

Rule: a state is ours to say (pending, unknown) or theirs (the rest); never inferred.

Source: reference/native.md 2.8, 3.3.
"""

from enum import StrEnum

import msgspec

__all__ = [
    "BROKER_ACCEPTED",
    "BROKER_QUEUED",
    "CHECKPOINTED",
    "DENIED",
    "FINAL",
    "HELD",
    "HELD_EXPIRED",
    "NOTES",
    "PLACED",
    "THEIRS",
    "Durability",
    "Event",
    "Receipt",
    "State",
]

HELD = "HELD"
"""Outcome beside `pending`, as a recipient states it: its person is asked before the message is taken. The
sender keeps it beside `unknown`."""
DENIED = "DENIED"
"""Outcome beside `rejected`: the person said no."""
HELD_EXPIRED = "HELD_EXPIRED"
"""Outcome beside `expired`: the person said nothing in time."""


BROKER_QUEUED = "BROKER_QUEUED"
BROKER_ACCEPTED = "BROKER_ACCEPTED"
CHECKPOINTED = "CHECKPOINTED"
PLACED = "PLACED"
NOTES = (BROKER_QUEUED, BROKER_ACCEPTED, CHECKPOINTED, PLACED)
"""Outcomes beside `unknown`, each more than the one before and none of them custody: a broker holds it back,
or passed it on; the recipient's program wrote it down, or handed it to its model's queue."""


class State(StrEnum):
    """Where a message stands, as its sender knows it."""

    PENDING = "pending"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    CONSUMED = "consumed"
    REPLIED = "replied"
    REJECTED = "rejected"
    EXPIRED = "expired"


FINAL = frozenset({State.REPLIED, State.REJECTED, State.EXPIRED})
"""Nothing moves out of these."""
THEIRS = frozenset({State.ACCEPTED, State.CONSUMED, State.REPLIED, State.REJECTED, State.EXPIRED})


class Durability(StrEnum):
    """What the accepting end said of its storage."""

    SYNCED = "synced"
    UNSTATED = "unstated"
    VOLATILE = "volatile"


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """One receipt. Peers are peer ids; times wall milliseconds; `cursor` of the store that holds it."""

    message_id: str
    sender: str
    recipient: str
    state: State
    cursor: int
    accepted_ms: int | None = None
    consumed_ms: int | None = None
    replied_ms: int | None = None
    outcome: str | None = None
    durability: Durability | None = None
    is_retryable: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it states that the recipient's person is being asked."""
        return self.state is State.PENDING and self.outcome == HELD

    @property
    def is_note(self) -> bool:
        """Whether it tells how far the message came, short of anybody's custody."""
        return self.state is State.UNKNOWN and self.outcome in NOTES


class Event(msgspec.Struct, frozen=True, gc=False):
    """One entry of a store's history.

    `kind` is "message" (something arrived), "receipt" (a receipt moved) or "resource". A message that waits
    for its person's consent is of the kind "message" with the state pending, and again once it has it.
    `owner` is the peer id of the local mailbox whose history this belongs to.
    """

    cursor: int
    kind: str
    owner: str
    message_id: str
    sender: str
    recipient: str
    state: State | None = None
    receipt: Receipt | None = None
    at_ms: int = 0
