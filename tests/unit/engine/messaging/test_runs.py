"""Show that a run's identity is used once and that its end is told."""

import pytest

from tests.unit.engine.messaging.kit import FREE, A, B, Bench, sends_of, transmitted
from tieline.config import Limits
from tieline.engine.contract import BeginRun, EndRun, MoveRow, Outcome, PushReceipt, RunRow, Taken
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.receipt import State

RUN = Peer("a", "run")


def begin(bench: Bench, run: str = "run") -> object:
    return bench.do(BeginRun(run, "helper", FREE.capabilities)).answer


def code(answer: object) -> str | None:
    return answer.code if isinstance(answer, Refusal) else None


@pytest.mark.clause("native-11", "I44")
def test_run_is_known_from_its_begin_and_after_its_end() -> None:
    """A run has its peer from the beginning, and keeps it when it ended."""
    bench = Bench()
    assert bench.engine.own_peer(RUN.id) is None
    assert begin(bench) is None
    row = bench.engine.run("run")
    assert row == RunRow("run", "helper", tuple(sorted(FREE.capabilities)), is_live=True, at_ms=bench.wall_ms)
    assert bench.engine.live_runs() == (row,)
    bench.do(EndRun("run"))
    assert bench.engine.live_runs() == ()
    assert bench.engine.own_peer(RUN.id) == RUN
    assert bench.engine.own_peer(A.id) == A


@pytest.mark.clause("native-11", "native-110", "I6")
def test_run_id_is_used_once() -> None:
    """Neither a live nor an ended id begins again."""
    bench = Bench()
    begin(bench)
    assert code(begin(bench)) == "TARGET_ENDED"
    bench.do(EndRun("run"))
    assert code(begin(bench)) == "TARGET_ENDED"


def test_run_id_that_is_none_is_refused() -> None:
    """An id has 1 to 256 characters without controls."""
    assert code(begin(Bench(), "")) == "INVALID_PARAMS"


@pytest.mark.clause("native-167")
def test_runs_beyond_the_limit_are_refused_until_one_ends() -> None:
    """Live runs are bounded; ended ones do not count."""
    bench = Bench(limits=Limits(published_runs=2))
    assert [code(begin(bench, name)) for name in "xyz"] == [None, None, "QUEUE_FULL"]
    bench.do(EndRun("x"))
    assert code(begin(bench, "z")) is None


@pytest.mark.clause("I44", "O17")
def test_runs_of_one_alias_are_all_kept() -> None:
    """Many runs may wish for one name; none is lost."""
    bench = Bench()
    assert all(begin(bench, f"run{number}") is None for number in range(64))
    assert len({row.run for row in bench.engine.live_runs()}) == 64


@pytest.mark.clause("native-210", "I28")
def test_end_of_a_run_gives_its_unread_mail_the_outcome_and_tells_the_senders() -> None:
    """Accepted stays true; that nobody will read it is told, also of what was being shown."""
    bench = Bench()
    begin(bench)
    for number in range(3):
        bench.offer(f"m{number}", recipient=RUN)
    bench.offer("root-mail")
    bench.expose("t0", RUN, count_max=1)
    bench.do(Taken("t0"))
    bench.expose("t1", RUN, count_max=1)
    plan = bench.do(EndRun("run"))
    moves = [row for row in plan.rows if isinstance(row, MoveRow)]
    assert [(row.state, row.outcome) for row in moves] == [(State.ACCEPTED, "TARGET_ENDED")] * 2
    told = [(one.receipt.message_id, one.receipt.outcome) for one in sends_of(plan, PushReceipt)]
    assert told == [("m1", "TARGET_ENDED"), ("m2", "TARGET_ENDED")]
    assert bench.do(Taken("t1")).answer == 0
    assert bench.engine.inbox_counts(RUN) == (0, 0, None)
    assert bench.engine.inbox_counts(A).unread == 1
    assert bench.tick(600_000).rows != ()
    (found,) = bench.engine.held(RUN, message_id="m2", unread_only=False, count_max=1)
    assert (found.state, found.receipt.outcome) == (State.ACCEPTED, "TARGET_ENDED")


def test_end_of_a_run_twice_or_of_none_changes_nothing() -> None:
    """An end is told once."""
    bench = Bench()
    begin(bench)
    bench.do(EndRun("run"))
    for name in ("run", "never"):
        plan = bench.do(EndRun(name))
        assert (plan.answer, plan.rows) == (None, ())


def test_end_of_a_run_lets_what_it_sent_go_on() -> None:
    """Custody of what a run sent is the root's."""
    bench = Bench()
    begin(bench)
    attempt = transmitted(bench.submit("m1", sender=RUN))[0].attempt
    bench.submit("m2", sender=RUN)
    bench.do(EndRun("run"))
    bench.settle(attempt, Outcome.UNREACHED)
    assert [one.envelope.message_id for one in transmitted(bench.tick(500))] == ["m1"]


def test_ended_runs_are_kept_to_their_bound_oldest_first() -> None:
    """Late mail for an ended run is told so, as long as the run is remembered."""
    bench = Bench(limits=Limits(ended_runs_kept=2))
    for name in "xyz":
        begin(bench, name)
        bench.do(EndRun(name))
    answers = [bench.offer(f"m-{name}", B, recipient=Peer("a", name)) for name in "xyz"]
    assert [code(one) for one in answers] == ["UNKNOWN_TARGET", "TARGET_ENDED", "TARGET_ENDED"]
    assert bench.engine.run("x") is None
