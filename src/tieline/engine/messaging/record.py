"""One record of custody, and the mailbox of one local peer.

Rule 1: a record's durable part changes only while a row is applied; `transit` and what stands beside
    it is knowledge of this process alone and may be forgotten.
Rule 2: a record that needs no more work keeps its digest and its receipt, not its text.

Source: reference/native.md 2.8, 3.3; STYLE.md 3.
"""

import bisect

import msgspec

from tieline.engine.contract import Box, Held, MessageRow, MoveRow, Sent
from tieline.errors import Refusal
from tieline.machine.inbox import HELD_MS, Stage
from tieline.machine.outbox import ENDED, Known
from tieline.model.message import Envelope
from tieline.model.receipt import HELD, Durability, Receipt, State
from tieline.model.traits import Traits, traits_of

__all__ = ["RECORD_BYTES", "Mailbox", "Record", "Transit", "discard", "record_bytes"]

RECORD_BYTES = 1_024
"""What one record costs beside its text: its envelope, its moves, its places in the indexes."""

_STAGES = {
    State.PENDING: Stage.HELD,
    State.REJECTED: Stage.DENIED,
    State.CONSUMED: Stage.CONSUMED,
    State.REPLIED: Stage.REPLIED,
    State.EXPIRED: Stage.EXPIRED,
}
_UNCONSUMED = frozenset({Stage.ACCEPTED, Stage.PREPARED})


def record_bytes(envelope: Envelope) -> int:
    """Return the bytes that a record is charged with."""
    return RECORD_BYTES + envelope.content_bytes + len((envelope.topic or "").encode())


class Transit:
    """The way of one unsettled sent message; milliseconds are monotonic."""

    __slots__ = ("attempt", "failure_count", "is_in_question", "is_lapsed", "may_have_left", "retry_at_ms")

    def __init__(self, *, may_have_left: bool) -> None:
        self.attempt = 0  # of the transmission in flight; 0 = none
        self.failure_count = 0  # in a row
        self.retry_at_ms = 0
        self.may_have_left = may_have_left  # False: not one byte of it was ever written
        self.is_in_question = False  # an earlier attempt may have been taken, though the state is pending
        self.is_lapsed = False  # off its route, never transmitted again: past its expiry, or sent once


class Record:
    """One message in one box."""

    __slots__ = (
        "at_ms",
        "attempt_count",
        "box",
        "cursor",
        "deadline_ms",
        "digest",
        "envelope",
        "expires_ms",
        "exposure_count",
        "from_person",
        "has_content",
        "held_until_ms",
        "is_counted_open",
        "is_overdue",
        "is_told_late",
        "known",
        "last_refusal",
        "prune_due_ms",
        "receipt_cursor",
        "size_bytes",
        "token",
        "told_cursor",
        "traits",
        "transit",
    )

    def __init__(self, row: MessageRow) -> None:
        self.cursor = row.cursor
        self.box = row.box
        self.envelope = row.envelope
        self.digest = row.digest
        self.at_ms = row.at_ms
        self.expires_ms = row.expires_ms
        self.deadline_ms = row.deadline_ms
        self.from_person = row.from_person
        self.size_bytes = record_bytes(row.envelope)
        self.receipt_cursor = row.cursor
        if row.box is Box.OUT:
            self.known = Known()
            self.traits: Traits = traits_of(row.envelope.recipient.instance)
        else:
            self.known = (
                Known(outcome=HELD)
                if row.is_held
                else Known(state=State.ACCEPTED, accepted_ms=row.at_ms, durability=Durability.SYNCED)
            )
            self.traits = traits_of(row.envelope.sender.instance)
        self.is_told_late = row.is_held  # its offer was answered before it was accepted
        self.held_until_ms = row.deadline_ms  # monotonic; set when the row is applied
        self.token: str | None = None
        self.exposure_count = 0
        self.has_content = True
        self.is_counted_open = False
        self.is_overdue = False  # its deadline has passed
        self.prune_due_ms = 0
        self.told_cursor = 0  # inbox: the receipt that its sender has recorded
        self.transit: Transit | None = None
        self.attempt_count = 0
        self.last_refusal: Refusal | None = None

    def take(self, row: MoveRow) -> None:
        """Take over what a move says."""
        self.known = Known(
            state=row.state,
            accepted_ms=row.accepted_ms,
            consumed_ms=row.consumed_ms,
            replied_ms=row.replied_ms,
            outcome=row.outcome,
            durability=row.durability,
            is_retryable=row.is_retryable,
            recipient_cursor=row.recipient_cursor,
        )
        self.token = row.token
        self.exposure_count = row.exposure_count
        if not row.note:
            self.receipt_cursor = row.cursor

    @property
    def stage(self) -> Stage:
        """Where a received message stands."""
        if self.known.state is State.ACCEPTED:
            if self.known.outcome == ENDED:
                return Stage.ENDED
            return Stage.ACCEPTED if self.token is None else Stage.PREPARED
        return _STAGES[self.known.state]

    @property
    def owes_receipt(self) -> bool:
        """Whether the sender of a received message is still to be told where it stands."""
        state = self.known.state
        plain = state is State.ACCEPTED and self.known.outcome is None and not self.is_told_late
        is_answered = plain or state is State.PENDING
        return self.box is Box.IN and not is_answered and self.told_cursor < self.receipt_cursor

    @property
    def is_unsettled(self) -> bool:
        """Whether a sent message still waits for its recipient's word."""
        return self.box is Box.OUT and self.known.state in (State.PENDING, State.UNKNOWN)

    @property
    def is_unread(self) -> bool:
        """Whether a received message has arrived and nobody has consumed it."""
        return self.box is Box.IN and self.known.state is State.ACCEPTED and self.known.outcome is None

    @property
    def is_let_in(self) -> bool:
        """Whether a received message was accepted at any time: what was not, no reader is shown."""
        return self.known.accepted_ms is not None

    @property
    def is_once(self) -> bool:
        """Whether a second transmission of a sent message would be a second message."""
        return self.traits.retry == "never"

    @property
    def due_ms(self) -> int:
        """When its time is over, monotonic: that of the person's word, while it waits for it."""
        if self.is_told_late and self.known.state is State.PENDING:
            return self.held_until_ms
        return self.deadline_ms

    @property
    def is_open(self) -> bool:
        """Whether a change is still to come for which room is kept."""
        state = self.known.state
        if self.box is Box.IN:
            return state is State.PENDING or (state is State.ACCEPTED and self.known.outcome is None)
        if state is State.ACCEPTED:
            return self.known.outcome is None and not self.is_overdue
        # Where nobody can be asked, no change need ever come.
        return self.is_unsettled and (self.traits.has_status or not self.is_overdue)

    @property
    def owner(self) -> str:
        """The peer id of the local mailbox that this record belongs to."""
        peer = self.envelope.recipient if self.box is Box.IN else self.envelope.sender
        return peer.id

    @property
    def route(self) -> tuple[str, str]:
        """The (sender, recipient) pair, as peer ids."""
        return self.envelope.sender.id, self.envelope.recipient.id

    @property
    def receipt(self) -> Receipt:
        """What is stated of this message now."""
        return self.receipt_of(self.known, self.receipt_cursor)

    def receipt_of(self, known: Known, cursor: int) -> Receipt:
        """Return the receipt that states `known`."""
        return Receipt(
            message_id=self.envelope.message_id,
            sender=self.envelope.sender.id,
            recipient=self.envelope.recipient.id,
            state=known.state,
            cursor=cursor,
            accepted_ms=known.accepted_ms,
            consumed_ms=known.consumed_ms,
            replied_ms=known.replied_ms,
            outcome=known.outcome,
            durability=known.durability,
            is_retryable=known.is_retryable,
        )

    def trim(self) -> None:
        """Let the text go when nobody here needs it any more; the journal has it."""
        is_needed = self.is_open
        if self.box is Box.OUT:
            is_needed = self.is_unsettled and not (self.is_once and self.known.state is State.UNKNOWN)
        if self.has_content and not is_needed:
            self.has_content = False
            self.envelope = msgspec.structs.replace(self.envelope, content="", attachments=())

    def held(self) -> Held:
        """Return this received message as a reader sees it."""
        return Held(
            cursor=self.cursor,
            envelope=self.envelope,
            state=self.known.state,
            at_ms=self.at_ms,
            expires_ms=self.at_ms + HELD_MS if self.stage is Stage.HELD else self.expires_ms,
            receipt=self.receipt,
            exposure_count=self.exposure_count,
            is_prepared=self.token is not None,
            has_content=self.has_content,
        )

    def sent(self) -> Sent:
        """Return this sent message as a reader sees it."""
        return Sent(
            cursor=self.cursor,
            envelope=self.envelope,
            receipt=self.receipt,
            expires_ms=self.expires_ms,
            attempt_count=self.attempt_count,
            last_refusal=self.last_refusal,
            has_content=self.has_content,
        )


class Mailbox:
    """Where the records of one local peer are; every list holds cursors in rising order."""

    __slots__ = (
        "arrivals",
        "by_id",
        "by_reply",
        "held",
        "limited",
        "prepared",
        "received",
        "sent",
        "unread",
        "unresolved",
    )

    def __init__(self) -> None:
        self.received: list[int] = []
        self.unread: list[int] = []  # accepted, in no exposure
        self.prepared: list[int] = []
        self.held: list[int] = []  # waits for the person's consent: in none of the other two
        self.limited: dict[str, int] = {}  # unconsumed ones of each wire that has a limit of its own
        self.by_id: dict[str, list[int]] = {}
        self.by_reply: dict[str, list[int]] = {}
        self.sent: list[int] = []
        self.unresolved: list[int] = []  # sent, and still open
        self.arrivals = 0

    @property
    def unconsumed_count(self) -> int:
        """Messages that nobody has consumed yet."""
        return len(self.unread) + len(self.prepared)

    def unconsumed_of(self, traits: Traits) -> int:
        """Unconsumed messages that count against the limit which holds for this wire."""
        if traits.unconsumed_max is not None:
            return self.limited.get(traits.name, 0)
        return self.unconsumed_count - (sum(self.limited.values()) if self.limited else 0)

    def enter(self, record: Record) -> None:
        """A received message came; its cursor is above every other."""
        if record.is_told_late:
            self.held.append(record.cursor)
            return
        self.unread.append(record.cursor)
        traits = record.traits
        if traits.unconsumed_max is not None:
            self.limited[traits.name] = self.limited.get(traits.name, 0) + 1

    def _list(self, stage: Stage | None) -> list[int] | None:
        if stage is Stage.ACCEPTED:
            return self.unread
        if stage is Stage.PREPARED:
            return self.prepared
        return self.held if stage is Stage.HELD else None

    def move(self, record: Record, before: Stage | None, after: Stage | None) -> None:
        """A received message changed its stage; None is that it was not here, or is no more."""
        left, entered = self._list(before), self._list(after)
        if left is not None:
            discard(left, record.cursor)
        if entered is not None:
            bisect.insort(entered, record.cursor)
        traits = record.traits
        if traits.unconsumed_max is not None:
            change_by = (after in _UNCONSUMED) - (before in _UNCONSUMED)
            self.limited[traits.name] = self.limited.get(traits.name, 0) + change_by


def discard(cursors: list[int], cursor: int) -> None:
    """Take `cursor` out of a rising list, if it is there."""
    place = bisect.bisect_left(cursors, cursor)
    if place < len(cursors) and cursors[place] == cursor:
        del cursors[place]
