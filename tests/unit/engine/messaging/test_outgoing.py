"""Show how our peers' messages leave: intent, route order, retries, refusals, expiry."""

from typing import Any

import pytest

from tests.unit.engine.messaging.kit import (
    FREE,
    WALL_MS,
    A,
    B,
    Bench,
    C,
    accepted,
    draft,
    envelope,
    receipt,
    sends_of,
    transmitted,
)
from tieline.config import PAIR_WINDOW_MS, RETRY_LAST_MS, Limits
from tieline.engine.contract import (
    Act,
    Asked,
    AskStatus,
    BeginRun,
    Box,
    EndRun,
    MessageRow,
    MoveRow,
    Offer,
    Outcome,
    PushReceipt,
    ReceiptTold,
    Settle,
    Standing,
    UserPrompt,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer, foreign_instance
from tieline.model.message import Attachment, Delivery
from tieline.model.receipt import HELD, NOTES, Durability, Receipt, State

RUN = Peer("a", "run")
WINDOW = Peer(foreign_instance("pi-peers", "s1"))


def code(plan: Any) -> str | None:
    return plan.answer.code if isinstance(plan.answer, Refusal) else None


# ---------------------------------------------------------------- intent


@pytest.mark.clause("native-82", "I3")
def test_submit_writes_the_intent_that_its_transmission_waits_for() -> None:
    """The intent is a row of the same plan as the first transmission, and urgent."""
    plan = Bench().submit()
    (row,) = plan.rows
    assert isinstance(row, MessageRow)
    assert (row.box, row.cursor, row.at_ms, row.expires_ms) == (Box.OUT, 1, WALL_MS, WALL_MS + 600_000)
    assert plan.is_urgent
    assert plan.admits
    (sent,) = transmitted(plan)
    assert sent.envelope.content == "text of m1"
    assert not sent.needs_tieline
    assert isinstance(plan.answer, Receipt)
    assert plan.answer.state is State.PENDING


def test_submit_takes_the_senders_names_from_this_root() -> None:
    """The envelope carries the alias of the root or of the run that sends."""
    bench = Bench()
    bench.do(BeginRun("run", "helper-run", FREE.capabilities))
    assert transmitted(bench.submit())[0].envelope.sender_alias == "a"
    assert transmitted(bench.submit("m2", sender=RUN))[0].envelope.sender_alias == "helper-run"


@pytest.mark.clause("native-92")
def test_submit_repeated_returns_the_recorded_receipt_and_writes_nothing() -> None:
    """The same id with the same content is the same send, in every state."""
    bench = Bench()
    first = bench.submit()
    again = bench.submit()
    assert again.rows == ()
    assert again.is_urgent  # the answer waits for the intent
    assert again.answer == first.answer
    bench.settle(transmitted(first)[0].attempt, accepted())
    bench.pass_ms(10)
    third = bench.submit()
    assert third.rows == ()
    assert isinstance(third.answer, Receipt)
    assert third.answer.state is State.ACCEPTED


@pytest.mark.clause("native-93", "I22", "mutant-7")
@pytest.mark.parametrize(
    "fields",
    [
        {"content": "other"},
        {"topic": "t"},
        {"thread": "x"},
        {"attachments": (Attachment("n", "t"),)},
        {"is_ask": True},
    ],
)
def test_submit_of_other_content_under_a_known_id_is_a_conflict(fields: dict[str, Any]) -> None:
    """An id names one content; the first record stays as it is."""
    bench = Bench()
    bench.submit()
    plan = bench.submit(**fields)
    assert code(plan) == "MESSAGE_ID_CONFLICT"
    assert plan.rows == ()
    assert plan.sends == ()


def test_submit_repeated_after_more_was_shown_is_still_the_same_send() -> None:
    """A model's repeat does not become another message because its depth would be another by now."""
    bench = Bench()
    assert transmitted(bench.submit(act=Act.AGENT))[0].envelope.automatic_depth == 0
    bench.offer("q", B, automatic_depth=3)
    bench.expose()
    again = bench.submit(act=Act.AGENT)
    assert isinstance(again.answer, Receipt)
    assert again.rows == ()


def test_submit_to_two_recipients_under_one_id_is_two_messages() -> None:
    """One id may go to several recipients: each has its own record."""
    bench = Bench()
    bench.submit(recipient=B)
    assert isinstance(bench.submit(recipient=C).answer, Receipt)
    assert len(bench.engine.sent("m1", None)) == 2
    assert bench.engine.sent("m1", RUN) == ()


@pytest.mark.clause("O19", "native-31")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic": "t"},
        {"reply_to": "x"},
        {"expiry_ms": 1},
        {"delivery": Delivery.QUEUE},
        {"delivery": Delivery.PASSIVE},
        {"thread": "x"},
        {"replaces": True},
        {"is_ask": True},
        {"notify_when_idle": True},
        {"attachments": (Attachment("n", "t"),)},
        {"act": Act.AGENT},
        {"act": Act.AUTOMATIC},
        {"is_recipient_tieline": False, "thread": "x"},
    ],
)
def test_submit_out_of_scope_is_denied_whatever_is_asked(fields: dict[str, Any]) -> None:
    """No option goes round the scope, and nothing is stored."""
    bench = Bench()
    plan = bench.submit(standing=Standing(FREE.capabilities, is_in_scope=False), **fields)
    assert code(plan) == "SCOPE_DENIED"
    assert (plan.rows, plan.sends) == ((), ())
    assert bench.engine.storage_bytes == 0


def test_submit_to_a_peer_without_an_inbox_is_denied() -> None:
    """The target's advertisement decides whether it receives."""
    standing = Standing(frozenset({"message.send"}), is_in_scope=True)
    assert code(Bench().submit(standing=standing)) == "CAPABILITY_DENIED"


def test_submit_by_a_run_without_message_send_is_denied() -> None:
    """A run does what it was given."""
    bench = Bench()
    bench.do(BeginRun("run", "r", frozenset({"message.receive"})))
    assert code(bench.submit(sender=RUN)) == "CAPABILITY_DENIED"


def test_submit_by_an_ended_run_is_refused_unless_it_repeats() -> None:
    """An ended run starts nothing; what it sent before is still answered for."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.submit(sender=RUN)
    bench.do(EndRun("run"))
    assert isinstance(bench.submit(sender=RUN).answer, Receipt)
    assert code(bench.submit("m2", sender=RUN)) == "TARGET_ENDED"


@pytest.mark.parametrize("sender", [Peer("other"), Peer("a", "never")])
def test_submit_in_the_name_of_a_stranger_is_refused(sender: Peer) -> None:
    """Only peers of this root send through it."""
    assert code(Bench().submit(sender=sender)) == "INVALID_PARAMS"


@pytest.mark.parametrize(
    "fields",
    [
        {"content": ""},
        {"content": "a\0b"},
        {"content": "\ud800"},
        {"topic": ""},
        {"topic": "x" * 257},
        {"topic": "\udfff"},
        {"message_id": ""},
        {"message_id": "x" * 257},
        {"reply_to": "a\nb"},
        {"attachments": (Attachment("n", "\ud83d"),)},
        {"expiry_ms": 0},
        {"expiry_ms": 3_600_001},
        {"is_ask": True, "recipient": A},
    ],
)
@pytest.mark.clause("native-163", "O49")
def test_submit_of_a_wrong_form_is_refused_and_stores_nothing(fields: dict[str, Any]) -> None:
    """Half characters, empty texts, wrong ids, lives out of range and questions to oneself are refused."""
    plan = Bench().submit(**{"message_id": "m1", **fields})
    assert code(plan) == "INVALID_PARAMS"
    assert plan.rows == ()


@pytest.mark.clause("native-154", "native-87")
def test_submit_is_measured_in_utf8_bytes() -> None:
    """Four bytes of an emoji are four bytes."""
    bench = Bench(limits=Limits(message_bytes=8))
    assert isinstance(bench.submit(content="😀😀").answer, Receipt)
    assert code(bench.submit("m2", content="😀😀x")) == "MESSAGE_TOO_LARGE"


def test_submit_of_options_that_cannot_travel_is_denied_before_anything_is_stored() -> None:
    """A foreign end is not sent what it cannot be told."""
    bench = Bench()
    plan = bench.submit(thread="x", is_recipient_tieline=False)
    assert code(plan) == "CAPABILITY_DENIED"
    assert plan.rows == ()
    for known in (None, True):
        plan = bench.submit(f"m-{known}", thread="x", is_recipient_tieline=known, recipient=Peer(f"p{known}"))
        assert transmitted(plan)[0].needs_tieline


@pytest.mark.clause("native-158", "I8", "native-171")
def test_submit_that_leaves_no_room_for_receipts_is_queue_full() -> None:
    """Each open record keeps its reserve free; a message for whose reserve there is no room is refused."""
    bench = Bench(limits=Limits(storage_bytes=65_536))
    number = 0
    while True:
        before = bench.engine.storage_bytes
        plan = bench.submit(f"m{number}", content="x" * 1_000)
        if isinstance(plan.answer, Refusal):
            break
        number += 1
        assert bench.engine.worst_case_bytes == 2_048 * number
    assert (code(plan), plan.answer.is_retryable) == ("QUEUE_FULL", True)
    assert before + bench.engine.worst_case_bytes <= 65_536
    assert before + 1_024 + 1_000 + 2_048 * (number + 1) > 65_536


# ---------------------------------------------------------------- replies and budgets


@pytest.mark.clause("native-107", "native-108", "I26")
def test_reply_keeps_the_correlation_of_its_original() -> None:
    """A chain keeps its first message's id as its correlation."""
    bench = Bench()
    bench.offer("q1", B)
    bench.offer("q2", B, correlation_id="first")
    assert transmitted(bench.submit("r1", reply_to="q1"))[0].envelope.correlation_id == "q1"
    bench.settle(1, accepted("r1"))
    assert transmitted(bench.submit("r2", reply_to="q2"))[0].envelope.correlation_id == "first"


@pytest.mark.clause("native-108", "native-212")
def test_reply_to_what_that_peer_never_sent_to_us_is_refused() -> None:
    """Neither another's message, nor one to our run, nor one of our own can be replied to."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("q", B)
    bench.offer("q-run", B, recipient=RUN)
    bench.submit("mine")
    for wrong, fields in (("q", {"recipient": C}), ("q-run", {}), ("mine", {}), ("never", {})):
        plan = bench.submit(f"r-{wrong}-{len(fields)}", reply_to=wrong, **fields)
        assert code(plan) == "INVALID_REPLY"
        assert plan.rows == ()


@pytest.mark.clause("native-113", "native-147")
def test_acts_carry_the_depth_that_their_rules_say() -> None:
    """A person's reply has no depth; an automatic one is one deeper than its original."""
    bench = Bench(idle_behavior="auto")
    bench.offer("q", B, automatic_depth=2)
    assert transmitted(bench.submit("p", reply_to="q"))[0].envelope.automatic_depth == 0
    bench.settle(1, accepted("p"))
    assert transmitted(bench.submit("r", reply_to="q", act=Act.AUTOMATIC))[0].envelope.automatic_depth == 3
    assert code(bench.submit("x", act=Act.AUTOMATIC)) == "INVALID_REPLY"
    assert code(Bench().submit("x", reply_to="q", act=Act.AUTOMATIC)) == "CAPABILITY_DENIED"


@pytest.mark.clause("native-111", "native-165")
def test_automatic_reply_past_the_depth_is_refused() -> None:
    """The eighth automatic answer is the last."""
    bench = Bench(idle_behavior="auto")
    bench.offer("q", B, automatic_depth=7)
    assert isinstance(bench.submit("r", reply_to="q", act=Act.AUTOMATIC).answer, Receipt)
    bench.offer("deep", C, automatic_depth=8)
    plan = bench.submit("s", recipient=C, reply_to="deep", act=Act.AUTOMATIC)
    assert code(plan) == "AUTOMATIC_REPLY_LIMIT"


@pytest.mark.clause("native-112", "I29", "O22")
def test_automatic_replies_of_one_conversation_end_at_the_limit() -> None:
    """Own and received automatic messages of one correlation count together, whatever their depth."""
    bench = Bench(idle_behavior="auto")
    for number in range(4):
        assert isinstance(bench.offer(f"q{number}", B, correlation_id="c", automatic_depth=1), Receipt)
    for number in range(4):
        plan = bench.submit(f"r{number}", reply_to=f"q{number}", act=Act.AUTOMATIC)
        assert isinstance(plan.answer, Receipt)
    assert code(bench.submit("r-more", reply_to="q0", act=Act.AUTOMATIC)) == "AUTOMATIC_REPLY_LIMIT"
    assert isinstance(bench.submit("person", reply_to="q0").answer, Receipt)


def test_agent_inherits_the_depth_of_what_it_was_shown_until_a_person_prompts() -> None:
    """A model that reads mail and writes on is one deeper, until its person begins a turn."""
    bench = Bench()
    bench.offer("q", B, automatic_depth=2)
    assert transmitted(bench.submit("m1", act=Act.AGENT))[0].envelope.automatic_depth == 0
    bench.expose()
    assert transmitted(bench.submit("m2", C, act=Act.AGENT))[0].envelope.automatic_depth == 3
    bench.do(UserPrompt(A))
    assert transmitted(bench.submit("m3", Peer("d"), act=Act.AGENT))[0].envelope.automatic_depth == 0


@pytest.mark.parametrize(("idle_behavior", "is_refused"), [("notify", False), ("auto", True)])
def test_agent_past_the_depth_is_counted_and_refused_only_under_auto(
    idle_behavior: str, is_refused: bool
) -> None:
    """Where no turn can start by itself, a deep send is counted and let go."""
    bench = Bench(idle_behavior=idle_behavior)
    bench.offer("q", B, automatic_depth=8)
    bench.expose()
    plan = bench.submit("m", reply_to="q", act=Act.AGENT)
    assert (code(plan) == "AUTOMATIC_REPLY_LIMIT") == is_refused
    if not is_refused:
        assert transmitted(plan)[0].envelope.automatic_depth == 9


@pytest.mark.clause("I29", "K21", "O22")
def test_agent_sends_of_a_pair_end_at_their_limit_until_a_person_prompts() -> None:
    """A loop over fresh conversations ends too; a person's act passes, and a prompt starts anew."""
    bench = Bench(limits=Limits(agent_sends_max=3))
    for number in range(3):
        assert code(bench.submit(f"m{number}", act=Act.AGENT)) is None
    assert code(bench.submit("m3", act=Act.AGENT)) == "AUTOMATIC_REPLY_LIMIT"
    assert code(bench.submit("other", C, act=Act.AGENT)) is None
    assert code(bench.submit("person")) is None
    bench.do(UserPrompt(A))
    assert code(bench.submit("m4", act=Act.AGENT)) is None
    for number in range(2):
        bench.submit(f"n{number}", act=Act.AGENT)
    assert code(bench.submit("n3", act=Act.AGENT)) == "AUTOMATIC_REPLY_LIMIT"
    bench.pass_ms(PAIR_WINDOW_MS)
    assert code(bench.submit("n4", act=Act.AGENT)) is None


@pytest.mark.clause("I30", "O21")
def test_question_to_a_peer_that_waits_for_our_answer_is_refused_at_once() -> None:
    """Two that ask each other would both wait; a plain message passes, and an answer frees both."""
    bench = Bench()
    bench.offer("q", B, is_ask=True)
    assert code(bench.submit("m1", is_ask=True)) == "RESOURCE_BUSY"
    assert code(bench.submit("m1", C, is_ask=True)) is None
    attempt = transmitted(bench.submit("r", reply_to="q"))[0].attempt
    bench.settle(attempt, accepted("r"))
    assert code(bench.submit("m2", is_ask=True)) is None


# ---------------------------------------------------------------- the route


@pytest.mark.clause("native-97", "native-98", "I10")
def test_route_sends_its_head_and_holds_the_rest() -> None:
    """A later message waits until the head was accepted; other routes do not wait."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    first = transmitted(bench.submit("m1"))[0]
    assert transmitted(bench.submit("m2")) == []
    assert len(transmitted(bench.submit("m3", C))) == 1
    assert len(transmitted(bench.submit("m4", sender=RUN))) == 1
    plan = bench.settle(first.attempt, accepted("m1"))
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]
    assert not plan.is_urgent


@pytest.mark.clause("native-98", "I10", "native-3.6.5")
def test_route_retries_an_unresolved_head_before_the_next() -> None:
    """A lost head is tried again by itself, and the next one waits on."""
    bench = Bench()
    first = transmitted(bench.submit("m1"))[0]
    bench.submit("m2")
    plan = bench.settle(first.attempt, Outcome.LOST)
    assert transmitted(plan) == []
    due_ms = bench.engine.deadline_ms
    assert due_ms is not None
    assert 375 <= due_ms - bench.mono_ms <= 500
    assert transmitted(bench.tick(due_ms - bench.mono_ms - 1)) == []
    (again,) = transmitted(bench.tick(1))
    assert again.envelope == first.envelope
    assert again.attempt != first.attempt
    plan = bench.settle(again.attempt, accepted("m1"))
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]


@pytest.mark.clause("native-98")
def test_route_retries_back_off_to_thirty_seconds() -> None:
    """The pause doubles and is bounded."""
    bench = Bench()
    attempt = transmitted(bench.submit(expiry_ms=3_600_000))[0].attempt
    pauses = []
    for _ in range(12):
        bench.settle(attempt, Outcome.UNREACHED)
        due_ms = bench.engine.deadline_ms
        assert due_ms is not None
        pauses.append(due_ms - bench.mono_ms)
        (again,) = transmitted(bench.tick(pauses[-1]))
        attempt = again.attempt
    assert pauses[1] > pauses[0]
    assert RETRY_LAST_MS * 3 // 4 <= pauses[-1] <= RETRY_LAST_MS


def test_route_is_hastened_by_a_send_and_by_a_repeat() -> None:
    """Somebody who waits does not wait for the pause."""
    for again in ("m1", "m2"):
        bench = Bench()
        bench.settle(transmitted(bench.submit("m1"))[0].attempt, Outcome.UNREACHED)
        (sent,) = transmitted(bench.submit(again))
        assert sent.envelope.message_id == "m1"


# ---------------------------------------------------------------- outcomes


@pytest.mark.clause("I4", "native-3.6.2")
def test_lost_attempt_makes_the_message_unknown_in_a_row() -> None:
    """Unknown is really written; a second loss writes nothing."""
    bench = Bench()
    plan = bench.settle(transmitted(bench.submit())[0].attempt, Outcome.LOST)
    (row,) = plan.rows
    assert isinstance(row, MoveRow)
    assert row.state is State.UNKNOWN
    assert not plan.is_urgent
    (again,) = transmitted(bench.tick(500))
    assert bench.settle(again.attempt, Outcome.LOST).rows == ()


def test_unreached_attempt_leaves_pending_and_a_known_doubt_as_it_is() -> None:
    """Not one byte left: pending stays pending; unknown stays unknown."""
    bench = Bench()
    assert bench.settle(transmitted(bench.submit())[0].attempt, Outcome.UNREACHED).rows == ()
    assert bench.state() is State.PENDING
    (again,) = transmitted(bench.tick(500))
    bench.settle(again.attempt, Outcome.LOST)
    (third,) = transmitted(bench.tick(1_000))
    assert bench.settle(third.attempt, Outcome.UNREACHED).rows == ()
    assert bench.state() is State.UNKNOWN


@pytest.mark.parametrize("name", ["PEER_OFFLINE", "DELIVERY_UNKNOWN", "INVALID_RPC", "RECOVERY_REQUIRED"])
def test_refusal_that_proves_nothing_is_tried_again(name: str) -> None:
    """The intent stays, and the reason is kept."""
    bench = Bench()
    plan = bench.settle(transmitted(bench.submit())[0].attempt, Refusal(name, "not now"))
    assert plan.rows == ()
    assert bench.state() is State.PENDING
    assert len(transmitted(bench.tick(500))) == 1
    assert bench.engine.sent("m1", A)[0].last_refusal == Refusal(name, "not now")


@pytest.mark.clause("I13")
def test_definite_refusal_ends_the_message_and_frees_its_route() -> None:
    """The code is the outcome, and the next message goes at once."""
    bench = Bench()
    attempt = transmitted(bench.submit("m1"))[0].attempt
    bench.submit("m2")
    plan = bench.settle(attempt, Refusal("TARGET_ENDED", "over"))
    found = bench.engine.sent("m1", None)[0].receipt
    assert (found.state, found.outcome, found.is_retryable) == (State.REJECTED, "TARGET_ENDED", False)
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]
    assert isinstance(bench.submit("m1").answer, Receipt)
    assert bench.state("m1") is State.REJECTED


@pytest.mark.clause("I25", "native-213")
def test_transient_refusal_may_be_tried_again_under_the_same_id() -> None:
    """Rejected as full is definite and retryable: the same id goes again, with its text."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, Refusal("QUEUE_FULL", "full", is_retryable=True))
    found = bench.engine.sent("m1", None)[0]
    assert (found.receipt.state, found.receipt.is_retryable) == (State.REJECTED, True)
    assert not found.has_content
    assert bench.tick(60_000).sends == ()
    plan = bench.submit()
    assert isinstance(plan.answer, Receipt)
    assert plan.answer.state is State.PENDING
    (again,) = transmitted(plan)
    assert again.envelope.content == "text of m1"
    assert plan.is_urgent
    bench.settle(again.attempt, accepted())
    assert bench.state() is State.ACCEPTED


def test_transient_refusal_is_not_tried_again_past_its_expiry_or_out_of_scope() -> None:
    """A message whose life is over stays rejected; one that policy forbids by now is refused."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, Refusal("RATE_LIMITED", "fast"))
    plan = bench.submit(standing=Standing(FREE.capabilities, is_in_scope=False))
    assert code(plan) == "SCOPE_DENIED"
    assert plan.rows == ()
    bench.pass_ms(600_000)
    plan = bench.submit()
    assert isinstance(plan.answer, Receipt)
    assert (plan.answer.state, plan.rows) == (State.REJECTED, ())


@pytest.mark.clause("I20", "O12")
def test_reason_of_the_peer_survives_later_silence() -> None:
    """Three local timeouts do not erase what the peer said."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, Refusal("RECOVERY_REQUIRED", "disk"))
    for _ in range(3):
        (again,) = transmitted(bench.tick(30_000))
        bench.settle(again.attempt, Outcome.LOST)
    found = bench.engine.sent("m1", None)[0]
    assert found.last_refusal == Refusal("RECOVERY_REQUIRED", "disk")
    assert found.receipt.state is State.UNKNOWN
    assert found.attempt_count == 4


@pytest.mark.parametrize(
    "wrong",
    [
        receipt("other", State.ACCEPTED),
        receipt("m1", State.ACCEPTED, recipient=C),
        receipt("m1", State.PENDING),
        None,
    ],
)
def test_answer_that_is_no_receipt_of_the_message_is_as_good_as_none(wrong: Receipt | None) -> None:
    """A malformed answer leaves the outcome unknown."""
    bench = Bench()
    attempt = transmitted(bench.submit())[0].attempt
    bench.do(Settle(attempt, Outcome.ANSWERED, receipt=wrong))
    assert bench.state() is State.UNKNOWN


def test_refused_attempt_without_its_refusal_is_as_good_as_lost() -> None:
    """A no that nobody can read is no definite no."""
    bench = Bench()
    bench.do(Settle(transmitted(bench.submit())[0].attempt, Outcome.REFUSED))
    assert bench.state() is State.UNKNOWN


@pytest.mark.clause("O11", "I19")
def test_receipt_before_the_end_of_its_attempt_is_not_overwritten() -> None:
    """A pushed receipt that overtakes the answer stands, whatever the attempt then says."""
    for late in (accepted(), Outcome.LOST, Refusal("QUEUE_FULL", "late"), Outcome.UNREACHED):
        bench = Bench()
        attempt = transmitted(bench.submit())[0].attempt
        told = receipt("m1", State.CONSUMED, cursor=9, accepted_ms=1, consumed_ms=2)
        bench.do(ReceiptTold(Asked(1, 1), "b", told))
        assert bench.settle(attempt, late).rows == ()
        assert bench.state() is State.CONSUMED


def test_settle_of_an_unknown_attempt_changes_nothing() -> None:
    """A second end of an attempt is counted and ignored."""
    bench = Bench()
    attempt = transmitted(bench.submit())[0].attempt
    bench.settle(attempt, accepted())
    plan = bench.settle(attempt, Outcome.LOST)
    assert (plan.rows, plan.sends) == ((), ())
    assert bench.engine.counters["settles_ignored"] == 1


@pytest.mark.clause("I16")
def test_accepted_reply_marks_its_original_replied_and_owes_the_receipt() -> None:
    """Replied is stated when the asker's store has the reply, not before."""
    bench = Bench()
    bench.offer("q", B)
    attempt = transmitted(bench.submit("r", reply_to="q"))[0].attempt
    assert bench.engine.held(A, message_id="q", unread_only=False, count_max=1)[0].state is State.ACCEPTED
    plan = bench.settle(attempt, accepted("r"))
    assert bench.engine.held(A, message_id="q", unread_only=False, count_max=1)[0].state is State.REPLIED
    (push,) = sends_of(plan, PushReceipt)
    assert (push.instance, push.receipt.state, push.receipt.message_id) == ("b", State.REPLIED, "q")
    assert plan.is_urgent  # what is told waits for its row


def test_refused_reply_leaves_its_original_as_it_is() -> None:
    """A reply that nobody took answers nothing."""
    bench = Bench()
    bench.offer("q", B)
    attempt = transmitted(bench.submit("r", reply_to="q"))[0].attempt
    bench.settle(attempt, Refusal("SCOPE_DENIED", "no"))
    assert bench.engine.held(A, message_id="q", unread_only=False, count_max=1)[0].state is State.ACCEPTED


def test_reply_whose_original_was_forgotten_settles_all_the_same() -> None:
    """The original's record may be gone by the time its reply is accepted."""
    bench = Bench(limits=Limits(retention_ms=60_000, max_expiry_ms=700_000, expiry_ms=600_000))
    bench.offer("q", B, expires_ms=bench.wall_ms + 1_000)
    bench.pass_ms(500)
    attempt = transmitted(bench.submit("r", reply_to="q"))[0].attempt
    bench.tick(1_000)
    bench.tick(590_000)
    for _ in range(2):
        bench.tick(600_000)
    assert bench.engine.held(A, message_id="q", unread_only=False, count_max=1) == ()
    bench.settle(attempt, accepted("r"))
    assert bench.state("r") is State.ACCEPTED


# ---------------------------------------------------------------- expiry and death


@pytest.mark.clause("native-3.6.4", "I13")
def test_message_that_never_left_expires_undelivered_without_a_question() -> None:
    """What never left cannot have arrived."""
    bench = Bench()
    attempt = transmitted(bench.submit("m1"))[0].attempt
    bench.submit("m2", expiry_ms=3_000_000)
    bench.settle(attempt, Outcome.UNREACHED)
    plan = bench.tick(600_000)
    found = bench.engine.sent("m1", None)[0].receipt
    assert (found.state, found.outcome) == (State.EXPIRED, "NOT_DELIVERED")
    assert sends_of(plan, AskStatus) == []
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]


@pytest.mark.clause("native-3.6.4", "I13")
def test_unknown_message_past_expiry_frees_its_route_and_its_recipient_is_asked() -> None:
    """An expired head gives way; whether it was taken is asked, not guessed."""
    bench = Bench()
    attempt = transmitted(bench.submit("m1"))[0].attempt
    bench.submit("m2", expiry_ms=3_000_000)
    bench.settle(attempt, Outcome.LOST)
    plan = bench.tick(600_000)
    (question,) = sends_of(plan, AskStatus)
    assert (question.instance, question.message_id, question.recipient) == ("b", "m1", B.id)
    assert bench.state("m1") is State.UNKNOWN
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]


def lapsed() -> tuple[Bench, AskStatus]:
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, Outcome.LOST)
    (question,) = sends_of(bench.tick(600_000), AskStatus)
    return bench, question


@pytest.mark.parametrize("name", ["SCOPE_DENIED", "UNKNOWN_TARGET"])
def test_recipient_that_does_not_know_the_id_never_took_it(name: str) -> None:
    """Past expiry such an answer is proof: not delivered."""
    bench, question = lapsed()
    bench.settle(question.attempt, Refusal(name, "no"))
    found = bench.engine.sent("m1", None)[0].receipt
    assert (found.state, found.outcome) == (State.EXPIRED, "NOT_DELIVERED")


def test_recipient_that_took_it_says_so_past_expiry() -> None:
    """The recorded receipt settles the doubt."""
    bench, question = lapsed()
    told = receipt("m1", State.CONSUMED, accepted_ms=5, consumed_ms=6)
    bench.settle(question.attempt, told)
    assert bench.state() is State.CONSUMED
    assert bench.engine.deadline_ms is None or sends_of(bench.tick(60_000), AskStatus) == []


def test_recipient_proven_dead_past_expiry_settles_as_undelivered() -> None:
    """A dead incarnation will never take it."""
    bench, question = lapsed()
    bench.settle(question.attempt, Outcome.UNREACHED, is_gone=True)
    assert bench.state() is State.EXPIRED


@pytest.mark.parametrize("body", [Outcome.LOST, Outcome.UNREACHED, Refusal("METHOD_NOT_FOUND", "no")])
def test_recipient_that_does_not_answer_is_asked_again(body: Any) -> None:
    """Silence proves nothing: unknown stays, and the question is repeated."""
    bench, question = lapsed()
    assert bench.settle(question.attempt, body).sends == ()
    assert bench.state() is State.UNKNOWN
    assert len(sends_of(bench.tick(500), AskStatus)) == 1


def test_answer_to_a_question_that_says_nothing_is_asked_again() -> None:
    """An answer without a receipt of this message leaves the doubt."""
    bench, question = lapsed()
    bench.do(Settle(question.attempt, Outcome.ANSWERED, receipt=receipt("other", State.ACCEPTED)))
    assert bench.state() is State.UNKNOWN
    assert len(sends_of(bench.tick(500), AskStatus)) == 1


def test_message_under_way_at_its_expiry_waits_for_the_end_of_its_attempt() -> None:
    """While an attempt is out, its answer is still to come."""
    bench = Bench()
    attempt = transmitted(bench.submit("m1"))[0].attempt
    bench.submit("m2", expiry_ms=3_000_000)
    plan = bench.tick(600_000)
    assert plan.sends == ()
    assert bench.state("m1") is State.PENDING
    plan = bench.settle(attempt, Outcome.LOST)
    assert len(sends_of(plan, AskStatus)) == 1
    assert len(transmitted(plan)) == 1


def test_message_lapsed_by_the_route_before_its_timer_is_asked_about_once() -> None:
    """Whoever notices the expiry first, there is one question."""
    bench = Bench()
    attempt = transmitted(bench.submit("m1"))[0].attempt
    bench.settle(attempt, Outcome.LOST)
    bench.pass_ms(600_000)
    plan = bench.submit("m2")
    assert len(sends_of(plan, AskStatus)) == 1
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]
    assert sends_of(bench.tick(), AskStatus) == []


def test_proven_dead_recipient_ends_what_never_left_and_keeps_the_rest_in_doubt() -> None:
    """Proof of death settles at once only what cannot have been read."""
    bench = Bench()
    first = transmitted(bench.submit("m1"))[0].attempt
    bench.submit("m2")
    bench.settle(first, Outcome.UNREACHED, is_gone=True)
    assert (bench.state("m1"), bench.state("m2")) == (State.EXPIRED, State.EXPIRED)
    bench = Bench()
    first = transmitted(bench.submit("m1"))[0].attempt
    bench.submit("m2")
    bench.settle(first, Outcome.LOST)
    (again,) = transmitted(bench.tick(500))
    bench.settle(again.attempt, Outcome.UNREACHED, is_gone=True)
    assert (bench.state("m1"), bench.state("m2")) == (State.UNKNOWN, State.EXPIRED)


def test_accepted_message_keeps_no_text_and_no_attempt() -> None:
    """What the recipient holds, we need not hold."""
    bench = Bench()
    bench.settle(transmitted(bench.submit())[0].attempt, accepted())
    found = bench.engine.sent("m1", None)[0]
    assert (found.has_content, found.envelope.content) == (False, "")
    assert found.receipt.accepted_ms == WALL_MS + 5
    assert bench.engine.outbox(A, unresolved_only=True) != ()
    bench.tick(600_000)
    assert bench.engine.outbox(A, unresolved_only=True) == ()
    assert bench.engine.worst_case_bytes == 0


def test_draft_defaults_reach_the_envelope() -> None:
    """What a draft says is what its envelope says."""
    bench = Bench()
    given: dict[str, Any] = {
        "topic": "t",
        "thread": "x",
        "replaces": True,
        "is_ask": True,
        "notify_when_idle": True,
        "delivery": Delivery.PASSIVE,
        "attachments": (Attachment("n", "t"),),
    }
    one = transmitted(bench.submit(**given))[0].envelope
    assert {name: getattr(one, name) for name in given} == given
    assert draft("m1", A, B, **given).attachments == one.attachments


# ---------------------------------------------------------------- a wire where a repeat is a second message


def state_told(bench: Bench, message_id: str, state: State, **fields: Any) -> Any:
    """Tell what the window states of a message of ours; return the plan."""
    given: dict[str, Any] = {"cursor": 0, "durability": None, **fields}
    body = receipt(message_id, state, recipient=WINDOW, **given)
    return bench.do(ReceiptTold(Asked(1, message_id), WINDOW.instance, body))


@pytest.mark.clause("pi-peers-49")
@pytest.mark.parametrize("outcome", [Outcome.WRITTEN, Outcome.LOST])
def test_message_that_may_have_left_is_unknown_and_lets_the_next_go(outcome: Outcome) -> None:
    """A written frame proves nothing and blocks nothing."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    assert not transmitted(bench.submit("m2", WINDOW))
    plan = bench.settle(first.attempt, outcome)
    assert bench.state("m1") is State.UNKNOWN
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]


@pytest.mark.parametrize("outcome", [Outcome.WRITTEN, Outcome.LOST])
def test_message_that_may_have_left_is_never_transmitted_again(outcome: Outcome) -> None:
    """Not by time, not by the same send again, not by a restore: and nobody is asked about it."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    bench.settle(first.attempt, outcome)
    plans = [bench.submit("m1", WINDOW), bench.tick(60_000), bench.tick(600_000), bench.tick(86_400_000)]
    bench.engine = bench.restored(bench.rows[:2])
    plans += [bench.tick(), bench.submit("m1", WINDOW), bench.tick(600_000)]
    for plan in plans:
        assert not plan.sends
    assert bench.state("m1") is State.UNKNOWN


def test_message_that_never_left_is_tried_again() -> None:
    """While not one byte left it is no repeat to try, with our waits between."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    assert not bench.settle(first.attempt, Outcome.UNREACHED).sends
    (second,) = transmitted(bench.tick(RETRY_LAST_MS))
    offline = Refusal("PEER_OFFLINE", "no key")
    assert not bench.settle(second.attempt, offline).sends
    (third,) = transmitted(bench.tick(RETRY_LAST_MS))
    bench.settle(third.attempt, Outcome.WRITTEN)
    assert bench.state("m1") is State.UNKNOWN
    assert bench.engine.sent("m1", None)[0].last_refusal == offline


def test_message_that_never_left_expires_as_not_delivered() -> None:
    """What is known not to have left is said so, at its deadline."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    bench.settle(first.attempt, Outcome.UNREACHED)
    bench.tick(bench.limits.expiry_ms)
    (sent,) = bench.engine.sent("m1", None)
    assert (sent.receipt.state, sent.receipt.outcome) == (State.EXPIRED, "NOT_DELIVERED")


@pytest.mark.parametrize("code_", ["UNSUPPORTED_PROTOCOL", "INVALID_PARAMS"])
def test_message_refused_before_it_left_is_rejected(code_: str) -> None:
    """A definite no is final, and the next one goes."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    bench.submit("m2", WINDOW)
    plan = bench.settle(first.attempt, Refusal(code_, "protocol_version 2"))
    assert bench.state("m1") is State.REJECTED
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]


def test_unknown_message_past_its_deadline_is_closed_and_still_takes_receipts() -> None:
    """It keeps no room for ever, stays unknown, and a late word is taken in until it is forgotten."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    bench.settle(first.attempt, Outcome.WRITTEN)
    assert bench.engine.worst_case_bytes > 0
    plan = bench.tick(bench.limits.expiry_ms)
    assert not plan.sends
    assert bench.state("m1") is State.UNKNOWN
    assert bench.engine.worst_case_bytes == 0
    assert bench.engine.outbox(bench.root, unresolved_only=True) == ()
    state_told(bench, "m1", State.ACCEPTED)
    assert bench.state("m1") is State.ACCEPTED
    for _ in range(3):
        bench.tick(bench.limits.retention_ms + bench.limits.max_expiry_ms)
    assert bench.engine.sent("m1", None) == ()
    assert bench.engine.storage_bytes == 0


@pytest.mark.clause("pi-peers-35")
@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (State.ACCEPTED, None),
        (State.REJECTED, "DENIED"),
        (State.REJECTED, "QUEUE_FULL"),
        (State.EXPIRED, "HELD_EXPIRED"),
    ],
)
@pytest.mark.parametrize("is_held_first", [True, False])
def test_receipt_over_another_link_moves_what_is_unknown(
    state: State, outcome: str | None, is_held_first: bool
) -> None:
    """Held is unknown with a word more; what follows is the recipient's, with its wire's durability."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", WINDOW))
    bench.settle(first.attempt, Outcome.WRITTEN)
    if is_held_first:
        state_told(bench, "m1", State.PENDING, outcome=HELD)
        (sent,) = bench.engine.sent("m1", None)
        assert (sent.receipt.state, sent.receipt.outcome) == (State.UNKNOWN, HELD)
        assert not state_told(bench, "m1", State.PENDING, outcome=HELD).rows
    state_told(bench, "m1", state, outcome=outcome, is_retryable=outcome == "QUEUE_FULL")
    (sent,) = bench.engine.sent("m1", None)
    assert (sent.receipt.state, sent.receipt.outcome) == (state, outcome)
    if state is State.ACCEPTED:
        assert sent.receipt.durability is Durability.VOLATILE
    assert not transmitted(bench.submit("m1", WINDOW))


def test_receipt_that_says_synced_is_believed_over_the_wires_trait() -> None:
    """A Tieline root behind that wire states what it stores."""
    bench = Bench()
    bench.submit("m1", WINDOW)
    state_told(bench, "m1", State.ACCEPTED, durability=Durability.SYNCED)
    assert bench.engine.sent("m1", None)[0].receipt.durability is Durability.SYNCED


@pytest.mark.parametrize("outcome", list(Outcome))
def test_receipt_before_the_end_of_its_attempt_stands(outcome: Outcome) -> None:
    """The window may answer before the write is told: whatever the attempt says, nothing is sent twice."""
    for told, expected in ((State.PENDING, State.UNKNOWN), (State.ACCEPTED, State.ACCEPTED)):
        bench = Bench()
        (first,) = transmitted(bench.submit("m1", WINDOW))
        bench.submit("m2", WINDOW)
        plans = [state_told(bench, "m1", told, outcome=HELD if told is State.PENDING else None)]
        plans.append(bench.settle(first.attempt, outcome))
        plans += [bench.tick(60_000), bench.submit("m1", WINDOW)]
        ids = [one.envelope.message_id for plan in plans for one in transmitted(plan)]
        assert ids == ["m2"]
        if outcome is not Outcome.REFUSED:
            assert bench.state("m1") is expected


def test_held_receipt_of_a_wire_that_holds_nothing_is_refused() -> None:
    """On the native wire pending is ours to say."""
    bench = Bench()
    bench.submit("m1")
    plan = bench.do(
        ReceiptTold(Asked(1, 1), "b", receipt("m1", State.PENDING, outcome=HELD, durability=None))
    )
    body = Bench.answer(plan)
    assert isinstance(body, Refusal)
    assert body.code == "INVALID_PARAMS"
    assert bench.state("m1") is State.PENDING


@pytest.mark.clause("pi-peers-44")
def test_submit_faster_than_the_recipient_takes_stores_nothing_and_says_when() -> None:
    """What would be dropped is refused with the wait and the hint to merge; later it goes."""
    bench = Bench()
    for number in range(30):
        assert code(bench.submit(f"m{number}", WINDOW)) is None
    plan = bench.submit("more", WINDOW)
    assert isinstance(plan.answer, Refusal)
    assert (plan.answer.code, plan.answer.is_retryable) == ("RATE_LIMITED", True)
    assert "wait 2 s" in plan.answer.text
    assert "merge" in plan.answer.text
    assert not plan.rows
    assert code(bench.submit("native", B)) is None
    bench.pass_ms(2_000)
    assert code(bench.submit("more", WINDOW)) is None


@pytest.mark.clause("pi-peers-44")
def test_submit_of_same_text_within_the_window_stores_nothing_and_says_when() -> None:
    """Words that the recipient would take for a repeat are refused; the same send again is answered."""
    bench = Bench()
    bench.submit("m1", WINDOW, content="same")
    bench.pass_ms(10_000)
    plan = bench.submit("m2", WINDOW, content="same")
    assert isinstance(plan.answer, Refusal)
    assert "wait 20 s" in plan.answer.text
    assert not plan.rows
    assert isinstance(bench.submit("m1", WINDOW, content="same").answer, Receipt)
    assert code(bench.submit("m2", B, content="same")) is None


def test_submit_with_options_says_which_the_recipients_wire_cannot_say() -> None:
    """Each wire carries its own options, whatever is known of the recipient's program."""
    bench = Bench()
    fields: dict[str, Any] = {"delivery": Delivery.QUEUE, "notify_when_idle": True}
    for is_tieline in (None, True, False):
        carried = bench.submit(f"m{is_tieline}", WINDOW, is_recipient_tieline=is_tieline, **fields)
        assert code(carried) is None
        plan = bench.submit("m", WINDOW, is_recipient_tieline=is_tieline, thread="t", replaces=True, **fields)
        assert isinstance(plan.answer, Refusal)
        assert plan.answer.code == "CAPABILITY_DENIED"
        assert plan.answer.text.endswith(": replaces, thread")
    assert code(bench.submit("n", B, is_recipient_tieline=False, **fields)) == "CAPABILITY_DENIED"


def test_submit_of_a_large_text_is_bound_by_the_recipients_wire() -> None:
    """A window takes a mebibyte where a native peer takes the configured size."""
    bench = Bench()
    text = "x" * (bench.limits.message_bytes + 1)
    assert code(bench.submit("m1", B, content=text)) == "MESSAGE_TOO_LARGE"
    assert code(bench.submit("m1", WINDOW, content=text)) is None
    assert code(bench.submit("m2", WINDOW, content="x" * ((1 << 20) + 1))) == "MESSAGE_TOO_LARGE"


# ---------------------------------------------------------------- a wire whose broker answers

SESSION = Peer(foreign_instance("intercom", "pi-1"))


@pytest.mark.parametrize("word", NOTES[:2])
def test_answer_of_a_broker_is_kept_beside_unknown_and_lets_the_next_go(word: str) -> None:
    """The broker's word is no custody; it survives a restore, and nothing is sent again."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", SESSION))
    assert not transmitted(bench.submit("m2", SESSION))
    plan = bench.do(Settle(first.attempt, Outcome.WRITTEN, said=word))
    (sent,) = bench.engine.sent("m1", None)
    assert (sent.receipt.state, sent.receipt.outcome) == (State.UNKNOWN, word)
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]
    restored = bench.restored()
    assert restored.sent("m1", None)[0].receipt.outcome == word


def test_note_of_a_receipt_read_is_taken_where_recipients_cannot_be_asked() -> None:
    """A read says how far a message came; on a wire with questions of its own nobody may say that."""
    bench = Bench()
    (first,) = transmitted(bench.submit("m1", SESSION))
    bench.do(Settle(first.attempt, Outcome.WRITTEN, said="BROKER_ACCEPTED"))
    told = receipt("m1", State.UNKNOWN, recipient=SESSION, cursor=0, outcome="PLACED", durability=None)
    bench.do(ReceiptTold(Asked(1, "m1"), SESSION.instance, told))
    assert bench.engine.sent("m1", None)[0].receipt.outcome == "PLACED"
    bench.submit("m2")
    native = receipt("m2", State.UNKNOWN, cursor=0, outcome="PLACED", durability=None)
    plan = bench.do(ReceiptTold(Asked(1, "m2"), B.instance, native))
    assert isinstance(bench.answer(plan), Refusal)


def test_reply_that_a_broker_took_marks_its_question_replied() -> None:
    """More is not told of a reply there: the question waits no more."""
    bench = Bench()
    bench.do(
        Offer(
            Asked(1, "q"), SESSION.instance, FREE, envelope("q", SESSION, bench.root, is_ask=True),
            wire="intercom",
        )
    )  # fmt: skip
    (first,) = transmitted(bench.submit("m1", SESSION, reply_to="q"))
    bench.do(Settle(first.attempt, Outcome.WRITTEN, said="BROKER_ACCEPTED"))
    (held,) = bench.engine.held(bench.root, message_id="q", unread_only=False, count_max=1)
    assert held.state is State.REPLIED


def test_question_crosses_one_whose_asker_waits_no_more() -> None:
    """Who is known to wait for nothing of ours may be asked, and its question let in; else neither is."""
    bench = Bench()
    their_ask = envelope("b-q", SESSION, bench.root, is_ask=True)

    def offered(message_id: str, *, may_cross: bool) -> Any:
        theirs = envelope(message_id, SESSION, bench.root, is_ask=True)
        asked = Asked(1, message_id)
        return bench.answer(
            bench.do(Offer(asked, SESSION.instance, FREE, theirs, wire="intercom", may_cross=may_cross))
        )

    bench.do(Offer(Asked(1, "q"), SESSION.instance, FREE, their_ask, wire="intercom"))
    assert code(bench.submit("a-ask", SESSION, is_ask=True)) == "RESOURCE_BUSY"
    assert code(bench.submit("a-ask", SESSION, is_ask=True, may_cross=True)) is None
    assert offered("z-q", may_cross=False).code == "RESOURCE_BUSY"
    assert not isinstance(offered("z-q", may_cross=True), Refusal)
