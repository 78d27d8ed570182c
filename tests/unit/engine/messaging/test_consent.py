"""The person's word on mail that waits for it."""

from typing import Any

import pytest

from tests.unit.engine.messaging.kit import FREE, Bench, draft, envelope, seen, sends_of
from tieline.engine.contract import (
    Answer,
    Asked,
    BeginRun,
    Consent,
    EndRun,
    Lapse,
    Offer,
    Outcome,
    Plan,
    PushReceipt,
    Submit,
)
from tieline.errors import Refusal
from tieline.machine.inbox import HELD_MAX, HELD_MS
from tieline.model.identity import Peer, foreign_instance
from tieline.model.moment import NEVER_MS
from tieline.model.receipt import DENIED, HELD, HELD_EXPIRED, Durability, Receipt, State

WINDOW = Peer(foreign_instance("pi-peers", "s1"))


def hold(bench: Bench, message_id: str = "m1", recipient: Peer | None = None, **fields: Any) -> Plan:
    bench.asked += 1
    one = envelope(message_id, WINDOW, recipient or bench.root, **fields)
    return bench.do(Offer(Asked(1, bench.asked), WINDOW.instance, FREE, one, is_held=True))


def told(plan: Plan) -> list[Receipt]:
    return [send.receipt for send in sends_of(plan, PushReceipt)]


def test_held_message_is_stored_and_reaches_no_reader() -> None:
    """It is pending for its sender, durable here, and neither unread nor exposable nor an arrival."""
    bench = Bench()
    plan = hold(bench)
    body = Bench.answer(plan)
    assert (body.state, body.outcome, body.accepted_ms) == (State.PENDING, HELD, None)
    assert [(event.kind, event.state) for event in plan.events] == [("message", State.PENDING)]
    assert plan.admits
    assert plan.is_urgent
    assert bench.engine.inbox_counts(bench.root).unread == 0
    assert bench.engine.arrivals(bench.root) == bench.engine.arrival_generation == 0
    for unread_only in (True, False):
        assert bench.engine.held(bench.root, unread_only=unread_only, count_max=9) == ()
        assert bench.engine.held(bench.root, message_id="m1", unread_only=unread_only, count_max=9) == ()
    assert bench.expose() == ()
    (waiting,) = bench.engine.awaiting(bench.root)
    assert bench.expose(cursors=(waiting.cursor,)) == ()
    assert waiting.envelope.content == "text of m1"
    assert waiting.expires_ms == bench.wall_ms + HELD_MS


def test_consent_accepted_lets_the_message_arrive_and_owes_its_receipt() -> None:
    """With the person's yes it is new mail, accepted now, and its sender is told."""
    bench = Bench()
    hold(bench)
    bench.pass_ms(1_000)
    plan = bench.do(Consent(bench.root, "m1", is_accepted=True))
    assert isinstance(plan.answer, Receipt)
    assert (plan.answer.state, plan.answer.accepted_ms) == (State.ACCEPTED, bench.wall_ms)
    assert plan.answer.durability is Durability.SYNCED
    assert told(plan) == [plan.answer]
    assert [(event.kind, event.state) for event in plan.events] == [("message", State.ACCEPTED)]
    assert bench.engine.inbox_counts(bench.root).unread == 1
    assert bench.engine.arrivals(bench.root) == 1
    assert bench.engine.awaiting(bench.root) == ()
    bench.tick(HELD_MS + 1)
    bench.tick(30 * 86_400_000)
    assert [one.envelope.content for one in bench.expose()] == ["text of m1"]


def test_consent_denied_rejects_and_shows_nobody_the_text() -> None:
    """With the person's no nothing was taken, the sender is told so, and no reader sees it later."""
    bench = Bench()
    hold(bench)
    plan = bench.do(Consent(bench.root, "m1", is_accepted=False))
    assert isinstance(plan.answer, Receipt)
    assert (plan.answer.state, plan.answer.outcome) == (State.REJECTED, DENIED)
    assert told(plan) == [plan.answer]
    assert bench.engine.held(bench.root, unread_only=False, count_max=9) == ()
    assert bench.engine.awaiting(bench.root) == ()
    assert bench.engine.worst_case_bytes == 0


@pytest.mark.clause("pi-peers-U16")
def test_held_message_that_nobody_answers_for_expires_after_five_minutes() -> None:
    """Silence is no yes: after five minutes it is over, not before, and its sender is told."""
    bench = Bench()
    hold(bench)
    assert bench.engine.deadline_ms == bench.mono_ms + HELD_MS
    assert told(bench.tick(HELD_MS - 1)) == []
    (receipt,) = told(bench.tick(1))
    assert (receipt.state, receipt.outcome, receipt.accepted_ms) == (State.EXPIRED, HELD_EXPIRED, None)
    answer = bench.do(Consent(bench.root, "m1", is_accepted=True)).answer
    assert isinstance(answer, Refusal)
    assert answer.code == "UNKNOWN_TARGET"


def test_consent_after_its_time_is_too_late_even_before_the_tick() -> None:
    """A yes that comes late lets nothing in that its sender is about to be told is expired."""
    bench = Bench()
    hold(bench)
    bench.pass_ms(HELD_MS)
    plan = bench.do(Consent(bench.root, "m1", is_accepted=True))
    assert isinstance(plan.answer, Refusal)
    assert [one.state for one in told(plan)] == [State.EXPIRED]


@pytest.mark.parametrize("is_accepted", [True, False])
def test_consent_for_nothing_that_waits_is_refused(is_accepted: bool) -> None:
    """No message that was accepted already, is another peer's, or never came, is touched."""
    bench = Bench()
    bench.offer("m1")
    hold(bench, "m2")
    for owner, message_id in ((bench.root, "m1"), (bench.root, "m9"), (Peer("a", "r"), "m2")):
        plan = bench.do(Consent(owner, message_id, is_accepted=is_accepted))
        assert isinstance(plan.answer, Refusal)
        assert plan.answer.code == "UNKNOWN_TARGET"
        assert not plan.rows


@pytest.mark.clause("pi-peers-U16")
def test_held_messages_above_fifty_are_refused_and_none_is_evicted() -> None:
    """The fifty-first is turned away; the person loses no word on the first fifty."""
    bench = Bench()
    for number in range(HELD_MAX):
        assert Bench.answer(hold(bench, f"m{number}")).state is State.PENDING
    refused = Bench.answer(hold(bench, "one more"))
    assert isinstance(refused, Refusal)
    assert refused.code == "QUEUE_FULL"
    assert len(bench.engine.awaiting(bench.root)) == HELD_MAX
    assert bench.offer("native", Peer("b")).state is State.ACCEPTED


def test_held_message_offered_again_gives_the_recorded_receipt() -> None:
    """A repeat finds the same record, held or decided, and stores nothing."""
    bench = Bench()
    first = Bench.answer(hold(bench))
    again = hold(bench)
    assert Bench.answer(again) == first
    assert not again.rows
    bench.do(Consent(bench.root, "m1", is_accepted=False))
    assert Bench.answer(hold(bench)).outcome == DENIED


@pytest.mark.parametrize("word", ["none", "yes", "no", "late"])
def test_held_message_survives_a_restore(word: str) -> None:
    """Whatever became of it, the stored rows say the same, and what is owed is owed again."""
    bench = Bench()
    hold(bench)
    bench.offer("native", Peer("b"))
    if word in ("yes", "no"):
        bench.do(Consent(bench.root, "m1", is_accepted=word == "yes"))
    elif word == "late":
        bench.tick(HELD_MS)
    restored = bench.restored()
    assert seen(restored, [bench.root]) == seen(bench.engine, [bench.root])
    assert restored.awaiting(bench.root) == bench.engine.awaiting(bench.root)
    assert restored.deadline_ms is not None
    bench.engine = restored
    owed = {"none": [], "yes": [State.ACCEPTED], "no": [State.REJECTED], "late": [State.EXPIRED]}[word]
    assert [one.state for one in told(bench.tick())] == owed
    if word == "none":
        assert [one.state for one in told(bench.tick(HELD_MS))] == [State.EXPIRED]


def test_held_message_of_a_run_that_ends_is_rejected_with_that() -> None:
    """Nobody is left whose person could say yes."""
    bench = Bench()
    bench.do(BeginRun("r", "r", frozenset({"message.receive"})))
    hold(bench, recipient=Peer("a", "r"))
    (receipt,) = told(bench.do(EndRun("r")))
    assert (receipt.state, receipt.outcome) == (State.REJECTED, "TARGET_ENDED")


@pytest.mark.parametrize("is_held", [True, False])
def test_reply_over_a_wire_without_status_says_that_ours_was_replied_to(is_held: bool) -> None:
    """Where no receipt can say it, the reply itself does, once the person let it in."""
    bench = Bench()
    plan = bench.do(Submit(draft("ours", bench.root, WINDOW)))
    attempt = plan.sends[0].attempt  # type: ignore[union-attr]
    bench.settle(attempt, Outcome.WRITTEN)
    bench.asked += 1
    reply = envelope("reply", WINDOW, bench.root, reply_to="ours")
    came = bench.do(Offer(Asked(1, bench.asked), WINDOW.instance, FREE, reply, is_held=is_held))
    assert isinstance(Bench.answer(came), Receipt)
    if is_held:
        assert bench.state("ours") is State.UNKNOWN
        bench.do(Consent(bench.root, "reply", is_accepted=True))
    assert bench.state("ours") is State.REPLIED
    (held,) = bench.engine.held(bench.root, reply_to="ours", count_max=9)
    assert held.envelope.correlation_id == "ours"
    assert held.expires_ms == NEVER_MS


def test_reply_over_a_wire_without_status_to_nothing_of_ours_is_a_plain_message() -> None:
    """A name that nobody vouches for links nothing and loses nothing."""
    bench = Bench()
    bench.do(Submit(draft("ours", bench.root, Peer("b"))))
    plan = bench.offered("m", WINDOW, reply_to="ours", correlation_id="ours")
    assert isinstance(next(send for send in plan.sends if isinstance(send, Answer)).body, Receipt)
    (held,) = bench.engine.held(bench.root, count_max=9)
    assert (held.envelope.reply_to, held.envelope.correlation_id) == (None, None)
    assert bench.state("ours") is State.PENDING


@pytest.mark.clause("pi-peers-35")
def test_root_that_ends_tells_everybody_who_waits_that_it_is_over() -> None:
    """Of every mailbox; what was let in before stays, and a second end tells nothing."""
    bench = Bench()
    for message_id in ("m1", "m2", "m3"):
        hold(bench, message_id)
    bench.do(Consent(bench.root, "m2", is_accepted=True))
    pushes = sends_of(bench.do(Lapse()), PushReceipt)
    receipts = []
    while pushes:
        receipts.append(pushes[0].receipt)
        pushes = [*pushes[1:], *sends_of(bench.settle(pushes[0].attempt, Outcome.ANSWERED), PushReceipt)]
    expired = [one for one in receipts if one.message_id != "m2"]
    assert {(one.message_id, one.state, one.outcome) for one in expired} == {
        ("m1", State.EXPIRED, HELD_EXPIRED),
        ("m3", State.EXPIRED, HELD_EXPIRED),
    }
    assert bench.engine.awaiting(bench.root) == ()
    assert bench.engine.inbox_counts(bench.root).unread == 1
    assert bench.do(Lapse()).rows == ()
