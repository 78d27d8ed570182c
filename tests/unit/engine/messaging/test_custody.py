"""Show that rows build the state and its indexes, and that no step looks at everything."""

import pytest

from tests.unit.engine.messaging.kit import FREE, A, B, Bench, C, accepted, transmitted
from tieline.config import Limits
from tieline.engine.contract import (
    Box,
    Command,
    MoveRow,
    MuteRow,
    Outcome,
    PruneRow,
    Taken,
)
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.timers import TimerKind
from tieline.model.identity import Peer
from tieline.model.receipt import State

WIDE = Limits(
    inbox_messages=1_000_000,
    storage_bytes=1 << 40,
    rate_per_second=1_000_000,
    rate_burst=1_000_000,
    events_kept=100,
)


def test_new_custody_waits_for_nothing() -> None:
    """An idle root wakes for nothing and holds nothing."""
    engine = Bench().engine
    assert engine.deadline_ms is None
    assert (engine.storage_bytes, engine.worst_case_bytes, engine.latest_cursor) == (0, 0, 0)


def test_mutes_follow_their_rows() -> None:
    """A muted peer is muted until it is not."""
    bench = Bench()
    custody = bench.engine._custody
    custody.apply(MuteRow("x", is_muted=True), bench.now, 0)
    assert list(custody.mutes) == ["x"]
    custody.apply(MuteRow("x", is_muted=False), bench.now, 0)
    custody.apply(MuteRow("x", is_muted=False), bench.now, 0)
    assert not custody.mutes


def test_move_of_a_record_that_is_gone_only_takes_its_cursor() -> None:
    """A stray row changes nothing but the place of the next one."""
    bench = Bench()
    custody = bench.engine._custody
    assert custody.apply(MoveRow(50, 1, State.CONSUMED, 0), bench.now, 0) is None
    assert custody.latest_cursor == 50


def test_prune_takes_every_trace_of_a_record() -> None:
    """Keys, lists, counts and bytes are as if it had never been."""
    bench = Bench()
    bench.offer("m1", correlation_id="c", automatic_depth=1)
    bench.submit("r", reply_to="m1")
    bench.offer("m2", correlation_id="c")
    custody = bench.engine._custody
    custody.apply(PruneRow(tuple(custody.records), 99, 100), bench.now, 0)
    assert (custody.records, custody.received_keys, custody.sent_keys, custody.sent_by_id) == ({}, {}, {}, {})
    assert (custody.routes, custody.state_bytes, custody.open_count) == ({}, 0, 0)
    assert custody.budgets.chain_count("c") == 0
    mailbox = custody.mailbox(A.id)
    lists = (mailbox.received, mailbox.unread, mailbox.sent, mailbox.unresolved)
    assert (lists, mailbox.by_id, mailbox.by_reply) == (([], [], [], []), {}, {})
    assert custody.latest_cursor == 99


def test_prune_of_one_record_leaves_those_with_the_same_names() -> None:
    """Ids shared by several records go one by one; an ended run's empty mailbox goes too."""
    bench = Bench()
    run = Peer("a", "run")
    for recipient in (B, C):
        bench.submit("m", recipient)
    for sender in (B, C):
        bench.offer("x", sender)
        bench.settle(1, accepted("m"))
    custody = bench.engine._custody
    custody.mailbox(run.id)
    first_in = next(one.cursor for one in custody.records.values() if one.box is Box.IN)
    first_out = next(one.cursor for one in custody.records.values() if one.box is Box.OUT)
    custody.apply(PruneRow((first_in, first_out, 12_345), 0, 1), bench.now, 0)
    assert [one.envelope.recipient for one in bench.engine.sent("m", None)] == [C]
    assert [one.envelope.sender for one in bench.engine.held(A, message_id="x", count_max=9)] == [C]


def test_timers_stand_only_while_what_they_are_for_does() -> None:
    """A timer of a settled message, a taken token, a finished courier wakes nobody."""
    bench = Bench()
    is_armed = bench.engine._custody.is_armed
    for kind in TimerKind:
        assert not is_armed((0, kind, 77, "none"))
    attempt = transmitted(bench.submit())[0].attempt
    bench.settle(attempt, Outcome.LOST)
    transit = bench.engine._custody.records[1].transit
    assert transit is not None
    assert is_armed((transit.retry_at_ms, TimerKind.RETRY, 1, ""))
    assert not is_armed((transit.retry_at_ms + 1, TimerKind.RETRY, 1, ""))
    assert is_armed((0, TimerKind.DEADLINE, 1, ""))


class Counted(dict[int, Record]):
    """A dict of records that counts every look at it."""

    looks = 0

    def __getitem__(self, key: int) -> Record:
        Counted.looks += 1
        return super().__getitem__(key)

    def get(self, key: int, default: object = None) -> Record | None:  # type: ignore[override]
        Counted.looks += 1
        return super().get(key)

    def __iter__(self) -> object:  # type: ignore[override]
        raise AssertionError("somebody looks at all records")

    values = items = keys = __iter__  # type: ignore[assignment]


@pytest.mark.clause("native-3.6.3")
def test_command_costs_the_same_with_a_long_history() -> None:
    """No command looks at more records with a thousand stored ones than with ten."""
    looks: list[list[int]] = []
    for stored in (10, 1_000):
        bench = Bench(limits=WIDE)
        for number in range(stored):
            bench.offer(f"old{number}")
            bench.submit(f"sent{number}", Peer(f"p{number}"))
        for number in range(stored // 2 // 16):
            bench.consume(f"old-{number}")
        bench.tick()
        custody = bench.engine._custody
        custody.records = Counted(custody.records)
        steps: list[Command | None] = [None, Taken("t1")]
        found = []
        for step in steps:
            Counted.looks = 0
            if step is None:
                bench.offer("new")
                attempt = transmitted(bench.submit("new", C))[0].attempt
                bench.settle(attempt, accepted("new", C))
                bench.expose(count_max=2)
            else:
                bench.do(step)
            found.append(Counted.looks)
        looks.append(found)
    assert all(long <= short for short, long in zip(*looks, strict=True)), looks


def test_standing_of_a_run_is_what_it_was_given() -> None:
    """A run that never was may nothing."""
    custody = Bench().engine._custody
    assert custody.standing_of(Peer("a", "never")).capabilities == frozenset()
    assert not custody.is_live(Peer("b"))
    assert FREE.is_in_scope
