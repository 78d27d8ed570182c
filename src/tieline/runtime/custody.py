"""A root's journal and its writer thread, as the driver's port.

Rule 1: the thread alone touches the journal; what else is wanted of it is asked through the thread.
Rule 2: an outcome is told on the loop, once a group.

Source: DESIGN.md 6 "journal"; reference/reliability.md F4.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tieline.engine.contract import MessageRow, Row
from tieline.errors import RecoveryRequired, TielineError
from tieline.model.message import Envelope
from tieline.runtime.logs import Log
from tieline.shell.driver import Committed
from tieline.shell.process import self_identity
from tieline.store import removal
from tieline.store.files import Seam, no_seam
from tieline.store.journal import CommitOutcome, Journal, Portion, StoreFull, Writer, read_portion
from tieline.store.journal.database import DATABASE

__all__ = ["Custody"]

_T = TypeVar("_T")
_OUTCOMES = {"stored": Committed.STORED, "full": Committed.FULL, "in_doubt": Committed.IN_DOUBT}


class Custody:
    """The store of one root; made by `open`."""

    def __init__(
        self, journal: Journal, stores: str, instance: str, loop: asyncio.AbstractEventLoop, log: Log
    ) -> None:
        self._journal, self._stores, self._instance, self._log = journal, stores, instance, log
        self._writer = Writer(journal, loop.call_soon_threadsafe)
        self._has_messages = False  # of a store that begins with this life

    @classmethod
    def open(
        cls,
        stores: str,
        instance: str,
        session: str,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        seam: Seam = no_seam,
    ) -> "Custody":
        """Make the private store of a new instance and hold its lock.

        Raises:
            Refused: the directory is not private, or the disk is full.
            RecoveryRequired: the disk failed.
        """
        process: dict[str, Any] = msgspec.to_builtins(self_identity())
        try:
            journal = Journal.open(
                os.path.join(stores, instance),
                instance,
                session,
                process=process,
                created_ms=time.time_ns() // 1_000_000,
                seam=seam,
            )
        except (StoreFull, RecoveryRequired):
            cls._discard(stores, instance, log)
            raise
        return cls(journal, stores, instance, loop, log)

    def commit(
        self,
        rows: Sequence[Row],
        *,
        admits: bool,
        reserve_bytes: int,
        done: Callable[[Committed], None],
    ) -> None:
        """Store rows as one transaction; `done` is called on the loop."""
        self._has_messages = self._has_messages or any(isinstance(row, MessageRow) for row in rows)

        def told(outcome: CommitOutcome) -> None:
            if not outcome.is_stored:
                self._log.note("commit", outcome=outcome.kind)
            done(_OUTCOMES[outcome.kind])

        self._writer.submit(rows, admits=admits, reserve_bytes=reserve_bytes, done=told)

    def load(self) -> Sequence[Row]:
        """Return all rows; blocks until the thread has them."""
        return self._call(Journal.load)

    def reopen(self) -> Sequence[Row]:
        """End a doubt; blocks.

        Raises:
            RecoveryRequired: the store cannot be believed.
        """
        return self._call(Journal.reopen)

    def content(self, cursor: int) -> Envelope:
        """Return the envelope of a record that memory let go; blocks.

        Raises:
            RecoveryRequired: the record is not there any more.
        """
        envelope = self._call(lambda journal: journal.content(cursor))
        if envelope is None:
            raise RecoveryRequired("this message was forgotten after its retention")
        return envelope

    def portion(self, message_after: int, move_after: int) -> Portion:
        """Return the next messages and moves behind these places; blocks.

        Raises:
            RecoveryRequired: a row is damaged, or the journal is in doubt.
        """

        def read(journal: Journal) -> Portion:
            with journal.reading() as connection:
                return read_portion(connection, DATABASE, message_after, move_after)

        return self._call(read)

    def rename_session(self, session: str) -> None:
        """Record which saved session this instance serves; blocks."""
        self._call(lambda journal: journal.associate(session))

    def housekeep(self, retention_ms: int) -> None:
        """Take away ended instances whose records are all final and past retention."""
        removal.housekeep(os.path.dirname(self._stores), retention_ms, time.time_ns() // 1_000_000)

    def close(self) -> None:
        """End the thread and the journal, and take away a store that holds no message; blocks."""
        self._writer.close()
        self._journal.close()
        if not self._has_messages:
            self._discard(self._stores, self._instance, self._log)

    @staticmethod
    def _discard(stores: str, instance: str, log: Log) -> None:
        """Remove a store that never held mail, and its log; where that fails, a later root sweeps it."""
        try:
            removal.discard(os.path.dirname(stores), instance)
        except TielineError as error:
            log.failure("discard", error)

    def _call(self, function: Callable[[Journal], _T]) -> _T:
        """Run `function` on the writer's thread and wait, without the loop's help."""
        told: list[_T] = []
        failed: list[BaseException] = []
        event = threading.Event()

        def run(journal: Journal) -> None:
            try:
                told.append(function(journal))
            except BaseException as error:  # noqa: BLE001 - raised again below, on the caller's thread
                failed.append(error)
            finally:
                event.set()

        self._writer.call(run, lambda _answer: None)
        event.wait()
        if failed:
            raise failed[0]
        return told[0]
