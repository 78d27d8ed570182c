"""Show what is taken from peers, what is refused, and that a repeat is answered from the record."""

import sys
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
    envelope,
    receipt,
    sends_of,
    transmitted,
)
from tieline.config import Limits
from tieline.engine.contract import (
    Answer,
    AskDirectory,
    Asked,
    AskedStatus,
    BeginRun,
    Box,
    DirectoryTold,
    EndRun,
    MessageRow,
    Offer,
    PushReceipt,
    ReceiptTold,
    Recorded,
    Standing,
)
from tieline.errors import Refusal
from tieline.model.identity import Peer, foreign_instance
from tieline.model.message import content_sha256
from tieline.model.moment import NEVER_MS
from tieline.model.receipt import Durability, Receipt, State

RUN = Peer("a", "run")
THEIR_RUN = Peer("b", "theirs")


def code(body: Any) -> str | None:
    return body.code if isinstance(body, Refusal) else None


# ---------------------------------------------------------------- acceptance


@pytest.mark.clause("native-90", "I2", "mutant-1")
def test_offer_accepted_is_answered_in_the_plan_that_writes_it() -> None:
    """The answer waits for the row: they are one urgent plan."""
    plan = Bench().offered("m1", B)
    (row,) = plan.rows
    (answer,) = plan.sends
    assert isinstance(row, MessageRow)
    assert row.box is Box.IN
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, Receipt)
    assert (answer.body.state, answer.body.durability) == (State.ACCEPTED, Durability.SYNCED)
    assert answer.body.accepted_ms == WALL_MS
    assert plan.is_urgent
    assert plan.admits
    assert [(one.kind, one.cursor, one.owner) for one in plan.events] == [("message", row.cursor, A.id)]


@pytest.mark.clause("native-99", "native-100", "I11", "I14", "mutant-20")
def test_offers_get_rising_sequences_that_are_never_used_again() -> None:
    """The receiver numbers what it accepts, in the order of acceptance, also after removals."""
    bench = Bench(limits=Limits(retention_ms=60_000))
    cursors = [bench.offer(f"m{number}", (B, C)[number % 2]).cursor for number in range(4)]
    assert cursors == sorted(set(cursors))
    bench.consume(count_max=2)
    bench.tick(600_000)
    bench.tick(3_700_000)
    bench.tick(600_000)
    assert bench.engine.held(A, unread_only=False, count_max=9) == ()
    assert bench.offer("m9").cursor > max(cursors)


@pytest.mark.clause("I5", "mutant-24")
def test_offer_is_stored_with_exactly_its_text() -> None:
    """Every byte of the text is kept."""
    bench = Bench()
    text = "ä\r\n\x1b[31m\u2028 \U0001f600 "
    bench.offer(content=text)
    stored = bench.engine.held(A, count_max=1)[0].envelope.content
    assert content_sha256(stored) == content_sha256(text)


@pytest.mark.clause("I47", "native-78", "O23")
def test_offer_is_stored_with_the_verified_names_of_its_sender() -> None:
    """Alias and project are what was proven of the far end, not what the body says."""
    bench = Bench()
    bench.offer(sender_alias="boss", sender_project="secret")
    one = bench.engine.held(A, count_max=1)[0].envelope
    assert (one.sender_alias, one.sender_project) == ("far", "work")


# ---------------------------------------------------------------- refusals


@pytest.mark.clause("native-83", "native-79", "mutant-8", "I47")
def test_offer_from_another_instance_than_is_connected_is_refused() -> None:
    """The sender is who proved it."""
    bench = Bench()
    plan = bench.do(Offer(Asked(1, 1), "c", FREE, envelope("m", B, A)))
    assert code(bench.answer(plan)) == "INVALID_PARAMS"
    assert plan.rows == ()


@pytest.mark.clause("native-84", "native-85", "native-86", "native-87", "native-88")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"standing": Standing(FREE.capabilities, is_in_scope=False)}, "SCOPE_DENIED"),
        ({"standing": Standing(frozenset(), is_in_scope=True)}, "CAPABILITY_DENIED"),
        ({"recipient": Peer("z")}, "UNKNOWN_TARGET"),
        ({"recipient": Peer("a", "never")}, "UNKNOWN_TARGET"),
        ({"recipient": Peer("a", "ended")}, "TARGET_ENDED"),
        ({"recipient": Peer("a", "deaf")}, "CAPABILITY_DENIED"),
        ({"content": "x" * 8_001}, "MESSAGE_TOO_LARGE"),
        ({"content": "\ud800"}, "INVALID_PARAMS"),
        ({"correlation_id": ""}, "INVALID_PARAMS"),
        ({"automatic_depth": 65}, "INVALID_PARAMS"),
        ({"reply_to": "never", "correlation_id": "never"}, "INVALID_REPLY"),
        ({"automatic_depth": 9}, "AUTOMATIC_REPLY_LIMIT"),
        ({"expires_ms": WALL_MS}, "INVALID_PARAMS"),
        ({"expires_ms": WALL_MS + 3_600_001}, "INVALID_PARAMS"),
        ({"expires_ms": WALL_MS + 9, "created_ms": WALL_MS + 9}, "INVALID_PARAMS"),
    ],
)
def test_offer_refused_stores_nothing_and_is_not_remembered(fields: dict[str, Any], expected: str) -> None:
    """A no leaves no trace: the same id may come again and be taken."""
    bench = Bench()
    bench.do(BeginRun("deaf", "r", frozenset({"message.send"})))
    bench.do(BeginRun("ended", "r", FREE.capabilities))
    bench.do(EndRun("ended"))
    before = bench.engine.storage_bytes
    plan = bench.offered("m1", **{"sender": B, **fields})
    assert code(bench.answer(plan)) == expected
    assert plan.rows == ()
    assert bench.engine.storage_bytes == before
    assert bench.engine.counters[f"refused_{expected}"] == 1
    assert isinstance(bench.offer("m1"), Receipt)


@pytest.mark.clause("I42", "mutant-28")
def test_offer_out_of_scope_is_told_the_same_of_every_target() -> None:
    """Who may not look cannot tell a hidden peer from none."""
    bench = Bench()
    denied = Standing(FREE.capabilities, is_in_scope=False)
    targets = (A, Peer("a", "never"), Peer("z"))
    answers = {bench.offer(f"m{number}", B, denied, recipient=one) for number, one in enumerate(targets)}
    assert len(answers) == 1


@pytest.mark.clause("native-155", "native-170", "I7", "native-89")
def test_offer_to_a_full_inbox_is_refused_and_evicts_nobody() -> None:
    """The limit is per recipient and counts what nobody consumed; reading makes room."""
    bench = Bench(limits=Limits(inbox_messages=2))
    bench.do(BeginRun("run", "r", FREE.capabilities))
    for name in ("m1", "m2"):
        bench.offer(name)
    bench.expose(count_max=1)
    assert code(bench.offer("m3")) == "QUEUE_FULL"
    assert isinstance(bench.offer("m4", recipient=RUN), Receipt)
    assert [one.envelope.message_id for one in bench.engine.held(A, count_max=9)] == ["m1", "m2"]
    bench.consume("t2")
    assert isinstance(bench.offer("m3"), Receipt)


@pytest.mark.clause("native-159", "O57", "S18")
def test_offers_faster_than_the_rate_are_limited_per_sender_root() -> None:
    """A root has one bucket, its runs share it, other roots do not, and time refills it."""
    bench = Bench(limits=Limits(rate_per_second=2, rate_burst=3, inbox_messages=100))
    for number in range(3):
        assert isinstance(bench.offer(f"m{number}"), Receipt)
    assert code(bench.offer("m3")) == "RATE_LIMITED"
    assert isinstance(bench.offer("m0"), Receipt)  # a duplicate is not charged, and not limited
    assert isinstance(bench.offer("c1", C), Receipt)
    bench.pass_ms(500)
    assert isinstance(bench.offer("m3"), Receipt)
    assert code(bench.offer("m4")) == "RATE_LIMITED"


def test_offers_of_a_root_and_its_runs_share_one_rate() -> None:
    """More runs buy no more messages."""
    bench = Bench(limits=Limits(rate_per_second=1, rate_burst=2))
    (question,) = sends_of(bench.offered("m0", THEIR_RUN), AskDirectory)
    directory(bench, question.attempt, {"theirs", "more"})
    assert isinstance(bench.offer("m1", Peer("b", "more")), Receipt)
    assert code(bench.offer("m2", THEIR_RUN)) == "RATE_LIMITED"
    assert code(bench.offer("m3", B)) == "RATE_LIMITED"


def test_offers_at_a_full_inbox_are_charged_too() -> None:
    """Hammering at a full inbox is limited like any flood."""
    bench = Bench(limits=Limits(rate_per_second=1, rate_burst=3, inbox_messages=1))
    assert isinstance(bench.offer("m0"), Receipt)
    assert [code(bench.offer(f"m{number}")) for number in range(1, 4)] == [
        "QUEUE_FULL",
        "QUEUE_FULL",
        "RATE_LIMITED",
    ]


@pytest.mark.clause("native-158", "native-171", "I7", "I8")
def test_offers_never_take_more_than_the_store_may_hold_with_its_reserves() -> None:
    """State and reserves stay within the limit at every moment."""
    limits = Limits(storage_bytes=65_536, inbox_messages=1_000, rate_per_second=1_000, rate_burst=1_000)
    bench = Bench(limits=limits)
    answers = [bench.offer(f"m{number}", content="x" * 500) for number in range(40)]
    taken = [one for one in answers if isinstance(one, Receipt)]
    assert 0 < len(taken) < 40
    assert bench.engine.worst_case_bytes == 2_048 * len(taken)
    assert bench.engine.storage_bytes + bench.engine.worst_case_bytes <= 65_536
    assert {code(one) for one in answers[len(taken) :]} == {"QUEUE_FULL"}


# ---------------------------------------------------------------- duplicates


@pytest.mark.clause("native-91", "native-92", "I21", "mutant-6", "O15", "O16")
def test_offer_repeated_is_answered_from_the_record_at_any_time() -> None:
    """One record, one sequence, one receipt, however often and however late it comes again."""
    bench = Bench()
    first = bench.offer("m1", expires_ms=WALL_MS + 1_000)
    for duration_ms in (0, 500, 60_000, 3_600_000, 80_000_000):
        bench.tick(duration_ms)
        plan = bench.offered("m1", B, expires_ms=WALL_MS + 1_000)
        again = bench.answer(plan)
        assert plan.rows == ()
        assert (again.message_id, again.accepted_ms) == ("m1", first.accepted_ms)
    assert again.state is State.EXPIRED
    assert len(bench.engine.held(A, unread_only=False, count_max=9)) == 1


def test_offer_repeated_is_answered_although_it_would_be_refused_by_now() -> None:
    """A record is a fact: what changed since does not make it a refusal."""
    bench = Bench(limits=Limits(inbox_messages=1))
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("m1", recipient=RUN)
    bench.do(EndRun("run"))
    denied = Standing(frozenset(), is_in_scope=False)
    again = bench.offer("m1", B, denied, recipient=RUN)
    assert isinstance(again, Receipt)
    assert (again.state, again.outcome) == (State.ACCEPTED, "TARGET_ENDED")


@pytest.mark.clause("native-93", "I22", "mutant-7")
@pytest.mark.parametrize(
    "fields",
    [
        {"content": "other"},
        {"topic": "t"},
        {"correlation_id": "c"},
        {"automatic_depth": 1},
        {"expires_ms": WALL_MS + 2_000},
        {"created_ms": WALL_MS - 1},
        {"thread": "x"},
    ],
)
def test_offer_of_another_message_under_a_known_id_is_a_conflict(fields: dict[str, Any]) -> None:
    """The first record stays, and the answer says nothing of it."""
    bench = Bench()
    times = {"created_ms": WALL_MS, "expires_ms": WALL_MS + 1_000}
    bench.offer("m1", **times)
    before = bench.engine.held(A, count_max=1)
    body = bench.offer("m1", **{**times, **fields})
    assert code(body) == "MESSAGE_ID_CONFLICT"
    assert "text of m1" not in body.text
    assert bench.engine.held(A, count_max=1) == before


@pytest.mark.clause("native-3.6.6")
def test_offer_repeated_without_times_is_the_same_message() -> None:
    """Times count only where both attempts gave them."""
    bench = Bench()
    first = bench.offer("m1")
    bench.pass_ms(5_000)
    assert bench.offer("m1") == first
    assert bench.offer("m1", created_ms=1, expires_ms=bench.wall_ms + 1) == first
    bench.offer("m2", expires_ms=bench.wall_ms + 50, created_ms=bench.wall_ms)
    assert isinstance(bench.offer("m2"), Receipt)


@pytest.mark.clause("I24")
def test_offers_of_two_senders_under_one_id_are_two_messages() -> None:
    """Equal ids of two senders, or for two recipients, have nothing to do with each other."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    for sender, recipient in ((B, A), (C, A), (B, RUN)):
        assert isinstance(bench.offer("m1", sender, recipient=recipient), Receipt)
    assert len(bench.engine.held(A, message_id="m1", count_max=9)) == 2


@pytest.mark.clause("I23")
def test_offer_repeated_after_its_record_was_forgotten_is_refused_as_expired() -> None:
    """An id is remembered past the longest life and the retention; then its own expiry refuses it."""
    bench = Bench()
    expires_ms = WALL_MS + 3_600_000
    bench.offer("m1", expires_ms=expires_ms)
    bench.tick(3_600_000)
    for _ in range(60):
        bench.tick(1_800_000)
        if not bench.engine.held(A, message_id="m1", unread_only=False, count_max=1):
            break
    assert bench.wall_ms - WALL_MS > 3_600_000 + 86_400_000
    assert code(bench.offer("m1", expires_ms=expires_ms)) == "INVALID_PARAMS"


# ---------------------------------------------------------------- replies


def sent_question(message_id: str = "q", **fields: Any) -> Bench:
    bench = Bench(idle_behavior="auto")
    bench.settle(transmitted(bench.submit(message_id, **fields))[0].attempt, accepted(message_id))
    return bench


@pytest.mark.clause("native-108", "I26")
def test_reply_to_our_message_from_its_recipient_is_taken() -> None:
    """The right reply of the right conversation is a message like any other."""
    bench = sent_question()
    assert isinstance(bench.offer("r", B, reply_to="q", correlation_id="q"), Receipt)
    assert [one.envelope.message_id for one in bench.engine.held(A, reply_to="q", count_max=9)] == ["r"]


@pytest.mark.clause("native-108", "I26", "native-109", "native-110")
@pytest.mark.parametrize(
    ("sender", "fields"),
    [
        (C, {}),
        (Peer("b2"), {}),
        (B, {"correlation_id": "other"}),
        (B, {"correlation_id": None}),
        (B, {"automatic_depth": 2}),
        (B, {"recipient": RUN}),
    ],
)
def test_reply_that_belongs_to_another_conversation_is_refused(sender: Peer, fields: dict[str, Any]) -> None:
    """Neither another peer, nor a successor, nor another chain, nor another of our peers gets in."""
    bench = sent_question()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    given = {"reply_to": "q", "correlation_id": "q", **fields}
    assert code(bench.offer("r", sender, **given)) == "INVALID_REPLY"


@pytest.mark.clause("I28", "native-110")
def test_reply_to_an_ended_run_is_told_so_and_stored_nowhere() -> None:
    """The answer came too late for its asker, and goes to nobody else."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.settle(transmitted(bench.submit("q", sender=RUN))[0].attempt, accepted("q"))
    bench.do(EndRun("run"))
    plan = bench.offered("r", B, recipient=RUN, reply_to="q", correlation_id="q")
    assert code(bench.answer(plan)) == "TARGET_ENDED"
    assert plan.rows == ()


@pytest.mark.clause("native-112", "I29")
def test_automatic_offers_of_one_conversation_end_at_the_limit() -> None:
    """A peer that forges depths stops at the count; a person's message passes."""
    bench = Bench()
    for number in range(8):
        assert isinstance(bench.offer(f"m{number}", correlation_id="c", automatic_depth=1), Receipt)
    assert code(bench.offer("m8", correlation_id="c", automatic_depth=1)) == "AUTOMATIC_REPLY_LIMIT"
    assert isinstance(bench.offer("m9", correlation_id="c"), Receipt)


@pytest.mark.clause("I30", "O21")
def test_question_that_crosses_ours_gives_way_when_its_id_is_the_greater() -> None:
    """Of two questions that crossed exactly one is refused, whichever end decides first."""
    bench = Bench()
    bench.submit("m5", is_ask=True)
    assert code(bench.offer("m6", is_ask=True)) == "RESOURCE_BUSY"
    assert isinstance(bench.offer("m4", is_ask=True), Receipt)
    assert isinstance(bench.offer("m7"), Receipt)
    assert isinstance(bench.offer("m6", C, is_ask=True), Receipt)


@pytest.mark.clause("I30")
def test_question_that_crosses_several_of_ours_is_judged_by_the_least_id() -> None:
    """An older question of ours that gives way does not let in what crosses a newer one that does not."""
    bench = Bench()
    bench.submit("m7", is_ask=True)
    bench.submit("m3", is_ask=True)
    assert code(bench.offer("m5", is_ask=True)) == "RESOURCE_BUSY"
    assert isinstance(bench.offer("m2", is_ask=True), Receipt)


# ---------------------------------------------------------------- whose run


def directory(bench: Bench, attempt: int, runs: set[str] | None) -> list[Any]:
    plan = bench.do(DirectoryTold(attempt, None if runs is None else frozenset(runs)))
    return [send.body for send in plan.sends if isinstance(send, Answer)]


@pytest.mark.clause("native-28", "native-78")
def test_offer_of_a_run_waits_until_its_root_named_it() -> None:
    """Nothing is stored for a run that its root did not confirm; then it is, and answered."""
    bench = Bench()
    plan = bench.offered("m1", THEIR_RUN)
    (question,) = sends_of(plan, AskDirectory)
    assert question.instance == "b"
    assert plan.rows == ()
    assert bench.answer(plan) is None
    (body,) = directory(bench, question.attempt, {"theirs"})
    assert isinstance(body, Receipt)
    assert body.sender == THEIR_RUN.id


@pytest.mark.parametrize(
    ("runs", "expected", "is_retryable"), [({"x"}, "INVALID_PARAMS", False), (None, "PEER_OFFLINE", True)]
)
def test_offer_of_a_run_that_is_not_confirmed_is_refused(
    runs: set[str] | None, expected: str, is_retryable: bool
) -> None:
    """An unbound run is a wrong parameter; a root that cannot be asked may be asked again."""
    bench = Bench()
    (question,) = sends_of(bench.offered("m1", THEIR_RUN), AskDirectory)
    (body,) = directory(bench, question.attempt, runs)
    assert (body.code, body.is_retryable) == (expected, is_retryable)
    assert bench.rows == []


def test_confirmed_run_is_taken_for_one_heartbeat_without_a_question() -> None:
    """For five seconds a confirmed run is not asked for again."""
    bench = Bench()
    (question,) = sends_of(bench.offered("m1", THEIR_RUN), AskDirectory)
    directory(bench, question.attempt, {"theirs"})
    bench.pass_ms(5_000)
    assert isinstance(bench.offer("m2", THEIR_RUN), Receipt)
    assert len(sends_of(bench.offered("m3", Peer("b", "newer")), AskDirectory)) == 1
    bench.pass_ms(1)
    assert bench.offer("m4", THEIR_RUN) is None


def test_offers_of_one_root_share_a_question_and_a_younger_run_gets_its_own() -> None:
    """An answer that was asked before an offer came does not condemn that offer's run."""
    bench = Bench()
    (question,) = sends_of(bench.offered("m1", THEIR_RUN), AskDirectory)
    assert sends_of(bench.offered("m2", Peer("b", "young")), AskDirectory) == []
    plan = bench.do(DirectoryTold(question.attempt, frozenset({"theirs"})))
    assert len(sends_of(plan, Answer)) == 1
    (second,) = sends_of(plan, AskDirectory)
    (body,) = directory(bench, second.attempt, {"theirs", "young"})
    assert isinstance(body, Receipt)
    assert bench.engine.counters.get("settles_ignored") is None


def test_directory_that_nobody_waits_for_is_ignored() -> None:
    """A late answer to an old question is counted and nothing more."""
    bench = Bench()
    assert directory(bench, 99, {"theirs"}) == []
    assert bench.engine.counters["settles_ignored"] == 1


@pytest.mark.clause("I49")
def test_offers_that_wait_are_bounded_per_root_and_in_all() -> None:
    """More than the limit may not wait; the surplus is told so."""
    bench = Bench(limits=Limits(pending_requests=2, connections=2))
    bodies = [bench.offer(f"m{number}", THEIR_RUN) for number in range(3)]
    assert [code(one) for one in bodies] == [None, None, "QUEUE_FULL"]
    bodies = [bench.offer(f"n{number}", Peer(f"p{number}", "r")) for number in range(3)]
    assert [code(one) for one in bodies] == [None, None, "QUEUE_FULL"]


def test_offer_of_a_run_out_of_scope_asks_nobody() -> None:
    """A peer that may not write does not make us ask."""
    bench = Bench()
    plan = bench.offered("m1", THEIR_RUN, Standing(FREE.capabilities, is_in_scope=False))
    assert code(bench.answer(plan)) == "SCOPE_DENIED"
    assert sends_of(plan, AskDirectory) == []


def test_offer_of_a_run_repeated_needs_no_question() -> None:
    """A recorded message is answered although its run may have ended since."""
    bench = Bench()
    (question,) = sends_of(bench.offered("m1", THEIR_RUN), AskDirectory)
    directory(bench, question.attempt, {"theirs"})
    bench.pass_ms(60_000)
    assert isinstance(bench.offer("m1", THEIR_RUN), Receipt)


def test_offer_in_the_name_of_a_run_of_ours_that_never_was_is_refused() -> None:
    """We know our own runs and ask nobody for them."""
    bench = Bench()
    assert code(bench.offer("m1", Peer("a", "never"))) == "INVALID_PARAMS"


# ---------------------------------------------------------------- status and receipts


def status(bench: Bench, instance: str, message_id: str, recipient: Peer = A, **fields: Any) -> Answer:
    plan = bench.do(AskedStatus(Asked(7, "x"), instance, message_id, recipient.id, **fields))
    assert plan.rows == ()
    (answer,) = plan.sends
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.clause("native-70", "native-71")
def test_status_of_ones_own_message_is_its_receipt() -> None:
    """The sender learns where its message stands; a subscription is answered as one."""
    bench = Bench()
    bench.offer("m1")
    assert status(bench, "b", "m1").body == bench.engine.held(A, count_max=1)[0].receipt
    assert status(bench, "b", "m1", is_subscription=True).is_subscription


@pytest.mark.clause("native-70", "mutant-28", "S17", "I42")
def test_status_of_anothers_message_is_told_like_one_that_does_not_exist() -> None:
    """Nobody can probe for what others sent."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("m1")
    answers = {
        status(bench, "c", "m1").body,
        status(bench, "b", "never").body,
        status(bench, "b", "m1", RUN).body,
        status(bench, "b", "m1", sender_run="theirs").body,
        status(bench, "b", "m").body,
    }
    assert answers == {Refusal("SCOPE_DENIED", "no message of yours with this id and target")}


@pytest.mark.clause("S17", "I42", "mutant-28")
def test_status_of_a_thousand_hidden_ids_takes_the_way_of_made_up_ones() -> None:
    """Call by call the same code runs for what is hidden and for what is not there, and says the same."""
    bench = Bench(limits=Limits(inbox_messages=2_000, rate_burst=2_000, storage_bytes=1 << 30))
    for number in range(1_000):
        assert isinstance(bench.offer(f"m{number}"), Receipt)
    seen: set[tuple[str, Any]] = set()
    calls: list[str] = []
    for number in range(1_000):
        for name in (f"m{number}", f"x{number}"):
            calls.clear()
            sys.setprofile(lambda frame, event, _: calls.append(f"{event} {frame.f_code.co_qualname}"))
            try:
                plan = bench.engine.handle(AskedStatus(Asked(7, "x"), "c", name, A.id), bench.now)
            finally:
                sys.setprofile(None)
            seen.add(("\n".join(calls), bench.answer(plan)))
    assert len(seen) == 1
    assert isinstance(seen.pop()[1], Refusal)


@pytest.mark.clause("O11", "I19", "I46")
def test_receipt_recorded_and_replayed_after_a_restart_changes_nothing() -> None:
    """What was told before the restart is known after it: an older or equal word moves nothing."""
    bench = sent_question("m1")
    frames = [receipt("m1", State.CONSUMED, cursor=4), receipt("m1", State.ACCEPTED, cursor=3)]
    for frame in frames:
        told(bench, "b", frame)
    bench.engine = bench.restored()
    before = bench.engine.latest_cursor
    for frame in [*frames, receipt("m1", State.REJECTED, cursor=2)]:
        body, rows, _ = told(bench, "b", frame)
        assert (body, rows) == (Recorded(), ())
    assert bench.engine.latest_cursor == before
    assert bench.state() is State.CONSUMED


def told(bench: Bench, from_instance: str, given: Receipt) -> tuple[Any, tuple[Any, ...], bool]:
    plan = bench.do(ReceiptTold(Asked(7, "x"), from_instance, given))
    return bench.answer(plan), plan.rows, plan.is_urgent


@pytest.mark.clause("native-72", "native-73", "I17", "I18")
def test_receipt_of_the_recipient_is_recorded_before_it_is_confirmed() -> None:
    """The recipient's word is a row, and the confirmation waits for it."""
    bench = sent_question("m1")
    body, rows, is_urgent = told(bench, "b", receipt("m1", State.CONSUMED, cursor=4, consumed_ms=9))
    assert body == Recorded()
    assert [row.state for row in rows] == [State.CONSUMED]
    assert is_urgent
    assert bench.state() is State.CONSUMED


@pytest.mark.clause("I19", "O11")
def test_receipt_told_twice_or_late_is_confirmed_and_changes_nothing() -> None:
    """A repeat has no cursor, no event and no effect."""
    bench = sent_question("m1")
    told(bench, "b", receipt("m1", State.CONSUMED, cursor=4))
    before = bench.engine.latest_cursor
    for late in (receipt("m1", State.CONSUMED, cursor=4), accepted(cursor=9), receipt("m1", State.REJECTED)):
        body, rows, _ = told(bench, "b", late)
        assert (body, rows) == (Recorded(), ())
    assert bench.engine.latest_cursor == before
    assert bench.engine.counters["receipts_ignored"] == 3


@pytest.mark.clause("native-73", "I17", "mutant-10", "K19")
@pytest.mark.parametrize(
    ("from_instance", "given"),
    [
        ("c", receipt("m1", State.CONSUMED)),
        ("b", receipt("never", State.CONSUMED)),
        ("b", receipt("m1", State.CONSUMED, recipient=THEIR_RUN)),
        ("b", receipt("m1", State.CONSUMED, sender=C)),
    ],
)
def test_receipt_of_anybody_else_is_refused(from_instance: str, given: Receipt) -> None:
    """Only the instance that a message was sent to moves it, only for that sender and target."""
    bench = sent_question("m1")
    body, rows, _ = told(bench, from_instance, given)
    assert (code(body), rows) == ("SCOPE_DENIED", ())
    assert bench.state() is State.ACCEPTED


def test_receipt_with_a_state_that_is_not_theirs_is_refused() -> None:
    """Pending and unknown are the sender's own words."""
    bench = sent_question("m1")
    body, rows, _ = told(bench, "b", receipt("m1", State.UNKNOWN))
    assert (code(body), rows) == ("INVALID_PARAMS", ())


def test_receipt_of_a_reply_may_be_the_first_word_and_settles_its_route() -> None:
    """A pushed receipt that overtakes the answer frees the route and answers the original."""
    bench = Bench()
    bench.offer("q", B)
    bench.submit("r", reply_to="q")
    bench.submit("m2")
    plan = bench.do(ReceiptTold(Asked(7, "x"), "b", receipt("r", State.CONSUMED, cursor=3, accepted_ms=1)))
    assert [one.envelope.message_id for one in transmitted(plan)] == ["m2"]
    assert [one.receipt.state for one in sends_of(plan, PushReceipt)] == [State.REPLIED]


@pytest.mark.clause("I7", "I15")
def test_offer_that_replaces_ends_the_older_unread_mail_of_its_thread() -> None:
    """Same sender and thread, not yet read: expired as REPLACED, and told; everything else stays."""
    bench = Bench()
    bench.offered("other", B, thread="t2")
    bench.offered("foreign", C, thread="t1")
    bench.offered("old", B, thread="t1")
    plan = bench.offered("new", B, thread="t1", replaces=True)
    told = [one.receipt for one in sends_of(plan, PushReceipt)]
    assert [(one.message_id, one.state, one.outcome) for one in told] == [("old", State.EXPIRED, "REPLACED")]
    left = bench.engine.held(A, unread_only=True, count_max=9)
    assert [one.envelope.message_id for one in left] == ["other", "foreign", "new"]
    bench.expose()
    plan = bench.offered("newer", B, thread="t1", replaces=True)
    assert sends_of(plan, PushReceipt) == []  # a reader has it


# ---------------------------------------------------------------- the limits of the wire it came over

WINDOW = Peer(foreign_instance("pi-peers", "s1"))


def test_offer_over_a_wire_that_rates_itself_draws_no_native_token() -> None:
    """Its own room has counted it; the native bucket is full afterwards."""
    bench = Bench(limits=Limits(rate_burst=2, rate_per_second=1))
    for number in range(10):
        assert bench.offer(f"m{number}", WINDOW).state is State.ACCEPTED
    codes = [getattr(bench.offer(f"n{number}"), "code", None) for number in range(3)]
    assert codes == [None, None, "RATE_LIMITED"]


def test_offer_is_bound_by_the_size_and_the_unread_count_of_its_own_wire() -> None:
    """Fifty of windows and the configured number of native peers: neither takes the other's room."""
    bench = Bench(limits=Limits(inbox_messages=2))
    text = "x" * (bench.limits.message_bytes + 1)
    assert bench.offer("m0", WINDOW, content=text).state is State.ACCEPTED
    assert bench.offer("n0", content=text).code == "MESSAGE_TOO_LARGE"
    for number in range(1, 50):
        assert bench.offer(f"m{number}", WINDOW).state is State.ACCEPTED
    assert bench.offer("m50", WINDOW).code == "QUEUE_FULL"
    assert bench.offer("n0").state is State.ACCEPTED
    assert bench.offer("n1").state is State.ACCEPTED
    assert bench.offer("n2").code == "QUEUE_FULL"
    bench.consume(count_max=2, bytes_max=1 << 20)
    assert bench.offer("m50", WINDOW).state is State.ACCEPTED
    assert bench.offer("m52", WINDOW).state is State.ACCEPTED
    assert bench.offer("m53", WINDOW).code == "QUEUE_FULL"


def test_offer_over_a_wire_without_expiry_waits_until_it_is_consumed() -> None:
    """No time takes it away, and once it is consumed it is forgotten like any other."""
    bench = Bench()
    bench.offer("m1", WINDOW)
    for _ in range(40):
        bench.tick(86_400_000)
    (held,) = bench.engine.held(bench.root, count_max=9)
    assert held.expires_ms == NEVER_MS
    bench.consume()
    for _ in range(3):
        bench.tick(bench.limits.retention_ms + 1)
    assert bench.engine.storage_bytes == 0


def test_offer_over_any_wire_is_bound_by_the_bytes_of_the_store() -> None:
    """However much a wire allows, the root keeps what it has room for."""
    bench = Bench(limits=Limits(storage_bytes=65_536))
    assert bench.offer("m1", WINDOW, content="x" * 65_536).code == "QUEUE_FULL"


def test_offer_of_a_child_over_its_parents_wire_has_that_wires_limits() -> None:
    """A run that writes to its root as a window does is bound as a window is."""
    bench = Bench()
    bench.do(BeginRun("r", "r", frozenset({"message.send"})))
    one = envelope("m1", Peer("a", "r"), bench.root, content="x" * (bench.limits.message_bytes + 1))
    plan = bench.do(Offer(Asked(1, 1), "a", FREE, one, wire="pi-peers"))
    assert Bench.answer(plan).state is State.ACCEPTED
    assert bench.engine.held(bench.root, count_max=9)[0].expires_ms == NEVER_MS
