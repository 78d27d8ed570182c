"""The loop: nothing is carried out before it is stored, and a failed store tells nobody a lie."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tieline.engine.contract import (
    Answer,
    Asked,
    Command,
    Mute,
    MuteRow,
    Offer,
    Plan,
    PushReceipt,
    Row,
    Send,
    Tick,
)
from tieline.errors import Refusal
from tieline.model.moment import Moment
from tieline.model.receipt import Event, Receipt, State
from tieline.shell.driver import LAZY_MS, Committed, Driver


class FakeEngine:
    """Decides what the test says; counts how often it was restored."""

    def __init__(self) -> None:
        self.plans: dict[int, Plan] = {}
        self.handled: list[Command] = []
        self.restored: list[Sequence[Row]] = []
        self.deadline_ms: int | None = None
        self.worst_case_bytes = 7
        self.failure: Exception | None = None

    def handle(self, command: Command, _now: Moment) -> Plan:
        """Return the plan that was laid out for this very command."""
        self.handled.append(command)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return self.plans.get(id(command), Plan())

    def restore(self, rows: Sequence[Row], _now: Moment) -> None:
        """Note what was restored."""
        self.restored.append(rows)


class FakePorts:
    """A world of lists: what was handed to the store waits until the test ends it."""

    def __init__(self) -> None:
        self.moment = Moment(0, 0)
        self.groups: list[tuple[list[Row], bool, int, Callable[[Committed], None]]] = []
        self.sent: list[Send] = []
        self.told: list[Event] = []
        self.armed: int | None = None
        self.reopening: list[Callable[[Sequence[Row] | None], None]] = []
        self.rows: list[Row] = []
        self.failures: list[Exception] = []

    def now(self) -> Moment:
        return self.moment

    def commit(
        self, rows: Sequence[Row], *, admits: bool, reserve_bytes: int, done: Callable[[Committed], None]
    ) -> None:
        self.groups.append((list(rows), admits, reserve_bytes, done))

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        self.reopening.append(done)

    def load(self) -> Sequence[Row]:
        return list(self.rows)

    def send(self, send: Send) -> None:
        self.sent.append(send)

    def tell(self, event: Event) -> None:
        self.told.append(event)

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    def arm(self, deadline_ms: int | None) -> None:
        self.armed = deadline_ms

    def end(self, outcome: Committed = Committed.STORED) -> None:
        """End the group that is at the store."""
        rows, _, _, done = self.groups.pop(0)
        if outcome is Committed.STORED:
            self.rows.extend(rows)
        done(outcome)


class Bench:
    """A driver over fakes."""

    def __init__(self) -> None:
        self.engine, self.ports = FakeEngine(), FakePorts()
        self.driver = Driver(self.engine, self.ports)  # type: ignore[arg-type]
        self.answers: list[object] = []
        self._kept: list[Command] = []

    def submit(self, name: str, *, command: Command | None = None, **plan: Any) -> Command:
        """Submit a command whose plan is given; its answer is its name."""
        command = command or Mute(name, is_muted=True)
        self._kept.append(command)
        self.engine.plans[id(command)] = Plan(**{"answer": name, **plan})
        self.driver.submit(command, self.answers.append)
        return command


def row(name: str) -> Row:
    """Return a row named `name`."""
    return MuteRow(name, is_muted=True)


def push(name: str) -> Send:
    """Return a send named `name`."""
    return PushReceipt(1, name, Receipt(name, "s", "r", State.CONSUMED, 1))


def event(name: str) -> Event:
    """Return an event named `name`."""
    return Event(1, "message", "o", name, "s", "r")


@pytest.fixture
def bench() -> Bench:
    """A driver over fakes."""
    return Bench()


@pytest.mark.clause("I2", "I3", "native-82", "native-90", "mutant-1")
def test_plan_with_rows_is_carried_out_after_its_commit_only(bench: Bench) -> None:
    """No answer, no send and no event leaves before the rows are durable."""
    bench.submit("a", rows=(row("a"),), sends=(push("a"),), events=(event("a"),), admits=True)
    assert (bench.answers, bench.ports.sent, bench.ports.told) == ([], [], [])
    assert bench.ports.groups[0][1:3] == (True, 7)
    bench.ports.end()
    assert bench.answers == ["a"]
    assert bench.ports.sent == [push("a")]
    assert bench.ports.told == [event("a")]


def test_plans_decided_during_a_sync_share_the_next_one(bench: Bench) -> None:
    """A crowd pays one sync, in order; one group is at the store at a time."""
    for name in "abc":
        bench.submit(name, rows=(row(name),))
    assert len(bench.ports.groups) == 1
    bench.ports.end()
    assert bench.answers == ["a"]
    assert [r.peer for r in bench.ports.groups[0][0]] == ["b", "c"]  # type: ignore[union-attr]
    bench.ports.end()
    assert bench.answers == ["a", "b", "c"]
    assert bench.driver.groups_count == 2


@pytest.mark.clause("I2", "I18")
def test_answer_without_rows_waits_for_what_it_was_decided_on(bench: Bench) -> None:
    """A repeat that finds a record not yet stored is answered when that record is."""
    bench.submit("first", rows=(row("first"),))
    bench.submit("repeat")
    assert bench.answers == []
    bench.ports.end()
    assert bench.answers == ["first", "repeat"]


def test_plan_without_rows_on_an_idle_loop_is_answered_at_once(bench: Bench) -> None:
    """Nothing waits for a disk that it does not need."""
    bench.submit("ask", sends=(push("ask"),))
    assert bench.answers == ["ask"]
    assert bench.ports.groups == []


@pytest.mark.clause("I3")
def test_lazy_plan_is_answered_at_once_and_its_sends_wait_for_urgent_rows(bench: Bench) -> None:
    """Recording an answer holds nobody; but a message whose intent is at the store does not leave yet."""
    bench.submit("intent", rows=(row("intent"),))
    bench.submit("settle", rows=(row("settle"),), sends=(push("next"),), is_urgent=False)
    assert bench.answers == ["settle"]
    assert bench.ports.sent == []
    bench.ports.end()
    assert bench.ports.sent == []
    bench.ports.end()
    assert bench.ports.sent == [push("next")]


def test_lazy_rows_alone_are_stored_after_their_time(bench: Bench) -> None:
    """They ride in the next group, or are stored after `LAZY_MS`."""
    bench.submit("settle", rows=(row("settle"),), sends=(push("next"),), is_urgent=False)
    assert bench.ports.sent == [push("next")]
    assert (bench.ports.groups, bench.ports.armed) == ([], LAZY_MS)
    bench.ports.moment = Moment(LAZY_MS, LAZY_MS)
    bench.driver.tick()
    assert len(bench.ports.groups) == 1
    bench.ports.end()
    assert bench.ports.sent == [push("next")]
    assert bench.answers == ["settle"]


@pytest.mark.clause("K5", "native-172", "I8")
def test_full_disk_decides_each_command_again_alone(bench: Bench) -> None:
    """The group is decided again from the journal; only what does not fit alone is refused."""
    for name in "abc":
        bench.submit(name, rows=(row(name),))
    bench.ports.end()
    bench.ports.end(Committed.FULL)  # the group of b and c
    assert len(bench.engine.restored) == 1
    assert bench.answers == ["a"]
    bench.ports.end(Committed.FULL)  # b alone
    refused = bench.answers[1]
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.is_retryable) == ("QUEUE_FULL", True)
    bench.ports.end()  # c alone
    assert bench.answers[2] == "c"
    bench.submit("d", rows=(row("d"),))
    bench.ports.end()
    assert bench.answers[3] == "d"
    assert [r.peer for r in bench.ports.rows] == ["a", "c", "d"]  # type: ignore[union-attr]


def test_command_during_single_decisions_waits_its_turn(bench: Bench) -> None:
    """What comes meanwhile is decided after those that were there before it."""
    bench.submit("a", rows=(row("a"),))
    bench.ports.end(Committed.FULL)
    bench.submit("b", rows=(row("b"),))
    bench.ports.end()
    bench.ports.end()
    assert bench.answers == ["a", "b"]


@pytest.mark.clause("K5")
def test_full_disk_tells_a_peer_that_its_offer_was_not_taken(bench: Bench) -> None:
    """A remote request that cannot be stored gets QUEUE_FULL, not silence."""
    asked = Asked(3, "rpc-1")
    offer = Offer(asked=asked, sender_instance="s", standing=None, envelope=None)  # type: ignore[arg-type]
    bench.submit("offer", command=offer, rows=(row("o"),), admits=True)
    bench.ports.end(Committed.FULL)
    bench.ports.end(Committed.FULL)
    answer = bench.ports.sent[0]
    assert isinstance(answer, Answer)
    assert answer.asked == asked
    assert isinstance(answer.body, Refusal)
    assert answer.body.code == "QUEUE_FULL"


@pytest.mark.clause("K4", "I2", "native-180", "mutant-4")
def test_commit_in_doubt_acknowledges_nothing_until_reopened(bench: Bench) -> None:
    """Everybody who waits is told RECOVERY_REQUIRED; later commands too; then the store's rows count."""
    bench.submit("a", rows=(row("a"),), sends=(push("a"),), events=(event("a"),))
    bench.submit("b", rows=(row("b"),))
    bench.ports.end(Committed.IN_DOUBT)
    bench.submit("c", rows=(row("c"),))
    assert [answer.code for answer in bench.answers] == ["RECOVERY_REQUIRED"] * 3  # type: ignore[attr-defined]
    assert (bench.ports.sent, bench.ports.told, bench.engine.restored) == ([], [], [])
    bench.ports.reopening[0](None)
    assert bench.driver.is_in_doubt
    bench.ports.reopening[0]([row("a")])
    assert bench.engine.restored == [[row("a")]]
    bench.submit("d", rows=(row("d"),))
    bench.ports.end()
    assert bench.answers[3] == "d"


@pytest.mark.clause("K4")
def test_offer_lost_in_doubt_is_answered_with_neither_yes_nor_no(bench: Bench) -> None:
    """The row may be stored: the peer is told so at once, and asks again under the same id."""
    offer = Offer(asked=Asked(1, "r"), sender_instance="s", standing=None, envelope=None)  # type: ignore[arg-type]
    receipt = Receipt("m", "s", "r", State.ACCEPTED, 1)
    bench.submit("offer", command=offer, rows=(row("o"),), sends=(Answer(Asked(1, "r"), receipt),))
    bench.ports.end(Committed.IN_DOUBT)
    (answer,) = bench.ports.sent
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, Refusal)
    assert (answer.asked, answer.body.code) == (Asked(1, "r"), "DELIVERY_UNKNOWN")


def test_tick_lets_the_engine_act_when_it_is_due(bench: Bench) -> None:
    """A tick before the deadline asks nothing of the engine; at the deadline it does."""
    bench.engine.deadline_ms = 50
    bench.driver.tick()
    assert bench.engine.handled == []
    bench.ports.moment = Moment(50, 50)
    bench.driver.tick()
    assert bench.engine.handled == [Tick()]


@pytest.mark.clause("K28")
def test_close_stores_what_was_decided_and_admits_nothing_more(bench: Bench) -> None:
    """Admitted work is joined, lazy rows included; then `done`; a later command is refused."""
    ended: list[str] = []
    bench.submit("a", rows=(row("a"),))
    bench.submit("lazy", rows=(row("lazy"),), is_urgent=False)
    bench.driver.close(lambda: ended.append("end"))
    bench.submit("late", rows=(row("late"),))
    assert bench.answers[-1].code == "PEER_OFFLINE"  # type: ignore[attr-defined]
    bench.ports.end()
    assert ended == []
    bench.ports.end()
    assert ended == ["end"]
    assert bench.driver.is_idle
    assert [r.peer for r in bench.ports.rows] == ["a", "lazy"]  # type: ignore[union-attr]


@pytest.mark.clause("K34")
@pytest.mark.parametrize("failure", [MemoryError(), RecursionError(), KeyError("x")])
def test_decision_that_fails_half_way_is_refused_and_memory_is_read_anew(
    bench: Bench, failure: Exception
) -> None:
    """A defect ends one request: what was stored counts, what was at the store is told to nobody."""
    bench.submit("a", rows=(row("a"),))
    bench.engine.failure = failure
    bench.submit("b", rows=(row("b"),))
    assert [answer.code for answer in bench.answers] == ["RECOVERY_REQUIRED"] * 2  # type: ignore[attr-defined]
    assert bench.ports.failures == [failure]
    bench.ports.end()  # the store ends the group that was given up
    assert len(bench.answers) == 2
    bench.ports.reopening[0](bench.ports.rows)
    assert bench.engine.restored == [[row("a")]]
    bench.submit("c", rows=(row("c"),))
    bench.ports.end()
    assert bench.answers[2] == "c"
