"""Show how mail reaches a model: prepared once, consumed on evidence, given back without it."""

import pytest

from tests.unit.engine.messaging.kit import FREE, A, B, Bench, C, sends_of
from tieline.config import PREPARED_MS
from tieline.engine.contract import (
    BeginRun,
    ContextRow,
    EndRun,
    MoveRow,
    Outcome,
    PushReceipt,
    Taken,
    Untaken,
)
from tieline.engine.conversation import context_record
from tieline.engine.messaging.exposure import LAPSED_MAX
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.message import Delivery
from tieline.model.receipt import State

RUN = Peer("a", "run")


def filled(count: int = 3) -> Bench:
    bench = Bench()
    for number in range(count):
        bench.offer(f"m{number}", content="x" * 10)
    return bench


def names(held: object) -> list[str]:
    assert isinstance(held, tuple)
    return [one.envelope.message_id for one in held]


@pytest.mark.clause("native-103", "I9")
def test_expose_prepares_the_oldest_and_consumes_nothing() -> None:
    """What is shown is marked, not consumed, and no receipt moves."""
    bench = filled()
    before = [one.receipt for one in bench.engine.held(A, count_max=9)]
    held = bench.expose(count_max=2)
    assert names(held) == ["m0", "m1"]
    assert all(one.is_prepared and one.exposure_count == 1 for one in held)
    rows = bench.groups[-1]
    assert [(row.note, row.token) for row in rows if isinstance(row, MoveRow)] == [("prepared", "t1")] * 2
    assert [one.receipt for one in bench.engine.held(A, count_max=9)] == before
    assert bench.engine.inbox_counts(A)[:2] == (3, 2)


def test_expose_writes_no_event() -> None:
    """An exposure is nobody else's business."""
    bench = filled(1)
    before = bench.engine.page(A, 0, 99)
    bench.expose()
    after = bench.engine.page(A, 0, 99)
    assert not isinstance(before, Refusal)
    assert not isinstance(after, Refusal)
    assert after.events == before.events


def test_expose_keeps_to_its_bounds_and_always_shows_the_first() -> None:
    """The first message fits whatever its size; the next only within the bytes."""
    assert names(filled().expose(bytes_max=1)) == ["m0"]
    assert names(filled().expose(bytes_max=20)) == ["m0", "m1"]
    assert names(filled().expose(count_max=0)) == []


@pytest.mark.clause("I9")
def test_expose_leaves_out_what_another_token_holds() -> None:
    """Two readers never get the same message."""
    bench = filled()
    bench.expose("t1", count_max=1)
    assert names(bench.expose("t2")) == ["m1", "m2"]
    assert names(bench.expose("t3")) == []


def test_expose_of_a_message_that_another_token_holds_is_busy() -> None:
    """Who asks for exactly that message is told that another reader has it."""
    bench = filled()
    bench.expose("t1", count_max=1)
    first, second, third = (item.cursor for item in bench.engine.held(A, count_max=3))
    for cursors in ((first,), (second, first)):
        answer = bench.expose("t2", cursors=cursors)
        assert isinstance(answer, Refusal)
        assert answer.code == "RESOURCE_BUSY"
    assert bench.engine.inbox_counts(A).prepared == 1
    assert names(bench.expose("t2", cursors=(third, second, second))) == ["m1", "m2"]


def test_expose_under_a_token_in_use_is_busy() -> None:
    """A token names one exposure."""
    bench = filled()
    bench.expose("t1", count_max=1)
    answer = bench.expose("t1")
    assert isinstance(answer, Refusal)
    assert answer.code == "RESOURCE_BUSY"


def test_expose_chooses_by_delivery() -> None:
    """A busy turn gets what steers; without the passive ones, those wait."""
    bench = Bench()
    for delivery in (Delivery.QUEUE, Delivery.PASSIVE, Delivery.STEER):
        bench.offer(str(delivery), delivery=delivery)
    assert names(bench.expose("t1", only_steer=True)) == ["steer"]
    assert names(bench.expose("t2", with_passive=False)) == ["queue"]
    assert names(bench.expose("t3")) == ["passive"]


@pytest.mark.clause("I6", "mutant-22")
def test_expose_is_of_the_owners_mailbox_alone() -> None:
    """A run reads its own mail, and a peer that has none reads nothing."""
    bench = filled(1)
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("run-mail", recipient=RUN)
    assert names(bench.expose("t1", RUN)) == ["run-mail"]
    assert names(bench.expose("t2", Peer("a", "runner"))) == []
    (roots,) = bench.engine.held(A, count_max=9)
    assert names(bench.expose("t3", RUN, cursors=(roots.cursor, 99))) == []


def test_expose_leaves_out_what_has_expired() -> None:
    """Mail past its deadline is not shown, whether or not the clock was told already."""
    bench = filled(1)
    bench.pass_ms(600_000)
    assert names(bench.expose()) == []


@pytest.mark.clause("native-104", "native-105", "native-106", "I9", "I16", "mutant-23")
def test_taken_records_the_context_before_it_consumes() -> None:
    """Context journal, then the consumed move, in one plan; then the sender is told."""
    bench = filled(2)
    held = bench.expose()
    plan = bench.do(Taken("t1"))
    assert plan.answer == 2
    assert [type(row) for row in plan.rows] == [ContextRow, MoveRow, ContextRow, MoveRow]
    context, moved = plan.rows[:2]
    assert isinstance(context, ContextRow)
    assert isinstance(moved, MoveRow)
    assert (context.message, context.token) == (moved.message, "t1")
    assert context.record == context_record(held[0].envelope)
    assert (moved.state, moved.consumed_ms) == (State.CONSUMED, bench.wall_ms)
    assert plan.is_urgent
    assert [one.receipt.state for one in sends_of(plan, PushReceipt)] == [State.CONSUMED] * 2
    assert bench.engine.inbox_counts(A) == (0, 0, None)


def test_taken_twice_or_for_no_token_consumes_nothing() -> None:
    """Evidence counts once."""
    bench = filled(1)
    bench.consume()
    for token in ("t1", "never"):
        plan = bench.do(Taken(token))
        assert (plan.answer, plan.rows) == (0, ())


@pytest.mark.clause("O01", "I16", "mutant-23")
def test_untaken_mail_stays_accepted_and_is_shown_again() -> None:
    """A failed exposure loses nothing: same message, same sequence, counted as shown again."""
    bench = filled(2)
    first = bench.expose()
    plan = bench.do(Untaken("t1"))
    assert plan.answer == 2
    assert [row.note for row in plan.rows if isinstance(row, MoveRow)] == ["released"] * 2
    assert bench.do(Taken("t1")).answer == 0
    assert bench.do(Untaken("t1")).answer == 0
    again = bench.expose("t2")
    assert [one.cursor for one in again] == [one.cursor for one in first]
    assert [one.exposure_count for one in again] == [2, 2]
    assert bench.engine.counters["re_exposed"] == 2


@pytest.mark.clause("I51", "O01")
def test_token_without_evidence_is_given_back_in_time() -> None:
    """The next rung may show the mail again after the bound, and not before."""
    bench = filled(1)
    bench.expose()
    bench.tick(PREPARED_MS - 1)
    assert names(bench.expose("t2")) == []
    assert bench.engine.deadline_ms == bench.mono_ms + 1
    bench.tick(1)
    assert bench.engine.counters["released"] == 1
    assert names(bench.expose("t3")) == ["m0"]


@pytest.mark.clause("I16")
def test_evidence_after_its_time_still_counts() -> None:
    """What the model has read is not shown to it again, because the word of it came late."""
    bench = filled(1)
    bench.expose()
    bench.tick(PREPARED_MS)
    plan = bench.do(Taken("t1"))
    assert plan.answer == 1
    assert [type(row) for row in plan.rows] == [MoveRow, ContextRow, MoveRow]
    assert bench.do(Taken("t1")).answer == 0
    assert names(bench.expose("t2")) == []


@pytest.mark.clause("I9", "I16")
@pytest.mark.parametrize("is_taken", [True, False])
def test_late_evidence_of_mail_that_another_shows_counts_when_that_one_ends(is_taken: bool) -> None:
    """It is consumed once, whether or not the other exposure reaches the model."""
    bench = filled(2)
    bench.expose(count_max=1)
    assert bench.do(Untaken("t1", may_come=True)).answer == 1
    assert bench.do(Untaken("t1", may_come=True)).answer == 0
    bench.expose("t2")
    assert bench.do(Taken("t1")).answer == 0
    assert bench.engine.inbox_counts(A).prepared == 2
    plan = bench.do(Taken("t2") if is_taken else Untaken("t2"))
    assert plan.answer == (2 if is_taken else 1)
    assert names(bench.expose("t3")) == ([] if is_taken else ["m1"])
    moved = [row.message for row in bench.rows if isinstance(row, MoveRow) and row.state is State.CONSUMED]
    assert len(moved) == len(set(moved)) == (2 if is_taken else 1)


def test_late_evidence_of_what_was_consumed_meanwhile_moves_nothing() -> None:
    """The other way was faster."""
    bench = filled(1)
    bench.expose()
    bench.do(Untaken("t1", may_come=True))
    bench.consume("t2")
    assert (bench.do(Taken("t1")).answer, bench.groups[-1]) == (0, ())


def test_late_evidence_is_waited_for_within_a_bound() -> None:
    """Of the oldest token nothing is known any more; nor after a recovery, nor of a run that ended."""
    bench = filled(1)
    for number in range(LAPSED_MAX + 1):
        bench.expose(f"t{number}")
        bench.do(Untaken(f"t{number}", may_come=True))
    assert bench.do(Taken("t0")).answer == 0
    bench.engine.restore(bench.rows, bench.now)
    assert bench.do(Taken(f"t{LAPSED_MAX}")).answer == 0
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("run-mail", recipient=RUN)
    bench.expose("r1", RUN)
    bench.do(Untaken("r1", may_come=True))
    bench.expose("r2", RUN)
    bench.do(Taken("r1"))
    bench.do(EndRun("run"))
    assert [bench.do(Taken(token)).answer for token in ("r1", "r2")] == [0, 0]


@pytest.mark.clause("native-88")
def test_prepared_mail_does_not_expire_until_it_comes_back() -> None:
    """What a model may be reading is not expired under it; given back late, it is."""
    bench = Bench()
    bench.offer("m1", expires_ms=bench.wall_ms + 50)
    bench.expose()
    bench.tick(60)
    assert bench.engine.inbox_counts(A).prepared == 1
    bench.do(Untaken("t1"))
    assert bench.engine.deadline_ms is not None
    assert bench.engine.deadline_ms <= bench.mono_ms
    plan = bench.tick()
    (found,) = bench.engine.held(A, unread_only=False, count_max=1)
    assert (found.state, found.receipt.accepted_ms is not None) == (State.EXPIRED, True)
    assert len(sends_of(plan, PushReceipt)) == 1


def test_taken_after_the_deadline_still_consumes() -> None:
    """Evidence of what was shown in time counts."""
    bench = Bench()
    bench.offer("m1", expires_ms=bench.wall_ms + 50)
    bench.expose()
    bench.tick(60)
    assert bench.do(Taken("t1")).answer == 1


def test_consumed_mail_is_read_again_by_id_and_never_consumed_again() -> None:
    """A reader that needs it for a reply gets it, and nothing moves."""
    bench = filled(1)
    bench.consume()
    (found,) = bench.engine.held(A, message_id="m0", unread_only=False, count_max=9)
    assert (found.state, found.has_content) == (State.CONSUMED, False)
    assert names(bench.expose("t2", cursors=(found.cursor,))) == []
    assert len([row for row in bench.rows if isinstance(row, ContextRow)]) == 1


def test_taken_of_mail_that_was_answered_meanwhile_moves_nothing() -> None:
    """A reply from a preview ends the message; the evidence comes too late to move it."""
    bench = filled(1)
    bench.expose()
    bench.submit("r", reply_to="m0")
    accepted_reply = bench.engine.sent("r", None)[0]
    receipt = accepted_reply.receipt
    bench.settle(
        1,
        type(receipt)(
            message_id="r", sender=A.id, recipient=B.id, state=State.ACCEPTED, cursor=5, accepted_ms=1
        ),
    )
    assert bench.engine.inbox_counts(A) == (0, 0, None)
    plan = bench.do(Taken("t1"))
    assert (plan.answer, plan.rows) == (0, ())


def test_exposures_of_several_senders_keep_the_order_of_arrival() -> None:
    """One mailbox has one order."""
    bench = Bench()
    for number, sender in enumerate((C, B, C)):
        bench.offer(f"m{number}", sender)
    bench.expose("t1", count_max=1)
    bench.do(Untaken("t1"))
    assert names(bench.expose("t2")) == ["m0", "m1", "m2"]


def test_failed_push_of_the_receipt_does_not_unconsume() -> None:
    """Consumption is ours to state; whether the sender heard it is another matter."""
    bench = filled(1)
    bench.expose()
    (push,) = sends_of(bench.do(Taken("t1")), PushReceipt)
    bench.settle(push.attempt, Outcome.LOST)
    assert bench.engine.held(A, message_id="m0", unread_only=False, count_max=1)[0].state is State.CONSUMED
