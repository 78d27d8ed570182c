"""The one loop of a root: decide, make durable, then carry out.

Theory. A command is decided at once, against everything decided before it, stored or not. What it
ordered is carried out when its rows, and the rows of every urgent decision before it, are durable.
While one group is being synced, what is decided meanwhile waits and becomes the next group: a lone
message pays no delay, a crowd shares a sync.

Rule 1: at most one group is at the store; nothing of a group is emitted before it is stored.
Rule 2: a full disk is definite: the engine is restored from the journal, and the same commands are
    decided again one by one; one that cannot be stored alone is told QUEUE_FULL.
Rule 3: a failed commit in doubt is acknowledged to nobody: a peer that waits is told that its outcome is
    not known, so that no link keeps its request open for ever; the store is reopened and the engine
    restored before anything else is decided.
Rule 4: a decision that fails half-way is a defect of ours; it is refused, and the engine is restored from
the journal before anything else is decided.
Rule 5: this module knows no event loop, no socket, no file; the simulator runs this very file.

Source: reference/native.md 3.4; reference/reliability.md F4, F5, I2, I3, I8; DESIGN.md 6 "journal".
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from tieline.engine.contract import (
    Answer,
    AskedStatus,
    Command,
    Offer,
    Plan,
    ReceiptTold,
    Row,
    Send,
    Tick,
)
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.model.moment import Moment
from tieline.model.receipt import Event

__all__ = ["LAZY_MS", "Committed", "Driver", "Ports"]

LAZY_MS = 200
"""Rows that nobody waits for are stored after this at the latest."""
GROUP_TURNS_MAX = 256
"""Commands of one group; more would make the first of them wait for the last."""

Done = Callable[[object], None]


class Committed(StrEnum):
    """How the store ended one group."""

    STORED = "stored"
    FULL = "full"  # definite: nothing of the group is stored
    IN_DOUBT = "in_doubt"  # it may be stored; the store is poisoned


class Ports(Protocol):
    """What a driver needs of the world."""

    def now(self) -> Moment:
        """Return the clocks."""

    def commit(
        self,
        rows: Sequence[Row],
        *,
        admits: bool,
        reserve_bytes: int,
        done: Callable[[Committed], None],
    ) -> None:
        """Make `rows` durable as one transaction, then call `done` (from the loop)."""

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """Open the store again and call `done` with its rows, or with None while that is not possible."""

    def load(self) -> Sequence[Row]:
        """Return the rows of a healthy store."""

    def send(self, send: Send) -> None:
        """Carry out one ordered send."""

    def tell(self, event: Event) -> None:
        """Tell whoever listens here."""

    def failed(self, error: Exception) -> None:
        """Log that a decision failed by a defect of ours."""

    def arm(self, deadline_ms: int | None) -> None:
        """Call `Driver.tick` at that monotonic moment; a later call replaces an earlier one."""


class Turn:
    """One command on its way through the loop."""

    __slots__ = ("command", "done", "is_answered", "is_decided", "is_sent", "plan")

    def __init__(self, command: Command, done: Done | None) -> None:
        self.command = command
        self.done = done
        self.plan = Plan()
        self.is_answered = False
        self.is_decided = False
        self.is_sent = False


class Driver:
    """The loop over ports: handle, commit, emit, arm."""

    def __init__(self, engine: Messaging, ports: Ports) -> None:
        self.engine = engine
        self.groups_count = 0
        self.is_in_doubt = False
        self.is_closed = False
        self._ports = ports
        self._group: list[Turn] = []  # at the store
        self._waiting: list[Turn] = []  # decided, not yet at the store
        self._urgent_count = 0  # of those waiting
        self._again: deque[Turn] = deque()  # to be decided one by one after a full disk
        self._is_single = False
        self._lazy_at_ms: int | None = None
        self._when_idle: list[Callable[[], None]] = []
        self._commit_number = 0  # of the group at the store

    # ------------------------------------------------------------ commands

    def submit(self, command: Command, done: Done | None = None) -> None:
        """Decide `command`; `done` gets its answer once that is true on disk.

        The answer is what the command's docstring in `engine.contract` says, or a `Refusal`
        (RECOVERY_REQUIRED while the store is in doubt, QUEUE_FULL when it is full).
        """
        turn = Turn(command, done)
        if self.is_closed:
            self._refuse(turn, Refusal("PEER_OFFLINE", "this root is shutting down", is_retryable=True))
        elif self.is_in_doubt:
            self._refuse(turn, _IN_DOUBT)
        elif self._is_single:
            self._again.append(turn)
        else:
            self._decide(turn)
            self._pump()

    def tick(self) -> None:
        """Time passed: let the engine act on what is due, and store what waits."""
        now = self._ports.now()
        if self.is_in_doubt or self._is_single or self.is_closed:
            return
        due = self.engine.deadline_ms
        if due is not None and now.mono_ms >= due:
            self._decide(Turn(Tick(), None))
        if self._lazy_at_ms is not None and now.mono_ms >= self._lazy_at_ms:
            self._start()
        self._pump()

    def close(self, done: Callable[[], None]) -> None:
        """Store what was decided, admit nothing more, then call `done`."""
        self.is_closed = True
        self._when_idle.append(done)
        if not self._group and self._waiting:
            self._start()
        self._settle_idle()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the store."""
        return not self._group and not self._waiting and not self._again

    # ------------------------------------------------------------ deciding

    def _decide(self, turn: Turn) -> None:
        """Decide one command and let it wait for what it depends on."""
        try:
            plan = turn.plan = self.engine.handle(turn.command, self._ports.now())
        except Exception as error:  # noqa: BLE001 - whatever failed, memory is no longer what the disk says
            self._break(turn, error)
            return
        turn.is_decided = True
        is_free = not self._group and self._urgent_count == 0
        if not plan.is_urgent:
            self._answer(turn)
            if is_free:
                self._carry(turn)
            if plan.rows or not turn.is_sent:
                self._waiting.append(turn)
                if not is_free:
                    self._urgent_count += not turn.is_sent
                elif self._lazy_at_ms is None:
                    self._lazy_at_ms = self._ports.now().mono_ms + LAZY_MS
        elif is_free and not plan.rows:
            self._answer(turn)
            self._carry(turn)
        else:
            self._waiting.append(turn)
            self._urgent_count += 1

    def _pump(self) -> None:
        """Give the store its next group when it is free and somebody waits; arm the clock."""
        if not self._group and self._urgent_count:
            self._start()
        self._arm()

    def _start(self) -> None:
        """Hand the waiting turns to the store as one group."""
        if self._group or not self._waiting:
            return
        self._group = self._waiting[:GROUP_TURNS_MAX]
        self._waiting = self._waiting[GROUP_TURNS_MAX:]
        self._urgent_count = sum(1 for turn in self._waiting if turn.plan.is_urgent or not turn.is_sent)
        self._lazy_at_ms = None
        rows = [row for turn in self._group for row in turn.plan.rows]
        if not rows:
            self._committed(Committed.STORED)
            return
        self.groups_count += 1
        admits = any(turn.plan.admits for turn in self._group)
        self._store(rows, admits=admits)

    def _break(self, turn: Turn, error: Exception) -> None:
        """A decision failed half-way: refuse it, believe the disk alone, and go on (K34).

        A group that is at the store is told to nobody: what became of it is read with the rest.
        """
        self._ports.failed(error)
        turn.is_decided = False
        self._refuse(
            turn, Refusal("RECOVERY_REQUIRED", "this request could not be decided", is_retryable=True)
        )
        group, self._group = self._group, []
        self._commit_number += 1
        self._doubt(group)

    def _store(self, rows: Sequence[Row], *, admits: bool) -> None:
        self._ports.commit(rows, admits=admits, reserve_bytes=self.engine.worst_case_bytes, done=self._once())

    def _once(self) -> Callable[[Committed], None]:
        """Return who is told of this group's end, unless it was given up meanwhile."""
        self._commit_number += 1
        number = self._commit_number
        return lambda outcome: self._committed(outcome) if number == self._commit_number else None

    def _committed(self, outcome: Committed) -> None:
        """The store ended the group."""
        group, self._group = self._group, []
        if outcome is Committed.STORED:
            for turn in group:
                self._answer(turn)
                self._carry(turn)
            if self._is_single:
                self._next_single()
            else:
                self._pump()
        elif outcome is Committed.FULL:
            self._decide_again(group)
        else:
            self._doubt(group)
        self._settle_idle()

    # ------------------------------------------------------------ a full disk

    def _decide_again(self, group: list[Turn]) -> None:
        """Restore from the journal; decide each command alone."""
        if self._is_single:  # this one alone could not be stored
            turn = group[0]
            self._again.popleft()
            self._refuse(turn, Refusal("QUEUE_FULL", "the disk of this root is full", is_retryable=True))
        else:
            self._again.extend([*group, *self._waiting])
            self._waiting, self._urgent_count, self._is_single = [], 0, True
            self._lazy_at_ms = None
            self._ports.arm(None)  # until each command was decided alone
        self.engine.restore(self._ports.load(), self._ports.now())
        self._step_single()

    def _next_single(self) -> None:
        self._again.popleft()
        self._step_single()

    def _step_single(self) -> None:
        """Decide the next command alone, or go back to groups."""
        while self._again:
            turn = self._again[0]
            try:
                turn.plan = self.engine.handle(turn.command, self._ports.now())
            except Exception as error:  # noqa: BLE001 - as in `_decide`
                self._again.popleft()
                self._break(turn, error)
                return
            turn.is_decided = True
            if turn.plan.rows:
                self._group = [turn]
                self._store(turn.plan.rows, admits=turn.plan.admits)
                return
            self._answer(turn)
            self._carry(turn)
            self._again.popleft()
        self._is_single = False
        self._arm()

    # ------------------------------------------------------------ a store in doubt

    def _doubt(self, group: list[Turn]) -> None:
        """Acknowledge nothing; open the store again."""
        lost = [*group, *self._waiting, *(turn for turn in self._again if turn not in group)]
        self._waiting, self._urgent_count, self._is_single = [], 0, False
        self._again.clear()
        self._lazy_at_ms = None
        self.is_in_doubt = True
        self._ports.arm(None)  # nothing can be decided until the store is open again
        for turn in lost:
            if turn.done is not None and not turn.is_answered:
                turn.is_answered = True
                turn.done(_IN_DOUBT)
            self._tell_unknown(turn)
        self._ports.reopen(self._reopened)

    def _tell_unknown(self, turn: Turn) -> None:
        """Tell the peer that waits for a lost turn the one thing that is true: it must ask again."""
        if not turn.is_decided:
            self._refuse(turn, _IN_DOUBT)
        elif not turn.is_sent:
            for send in turn.plan.sends:
                if isinstance(send, Answer):
                    self._ports.send(Answer(send.asked, _UNKNOWN))

    def _reopened(self, rows: Sequence[Row] | None) -> None:
        """The store is open again (rows), or still is not (None): then everything stays refused."""
        if rows is None:
            return
        self.engine.restore(rows, self._ports.now())
        self.is_in_doubt = False
        self._arm()

    # ------------------------------------------------------------ carrying out

    def _answer(self, turn: Turn) -> None:
        if not turn.is_answered:
            turn.is_answered = True
            if turn.done is not None:
                turn.done(turn.plan.answer)
            for event in turn.plan.events:
                self._ports.tell(event)

    def _carry(self, turn: Turn) -> None:
        if not turn.is_sent:
            turn.is_sent = True
            for send in turn.plan.sends:
                self._ports.send(send)

    def _refuse(self, turn: Turn, refusal: Refusal) -> None:
        """Say no without the engine: to the local asker, or to the peer that waits."""
        if turn.done is not None and not turn.is_answered:
            turn.is_answered = True
            turn.done(refusal)
        if isinstance(turn.command, Offer | AskedStatus | ReceiptTold):
            self._ports.send(Answer(turn.command.asked, refusal))

    def _arm(self) -> None:
        due = self.engine.deadline_ms
        # While a group is at the store its end starts the next one; a clock could only ring in vain.
        if self._lazy_at_ms is not None and not self._group and (due is None or self._lazy_at_ms < due):
            due = self._lazy_at_ms
        self._ports.arm(due)

    def _settle_idle(self) -> None:
        if self.is_closed and not self._group and self._waiting:
            self._start()
        if self.is_idle and self._when_idle:
            waiting, self._when_idle = self._when_idle, []
            for done in waiting:
                done()


_UNKNOWN = Refusal("DELIVERY_UNKNOWN", "the store of this root failed: ask again under the same id")
_IN_DOUBT = Refusal(
    "RECOVERY_REQUIRED", "the store of this root is in doubt after a disk error", is_retryable=True
)
