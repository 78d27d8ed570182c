"""A broker's sessions: rows before words, words in their order, and when nobody needs a broker any more."""

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tieline.engine.brokering.contract import (
    Command,
    Delivery,
    Departed,
    Drop,
    Kept,
    Lost,
    Opened,
    Plan,
    Put,
    Row,
    Tick,
    Unkept,
)
from tieline.engine.brokering.features import DIRECT
from tieline.engine.brokering.hub import Hub
from tieline.errors import RecoveryRequired, Refused
from tieline.model.moment import Moment
from tieline.runtime.broker.sessions import IDLE_MS, Sessions
from tieline.wire.intercom.protocol import BrokerLink
from tieline.wire.intercom.saying import FrameCodec

pytestmark = pytest.mark.asyncio
ROW = Put("mail", "1", b"{}")


class Line:
    """A socket that only remembers."""

    process_id = 7

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.is_open = True
        self.is_paused = False
        self.is_held = False
        self.pauses_after = 0  # frames; 0 for never
        self.unread_bytes = 0
        self.ended = ""

    @property
    def is_closing(self) -> bool:
        return not self.is_open

    def hold(self, *, is_held: bool) -> None:
        self.is_held = is_held

    def write(self, data: bytes) -> None:
        while data:
            (length,) = struct.unpack(">I", data[:4])
            self.written.append(msgspec.json.decode(data[4 : 4 + length]))
            data = data[4 + length :]
        self.is_paused = 0 < self.pauses_after <= len(self.written)

    def close(self) -> None:
        self.is_open, self.ended = False, self.ended or "closed"

    def abort(self) -> None:
        self.is_open, self.ended = False, "aborted"


class Keeping:
    """A store that keeps when it is let."""

    def __init__(self) -> None:
        self.commits: list[list[Put | Drop]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.error: Exception | None = None

    def commit(self, rows: list[Put | Drop]) -> None:
        assert self.may_go.wait(5)
        if self.error is not None:
            raise self.error
        self.commits.append(rows)


class FakeHub:
    """A hub that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.is_undecided = False
        self.answer: Callable[[Command], Plan] = lambda command: Plan()

    def handle(self, command: Command, now: Moment) -> Plan:
        if isinstance(command, Kept):
            self.is_undecided = False
            return Plan()
        self.asked.append(command)
        plan = self.answer(command)
        self.is_undecided = self.is_undecided or plan.refusable > 0
        return plan

    def may_be_heard(self, command: Command) -> bool:
        return not self.is_undecided or type(command).__name__ != "Leave"


class Clock:
    """Monotonic time that a test moves; wall time stands."""

    def __init__(self) -> None:
        self.mono_ms = 1_000

    def __call__(self) -> Moment:
        return Moment(5, self.mono_ms)


class Ground:
    """Sessions over fakes, with links whose dialect is known."""

    def __init__(self) -> None:
        self.hub, self.keeping, self.clock = FakeHub(), Keeping(), Clock()
        self.sessions = Sessions(
            self.hub,  # type: ignore[arg-type]
            FrameCodec(),
            self.keeping,
            lambda: "00000000-0000-4000-8000-000000000000",
            self.clock,
        )

    def join(self) -> tuple[int, Line]:
        line = Line()
        number = self.sessions.accepted(line)  # type: ignore[arg-type]
        self.say(number, type="register", session={"cwd": "/", "model": "m"})
        return number, line

    def say(self, number: int, **frame: Any) -> None:
        data = msgspec.json.encode(frame)
        self.sessions.received(number, struct.pack(">I", len(data)) + data)

    def plans(self, *plans: Plan) -> None:
        """Answer the next lists with these, everything else with nothing."""
        left = list(plans)
        self.hub.answer = lambda command: left.pop(0) if type(command).__name__ == "ListAsked" else Plan()


@pytest_asyncio.fixture
async def ground() -> Ground:
    """Sessions of nobody yet."""
    return Ground()


def said(line: Line) -> list[str]:
    return [frame["sessionId"] for frame in line.written]


@pytest.mark.clause("I42")
async def test_words_wait_for_rows_and_later_words_wait_behind_them(ground: Ground) -> None:
    """What is said after a row was ordered is said when it is kept; rows that came meanwhile go at once."""
    number, line = ground.join()
    ground.plans(
        Plan(outputs=((number, Departed("0")),)),
        Plan(rows=(ROW,), outputs=((number, Departed("1")),)),
        Plan(outputs=((number, Departed("2")),)),
        Plan(rows=(Drop("mail", "1"),), outputs=((number, Departed("3")),)),
        Plan(rows=(ROW,), outputs=((number, Departed("4")),)),
    )
    ground.keeping.may_go.clear()
    for count in range(5):
        ground.say(number, type="list", requestId=str(count))
    await asyncio.sleep(0.05)
    assert said(line) == ["0"]
    ground.keeping.may_go.set()
    async with asyncio.timeout(5):
        while len(line.written) < 5:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)
    assert said(line) == ["0", "1", "2", "3", "4"]
    assert ground.keeping.commits == [[ROW], [Drop("mail", "1"), ROW]]
    await ground.sessions.close()


@pytest.mark.clause("I42", "K4")
async def test_rows_in_doubt_end_the_broker_without_a_word(ground: Ground) -> None:
    """Nothing of that plan or of a later one is said; the links are cut."""
    number, line = ground.join()
    ground.plans(
        Plan(rows=(ROW,), outputs=((number, Departed("1")),)), Plan(outputs=((number, Departed("2")),))
    )
    ground.keeping.error = RecoveryRequired("in doubt")
    ground.say(number, type="list", requestId="1")
    ground.say(number, type="list", requestId="2")
    async with asyncio.timeout(5):
        await ground.sessions.is_over.wait()
    assert ground.sessions.failure is ground.keeping.error
    count = len(ground.hub.asked)
    ground.say(number, type="list", requestId="3")
    await ground.sessions.close()
    assert (said(line), line.ended) == ([], "aborted")
    assert len(ground.hub.asked) == count


async def test_link_that_breaks_the_rules_is_closed_and_told_lost_once(ground: Ground) -> None:
    """What was whole before still counts; what comes after it is nobody's."""
    number, line = ground.join()
    other, other_line = ground.join()
    ground.hub.answer = lambda command: (
        Plan(outputs=((other, Departed("gone")),)) if isinstance(command, Lost) else Plan()
    )
    good = msgspec.json.encode({"type": "list", "requestId": "1"})
    ground.sessions.received(number, struct.pack(">I", len(good)) + good + b"\xff\xff\xff\xff")
    assert line.ended == "closed"
    assert [type(command).__name__ for command in ground.hub.asked[-2:]] == ["ListAsked", "Lost"]
    assert said(other_line) == ["gone"]
    ground.sessions.lost(number)
    ground.sessions.received(number, b"late")
    assert [command for command in ground.hub.asked if isinstance(command, Lost)] == [Lost(number)]
    assert other_line.is_open
    await ground.sessions.close()


async def test_plan_that_closes_a_link_says_its_words_first_and_lost_after_them(ground: Ground) -> None:
    """Who is replaced is told; all of the plan, its closes too, comes before what its closes bring."""
    number, line = ground.join()
    other, other_line = ground.join()
    third, third_line = ground.join()

    def answer(command: Command) -> Plan:
        if isinstance(command, Lost):
            return Plan(outputs=((other, Departed("second")), (third, Departed("never"))))
        if type(command).__name__ == "ListAsked":
            outputs = ((number, Departed("last")), (other, Departed("first")), (99, Departed("nobody")))
            return Plan(outputs=outputs, closes=(number, third, 99))
        return Plan()

    ground.hub.answer = answer
    ground.say(other, type="list", requestId="1")
    assert (said(line), line.ended) == (["last"], "closed")
    assert said(other_line) == ["first", "second", "second"]
    assert (said(third_line), third_line.ended) == ([], "closed")
    await ground.sessions.close()


async def test_many_rows_are_kept_in_bounded_commits(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan is never split; the next commit takes what did not fit."""
    monkeypatch.setattr("tieline.runtime.broker.sessions.ROWS_PER_COMMIT_MAX", 3)
    number, line = ground.join()
    two = Plan(rows=(ROW, ROW), outputs=((number, Departed("x")),))
    ground.plans(two, two, Plan(rows=(ROW,) * 5, outputs=((number, Departed("x")),)))
    ground.keeping.may_go.clear()
    for count in range(3):
        ground.say(number, type="list", requestId=str(count))
    ground.keeping.may_go.set()
    await ground.sessions.close()
    assert [len(commit) for commit in ground.keeping.commits] == [2, 2, 5]
    assert len(line.written) == 3


@pytest.mark.clause("intercom-127", "intercom-128")
async def test_idle_broker_is_over_after_five_seconds_and_not_before(ground: Ground) -> None:
    """Counted from the hub's word; a session, or held mail, takes that back."""
    ground.sessions.begin(Plan(idle_since_ms=1_000))
    ground.clock.mono_ms = 1_000 + IDLE_MS - 1
    await asyncio.sleep(0.05)
    assert not ground.sessions.is_over.is_set()
    ground.sessions.begin(Plan(idle_since_ms=None))
    ground.clock.mono_ms = 1_000 + IDLE_MS
    await asyncio.sleep(0.05)
    assert not ground.sessions.is_over.is_set()
    ground.sessions.begin(Plan(idle_since_ms=1_000))
    async with asyncio.timeout(1):
        await ground.sessions.is_over.wait()
    assert ground.hub.asked == []
    await ground.sessions.close()


async def test_deadline_is_asked_as_a_tick_when_it_is_reached(ground: Ground) -> None:
    """Not before, and once; a clock that went slower than the timer is waited for."""
    ground.sessions.begin(Plan(deadline_ms=1_010))
    await asyncio.sleep(0.05)
    assert ground.hub.asked == []
    ground.clock.mono_ms = 1_010
    async with asyncio.timeout(1):
        while not ground.hub.asked:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    assert ground.hub.asked == [Tick()]
    await ground.sessions.close()


async def test_close_waits_for_sockets_that_take_what_was_said(ground: Ground) -> None:
    """A far end that is slow gets its last words; the kernel's process id came with it."""
    _, line = ground.join()
    assert ground.hub.asked[0] == Opened(1, 7)

    def slowly() -> None:
        line.ended = "closing"
        asyncio.get_running_loop().call_later(0.05, lambda: setattr(line, "is_open", False))

    line.close = slowly  # type: ignore[method-assign]
    await ground.sessions.close()
    assert (line.ended, line.is_open) == ("closing", False)


async def test_real_hub_and_link_fit(ground: Ground) -> None:
    """The names that are used here are theirs."""
    codec = FrameCodec()
    hub = Hub(codec, ground.clock())
    link = BrokerLink(1, lambda: "x", codec)
    assert hub.restore([], ground.clock()).outputs == ()
    assert link.receive_data(b"", ground.clock()) == []


def lists(count: int) -> bytes:
    frames = [msgspec.json.encode({"type": "list", "requestId": str(number)}) for number in range(count)]
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


@pytest.mark.clause("K14")
async def test_session_that_takes_no_answers_is_heard_when_it_takes_them(ground: Ground) -> None:
    """What it asked in one breath is answered for as long as it reads; meanwhile it is not read further."""
    number, line = ground.join()
    answer = Plan(outputs=((number, Departed("x")),))
    ground.hub.answer = lambda command: answer if type(command).__name__ == "ListAsked" else Plan()
    line.pauses_after = 3
    ground.sessions.received(number, lists(10))
    assert (len(line.written), line.is_held) == (3, True)
    line.is_paused, line.pauses_after = False, 0
    ground.sessions.readable(number)
    assert (len(line.written), line.is_held) == (10, False)
    ground.sessions.readable(99)
    await ground.sessions.close()


async def test_flood_of_one_session_leaves_the_others_their_turns(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is heard a turn at a time, what it said before it left still counts, and its end comes last."""
    monkeypatch.setattr("tieline.runtime.broker.sessions.HEARING_SECONDS", 0.0)
    number, line = ground.join()
    await asyncio.sleep(0)
    ground.hub.asked.clear()
    ground.sessions.received(number, lists(50))
    ground.sessions.received(number, lists(1))
    ground.sessions.lost(number)
    assert len(ground.hub.asked) < 5
    monkeypatch.setattr("tieline.runtime.broker.sessions.HEARING_SECONDS", 1.0)
    await asyncio.sleep(0.05)
    assert [type(command).__name__ for command in ground.hub.asked] == ["ListAsked"] * 51 + ["Lost"]
    assert line.written == []
    await ground.sessions.close()


@pytest.mark.clause("K14")
async def test_nobody_is_heard_while_too_many_plans_wait_for_the_disk(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stands still bounds what is decided; when it goes on, all of it is."""
    monkeypatch.setattr("tieline.runtime.broker.sessions.PLANS_MAX", 4)
    monkeypatch.setattr("tieline.runtime.broker.sessions.HEARING_SECONDS", 1.0)
    number, line = ground.join()
    answer = Plan(rows=(ROW,), outputs=((number, Departed("x")),))
    ground.hub.answer = lambda command: answer if type(command).__name__ == "ListAsked" else Plan()
    ground.keeping.may_go.clear()
    ground.sessions.received(number, lists(20))
    assert line.is_held
    assert sum(type(command).__name__ == "ListAsked" for command in ground.hub.asked) == 4
    ground.keeping.may_go.set()
    async with asyncio.timeout(5):
        while len(line.written) < 20:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)
    assert not line.is_held
    await ground.sessions.close()


MAIL = Delivery(
    Row(fields={"id": "s"}, features=DIRECT, epoch="e", process_id=0, joined_ms=0), {}, 1, 2, is_mail=True
)


@pytest.mark.clause("intercom-131", "K14")
async def test_mail_is_written_as_its_reader_takes_it_and_told_as_unread_till_then(ground: Ground) -> None:
    """However much waits, no more than one message of it at a time; later words stay behind it."""
    number, line = ground.join()
    line.pauses_after = 2
    outputs = (Departed("0"), *([MAIL] * 4), Departed("9"))
    ground.plans(Plan(deadline_ms=0, outputs=tuple((number, output) for output in outputs)))
    ground.say(number, type="list", requestId="1")
    assert [frame["type"] for frame in line.written] == ["session_left", "message"]
    async with asyncio.timeout(5):
        while not isinstance(ground.hub.asked[-1], Tick):  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)
    assert ground.hub.asked[-1] == Tick(frozenset({number}))
    line.pauses_after = 0
    line.is_paused = False
    ground.sessions.readable(number)
    kinds = [frame["type"] for frame in line.written]
    assert kinds == ["session_left", *["message"] * 4, "session_left"]
    await ground.sessions.close()


@pytest.mark.clause("K14")
async def test_words_behind_mail_that_is_not_taken_are_bounded(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without mail: who lets too much wait is hung up on, and told nothing more."""
    monkeypatch.setattr("tieline.runtime.broker.sessions.UNREAD_BYTES_MAX", 500)
    number, line = ground.join()
    line.pauses_after = 1
    ground.plans(Plan(outputs=((number, MAIL), (number, MAIL), *[(number, Departed("x" * 100))] * 20)))
    ground.say(number, type="list", requestId="1")
    assert (len(line.written), line.ended) == (1, "aborted")
    await ground.sessions.close()


@pytest.mark.clause("K4", "intercom-131")
async def test_full_disk_that_lets_nothing_go_ends_no_broker(ground: Ground) -> None:
    """What was dropped goes with the next rows; till then the journal knows too much, never too little."""
    number, line = ground.join()
    drop = Drop("mail", "1")
    ground.plans(
        Plan(rows=(drop,), outputs=((number, Departed("1")),)),
        Plan(rows=(ROW,), outputs=((number, Departed("2")),)),
    )
    ground.keeping.error = Refused("QUEUE_FULL", "full")
    ground.say(number, type="list", requestId="1")
    async with asyncio.timeout(5):
        while not line.written:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)
    assert not ground.sessions.is_over.is_set()
    ground.keeping.error = None
    ground.say(number, type="list", requestId="2")
    await ground.sessions.close()
    assert ground.keeping.commits == [[drop, ROW]]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.005)


@pytest.mark.clause("K5", "intercom-131", "I4")
async def test_full_disk_refuses_what_waits_for_it_and_the_broker_goes_on(ground: Ground) -> None:
    """What stood before is said, the refused plan is not, its refusal is; rows nobody waits for go later."""
    number, line = ground.join()
    other, other_line = ground.join()
    drop = Drop("mail", "0")
    parked = Put("parked", "p", b"{}")
    plans = [
        Plan(rows=(drop, parked), outputs=((other, Departed("before")),)),
        Plan(rows=(ROW,), outputs=((number, Departed("kept")),), refusable=1),
        Plan(outputs=((number, Departed("later")),)),
    ]

    def answer(command: Command) -> Plan:
        if isinstance(command, Unkept):
            return Plan(outputs=((number, Departed("refused")),))
        return plans.pop(0) if type(command).__name__ == "ListAsked" else Plan()

    ground.hub.answer = answer
    ground.keeping.may_go.clear()
    ground.keeping.error = Refused("QUEUE_FULL", "full")
    ground.say(other, type="list", requestId="1")
    ground.say(number, type="list", requestId="2")
    ground.keeping.may_go.set()
    await until(lambda: len(said(line)) == 1)
    assert (said(other_line), said(line)) == (["before"], ["refused"])
    assert not ground.sessions.is_over.is_set()
    ground.keeping.error = None
    plans.insert(0, Plan(rows=(ROW,), outputs=((number, Departed("kept now")),), refusable=1))
    ground.say(number, type="list", requestId="3")
    ground.say(number, type="list", requestId="4")
    await until(lambda: len(said(line)) == 3)
    assert said(line)[1:] == ["kept now", "later"]
    plans.append(Plan(rows=(ROW,), outputs=((number, Departed("and again")),), refusable=1))
    ground.say(number, type="list", requestId="5")
    await until(lambda: len(said(line)) == 4)
    assert ground.keeping.commits == [[drop, parked, ROW], [ROW]]
    await ground.sessions.close()


@pytest.mark.clause("K5", "intercom-131")
async def test_nothing_is_decided_on_what_may_yet_be_taken_back(ground: Ground) -> None:
    """Whom a refusable plan is for is not heard until it is kept, nor what may rest on it; then in order."""
    number, line = ground.join()
    other, other_line = ground.join()
    third, _ = ground.join()
    plans = [Plan(rows=(ROW,), outputs=((number, Departed("kept")),), refusable=1)]
    ground.hub.answer = lambda command: plans.pop(0) if plans else Plan(outputs=((other, Departed("said")),))
    ground.keeping.may_go.clear()
    ground.say(number, type="list", requestId="1")
    count = len(ground.hub.asked)
    ground.say(third, type="unregister")
    ground.say(number, type="list", requestId="2")
    ground.say(other, type="list", requestId="3")
    assert [type(one).__name__ for one in ground.hub.asked[count:]] == ["ListAsked"]
    assert (said(line), said(other_line)) == ([], ["said"])
    ground.keeping.may_go.set()
    await until(lambda: len(ground.hub.asked) >= count + 3)
    assert [type(one).__name__ for one in ground.hub.asked[count:]] == ["ListAsked", "Leave", "ListAsked"]
    assert said(line) == ["kept"]
    await ground.sessions.close()


@pytest.mark.clause("K14", "intercom-131")
async def test_what_waits_for_the_disk_holds_up_nobody_else(ground: Ground) -> None:
    """Words to other sessions go on at once; those to the same ones keep their order, and closes do, too."""
    number, line = ground.join()
    other, other_line = ground.join()
    third, third_line = ground.join()
    ground.plans(
        Plan(rows=(ROW,), outputs=((number, Departed("kept")),)),
        Plan(outputs=((other, Departed("behind")), (number, Departed("behind")))),
        Plan(outputs=((other, Departed("last")),)),
        Plan(outputs=((third, Departed("ahead")),), closes=(third,)),
    )
    ground.keeping.may_go.clear()
    for request in range(4):
        ground.say(number if request == 0 else third, type="list", requestId=str(request))
    assert (said(line), said(other_line), said(third_line)) == ([], [], ["ahead"])
    assert third_line.ended == "closed"
    ground.keeping.may_go.set()
    await until(lambda: len(said(other_line)) == 2)
    assert (said(line), said(other_line)) == (["kept", "behind"], ["behind", "last"])
    await ground.sessions.close()


@pytest.mark.clause("K5", "intercom-131")
async def test_of_several_in_one_sync_only_what_finds_no_room_is_refused(ground: Ground) -> None:
    """What several senders wait for goes in one sync; where that finds no room, each is tried alone."""
    ends = [ground.join() for _ in range(4)]
    rows = [Put("mail", str(place), b"{}") for place in range(4)]
    plans = [
        Plan(rows=(row,), outputs=((number, Departed("kept")),), refusable=place + 1)
        for place, ((number, _), row) in enumerate(zip(ends, rows, strict=True))
    ]

    def answer(command: Command) -> Plan:
        if isinstance(command, Unkept):
            return Plan(outputs=((ends[command.number - 1][0], Departed("refused")),))
        return plans.pop(0) if type(command).__name__ == "ListAsked" else Plan()

    def commit(kept: list[Put | Drop]) -> None:
        Keeping.commit(ground.keeping, kept)
        if (len(kept) > 1 and rows[2] in kept) or kept == [rows[2]]:
            ground.keeping.commits.pop()
            raise Refused("QUEUE_FULL", "full")

    ground.hub.answer = answer
    ground.keeping.commit = commit  # type: ignore[method-assign]
    ground.keeping.may_go.clear()
    for number, _ in ends:
        ground.say(number, type="list", requestId="1")
    ground.keeping.may_go.set()
    await until(lambda: all(said(line) for _, line in ends))
    assert [said(line) for _, line in ends] == [["kept"], ["kept"], ["refused"], ["kept"]]
    assert ground.keeping.commits == [[rows[0]], [rows[1]], [rows[3]]]
    await ground.sessions.close()
