"""Groups of commits, on a thread of their own or on the caller's."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.rows import message, move
from tests.faults.vfs import FaultyVfs
from tieline.errors import RecoveryRequired
from tieline.store.journal.journal import PAUSE_BYTES, Journal, StoreFull
from tieline.store.journal.writer import (
    GROUP_SUBMISSIONS_MAX,
    IDLE_MS,
    LAZY_MS,
    CommitOutcome,
    InlineWriter,
    Writer,
)

STORED = CommitOutcome("stored")


class Loop:
    """What an event loop does with `call_soon_threadsafe`, step by step."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.outcomes: list[tuple[str, object]] = []

    def post(self, function: Callable[[], None]) -> None:
        """Take a function from the writer."""
        self.posted.put(function)

    def step(self) -> None:
        """Run one posted function, waiting for it."""
        self.posted.get(timeout=10)()

    def done(self, name: str) -> Callable[[object], None]:
        """Return a `done` that notes its outcome under `name`."""
        return lambda outcome: self.outcomes.append((name, outcome))


@pytest.fixture
def loop() -> Loop:
    """Return a loop that turns when told."""
    return Loop()


@pytest.fixture
def layer() -> Iterator[FaultyVfs]:
    """Give a disk that fails on demand."""
    opened = FaultyVfs()
    yield opened
    opened.close()


@pytest.fixture
def journal(private_home: Path, layer: FaultyVfs) -> Iterator[Journal]:
    """Give an open journal with one message."""
    opened = Journal.open(str(private_home / "i"), "i", "s", vfs=layer.name)
    opened.commit([message(1)], admits=True)
    opened.checkpoint()
    yield opened
    opened.close()


@pytest.fixture
def writer(journal: Journal, loop: Loop) -> Iterator[Writer]:
    """Give a writer with its thread."""
    opened = Writer(journal, loop.post)
    yield opened
    opened.close()


class Gate:
    """Hold the writer's thread at the next seam of a commit."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open = threading.Event()
        self._reached = threading.Event()
        journal._seam = self._pass

    def _pass(self, seam: str) -> None:
        if seam == "journal.before_commit":
            self._reached.set()
            assert self._open.wait(10)

    def reached(self) -> None:
        """Return when the thread stands at the gate."""
        assert self._reached.wait(10)

    def open(self) -> None:
        """Let it pass, now and later."""
        self._open.set()


def test_submission_alone_is_stored_at_once(writer: Writer, loop: Loop) -> None:
    """A lone submission waits for no timer and no company."""
    begun = time.monotonic()
    writer.submit([message(2)], admits=True, reserve_bytes=2_048, done=loop.done("a"))
    loop.step()
    assert loop.outcomes == [("a", STORED)]
    assert time.monotonic() - begun < LAZY_MS / 1_000


def test_submissions_during_a_sync_become_one_group(writer: Writer, loop: Loop, journal: Journal) -> None:
    """What arrives while a group is stored is the next group, in order, with one post."""
    gate = Gate(journal)
    writer.submit([message(2)], admits=True, reserve_bytes=0, done=loop.done("first"))
    gate.reached()
    for cursor in range(3, 13):
        writer.submit([message(cursor)], admits=True, reserve_bytes=0, done=loop.done(str(cursor)))
    gate.open()
    loop.step()
    loop.step()
    assert writer.groups_count == 2
    assert [name for name, _ in loop.outcomes] == ["first", *map(str, range(3, 13))]
    writer.call(Journal.load, loop.done("rows"))
    loop.step()
    assert loop.outcomes[-1] == ("rows", [message(cursor) for cursor in range(1, 13)])


def test_group_is_bounded_in_count_and_bytes(writer: Writer, loop: Loop, journal: Journal) -> None:
    """A crowd is split, so that its first does not wait for its last."""
    gate = Gate(journal)
    writer.submit([message(2)], admits=True, reserve_bytes=0, done=loop.done("first"))
    gate.reached()
    for cursor in range(3, 3 + GROUP_SUBMISSIONS_MAX + 10):
        writer.submit([message(cursor, size=20)], admits=True, reserve_bytes=0, done=loop.done("small"))
    for cursor in range(1_000, 1_003):
        writer.submit([message(cursor, size=600_000)], admits=True, reserve_bytes=0, done=loop.done("large"))
    gate.open()
    while len(loop.outcomes) < GROUP_SUBMISSIONS_MAX + 14:
        loop.step()
    assert writer.groups_count == 4
    assert {outcome for _, outcome in loop.outcomes} == {STORED}


def test_lazy_rows_ride_with_the_next_submission(writer: Writer, loop: Loop) -> None:
    """What nobody waits for costs no sync of its own and keeps its place in the order."""
    writer.lazy([move(2, 1)], loop.done("lazy"))
    writer.submit([message(3)], admits=True, reserve_bytes=0, done=loop.done("urgent"))
    loop.step()
    assert writer.groups_count == 1
    assert loop.outcomes == [("lazy", STORED), ("urgent", STORED)]
    writer.call(Journal.load, loop.done("rows"))
    loop.step()
    assert loop.outcomes[-1] == ("rows", [message(1), move(2, 1), message(3)])


def test_lazy_rows_alone_are_stored_in_time(writer: Writer, loop: Loop) -> None:
    """Without company they are stored after 200 ms, and not long after."""
    begun = time.monotonic()
    writer.lazy([move(2, 1)], loop.done("lazy"))
    loop.step()
    assert LAZY_MS / 1_000 * 0.9 <= time.monotonic() - begun < LAZY_MS / 1_000 * 5
    assert loop.outcomes == [("lazy", STORED)]


def test_pause_copies_the_log(writer: Writer, loop: Loop, journal: Journal) -> None:
    """After 50 ms of silence the log is copied, without anybody asking."""
    copied = threading.Event()
    journal._seam = lambda seam: copied.set() if seam == "journal.checkpointed" else None
    writer.submit([message(2, size=PAUSE_BYTES)], admits=True, reserve_bytes=0, done=loop.done("a"))
    loop.step()
    assert not copied.is_set()
    assert copied.wait(IDLE_MS / 1_000 * 40)
    assert not journal.is_pause_useful


def test_large_log_is_copied_between_groups(
    writer: Writer, loop: Loop, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood without pauses does not let the log grow for ever."""
    monkeypatch.setattr("tieline.store.journal.journal.CHECKPOINT_BYTES", 1)
    writer.submit([message(2)], admits=True, reserve_bytes=0, done=loop.done("a"))
    writer.call(lambda held: held._log_frames, loop.done("frames"))
    loop.step()
    loop.step()
    assert loop.outcomes[-1] == ("frames", 0)


@pytest.mark.clause("K5", "I4")
def test_full_group_takes_along_what_was_decided_on_top_of_it(
    writer: Writer, loop: Loop, journal: Journal, layer: FaultyVfs
) -> None:
    """Everything submitted before the failure was told is told full too; what comes after stands alone."""
    gate = Gate(journal)
    layer.quota_bytes = layer.used_bytes
    writer.submit([move(2, 1)], admits=False, reserve_bytes=0, done=loop.done("fits"))
    gate.reached()
    writer.submit([message(3, size=3_000_000)], admits=True, reserve_bytes=0, done=loop.done("too large"))
    gate.open()
    loop.step()
    while writer.groups_count < 2:
        time.sleep(0.001)
    writer.submit([move(4, 3)], admits=False, reserve_bytes=0, done=loop.done("on top"))
    loop.step()  # here the caller learns of it
    writer.submit([move(5, 1)], admits=False, reserve_bytes=0, done=loop.done("alone"))
    loop.step()
    loop.step()
    kinds = [(name, outcome.kind) for name, outcome in loop.outcomes if isinstance(outcome, CommitOutcome)]
    assert kinds == [("fits", "stored"), ("too large", "full"), ("on top", "full"), ("alone", "stored")]
    writer.call(Journal.load, loop.done("rows"))
    loop.step()
    assert loop.outcomes[-1] == ("rows", [message(1), move(2, 1), move(5, 1)])


@pytest.mark.clause("K4")
def test_doubt_is_told_to_all_until_reopened(
    writer: Writer, loop: Loop, journal: Journal, layer: FaultyVfs
) -> None:
    """After a failed sync every submission is in doubt, until `reopen` ran through the same thread."""
    layer.fail("sync", 0)
    writer.submit([message(2)], admits=True, reserve_bytes=0, done=loop.done("a"))
    loop.step()
    writer.submit([message(3)], admits=True, reserve_bytes=0, done=loop.done("b"))
    loop.step()
    writer.call(Journal.load, loop.done("load"))
    loop.step()
    writer.call(Journal.reopen, loop.done("reopen"))
    loop.step()
    writer.submit([message(4)], admits=True, reserve_bytes=0, done=loop.done("c"))
    loop.step()
    (_, first), (_, second), (_, load), (_, rows), (_, third) = loop.outcomes
    assert isinstance(first, CommitOutcome)
    assert isinstance(second, CommitOutcome)
    assert (first.kind, second.kind) == ("in_doubt", "in_doubt")
    assert "sync" in first.text
    assert isinstance(load, RecoveryRequired)
    assert isinstance(rows, list)
    assert rows[0] == message(1)
    assert third == STORED


def test_failed_copy_of_the_log_is_told_by_the_next_group(
    writer: Writer, loop: Loop, journal: Journal, layer: FaultyVfs
) -> None:
    """Nobody waits for a copy; when it fails, nothing is acknowledged after it."""
    layer.fail("sync", 2)  # after the new log's header and the commit
    writer.submit([message(2, size=PAUSE_BYTES)], admits=True, reserve_bytes=0, done=loop.done("a"))
    loop.step()
    deadline = time.monotonic() + 10
    while not journal.doubt and time.monotonic() < deadline:
        time.sleep(0.005)
    assert writer.checkpoint_failure
    writer.submit([message(3)], admits=True, reserve_bytes=0, done=loop.done("b"))
    loop.step()
    assert [outcome.kind for _, outcome in loop.outcomes if isinstance(outcome, CommitOutcome)] == [
        "stored",
        "in_doubt",
    ]


def test_defect_in_the_thread_is_told_and_ends_nothing(writer: Writer, loop: Loop, journal: Journal) -> None:
    """A row that cannot be stored makes a doubt; the thread lives on."""
    writer.submit([message(2**63)], admits=True, reserve_bytes=0, done=loop.done("a"))
    loop.step()
    writer.call(Journal.reopen, loop.done("rows"))
    loop.step()
    assert [outcome for _, outcome in loop.outcomes[1:]] == [[message(1)]]
    assert isinstance(loop.outcomes[0][1], CommitOutcome)
    assert loop.outcomes[0][1].kind == "in_doubt"


def test_close_stores_what_waits(journal: Journal, loop: Loop, private_home: Path) -> None:
    """An orderly end loses neither urgent nor lazy rows, and frees the lock."""
    writer = Writer(journal, loop.post)
    writer.submit([message(2)], admits=True, reserve_bytes=0, done=loop.done("a"))
    writer.lazy([move(3, 1)], loop.done("b"))
    writer.close()
    writer.close()
    while not loop.posted.empty():
        loop.step()
    assert loop.outcomes == [("a", STORED), ("b", STORED)]


def test_inline_writer_stores_before_it_returns(journal: Journal, loop: Loop) -> None:
    """Rows are durable when `submit` returns; the outcome is told when the loop turns."""
    writer = InlineWriter(journal, loop.post)
    writer.lazy([move(2, 1)], loop.done("lazy"))
    assert len(journal.load()) == 1
    writer.submit([message(3)], admits=True, reserve_bytes=0, done=loop.done("a"))
    assert journal.load() == [message(1), move(2, 1), message(3)]
    assert loop.outcomes == []
    loop.step()
    assert loop.outcomes == [("lazy", STORED), ("a", STORED)]
    writer.lazy([move(4, 3)])
    writer.flush()
    writer.flush()
    writer.call(Journal.load, loop.done("rows"))
    loop.step()
    loop.step()
    assert loop.outcomes[-1] == ("rows", [message(1), move(2, 1), message(3), move(4, 3)])
    writer.close()


def test_inline_writer_tells_a_full_disk(journal: Journal, loop: Loop, layer: FaultyVfs) -> None:
    """Both writers tell the same outcomes, and the same ones fail along."""
    writer = InlineWriter(journal, loop.post)
    layer.quota_bytes = layer.used_bytes
    writer.submit([message(2, size=3_000_000)], admits=True, reserve_bytes=0, done=loop.done("full"))
    writer.submit([move(3, 1)], admits=False, reserve_bytes=0, done=loop.done("along"))
    loop.step()
    loop.step()
    writer.submit([move(4, 1)], admits=False, reserve_bytes=0, done=loop.done("alone"))
    loop.step()
    kinds = [outcome.kind for _, outcome in loop.outcomes if isinstance(outcome, CommitOutcome)]
    assert kinds == ["full", "full", "stored"]


def test_inline_writer_lets_a_simulated_death_through(journal: Journal, loop: Loop) -> None:
    """What a seam raises reaches the simulator."""

    class Death(BaseException):
        pass

    def die(seam: str) -> None:
        raise Death

    journal._seam = die
    writer = InlineWriter(journal, loop.post)
    with pytest.raises(Death):
        writer.submit([message(2)], admits=True, reserve_bytes=0, done=loop.done("a"))
    assert loop.posted.empty()
    assert StoreFull("x").is_retryable
    journal._seam = lambda seam: None
