"""Show that stored rows rebuild what was decided, at every prefix, and that work goes on."""

import random

import msgspec
import pytest

from tests.unit.engine.messaging.kit import (
    FREE,
    A,
    B,
    Bench,
    C,
    accepted,
    receipt,
    seen,
    sends_of,
    transmitted,
)
from tieline.config import PREPARED_MS, Limits
from tieline.engine.contract import (
    Act,
    Answer,
    AskDirectory,
    Asked,
    BeginRun,
    Command,
    DirectoryTold,
    EndRun,
    MessageRow,
    Mute,
    Outcome,
    Page,
    Plan,
    PruneRow,
    PushReceipt,
    ReceiptTold,
    Row,
    Settle,
    Taken,
    Untaken,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer, foreign_instance
from tieline.model.receipt import Receipt, State

RUN = Peer("a", "run")


class Watched(Bench):
    """An engine whose every state is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.views = [seen(self.engine, (A, RUN))]

    def do(self, command: Command) -> Plan:
        plan = super().do(command)
        self.views.append(seen(self.engine, (A, RUN)))
        return plan


def eventful() -> Watched:
    """Return an engine that has been through everything."""
    bench = Watched()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.do(Mute("peer-x", is_muted=True))
    for number in range(4):
        bench.offer(f"in{number}", B, correlation_id="c", automatic_depth=number % 2)
    bench.offer("to-run", C, recipient=RUN)
    bench.consume("t1", count_max=1)
    bench.expose("t2", count_max=1)
    bench.expose("t3", count_max=1)
    bench.do(Untaken("t3"))
    for number in range(3):
        bench.submit(f"out{number}")
    bench.settle(transmitted(bench.submit("x", C))[0].attempt, Outcome.LOST)
    bench.settle(transmitted(bench.submit("full", Peer("d")))[0].attempt, Refusal("QUEUE_FULL", "x"))
    bench.submit("full", Peer("d"))
    bench.settle(transmitted(bench.submit("yes", Peer("e")))[0].attempt, accepted("yes", Peer("e")))
    told = receipt("yes", State.CONSUMED, recipient=Peer("e"), cursor=5, consumed_ms=3)
    bench.do(ReceiptTold(Asked(1, 1), "e", told))
    bench.do(EndRun("run"))
    bench.tick(1_000)
    return bench


@pytest.mark.clause("I50", "I21", "I11")
def test_restored_engine_is_the_one_that_wrote_the_rows() -> None:
    """Records, receipts, events, counts and runs are equal."""
    bench = eventful()
    fresh = bench.restored()
    owners = (A, RUN)
    assert seen(fresh, owners) == seen(bench.engine, owners)
    assert fresh.latest_cursor == bench.engine.latest_cursor
    assert fresh.is_muted("peer-x")
    assert seen(bench.restored(bench.rows), owners) == seen(fresh, owners)


def test_restore_does_not_depend_on_the_order_of_loading() -> None:
    """Rows may come table by table, or in any order."""
    bench = eventful()
    rows = bench.rows
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(type(row).__name__, []).append(row)
    by_table = [row for kind in sorted(kinds) for row in kinds[kind]]
    assert seen(bench.restored(by_table), (A, RUN)) == seen(bench.engine, (A, RUN))
    shuffled = [row for row in rows if type(row).__name__ not in ("RunRow", "MuteRow")]
    random.Random(7).shuffle(shuffled)
    others = [row for row in rows if type(row).__name__ in ("RunRow", "MuteRow")]
    assert seen(bench.restored(shuffled + others), (A, RUN)) == seen(bench.engine, (A, RUN))


@pytest.mark.clause("I50", "I12", "K1")
def test_restore_at_every_prefix_is_what_was_seen_then() -> None:
    """After each group, the rows so far rebuild the engine of that moment."""
    reference = eventful()
    for length, view in enumerate(reference.views):
        rows = [row for group in reference.groups[:length] for row in group]
        assert seen(reference.restored(rows), (A, RUN)) == view


def test_restored_message_that_tried_again_after_a_refusal_has_its_text() -> None:
    """A refused message that goes again is transmitted whole, also after a restore."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, Refusal("QUEUE_FULL", "full"))
    bench.submit()
    bench.engine = bench.restored()
    (sent,) = transmitted(bench.tick())
    assert sent.envelope.content == "text of m1"


@pytest.mark.clause("I12")
def test_restore_after_a_prune_keeps_the_gap_and_the_counter() -> None:
    """What was pruned stays pruned, and no cursor is given twice."""
    bench = Bench(limits=Limits(retention_ms=60_000))
    bench.offer()
    bench.consume()
    bench.tick(600_000)
    bench.tick(4_000_000)
    latest = bench.engine.latest_cursor
    prune = next(row for row in bench.rows if isinstance(row, PruneRow))
    for rows in (bench.rows, [PruneRow((), prune.moves_through, prune.oldest_cursor)]):
        fresh = bench.restored(rows)
        page = fresh.page(A, 0, 99)
        assert isinstance(page, Page)
        assert (page.events, page.has_gap) == ((), True)
        assert fresh.latest_cursor == latest


@pytest.mark.clause("I21", "I22", "I23", "mutant-6")
def test_restored_record_is_still_the_same_message_to_a_repeat() -> None:
    """The memory of ids is in the rows: a repeat after a restore is answered, not stored."""
    bench = Bench()
    first = bench.offer("m1")
    bench.submit("s1")
    bench.engine = bench.restored()
    assert bench.offered("m1", B).rows == ()
    assert bench.offer("m1") == first
    assert code_of(bench.offer("m1", content="other")) == "MESSAGE_ID_CONFLICT"
    assert bench.submit("s1").rows == ()


def code_of(body: object) -> str | None:
    return body.code if isinstance(body, Refusal) else None


@pytest.mark.clause("I3", "K1")
def test_restored_pending_head_is_transmitted_again_and_may_have_left() -> None:
    """An attempt may have been under way, so proof of death alone does not end it."""
    bench = Bench()
    bench.submit()
    bench.engine = bench.restored()
    assert bench.engine.deadline_ms == bench.mono_ms
    (sent,) = transmitted(bench.tick())
    assert sent.envelope.content == "text of m1"
    bench.settle(sent.attempt, Outcome.UNREACHED, is_gone=True)
    assert bench.state() is State.PENDING


def test_restored_receipts_are_owed_again_unless_they_were_confirmed() -> None:
    """A new process tells again; the same process remembers what was confirmed."""
    bench = Bench()
    for name in ("m1", "m2"):
        bench.offer(name)
    bench.expose()
    first, _second = sends_of(bench.do(Taken("t1")), PushReceipt)
    bench.do(Settle(first.attempt, Outcome.ANSWERED))
    fresh = bench.restored()
    bench.engine.restore(bench.rows, bench.now)
    told = [one.receipt.message_id for one in sends_of(bench.tick(), PushReceipt)]
    assert told == ["m2"]
    bench.engine = fresh
    assert [one.receipt.message_id for one in sends_of(bench.tick(), PushReceipt)] == ["m1", "m2"]


def test_restored_exposure_keeps_its_token_and_its_time() -> None:
    """Evidence that comes after a restore counts; without it the mail comes back."""
    bench = Bench()
    bench.offer()
    bench.expose()
    fresh = bench.restored()
    bench.engine.restore(bench.rows, bench.now)
    assert bench.do(Taken("t1")).answer == 1
    bench.engine = fresh
    bench.tick(PREPARED_MS)
    assert bench.engine.inbox_counts(A).prepared == 0


def test_attempts_from_before_a_restore_are_understood_and_never_counted_twice() -> None:
    """Their numbers are not given again; their ends are taken where they are still news."""
    bench = Bench()
    old = transmitted(bench.submit())[0]
    bench.engine.restore(bench.rows, bench.now)
    (again,) = transmitted(bench.tick())
    assert again.attempt > old.attempt
    bench.settle(old.attempt, Refusal("QUEUE_FULL", "stale"))
    assert bench.state() is State.PENDING
    bench.engine.restore(bench.rows, bench.now)
    bench.settle(again.attempt, accepted())
    assert bench.state() is State.ACCEPTED
    bench.settle(old.attempt, Outcome.LOST)
    assert bench.engine.counters["settles_ignored"] == 1


def test_receipt_confirmed_before_a_restore_is_understood() -> None:
    """A confirmation that arrives after the restore spares the repeat."""
    bench = Bench()
    bench.offer()
    bench.expose()
    (push,) = sends_of(bench.do(Taken("t1")), PushReceipt)
    bench.engine.restore(bench.rows, bench.now)
    bench.do(Settle(push.attempt, Outcome.ANSWERED))
    assert sends_of(bench.tick(), PushReceipt) == []


def test_offers_that_wait_for_their_run_are_asked_for_again() -> None:
    """A question may have been lost with its group; the offer is answered all the same."""
    bench = Bench()
    plan = bench.offered("m1", Peer("b", "r"))
    (old,) = sends_of(plan, AskDirectory)
    bench.engine.restore(bench.rows, bench.now)
    (question,) = sends_of(bench.tick(), AskDirectory)
    assert bench.do(DirectoryTold(old.attempt, frozenset({"r"}))).rows == ()
    plan = bench.do(DirectoryTold(question.attempt, frozenset({"r"})))
    (answer,) = sends_of(plan, Answer)
    assert isinstance(answer.body, Receipt)


def test_rolled_back_rows_leave_nothing_behind() -> None:
    """After a failed group the same commands are decided again; no cursor that was seen is given twice."""
    bench = Bench()
    bench.offer("m1")
    kept = bench.rows
    first = bench.offered("m2", B)
    bench.engine.restore(kept, bench.now)
    assert bench.engine.held(A, message_id="m2", count_max=1) == ()
    (row,) = bench.offered("m2", B).rows
    (lost,) = first.rows
    assert isinstance(row, MessageRow)
    assert isinstance(lost, MessageRow)
    assert row.cursor > lost.cursor
    assert msgspec.structs.replace(row, cursor=lost.cursor) == lost


def test_rolled_back_receipt_of_this_root_to_itself_is_told_again() -> None:
    """What our own root was told may be lost with the same group; it is owed again."""
    bench = Bench()
    bench.submit("self", A)
    kept = bench.rows
    bench.consume()
    assert bench.state("self") is State.CONSUMED
    bench.engine.restore(kept, bench.now)
    assert bench.state("self") is State.ACCEPTED
    bench.consume("t2")
    assert bench.state("self") is State.CONSUMED


def test_budgets_are_counted_again_from_the_rows() -> None:
    """A restore gives nobody a new allowance."""
    bench = Bench(idle_behavior="auto", limits=Limits(agent_sends_max=2))
    for number in range(8):
        bench.offer(f"q{number}", C, correlation_id="c", automatic_depth=1)
    for number in range(2):
        bench.submit(f"m{number}", act=Act.AGENT)
    bench.pass_ms(60_000)
    bench.engine.restore(bench.rows, bench.now)
    answer = bench.offer("q9", C, correlation_id="c", automatic_depth=1)
    assert isinstance(answer, Refusal)
    assert answer.code == "AUTOMATIC_REPLY_LIMIT"
    assert isinstance(bench.submit("m2", act=Act.AGENT).answer, Refusal)
    bench.pass_ms(540_000)
    assert isinstance(bench.submit("m2", act=Act.AGENT).answer, Receipt)


def test_arrival_numbers_never_stand_still_over_a_restore() -> None:
    """A reader that compares generations looks again."""
    bench = Bench()
    bench.offer()
    before = (bench.engine.arrival_generation, bench.engine.arrivals(A))
    bench.engine.restore(bench.rows, bench.now)
    assert bench.engine.arrival_generation > before[0]
    assert bench.engine.arrivals(A) > before[1]


# ---------------------------------------------------------------- what may not leave twice

WINDOW = Peer(foreign_instance("pi-peers", "s1"))


def test_restore_of_a_pending_intent_that_may_not_leave_twice_takes_it_for_left() -> None:
    """A stored intent alone does not say that nothing left: nobody sends it again, and it is unknown."""
    bench = Bench()
    bench.submit("m1", WINDOW)
    bench.submit("m2", WINDOW)
    bench.engine = bench.restored()
    assert bench.engine.deadline_ms == bench.mono_ms
    plan = bench.tick()
    assert not plan.sends
    assert bench.state("m1") is bench.state("m2") is State.UNKNOWN
    assert not bench.tick(60_000).sends
    assert [one.envelope.message_id for one in transmitted(bench.submit("m3", WINDOW))] == ["m3"]


def test_restore_in_the_same_process_knows_what_never_left() -> None:
    """The root that falls back to its journal goes on with what it knows was never written."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    bench.submit("m2", WINDOW)
    (native,) = transmitted(bench.submit("n1"))
    bench.engine.restore(bench.rows, bench.now)
    assert [one.envelope.message_id for one in transmitted(bench.tick())] == ["m2", "n1"]
    assert bench.state("m1") is State.UNKNOWN
    assert not transmitted(bench.settle(first.attempt, Outcome.UNREACHED))
    assert native.attempt


def test_restore_after_a_written_frame_whose_move_was_lost_sends_nothing() -> None:
    """The end of the attempt was not stored; the message is off its route all the same."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    stored = list(bench.rows)
    bench.settle(first.attempt, Outcome.WRITTEN)
    bench.engine.restore(stored, bench.now)
    assert not bench.tick().sends
    assert bench.state("m1") is State.UNKNOWN
