"""Show what a plan waits for, and that a row takes effect where it is written."""

from tests.unit.engine.messaging.kit import EVERY, WALL_MS, A, B, envelope
from tieline.config import Limits
from tieline.engine.contract import Answer, Asked, Box, MessageRow, MoveRow, Recorded
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.turn import OWN_LINK, Turn
from tieline.errors import Refusal
from tieline.machine.inbox import Step
from tieline.machine.outbox import Known
from tieline.model.message import digest
from tieline.model.moment import Moment
from tieline.model.receipt import State

NOW = Moment(WALL_MS, 1_000)


def turn() -> Turn:
    return Turn(Custody("a", Limits(), "notify", "", ""), NOW)


def message(one: Turn, box: Box) -> MessageRow:
    sender, recipient = (B, A) if box is Box.IN else (A, B)
    text = envelope("m", sender, recipient)
    return MessageRow(one.next_cursor(), box, text, digest(text), WALL_MS, WALL_MS + 10, 1_010)


def test_row_takes_effect_and_its_event_is_told() -> None:
    """What follows in the same turn sees the record."""
    one = turn()
    row = message(one, Box.IN)
    one.write(row)
    assert one.custody.records[row.cursor].known.state is State.ACCEPTED
    assert one.next_cursor() == row.cursor + 1
    plan = one.plan()
    assert plan.rows == (row,)
    assert [event.cursor for event in plan.events] == [row.cursor]
    assert plan.is_urgent


def test_move_of_a_sent_message_alone_is_not_urgent() -> None:
    """What we learn of our own message can be learnt again."""
    one = turn()
    row = message(one, Box.OUT)
    one.write(row, is_urgent=False)
    one.move_sent(one.custody.records[row.cursor], Known(state=State.UNKNOWN))
    assert not one.plan().is_urgent
    assert isinstance(one.rows[-1], MoveRow)


def test_move_that_changes_nothing_writes_nothing() -> None:
    """A step that is late has no row."""
    one = turn()
    row = message(one, Box.IN)
    one.write(row)
    record = one.custody.records[row.cursor]
    assert not one.move_received(record, Step.CONSUME)
    assert one.move_received(record, Step.PREPARE, token="t")
    assert one.move_received(record, Step.CONSUME)
    assert len(one.rows) == 3


def test_answer_to_a_link_is_sent_and_to_this_root_is_kept() -> None:
    """What this root asks of itself does not reach a link."""
    one = turn()
    one.tell_peer(Asked(3, "x"), Recorded())
    one.tell_peer(Asked(OWN_LINK, 5), Refusal("QUEUE_FULL", "full"))
    assert one.sends == [Answer(Asked(3, "x"), Recorded())]
    assert one.own_answers == {5: Refusal("QUEUE_FULL", "full")}
    assert one.custody.counters == {"refused_QUEUE_FULL": 1}


def test_refusal_is_the_answer_and_counted() -> None:
    """A local no is counted by its code."""
    one = turn()
    one.refuse(Refusal("SCOPE_DENIED", "no"))
    assert one.plan().answer == Refusal("SCOPE_DENIED", "no")
    assert one.custody.counters == {"refused_SCOPE_DENIED": 1}


def test_answer_record_is_answered_as_it_stands_at_the_end() -> None:
    """The receipt is that of the end of the turn."""
    one = turn()
    row = message(one, Box.OUT)
    one.write(row)
    one.answer_record = one.custody.records[row.cursor]
    one.move_sent(one.answer_record, Known(state=State.ACCEPTED))
    answer = one.plan().answer
    assert answer == one.answer_record.receipt
    assert one.answer_record.known.state is State.ACCEPTED


def test_standing_of_the_root_is_every_capability() -> None:
    """The root may do all that its runs may be given."""
    assert turn().custody.standing_of(A).capabilities == EVERY
