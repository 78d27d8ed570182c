"""What a recipient durably stated of a message, and the event history of one store.

Rule: a state is ours to say (pending, unknown) or theirs (the rest); never inferred.

Source: reference/native.md 2.8, 3.3.
"""

from enum import StrEnum

import msgspec

__all__ = ["FINAL", "THEIRS", "Durability", "Event", "Receipt", "State"]


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


class Event(msgspec.Struct, frozen=True, gc=False):
    """One entry of a store's history.

    `kind` is "message" (something arrived), "receipt" (a receipt moved) or "resource".
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
