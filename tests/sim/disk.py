"""The stores of simulated roots: a fake one that is quick, and the real journal on a faulty file layer.

Theory. A commit takes time. When it ends it is stored, or definitely refused for want of space, or in
doubt; in doubt its rows may be there or not, and the store says nothing more until it was reopened. A
crash keeps what was stored; of the commit under way it may keep all or nothing.

Rule 1: what is durable is noted in the history at the moment it is, by this file and not by the product.
Rule 2: rows of one commit are durable together or not at all.
Rule 3: refusals for want of space meet only what admits new custody, unless the room kept for the ends
    of what was admitted is used up too; that is what the journal promises.

Source: reference/reliability.md F4, F5, I2, I8, K4 to K6.
"""

import errno
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.faults.vfs import FaultyVfs
from tests.sim.clock import Clock
from tests.sim.frames import outline_row
from tests.sim.history import History
from tieline.engine.contract import ContextRow, MessageRow, MoveRow, PruneRow, Row
from tieline.errors import RecoveryRequired
from tieline.shell.driver import Committed
from tieline.store import recovery
from tieline.store.journal import CommitOutcome, InlineWriter, Journal
from tieline.store.journal.database import connect, read_verified

__all__ = ["Disk", "FakeDisk", "RealDisk", "apply_prune"]


class Disk(Protocol):
    """What a simulated root needs of its store, and the plan of it."""

    is_full: bool
    doubts: int  # commits from now on that end in doubt
    slow_ms: int

    def commit(
        self, rows: Sequence[Row], admits: bool, reserve_bytes: int, done: Callable[[Committed], None]
    ) -> None:
        """Make rows durable."""

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """End a doubt."""

    def load(self) -> list[Row]:
        """Return the durable rows of a healthy store."""

    def crash(self) -> None:
        """The process died."""

    def left(self) -> list[Row]:
        """Return what a dead store holds."""

    def heal(self) -> None:
        """Let nothing fail any more."""


def apply_prune(rows: list[Row], prune: PruneRow) -> list[Row]:
    """Return what a store holds after a prune, as the journal forgets it."""
    gone = frozenset(prune.messages)
    last = {row.message: row.cursor for row in rows if isinstance(row, MoveRow)}
    kept: list[Row] = []
    for row in rows:
        if isinstance(row, PruneRow) or (isinstance(row, MessageRow) and row.cursor in gone):
            continue
        if isinstance(row, ContextRow | MoveRow) and row.message in gone:
            continue
        if isinstance(row, MoveRow) and row.cursor <= prune.moves_through and last[row.message] != row.cursor:
            continue
        kept.append(row)
    return [*kept, prune]


class _Noting:
    """What both stores share: groups, and what is noted of them."""

    def __init__(self, name: str, clock: Clock, history: History, chance: random.Random) -> None:
        self.name, self.clock, self.history, self.chance = name, clock, history, chance
        self.is_full = False
        self.doubts = 0
        self.slow_ms = 0
        self.reopen_failures = 0
        self.groups_count = 0

    def note(self, event: str, **data: object) -> None:
        """Write one entry of the history."""
        self.history.add(self.clock.mono_ms, self.name, event, **data)

    def begin(self, rows: Sequence[Row], admits: bool, reserve_bytes: int) -> int:
        """Note that a group is to be stored; return its number."""
        self.groups_count += 1
        self.note(
            "commit",
            group=self.groups_count,
            admits=admits,
            reserve=reserve_bytes,
            rows=[outline_row(row) for row in rows],
        )
        return self.groups_count

    def heal(self) -> None:
        """Let nothing fail any more."""
        self.is_full, self.doubts, self.slow_ms, self.reopen_failures = False, 0, 0, 0


class FakeDisk(_Noting):
    """Rows in memory, with a truth of their own."""

    def __init__(self, name: str, clock: Clock, history: History, chance: random.Random) -> None:
        super().__init__(name, clock, history, chance)
        self._rows: list[Row] = []
        self._is_poisoned = False
        self._under_way: tuple[int, list[Row]] | None = None

    def commit(
        self, rows: Sequence[Row], admits: bool, reserve_bytes: int, done: Callable[[Committed], None]
    ) -> None:
        """Make rows durable, after a while."""
        group = self.begin(rows, admits, reserve_bytes)
        self._under_way = (group, list(rows))
        delay_ms = self.chance.randint(0, 3) + (self.chance.randint(0, self.slow_ms) if self.slow_ms else 0)
        self.clock.after(delay_ms, "", lambda: self._end(group, list(rows), admits, done))

    def _end(self, group: int, rows: list[Row], admits: bool, done: Callable[[Committed], None]) -> None:
        if self._under_way is None or self._under_way[0] != group:
            return  # the process died meanwhile
        self._under_way = None
        if self._is_poisoned:
            outcome = Committed.IN_DOUBT
        elif self.doubts:
            self.doubts -= 1
            self._is_poisoned = True
            outcome = Committed.IN_DOUBT
            if self.chance.random() < 0.5:
                self._store(group, rows)
        elif self.is_full and (admits or self.chance.random() < 0.1):
            outcome = Committed.FULL
        else:
            outcome = Committed.STORED
            self._store(group, rows)
        self.clock.after(self.chance.randint(0, 1), self.name, lambda: self._tell(group, outcome, done))

    def _tell(self, group: int, outcome: Committed, done: Callable[[Committed], None]) -> None:
        self.note("told", group=group, outcome=outcome.value)
        done(outcome)

    def _store(self, group: int, rows: list[Row]) -> None:
        self.note("stored", group=group)
        for row in rows:
            if isinstance(row, PruneRow):
                self._rows = apply_prune(self._rows, row)
            else:
                self._rows.append(row)

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """End a doubt, after some failures."""
        self.clock.after(self.chance.randint(1, 2_000), self.name, lambda: self._reopen(done))

    def _reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        if self.reopen_failures:
            self.reopen_failures -= 1
            done(None)
            self.reopen(done)
            return
        self._is_poisoned = False
        self.note("loaded", rows=len(self._rows))
        done(list(self._rows))

    def load(self) -> list[Row]:
        """Return the durable rows."""
        self.note("loaded", rows=len(self._rows))
        return list(self._rows)

    def crash(self) -> None:
        """Keep what was stored, and perhaps what was under way."""
        if self._under_way is not None:
            group, rows = self._under_way
            self._under_way = None
            if self.chance.random() < 0.5:
                self._store(group, rows)

    def left(self) -> list[Row]:
        """Return what the store holds."""
        return list(self._rows)


class RealDisk(_Noting):
    """The journal itself, committing inline, on a file layer that fails on purpose."""

    def __init__(self, name: str, clock: Clock, history: History, chance: random.Random) -> None:
        super().__init__(name, clock, history, chance)
        self.home = tempfile.mkdtemp(prefix="tl-sim-")
        self._vfs = FaultyVfs(seed=chance.randrange(1 << 30))
        self._journal = Journal.open(recovery.directory_path(self.home, name), name, name, vfs=self._vfs.name)
        self._writer = InlineWriter(self._journal, lambda deliver: clock.after(1, name, deliver))
        self._doubtful: tuple[int, list[Row]] | None = None
        self._left: list[Row] | None = None

    def commit(
        self, rows: Sequence[Row], admits: bool, reserve_bytes: int, done: Callable[[Committed], None]
    ) -> None:
        """Make rows durable now; the outcome is told later."""
        group = self.begin(rows, admits, reserve_bytes)
        self._vfs.quota_bytes = self._vfs.used_bytes if self.is_full else None
        if self.doubts:
            self.doubts -= 1
            kind = self.chance.choice(("sync", "write"))
            self._vfs.fail(kind, 0 if kind == "sync" else self.chance.randint(0, 2), errno.EIO)

        def told(outcome: CommitOutcome) -> None:
            self.note("told", group=group, outcome=outcome.kind)
            done(Committed(outcome.kind))

        before = self._journal.position
        self._writer.submit(list(rows), admits=admits, reserve_bytes=reserve_bytes, done=told)
        self._vfs.heal()
        if not self._journal.doubt and self._journal.position > before:
            self.note("stored", group=group)
        elif self._journal.doubt:
            self._doubtful = (group, list(rows))

    def reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        """End a doubt."""
        self.clock.after(self.chance.randint(1, 500), self.name, lambda: self._reopen(done))

    def _reopen(self, done: Callable[[Sequence[Row] | None], None]) -> None:
        try:
            rows: list[Row] = self._journal.reopen()
        except RecoveryRequired:
            done(None)
            self.reopen(done)
            return
        self._settle_doubt(rows)
        self.note("loaded", rows=len(rows))
        done(rows)

    def _settle_doubt(self, rows: Sequence[Row]) -> None:
        """Note whether the group in doubt turned out to be stored."""
        if self._doubtful is not None:
            group, asked = self._doubtful
            self._doubtful = None
            if asked[-1] in rows:
                self.note("stored", group=group)

    def load(self) -> list[Row]:
        """Return the durable rows."""
        rows = self._journal.load()
        self.note("loaded", rows=len(rows))
        return rows

    def crash(self) -> None:
        """Cut the power."""
        self._vfs.cut_power()
        self._journal.close()
        self._left = None

    def left(self) -> list[Row]:
        """Return what the store holds; of a dead one, what its files say."""
        if self._left is None:
            path = str(Path(recovery.directory_path(self.home, self.name)).resolve() / "messages.db")
            connection = connect(path, None)
            try:
                self._left = list(read_verified(connection, path, None, self.name).rows)
            finally:
                connection.close()
            self._settle_doubt(self._left)
        return self._left

    def remove(self) -> None:
        """Close everything and remove the files."""
        self._journal.close()
        self._vfs.close()
        shutil.rmtree(self.home, ignore_errors=True)
