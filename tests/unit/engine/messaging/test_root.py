"""Show the questions an engine answers, its own mail, and that it is exactly repeatable."""

import subprocess
import sys

import pytest

from tests.unit.engine.messaging.kit import FREE, A, B, Bench, C, accepted, receipt, transmitted
from tieline.config import Limits
from tieline.engine.contract import (
    Act,
    Asked,
    AskedStatus,
    BeginRun,
    Box,
    EndRun,
    Expose,
    MessageRow,
    Mute,
    Outcome,
    Page,
    ReceiptTold,
    Taken,
    UserPrompt,
)
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.receipt import Receipt, State

RUN = Peer("a", "run")


def names(found: object) -> list[str]:
    assert isinstance(found, tuple)
    return [one.envelope.message_id for one in found]


def test_held_filters_by_sender_id_answer_and_state() -> None:
    """A reader finds by what it knows."""
    bench = Bench()
    bench.settle(transmitted(bench.submit("q"))[0].attempt, accepted("q"))
    bench.offer("m1", B)
    bench.offer("m2", C)
    bench.offer("m3", B, reply_to="q", correlation_id="q")
    bench.consume(count_max=1)
    bench.expose("t2", count_max=1)
    held = bench.engine.held
    assert names(held(A, count_max=9)) == ["m2", "m3"]
    assert names(held(A, count_max=1)) == ["m2"]
    assert names(held(A, unread_only=False, count_max=9)) == ["m1", "m2", "m3"]
    assert names(held(A, unread_only=False, count_max=2)) == ["m2", "m3"]
    assert names(held(A, from_peer=B, count_max=9)) == ["m3"]
    assert names(held(A, from_peer=C.id, count_max=9)) == ["m2"]
    assert names(held(A, reply_to="q", count_max=9)) == ["m3"]
    assert names(held(A, reply_to="q", from_peer=C, count_max=9)) == []
    assert names(held(A, message_id="m1", count_max=9)) == []
    assert names(held(A, message_id="m1", unread_only=False, count_max=9)) == ["m1"]
    assert names(held(A, message_id="m3", reply_to="other", count_max=9)) == []
    assert held(Peer("a", "never"), count_max=9) == ()
    assert bench.engine.inbox_counts(A) == (2, 1, bench.wall_ms)


@pytest.mark.clause("I6", "native-134")
def test_questions_of_one_mailbox_show_nothing_of_another() -> None:
    """A run sees its own mail and events, and the root its own."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("root-mail")
    bench.offer("run-mail", recipient=RUN)
    for owner, expected in ((A, ["root-mail"]), (RUN, ["run-mail"])):
        page = bench.engine.page(owner, 0, 99)
        assert isinstance(page, Page)
        assert [event.message_id for event in page.events] == expected
        assert names(bench.engine.held(owner, count_max=9)) == expected


@pytest.mark.clause("native-202")
def test_events_of_a_sent_message_carry_its_receipts() -> None:
    """Each move of a message is one event with its receipt, and its history can be asked for."""
    bench = Bench()
    bench.settle(transmitted(bench.submit("m1"))[0].attempt, Outcome.LOST)
    bench.settle(transmitted(bench.submit("m1"))[0].attempt, accepted())
    page = bench.engine.page(A, 0, 99)
    assert isinstance(page, Page)
    assert [(event.kind, event.state) for event in page.events] == [
        ("receipt", State.PENDING),
        ("receipt", State.UNKNOWN),
        ("receipt", State.ACCEPTED),
    ]
    assert all(event.receipt is not None and event.receipt.cursor == event.cursor for event in page.events)
    assert bench.engine.moves(1) == page.events
    assert bench.engine.moves(99) == ()


def test_page_above_the_latest_cursor_is_refused() -> None:
    """A cursor from another store is a wrong parameter."""
    assert isinstance(Bench().engine.page(A, 1, 9), Refusal)


def test_outbox_shows_the_newest_and_the_unresolved() -> None:
    """A sender sees what it sent, and what still waits."""
    bench = Bench()
    bench.settle(transmitted(bench.submit("m1"))[0].attempt, Refusal("SCOPE_DENIED", "no"))
    bench.submit("m2", C)
    bench.submit("m3", C)
    assert names(bench.engine.outbox(A)) == ["m1", "m2", "m3"]
    assert names(bench.engine.outbox(A, count_max=1)) == ["m3"]
    assert names(bench.engine.outbox(A, count_max=0)) == []
    assert names(bench.engine.outbox(A, unresolved_only=True)) == ["m2", "m3"]
    assert bench.engine.outbox(RUN) == ()


def test_mute_is_written_once_and_found_by_id_or_alias() -> None:
    """Silence is kept, and repeating it writes nothing."""
    bench = Bench()
    assert len(bench.do(Mute("noisy", is_muted=True)).rows) == 1
    assert bench.do(Mute("noisy", is_muted=True)).rows == ()
    assert bench.engine.is_muted("peer-1", "noisy")
    assert bench.engine.is_muted("noisy")
    assert not bench.engine.is_muted("peer-1", "")
    bench.do(Mute("noisy", is_muted=False))
    assert not bench.engine.is_muted("peer-1", "noisy")


def test_arrivals_grow_per_owner_and_in_all() -> None:
    """Every arrival is seen by who waits."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.offer("m1")
    bench.offer("m2", recipient=RUN)
    bench.offer("m2", recipient=RUN)
    assert bench.engine.arrival_generation == 2
    assert (bench.engine.arrivals(A), bench.engine.arrivals(RUN), bench.engine.arrivals(B)) == (1, 1, 0)


def test_first_cursor_is_where_numbers_begin() -> None:
    """A store that was cleared does not begin anew."""
    engine = Messaging("a", Limits(), idle_behavior="notify", first_cursor=500)
    assert engine.latest_cursor == 500
    bench = Bench()
    bench.engine = engine
    assert bench.offer().cursor == 501
    engine.restore((), bench.now)
    assert engine.latest_cursor == 501  # it was seen, so it is not given again


# ---------------------------------------------------------------- mail of this root to itself


@pytest.mark.clause("native-3")
def test_mail_between_peers_of_one_root_is_handed_over_in_one_plan() -> None:
    """Root and runs write to each other through the same admission; one transaction holds both ends."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    plan = bench.submit("m1", RUN)
    assert isinstance(plan.answer, Receipt)
    assert plan.answer.state is State.ACCEPTED
    assert [row.box for row in plan.rows if isinstance(row, MessageRow)] == [Box.OUT, Box.IN]
    assert plan.sends == ()
    assert plan.is_urgent
    assert names(bench.engine.held(RUN, count_max=9)) == ["m1"]
    bench.consume("t1", RUN)
    assert bench.state("m1") is State.CONSUMED
    assert bench.submit("r", A, sender=RUN, reply_to="m1").sends == ()
    assert bench.state("m1") is State.REPLIED


def test_mail_to_an_ended_run_of_ones_own_is_rejected_at_once() -> None:
    """The same rules hold inside a root."""
    bench = Bench()
    bench.do(BeginRun("run", "r", FREE.capabilities))
    bench.submit("m0", RUN)
    bench.do(EndRun("run"))
    assert bench.engine.sent("m0", None)[0].receipt.outcome == "TARGET_ENDED"
    plan = bench.submit("m1", RUN)
    assert isinstance(plan.answer, Receipt)
    assert (plan.answer.state, plan.answer.outcome) == (State.REJECTED, "TARGET_ENDED")


@pytest.mark.clause("O22", "K21")
def test_mail_to_oneself_is_bounded_like_any_other() -> None:
    """A model that writes to itself ends at its limit."""
    bench = Bench(limits=Limits(agent_sends_max=3, inbox_messages=100))
    answers = [bench.submit(f"m{number}", A, act=Act.AGENT).answer for number in range(5)]
    assert [isinstance(one, Receipt) for one in answers] == [True, True, True, False, False]


def test_own_mail_that_lapsed_while_unknown_is_asked_for_inside() -> None:
    """After a restore even a doubt about one's own mail is settled without a link."""
    bench = Bench()
    bench.submit("m1", A)
    rows = [row for row in bench.rows if isinstance(row, MessageRow)]
    bench.engine = bench.restored(rows[:1])
    bench.pass_ms(600_000)
    assert bench.tick().sends == ()
    found = bench.engine.sent("m1", None)[0].receipt
    assert (found.state, found.outcome) == (State.EXPIRED, "NOT_DELIVERED")
    bench.engine = bench.restored(rows)
    bench.tick()
    assert bench.state("m1") in (State.ACCEPTED, State.EXPIRED)


# ---------------------------------------------------------------- exactly repeatable

SCRIPT = """
from tests.unit.engine.messaging.test_root import play
print(play())
"""


def play() -> str:
    """Return every plan of one history, as text."""
    bench = Bench()
    plans = [bench.do(BeginRun("run", "r", FREE.capabilities))]
    for number in range(12):
        plans.append(bench.offered(f"m{number}", (B, C, Peer("b", "x"))[number % 3]))
        plans.append(bench.submit(f"s{number}", (B, C, RUN, A)[number % 4], act=Act.AGENT))
    plans.append(bench.do(Expose(A, "t", "read", 4, 999)))
    plans.append(bench.do(Taken("t")))
    plans.append(bench.do(EndRun("run")))
    outcomes = (Outcome.LOST, Outcome.UNREACHED)
    plans += [bench.settle(attempt, outcomes[attempt % 2]) for attempt in range(1, 20)]
    plans += [bench.tick(duration_ms) for duration_ms in (500, 5_000, 600_000, 90_000_000)]
    plans.append(bench.do(UserPrompt(A)))
    plans.append(bench.do(AskedStatus(Asked(1, 1), "b", "m0", A.id)))
    plans.append(bench.do(ReceiptTold(Asked(1, 1), "b", receipt("s0", State.CONSUMED))))
    return "\n".join(map(repr, plans)) + repr(bench.engine.counters)


@pytest.mark.clause("native-8")
def test_same_commands_give_the_same_plans_whatever_the_hash_seed() -> None:
    """Plans are equal byte for byte, in this process and in others with other hash seeds."""
    here = play()
    assert play() == here
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(["", *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == here + "\n", done.stderr[-500:]
