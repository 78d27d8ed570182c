"""Show how receipts reach a sender: the latest one, in a window, with patience, until it is gone."""

from typing import Any

import pytest

from tests.unit.engine.messaging.kit import A, B, Bench, C, sends_of
from tieline.config import RETRY_LAST_MS
from tieline.engine.contract import Outcome, Plan, PushReceipt, Recorded, Settle, Taken
from tieline.engine.messaging.courier import WINDOW
from tieline.errors import Refusal
from tieline.model.receipt import State


def pushes(plan: Plan) -> list[Any]:
    return sends_of(plan, PushReceipt)


def consumed(count: int = 1) -> tuple[Bench, list[Any]]:
    bench = Bench()
    for number in range(count):
        bench.offer(f"m{number}")
    bench.expose(count_max=count)
    return bench, pushes(bench.do(Taken("t1")))


def confirm(bench: Bench, attempt: int) -> Plan:
    return bench.do(Settle(attempt, Outcome.ANSWERED))


@pytest.mark.clause("native-72")
def test_confirmed_receipt_is_not_told_again() -> None:
    """Told once and confirmed is enough."""
    bench, (push,) = consumed()
    confirm(bench, push.attempt)
    assert pushes(bench.tick(RETRY_LAST_MS * 10)) == []


@pytest.mark.clause("I51")
@pytest.mark.parametrize(
    "body",
    [
        Outcome.LOST,
        Outcome.UNREACHED,
        Refusal("RECOVERY_REQUIRED", "x"),
        Refusal("QUEUE_FULL", "x"),
        Refusal("METHOD_NOT_FOUND", "x", is_retryable=True),
    ],
)
def test_receipt_that_was_not_confirmed_is_told_again(body: Any) -> None:
    """Silence, distance and a full peer are met with patience."""
    bench, (push,) = consumed()
    assert pushes(bench.settle(push.attempt, body)) == []
    due_ms = bench.engine.deadline_ms
    assert due_ms is not None
    assert 375 <= due_ms - bench.mono_ms <= 500
    (again,) = pushes(bench.tick(due_ms - bench.mono_ms))
    assert again.receipt == push.receipt
    confirm(bench, again.attempt)
    assert pushes(bench.tick(RETRY_LAST_MS)) == []


def test_receipt_that_its_sender_does_not_want_is_dropped() -> None:
    """A sender that no longer knows the message need not be told."""
    bench, (push,) = consumed()
    bench.settle(push.attempt, Refusal("SCOPE_DENIED", "x"))
    assert pushes(bench.tick(RETRY_LAST_MS * 10)) == []


def test_refusal_that_nobody_can_read_is_tried_again() -> None:
    """A no without a code proves nothing."""
    bench, (push,) = consumed()
    bench.do(Settle(push.attempt, Outcome.REFUSED))
    assert len(pushes(bench.tick(500))) == 1


@pytest.mark.clause("I49")
def test_receipts_for_one_root_go_in_a_window_and_one_by_one_while_it_fails() -> None:
    """A root that is away costs one attempt at a time; one that answers gets a window of them."""
    count = WINDOW + 4
    bench, first = consumed(count)
    assert len(first) == WINDOW
    for push in first:
        assert pushes(bench.settle(push.attempt, Outcome.UNREACHED)) == []
    (probe,) = pushes(bench.tick(RETRY_LAST_MS))
    rest = pushes(confirm(bench, probe.attempt))
    told = {probe.receipt.message_id}
    while rest:
        told |= {push.receipt.message_id for push in rest}
        assert len(rest) <= WINDOW
        rest = [again for push in rest for again in pushes(confirm(bench, push.attempt))]
    assert told == {f"m{number}" for number in range(count)}


def test_receipts_for_one_root_do_not_wait_for_another() -> None:
    """Each root has its own patience."""
    bench = Bench()
    bench.offer("m1", B)
    bench.offer("m2", C)
    bench.expose("t1", count_max=1)
    bench.expose("t2", count_max=1)
    (push,) = pushes(bench.do(Taken("t1")))
    bench.settle(push.attempt, Outcome.UNREACHED)
    assert [one.instance for one in pushes(bench.do(Taken("t2")))] == ["c"]


def test_receipt_that_changes_on_its_way_is_told_in_its_latest_form() -> None:
    """One attempt per message: the newer receipt follows when the older one ended."""
    bench, (push,) = consumed()
    (sent,) = [one for one in bench.submit("r", reply_to="m0").sends if hasattr(one, "envelope")]
    receipt = bench.engine.sent("r", None)[0].receipt
    plan = bench.settle(
        sent.attempt,
        type(receipt)(message_id="r", sender=A.id, recipient=B.id, state=State.ACCEPTED, cursor=5),
    )
    assert pushes(plan) == []
    (newer,) = pushes(confirm(bench, push.attempt))
    assert newer.receipt.state is State.REPLIED
    assert newer.receipt.cursor > push.receipt.cursor


def test_receipt_owed_to_a_dead_instance_is_dropped() -> None:
    """Nobody is left to tell."""
    bench, first = consumed(WINDOW + 2)
    plan = bench.settle(first[0].attempt, Outcome.UNREACHED, is_gone=True)
    assert pushes(plan) == []
    for push in first[1:]:
        bench.settle(push.attempt, Outcome.UNREACHED, is_gone=True)
    assert pushes(bench.tick(RETRY_LAST_MS * 10)) == []


def test_receipt_of_a_forgotten_record_is_dropped() -> None:
    """After the retention nobody asks any more; the pause of its root goes with it."""
    bench, (push,) = consumed()
    bench.settle(push.attempt, Outcome.UNREACHED)
    (again,) = pushes(bench.tick(500))
    bench.tick(100_000_000)
    assert bench.engine.held(A, unread_only=False, count_max=1) == ()
    bench.settle(again.attempt, Outcome.LOST)
    assert pushes(bench.tick(RETRY_LAST_MS)) == []
    assert bench.engine._custody.couriers == {}


def test_confirmation_needs_no_body() -> None:
    """Whatever a confirmation says, it is one."""
    assert Recorded() == Recorded()
    bench, (push,) = consumed()
    plan = bench.do(Settle(push.attempt, Outcome.ANSWERED, receipt=push.receipt))
    assert (plan.rows, plan.sends) == ((), ())
