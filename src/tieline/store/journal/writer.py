"""Groups of commits, on a thread of their own or on the caller's.

Theory. While one group is being synced, whatever is submitted waits and becomes the next group: a lone
submission pays no delay, a crowd shares a sync. There is no timer and no artificial delay. What nobody
waits for (`lazy`) rides in the next group, or is stored after 200 ms.

Rule 1: rows reach the disk in the order of their submission; outcomes come back in it.
Rule 2: outcomes are handed to `post`, one call a group; `done` runs wherever `post` runs it.
Rule 3: a group that was full or in doubt takes everything along that was submitted before its outcome
was told: those rows were decided on top of what is not stored. What is submitted in `done` or
later stands on its own again.
Rule 4: the thread alone touches the journal while it runs, through `call` for whatever else there is.
Rule 5: the log is copied in pauses of 50 ms once it is worth it, or between groups when it is large;
never within one.

Source: reference/substrate.md 5; reference/reliability.md I2, F4, F5; engine/contract.py rule 4.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tieline.engine.contract import MessageRow, Row
from tieline.errors import RecoveryRequired, TielineError
from tieline.store.journal.journal import Journal, StoreFull

__all__ = ["CommitOutcome", "InlineWriter", "Writer"]

GROUP_SUBMISSIONS_MAX = 256
GROUP_BYTES_MAX = 1_048_576
ROW_BYTES = 512
LAZY_MS = 200
IDLE_MS = 50
"""A pause of this length is used to copy the log."""


class CommitOutcome(NamedTuple):
    """How a group ended.

    `kind` is "stored" (durable now), "full" (definite: nothing is stored) or "in_doubt" (nobody may be
    told anything until the journal was reopened). `text` says why, for a person.
    """

    kind: str
    text: str = ""

    @property
    def is_stored(self) -> bool:
        """Whether the rows are on stable storage."""
        return self.kind == "stored"


STORED = CommitOutcome("stored")
Done = Callable[[CommitOutcome], None]
Post = Callable[[Callable[[], None]], object]


class _Submission(NamedTuple):
    rows: Sequence[Row]
    admits: bool
    reserve_bytes: int
    done: Done | None
    epoch: int
    is_lazy: bool

    @property
    def content_bytes(self) -> int:
        """About what its rows take."""
        size = ROW_BYTES * len(self.rows)
        for row in self.rows:
            if isinstance(row, MessageRow):
                size += len(row.envelope.content)
        return size


class _Call(NamedTuple):
    function: Callable[[Journal], object]
    done: Callable[[object], None]


class _Stop(NamedTuple):
    """Store what waits, then end."""


class _Grouping:
    """What both writers share: how a group is stored and what its end means for the others."""

    def __init__(self, journal: Journal, post: Post) -> None:
        self.journal = journal
        self.groups_count = 0
        self._post = post
        self._epoch = 0  # moved on by the caller's side when it learns of a failure
        self._failure: tuple[int, CommitOutcome] | None = None  # the epoch that failed, and how

    def _commit_group(self, group: Sequence[_Submission]) -> None:
        """Store one group and post its outcome."""
        current = [entry for entry in group if self._failure is None or entry.epoch != self._failure[0]]
        if current:
            self.groups_count += 1
            outcome = self._outcome(current)
            if not outcome.is_stored:
                self._failure = (current[-1].epoch, outcome)
            self._tell([entry for entry in group if entry not in current], self._failure)
            self._tell(current, (current[-1].epoch, outcome))
        else:
            self._tell(group, self._failure)

    def _outcome(self, group: Sequence[_Submission]) -> CommitOutcome:
        rows = [row for entry in group for row in entry.rows]
        if not rows:
            return STORED
        admits = any(entry.admits for entry in group)
        reserve_bytes = max(entry.reserve_bytes for entry in group)
        try:
            self.journal.commit(rows, admits=admits, reserve_bytes=reserve_bytes)
        except StoreFull as error:
            return CommitOutcome("full", str(error))
        except RecoveryRequired as error:
            return CommitOutcome("in_doubt", str(error))
        return STORED

    def _tell(self, group: Sequence[_Submission], how: tuple[int, CommitOutcome] | None) -> None:
        """Post the outcome of `group`; a failure begins a new epoch where the caller learns of it."""
        if not group or how is None:
            return
        failed_epoch, outcome = how

        def deliver() -> None:
            if not outcome.is_stored and self._epoch == failed_epoch:
                self._epoch += 1
            for entry in group:
                if entry.done is not None:
                    entry.done(outcome)

        self._post(deliver)

    def _tell_call(self, call: _Call) -> None:
        """Run a call on the journal and post its result, or the error that it raised."""
        result: object
        try:
            result = call.function(self.journal)
        except TielineError as error:
            result = error
        self._post(lambda: call.done(result))


class InlineWriter(_Grouping):
    """Commits on the caller's thread, one group a submission: for the simulator, tools, and short lives."""

    def __init__(self, journal: Journal, post: Post) -> None:
        super().__init__(journal, post)
        self._lazy: list[_Submission] = []

    def submit(self, rows: Sequence[Row], *, admits: bool, reserve_bytes: int, done: Done) -> None:
        """Store `rows` now, with what was lazy before them; `done` is posted with the outcome."""
        entry = _Submission(rows, admits, reserve_bytes, done, self._epoch, is_lazy=False)
        group, self._lazy = [*self._lazy, entry], []
        self._commit_group(group)

    def lazy(self, rows: Sequence[Row], done: Done | None = None) -> None:
        """Store `rows` with the next submission, or at `flush`."""
        self._lazy.append(_Submission(rows, False, 0, done, self._epoch, is_lazy=True))

    def flush(self) -> None:
        """Store what is lazy now."""
        group, self._lazy = self._lazy, []
        if group:
            self._commit_group(group)

    def call(self, function: Callable[[Journal], object], done: Callable[[object], None]) -> None:
        """Post what `function` returns of the journal, or the `TielineError` that it raised."""
        self._tell_call(_Call(function, done))

    def close(self) -> None:
        """Store what is lazy and close the journal."""
        self.flush()
        self.journal.close()


class Writer(_Grouping):
    """Commits on a thread of its own; made and called on the loop's thread alone.

    Args:
        journal: Touched by the thread alone until `close`.
        post: Runs a function on the loop's thread, such as `loop.call_soon_threadsafe`.
    """

    def __init__(self, journal: Journal, post: Post) -> None:
        super().__init__(journal, post)
        self._queue: queue.SimpleQueue[_Submission | _Call | _Stop] = queue.SimpleQueue()
        self._lazy_deadline: float | None = None
        self.checkpoint_failure = ""
        self._thread = threading.Thread(target=self._run, name="tieline-journal", daemon=True)
        self._thread.start()

    def submit(self, rows: Sequence[Row], *, admits: bool, reserve_bytes: int, done: Done) -> None:
        """Store `rows` with the next group; `done` is posted with its outcome."""
        self._queue.put(_Submission(rows, admits, reserve_bytes, done, self._epoch, is_lazy=False))

    def lazy(self, rows: Sequence[Row], done: Done | None = None) -> None:
        """Store `rows` with the next group, or in `LAZY_MS`."""
        self._queue.put(_Submission(rows, False, 0, done, self._epoch, is_lazy=True))

    def call(self, function: Callable[[Journal], object], done: Callable[[object], None]) -> None:
        """Post what `function` returns of the journal, or the `TielineError` that it raised.

        It runs after everything submitted before it was stored: `writer.call(Journal.reopen, restored)`.
        """
        self._queue.put(_Call(function, done))

    def close(self) -> None:
        """Store what waits, end the thread, close the journal. What was posted may still be delivered."""
        if self._thread.is_alive():
            self._queue.put(_Stop())
            self._thread.join()
        self.journal.close()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        waiting: list[_Submission] = []  # only lazy ones between two turns
        while True:
            item = self._next(waiting)
            if item is None:
                self._use_pause(waiting)
                continue
            control = self._gather(item, waiting) if isinstance(item, _Submission) else item
            if waiting and (control is not None or not all(entry.is_lazy for entry in waiting)):
                self._commit_group(waiting)
                waiting = []
                self._lazy_deadline = None
                self._copy_large_log()
            if isinstance(control, _Call):
                self._tell_call(control)
            elif control is not None:
                return

    def _next(self, waiting: Sequence[_Submission]) -> _Submission | _Call | _Stop | None:
        """Return the next item, or None after a pause."""
        seconds: float | None = None
        if waiting and self._lazy_deadline is not None:
            seconds = max(0.0, self._lazy_deadline - time.monotonic())
        if self.journal.is_pause_useful:
            seconds = IDLE_MS / 1000 if seconds is None else min(seconds, IDLE_MS / 1000)
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None

    def _gather(self, first: _Submission, waiting: list[_Submission]) -> _Call | _Stop | None:
        """Add what has arrived meanwhile to `waiting`; return a call that came in between, if any."""
        entry: _Submission | _Call | _Stop = first
        size = 0
        while True:
            if not isinstance(entry, _Submission):
                return entry
            waiting.append(entry)
            size += entry.content_bytes
            if entry.is_lazy and self._lazy_deadline is None:
                self._lazy_deadline = time.monotonic() + LAZY_MS / 1000
            if len(waiting) >= GROUP_SUBMISSIONS_MAX or size >= GROUP_BYTES_MAX:
                return None
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return None

    def _use_pause(self, waiting: list[_Submission]) -> None:
        """Store what was lazy for too long, else copy the log."""
        if self._lazy_deadline is not None and time.monotonic() >= self._lazy_deadline:
            group = waiting[:]
            waiting.clear()
            self._lazy_deadline = None
            self._commit_group(group)
        elif self.journal.is_pause_useful:
            self._copy_log()

    def _copy_large_log(self) -> None:
        if self.journal.is_checkpoint_due:
            self._copy_log()

    def _copy_log(self) -> None:
        try:
            self.journal.checkpoint()
        except RecoveryRequired as error:
            # Nobody waits for a copy; the journal is poisoned and the next group says why.
            self.checkpoint_failure = str(error)

    def _outcome(self, group: Sequence[_Submission]) -> CommitOutcome:
        try:
            return super()._outcome(group)
        except Exception as error:  # noqa: BLE001 - a defect is told to every caller; a silent thread would hang them
            return CommitOutcome("in_doubt", repr(error))
