"""All that the hub orders: what to keep, what to say, what to close.

Rule 1: of a plan, rows are durable before any output is written; outputs are written in their order; then
    the links in `closes` are flushed and closed. Every link that ends, whoever ended it, is told by `Lost`.
Rule 2: an output is meaning; a dialect that has no frame for it says nothing.

Source: specification of the intercom; reference/intercom.md 1.2 to 1.7, 4.2, 4.6, 5.
"""

from typing import Any, Literal, Protocol

import msgspec

from tieline.engine.brokering.contract.values import Fields, ReadKind, Row, RowKind
from tieline.engine.brokering.features import Features

__all__ = [
    "Arrived",
    "BusMessage",
    "BusOwner",
    "BusRefused",
    "BusState",
    "BusStateAnswered",
    "Changed",
    "Codec",
    "Controlled",
    "Delivered",
    "Delivery",
    "Departed",
    "Drop",
    "Failed",
    "Listing",
    "Output",
    "Plan",
    "Put",
    "Queued",
    "ReadReturned",
    "ReadWanted",
    "ReceiptPassed",
    "Registered",
    "WakeFailed",
    "WakeWanted",
]


class Registered(msgspec.Struct, frozen=True):
    """The registration stands, under this id and with these features."""

    session_id: str
    features: Features


class Listing(msgspec.Struct, frozen=True):
    """Who the asker can see, itself included, in the order of registration."""

    request_id: str
    rows: tuple[Row, ...]


class Delivery(msgspec.Struct, frozen=True):
    """A message for this session; wall times say when the broker took it and let it go.

    `is_mail`: it waited for this session, and still does until the far end took it.
    """

    sender: Row
    fields: Fields
    received_ms: int
    delivered_ms: int
    is_mail: bool = False


class Delivered(msgspec.Struct, frozen=True):
    """The broker wrote the message to its recipient, or did before; `is_held`: it waits for who is gone."""

    message_id: str
    is_held: bool = False


class Queued(msgspec.Struct, frozen=True):
    """The message is taken and waits; `reason` is said to the sender."""

    message_id: str
    reason: str


class Failed(msgspec.Struct, frozen=True):
    """The message will not be delivered; `code` and `is_retryable` are for dialects that tell them."""

    message_id: str
    reason: str
    code: str
    is_retryable: bool = False


class Arrived(msgspec.Struct, frozen=True):
    """A session that this one can see came."""

    row: Row


class Changed(msgspec.Struct, frozen=True):
    """A session that this one can see tells other things of itself."""

    row: Row


class Departed(msgspec.Struct, frozen=True):
    """A session that this one could see left."""

    session_id: str


class Controlled(msgspec.Struct, frozen=True):
    """The sender cancelled or superseded a message that this session has."""

    sender: Row
    message_id: str
    action: Literal["cancel", "supersede"]
    at_ms: int
    superseded_by: str | None = None


class ReceiptPassed(msgspec.Struct, frozen=True):
    """A recipient's word on a message of this session."""

    sender: Row
    receipt: Fields


class BusOwner(msgspec.Struct, frozen=True):
    """Who owns a namespace now; None where nobody may. `epoch` is that of its registration."""

    namespace: str
    session_id: str | None
    epoch: str | None


class BusMessage(msgspec.Struct, frozen=True):
    """One message of the extension bus."""

    sender: Row
    namespace: str
    payload: Any
    owner_epoch: str | None


class BusState(msgspec.Struct, frozen=True):
    """The state of a namespace."""

    namespace: str
    revision: int
    payload: Any


class BusStateAnswered(msgspec.Struct, frozen=True):
    """What became of a commit; `revision` is the present one."""

    namespace: str
    is_committed: bool
    revision: int
    reason: str = ""
    request_id: str | None = None


class BusRefused(msgspec.Struct, frozen=True):
    """What was asked of the bus is not to be had."""

    reason: str


class ReadWanted(msgspec.Struct, frozen=True):
    """This session is asked for its last answer or a receipt; it answers under `token`."""

    kind: ReadKind
    token: str
    sender: Row
    body: Fields


class ReadReturned(msgspec.Struct, frozen=True):
    """The answer to a read of this session, or `{error}`."""

    kind: ReadKind
    request_id: str
    body: Fields


class WakeWanted(msgspec.Struct, frozen=True):
    """Mail waits for a parked child of this main, which is to wake it and say how that went."""

    token: str
    session_id: str
    message_id: str


class WakeFailed(msgspec.Struct, frozen=True):
    """The child that an ask of this session waits for could not be woken; the ask still waits for it."""

    message_id: str
    detail: str


Output = (
    Registered
    | Listing
    | Delivery
    | Delivered
    | Queued
    | Failed
    | Arrived
    | Changed
    | Departed
    | Controlled
    | ReceiptPassed
    | BusOwner
    | BusMessage
    | BusState
    | BusStateAnswered
    | BusRefused
    | ReadWanted
    | ReadReturned
    | WakeWanted
    | WakeFailed
)


class Put(msgspec.Struct, frozen=True):
    """Keep `body`, which is JSON in UTF-8, under (kind, key); it replaces what is there."""

    kind: RowKind
    key: str
    body: bytes


class Drop(msgspec.Struct, frozen=True):
    """Keep nothing under (kind, key) any more."""

    kind: RowKind
    key: str


class Plan(msgspec.Struct, frozen=True):
    """What one command orders; see rule 3.

    `deadline_ms`: monotonic milliseconds at which `Tick` is due; None while nothing is timed.
    `idle_since_ms`: monotonic; since when there has been neither a session nor held mail, None while there
    is one.
    `refusable`: its number, which grows, where `Unkept` takes it back when there is no room for its rows, and
    nothing of it is said; 0 for any other. Until it is kept or taken back, whom its outputs are for is not
    heard, and of the others only what `Hub.may_be_heard` lets pass: nothing may rest on it.
    """

    rows: tuple[Put | Drop, ...] = ()
    outputs: tuple[tuple[int, Output], ...] = ()
    closes: tuple[int, ...] = ()
    deadline_ms: int | None = None
    idle_since_ms: int | None = None
    refusable: int = 0


class Codec(Protocol):
    """What the hub must ask of the language that it does not know."""

    def frame_bytes(self, features: Features, output: Output) -> int:
        """Return how many bytes the frame that says `output` to such a session has, without header."""

    def dump(self, value: object) -> bytes:
        """Return a JSON value as compact UTF-8."""

    def parse(self, data: bytes) -> Any:
        """Return the JSON value that `dump` wrote."""
