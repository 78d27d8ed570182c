"""Show what one record says of itself in every stage."""

import pytest

from tests.unit.engine.messaging.kit import WALL_MS, A, B, envelope
from tieline.engine.contract import Box, MessageRow, MoveRow
from tieline.engine.messaging.record import RECORD_BYTES, Mailbox, Record, discard, record_bytes
from tieline.machine.inbox import Stage
from tieline.model.message import digest
from tieline.model.receipt import Durability, State


def record(box: Box = Box.IN, cursor: int = 7) -> Record:
    one = envelope("m", B, A, content="äb", topic="t")
    return Record(MessageRow(cursor, box, one, digest(one), WALL_MS, WALL_MS + 10, 500))


def move(state: State, cursor: int = 9, **fields: object) -> MoveRow:
    return MoveRow(cursor, 7, state, WALL_MS + 1, **fields)  # type: ignore[arg-type]


def test_record_is_charged_utf8_bytes_and_its_overhead() -> None:
    """A record costs its text in UTF-8 bytes and a fixed part."""
    assert record().size_bytes == RECORD_BYTES + 3 + 1
    assert record_bytes(envelope("m", B, A, content="x")) == RECORD_BYTES + 1


def test_received_record_begins_accepted_and_synced() -> None:
    """What we take is accepted, with the time of its admission, on stable storage."""
    receipt = record().receipt
    assert (receipt.state, receipt.accepted_ms, receipt.durability) == (
        State.ACCEPTED,
        WALL_MS,
        Durability.SYNCED,
    )
    assert receipt.cursor == 7


def test_sent_record_begins_pending() -> None:
    """What we send is an intent."""
    one = record(Box.OUT)
    assert one.receipt.state is State.PENDING
    assert one.is_unsettled
    assert one.is_open
    assert one.owner == B.id


@pytest.mark.parametrize(
    ("row", "stage", "is_open", "owes"),
    [
        (move(State.ACCEPTED, token="t", note="prepared"), Stage.PREPARED, True, False),
        (move(State.ACCEPTED, note="released"), Stage.ACCEPTED, True, False),
        (move(State.ACCEPTED, outcome="TARGET_ENDED"), Stage.ENDED, False, True),
        (move(State.CONSUMED), Stage.CONSUMED, False, True),
        (move(State.REPLIED), Stage.REPLIED, False, True),
        (move(State.EXPIRED), Stage.EXPIRED, False, True),
    ],
)
def test_received_record_in_each_stage(row: MoveRow, stage: Stage, is_open: bool, owes: bool) -> None:
    """Each move leads to its stage; what ended keeps no room, and its sender is owed the receipt."""
    one = record()
    one.take(row)
    assert (one.stage, one.is_open, one.owes_receipt) == (stage, is_open, owes)
    one.told_cursor = one.receipt_cursor
    assert not one.owes_receipt


def test_receipt_cursor_does_not_follow_an_exposure() -> None:
    """Preparing and releasing are no receipts: the receipt keeps its cursor."""
    one = record()
    one.take(move(State.ACCEPTED, token="t", note="prepared"))
    assert one.receipt.cursor == 7
    one.take(move(State.CONSUMED, cursor=12))
    assert one.receipt.cursor == 12


def test_sent_record_is_open_until_it_is_settled_or_overdue() -> None:
    """Room is kept for a sent message until its end is known, or was due."""
    one = record(Box.OUT)
    one.take(move(State.ACCEPTED, durability=Durability.SYNCED))
    assert one.is_open
    one.is_overdue = True
    assert not one.is_open
    one = record(Box.OUT)
    one.take(move(State.CONSUMED))
    assert not one.is_open


def test_dropped_content_leaves_the_envelope_and_says_so() -> None:
    """A finished record has no text, and its readers are told that the journal has it."""
    one = record()
    one.trim()
    assert one.held().has_content
    one.take(move(State.CONSUMED))
    one.trim()
    one.trim()
    assert (one.envelope.content, one.envelope.topic) == ("", "t")
    assert not one.held().has_content
    assert not one.sent().has_content


def test_mailbox_counts_what_nobody_consumed() -> None:
    """Unread and prepared mail is unconsumed."""
    box = Mailbox()
    box.unread, box.prepared = [1, 3], [2]
    assert box.unconsumed_count == 3


def test_discard_takes_out_exactly_that_cursor() -> None:
    """Taking out what is not there changes nothing."""
    cursors = [1, 3, 5]
    discard(cursors, 4)
    discard(cursors, 9)
    discard(cursors, 3)
    assert cursors == [1, 5]
