"""Show what time does: expiry, retention, and that nothing unresolved is ever forgotten."""

import pytest

from tests.unit.engine.messaging.kit import A, B, Bench, accepted, sends_of, transmitted
from tieline.config import PRUNE_MS, Limits
from tieline.engine.contract import (
    ContextRow,
    DirectoryTold,
    MoveRow,
    Outcome,
    Page,
    PruneRow,
    PushReceipt,
    UserPrompt,
)
from tieline.engine.messaging.housekeeping import PRUNED_MAX, TIMERS_MAX
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.receipt import State

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def page(bench: Bench, after: int = 0) -> Page:
    found = bench.engine.page(A, after, 100_000)
    assert isinstance(found, Page)
    return found


def prunes(bench: Bench) -> list[PruneRow]:
    return [row for row in bench.rows if isinstance(row, PruneRow)]


@pytest.mark.clause("native-162")
def test_accepted_mail_past_its_deadline_expires_and_its_sender_is_told() -> None:
    """Expired keeps the time of acceptance, makes room, and owes a receipt."""
    bench = Bench()
    bench.offer()
    assert bench.engine.deadline_ms == bench.mono_ms + 600_000
    assert bench.tick(599_999).rows == ()
    plan = bench.tick(1)
    (row,) = plan.rows
    assert isinstance(row, MoveRow)
    assert (row.state, row.accepted_ms is not None) == (State.EXPIRED, True)
    (push,) = sends_of(plan, PushReceipt)
    assert push.receipt.state is State.EXPIRED
    assert plan.is_urgent
    assert bench.engine.worst_case_bytes == 0


@pytest.mark.clause("K9")
@pytest.mark.parametrize("jump_ms", [-10 * 365 * DAY_MS, 10 * 365 * DAY_MS])
def test_expiry_does_not_follow_the_wall_clock(jump_ms: int) -> None:
    """The wall clock may jump; the deadline does not."""
    bench = Bench()
    bench.offer()
    bench.submit()
    bench.wall_ms += jump_ms
    bench.mono_ms += 599_999
    assert bench.tick().rows == ()
    assert bench.engine.inbox_counts(A).unread == 1
    bench.mono_ms += 1
    bench.tick()
    assert bench.engine.inbox_counts(A).unread == 0


def test_tick_handles_a_bounded_number_of_timers() -> None:
    """A crowd of expiries is spread over turns, each due at once."""
    bench = Bench(limits=Limits(inbox_messages=1_000, rate_burst=1_000, storage_bytes=1 << 30))
    for number in range(TIMERS_MAX + 5):
        bench.offer(f"m{number}")
    assert len(bench.tick(600_000).rows) == TIMERS_MAX
    assert bench.engine.deadline_ms is not None
    assert bench.engine.deadline_ms <= bench.mono_ms
    assert len([row for row in bench.tick().rows if isinstance(row, MoveRow)]) == 5


@pytest.mark.clause("native-164", "I23", "native-3.6.1")
def test_finished_record_is_kept_for_its_retention_after_the_longest_life() -> None:
    """Questions and repeats are answered for a day after nobody can send it any more."""
    bench = Bench()
    bench.offer()
    bench.consume()
    kept_ms = 600_000 + HOUR_MS + DAY_MS
    bench.tick(kept_ms - 1)
    assert len(bench.engine.held(A, unread_only=False, count_max=9)) == 1
    bench.tick(PRUNE_MS)
    assert bench.engine.held(A, unread_only=False, count_max=9) == ()
    assert bench.engine.storage_bytes == 0
    assert prunes(bench)[-1].messages == (1,)


@pytest.mark.clause("native-170", "I7", "O43")
def test_unresolved_record_is_never_forgotten() -> None:
    """What nobody answered for stays, however old it is."""
    bench = Bench()
    attempt = transmitted(bench.submit(expiry_ms=1_000))[0].attempt
    bench.settle(attempt, Outcome.LOST)
    for _ in range(20):
        bench.tick(DAY_MS)
    assert bench.state() is State.UNKNOWN
    assert bench.engine.worst_case_bytes == 2_048


def test_message_that_tried_again_and_is_in_doubt_is_not_forgotten() -> None:
    """Its first end was due to be forgotten; its doubt is not."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, Refusal("QUEUE_FULL", "full"))
    bench.settle(transmitted(bench.submit())[0].attempt, Outcome.LOST)
    for _ in range(4):
        bench.tick(DAY_MS)
    assert bench.state() is State.UNKNOWN


def test_questions_are_forgotten_with_their_records() -> None:
    """What was asked leaves no trace when its record goes."""
    bench = Bench()
    bench.offer("q1", is_ask=True)
    bench.offer("q2", is_ask=True)
    assert bench.engine._custody.asks
    bench.tick(600_000)
    bench.tick(2 * DAY_MS)
    assert bench.engine._custody.asks == {}


def test_record_that_moved_late_is_kept_for_a_retention_from_then() -> None:
    """A reply to an old message keeps it in memory."""
    limits = Limits(retention_ms=60_000, max_expiry_ms=1_000_000, expiry_ms=500_000)
    bench = Bench(limits=limits)
    bench.offer("q", B, expires_ms=bench.wall_ms + 1_000)
    bench.consume()
    attempt = transmitted(bench.submit("r", reply_to="q", expiry_ms=1_000_000))[0].attempt
    bench.pass_ms(1_040_000)
    bench.settle(attempt, accepted("r"))
    bench.tick(30_000)
    (found,) = bench.engine.held(A, message_id="q", unread_only=False, count_max=1)
    assert found.state is State.REPLIED
    assert page(bench).events[-1].state is State.REPLIED
    for _ in range(3):
        bench.tick(PRUNE_MS)
    assert bench.engine.held(A, message_id="q", unread_only=False, count_max=1) == ()


def test_sent_message_accepted_and_never_read_is_forgotten_in_the_end() -> None:
    """Once its life is over, an accepted message is its recipient's to account for."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, accepted())
    bench.tick(600_000)
    assert bench.engine.worst_case_bytes == 0
    bench.tick(HOUR_MS + DAY_MS + PRUNE_MS)
    assert bench.engine.sent("m1", None) == ()


@pytest.mark.clause("native-3.6.1", "I12")
def test_events_past_their_count_are_forgotten_and_the_gap_is_told() -> None:
    """History is bounded by itself; a reader from before sees the gap; records stay."""
    limits = Limits(events_kept=100, inbox_messages=1_000, rate_burst=1_000, storage_bytes=1 << 30)
    bench = Bench(limits=limits)
    for number in range(126):
        bench.offer(f"m{number}")
    assert bench.engine.deadline_ms == bench.mono_ms
    bench.tick()
    found = page(bench)
    assert len(found.events) == 100
    assert found.has_gap
    assert found.oldest_cursor == found.events[0].cursor == 27
    assert not page(bench, 26).has_gap
    assert len(bench.engine.held(A, count_max=999)) == 126
    assert prunes(bench)[-1] == PruneRow((), 26, 27)


def test_events_older_than_the_retention_are_forgotten() -> None:
    """Old history goes also where it is short."""
    bench = Bench()
    bench.offer()
    bench.tick(600_000)
    bench.tick(DAY_MS + PRUNE_MS)
    assert page(bench).events == ()
    assert len(bench.engine.held(A, unread_only=False, count_max=9)) == 1


def test_pruning_is_bounded_per_turn() -> None:
    """A great many old records leave in several turns, each due at once."""
    limits = Limits(inbox_messages=9_999, rate_burst=9_999, storage_bytes=1 << 30)
    bench = Bench(limits=limits)
    for number in range(PRUNED_MAX + 3):
        bench.offer(f"m{number}")
    for _ in range(10):
        bench.tick(600_000)
    bench.tick(2 * DAY_MS)
    assert len(prunes(bench)[-1].messages) == PRUNED_MAX
    assert bench.engine.deadline_ms == bench.mono_ms
    bench.tick()
    assert bench.engine.storage_bytes == 0
    assert page(bench).latest_cursor > PRUNED_MAX


def test_pruning_with_nothing_to_prune_writes_nothing_and_waits_for_nothing() -> None:
    """An idle root is not woken every ten minutes to find nothing."""
    bench = Bench()
    bench.offer()
    bench.consume()
    bench.tick(PRUNE_MS)
    due_ms = bench.engine.deadline_ms
    assert due_ms is not None
    assert due_ms - bench.mono_ms > DAY_MS // 2
    assert prunes(bench) == []


def test_pruning_sweeps_what_stands_beside_the_records() -> None:
    """Full buckets, old proofs and empty windows are forgotten."""
    bench = Bench()
    bench.offer("m1", B)
    plan = bench.offered("m2", Peer("b", "r"))
    bench.do(DirectoryTold(plan.sends[0].attempt, frozenset({"r"})))  # type: ignore[union-attr]
    bench.do(UserPrompt(A))
    custody = bench.engine._custody
    assert custody.buckets
    assert custody.verified
    bench.tick(600_000)
    bench.tick(2 * DAY_MS)
    assert not custody.buckets
    assert not custody.verified


@pytest.mark.clause("native-105", "I9")
def test_context_journal_without_its_consumed_move_is_reconciled() -> None:
    """What the context is proven to hold is consumed, and not shown again."""
    bench = Bench()
    bench.offer("m1")
    bench.offer("m2")
    bench.consume(count_max=1)
    rows = bench.rows
    assert isinstance(rows[-2], ContextRow)
    for kept in (rows[:-1], [row for row in rows[:-1] if getattr(row, "note", "") != "prepared"]):
        engine = bench.restored(kept)
        due_ms = engine.deadline_ms
        assert due_ms is not None
        assert due_ms <= bench.mono_ms
        other = Bench()
        other.engine = engine
        assert [one.envelope.message_id for one in other.expose("t9")] == ["m2"]
        other.tick()
        (found,) = engine.held(A, message_id="m1", unread_only=False, count_max=1)
        assert found.state is State.CONSUMED
