"""The durable record of one root's moves.

Theory. `commit` is one transaction and one sync. It ends in one of three ways, and the caller may say no
more than it says: stored; definitely not stored (`StoreFull`); or in doubt (`RecoveryRequired`), when
the disk failed somewhere between the first byte and the answer. After a doubt the journal is poisoned:
it says nothing more until `reopen` has written anew, and synced, what the files appear to hold.

Rule 1: nothing is told stored before its sync returned and the files were seen to be still in place.
Rule 2: a failed sync is never tried again; what it covered is in doubt.
Rule 3: new custody is taken only while the disk has already given the room in which all that was
    accepted can end.
Rule 4: the log is copied into the database between groups; inside one only when the disk is full.
Rule 5: this module does not know what a row means, nor which is urgent.

All calls may come from any thread; one at a time works. The root's lock is held as long as the journal
is open: its being free is the proof that the root has ended.

Source: reference/native.md 176, 2.8; reference/reliability.md F1 to F5, I1 to I8, I50, K1 to K6, K17;
reference/substrate.md 4, 5; DESIGN.md 6 "journal".
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

import apsw

from tieline.engine.contract import PruneRow, Row
from tieline.errors import RecoveryRequired, Refused, TielineError, UsageError
from tieline.model.message import Envelope
from tieline.store.files import Directory, Lock, Seam, no_seam, open_directory
from tieline.store.journal import database
from tieline.store.journal.database import DATABASE, LOG, telling_damage
from tieline.store.journal.headroom import Headroom, pages_for, reserve_pages
from tieline.store.journal.identity import Identity, write_identity
from tieline.store.journal.rows import (
    Bound,
    Stored,
    bound,
    content_size,
    insert,
    message_envelope,
    read_rows,
    remove_pruned,
)
from tieline.store.journal.witness import Seen, Witness, refuse_behind

__all__ = ["CHECKPOINT_BYTES", "LOCK", "PAUSE_BYTES", "SEAMS", "Journal", "StoreFull"]

LOCK = "lock"
CHECKPOINT_BYTES = 16_777_216
"""The log is copied at this size even when no pause comes: 1.7 ms per MiB of it, while nobody is served."""
PAUSE_BYTES = 262_144
"""A pause copies a log of this size. The first commit after a copy syncs twice, because the log's header
is new: were every pause used, every lone message would pay it (measured 2.7 times)."""
FRAME_BYTES = database.PAGE_BYTES + database.FRAME_HEADER_BYTES

SEAMS = (
    "journal.database_created",
    "journal.created",
    "journal.before_growth",
    "journal.grown",
    "journal.before_commit",
    "journal.synced",
    "journal.after_commit",
    "journal.before_checkpoint",
    "journal.checkpointed",
    "journal.before_reopen",
    "journal.rewritten",
    "journal.reopened",
    "journal.closed",
)
"""Every seam of this module, in the order in which a life meets them."""


class StoreFull(Refused):
    """Definite: the disk is full and nothing of the group was stored."""

    def __init__(self, text: str) -> None:
        super().__init__("QUEUE_FULL", text, is_retryable=True)


class Journal:
    """One instance's rows on the disk; made by `open`. `position` is the number of the last stored row."""

    def __init__(
        self, directory: Directory, lock: Lock, identity: Identity, seam: Seam, vfs: str | None
    ) -> None:
        """Take over the directory and its lock; `open` does the rest."""
        self.identity = identity
        self.position = 0
        self._directory = directory
        self._lock = lock
        self._seam = seam
        self._vfs = vfs
        self._path = os.path.join(os.path.realpath(directory.path), DATABASE)  # SQLite follows no link for us
        self._log_path = self._path + "-wal"
        self._mutex = threading.RLock()
        self._doubt = ""
        self._log_frames = 0
        self._stuck_frames = 0  # of a log that a full disk did not let us copy
        self._generation = 1
        self._connection: apsw.Connection
        self._headroom: Headroom
        self._inodes: tuple[int, int, int]
        self._witness: Witness

    # ------------------------------------------------------------ life

    @classmethod
    def open(
        cls,
        directory_path: str,
        instance: str,
        session: str,
        *,
        process: dict[str, str | int] | None = None,
        created_ms: int = 0,
        seam: Seam = no_seam,
        vfs: str | None = None,
    ) -> Self:
        """Create the journal of a new instance and hold its lock.

        Args:
            directory_path: Absolute; made with mode 0700 when missing.
            instance: The id of this life, never used before.
            session: The saved session it serves, "" when not known yet (`associate` says it later).
            process: What proves the process, kept in identity.json.
            created_ms: Wall time.
            seam: Called by name around every effect, see `SEAMS`.
            vfs: SQLite's file layer, for tests.

        Raises:
            Refused: `RESOURCE_BUSY` when another process holds the lock; `QUEUE_FULL` when the disk is
                full; `UNSAFE_ENDPOINT` when the directory is not private or not local.
            UsageError: the directory already holds an instance's mail, or the library is not safe.
            RecoveryRequired: the disk failed.
        """
        directory = open_directory(directory_path, create=True, seam=seam)
        try:
            lock = directory.lock(LOCK, 0)
            try:
                identity = Identity(instance, session, process or {}, created_ms)
                journal = cls(directory, lock, identity, seam, vfs)
                journal._create()
            except BaseException:
                lock.release()
                raise
        except BaseException:
            directory.close()
            raise
        return journal

    def _create(self) -> None:
        """Make database, witness and identity, in this order: without the last there is no mail."""
        present = [name for name in self._directory.names() if name != LOCK]
        if present:
            raise UsageError(
                f"{self._directory.path} already holds {present[0]}: an instance id is used once"
            )
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(DATABASE, flags, 0o600, dir_fd=self._directory.fd))
            self._connect()
            database.create_schema(self._connection, self.identity.instance_id)
            self._witness = Witness(self._directory.fd)
            os.fsync(self._directory.fd)
            self._seam("journal.database_created")
            write_identity(self._directory, self.identity)
            self._inodes = self._present_files()
        except (apsw.Error, OSError) as error:
            if database.is_full(self._connection, error):
                raise StoreFull(f"no space for {self._path}") from error
            raise RecoveryRequired(f"{self._path} cannot be made: {error}") from error
        self._seam("journal.created")

    def _connect(self) -> None:
        self._connection = database.connect(self._path, self._vfs)
        self._connection.set_wal_hook(self._log_grew)
        self._headroom = Headroom(self._connection, self._path, self._vfs)

    def _log_grew(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self._log_frames = frames
        return apsw.SQLITE_OK

    def _present_files(self) -> tuple[int, int, int]:
        # By path, so that another directory put in this one's place is noticed as well.
        status, log_status = os.stat(self._path), os.stat(self._log_path)
        return (status.st_dev, status.st_ino, log_status.st_ino)

    def associate(self, session: str) -> None:
        """Record, synced, which saved session this instance serves from now on.

        Raises:
            Refused: the disk is full; the earlier one stands.
            RecoveryRequired: it is in doubt.
        """
        with self._mutex:
            known = self.identity
            identity = Identity(known.instance_id, session, known.process, known.created_ms)
            write_identity(self._directory, identity)
            self.identity = identity

    def close(self) -> None:
        """Leave one tidy database file, and free the lock. A second call does nothing."""
        with self._mutex:
            if not self._lock.is_held:
                return
            # What cannot be copied now stays in the log, which is as durable; a doubt is left as it is.
            if not self._doubt:
                with suppress(apsw.Error):
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            with suppress(apsw.Error):
                self._connection.close()
            self._witness.close()
            self._doubt = "the journal is closed"
            self._seam("journal.closed")
            self._lock.release()
            self._directory.close()

    # ------------------------------------------------------------ writing

    def commit(self, rows: Sequence[Row], *, admits: bool, reserve_bytes: int = 0) -> None:
        """Store `rows` as one transaction; return when it is on stable storage.

        Args:
            rows: In the order of their decisions.
            admits: Whether new custody is taken; then room is checked first.
            reserve_bytes: What all unresolved records may still need in the worst case, these included.

        Raises:
            StoreFull: definite, nothing is stored.
            RecoveryRequired: in doubt, or the journal already was; `reopen` comes next.

        Source: reference/reliability.md F4, F5, I2, I8.
        """
        with self._mutex:
            self._refuse_doubt()
            try:
                lines = [bound(row, self.position + number) for number, row in enumerate(rows, 1)]
                content_bytes = sum(map(content_size, lines))
                if admits:
                    self._make_room(content_bytes, reserve_bytes)
                self._seam("journal.before_commit")
                self._store(rows, lines, content_bytes)
                self._seam("journal.synced")
                self._confirm(self.position + len(lines))
                self._seam("journal.after_commit")
            except StoreFull:
                raise
            except (apsw.Error, OSError) as error:
                raise self._poison(f"a commit to {self._path} is in doubt: {error}") from error
            except BaseException as error:
                self._poison(f"a commit to {self._path} was interrupted: {error!r}")
                raise

    def _store(self, rows: Sequence[Row], lines: Sequence[Bound], content_bytes: int) -> None:
        """Run the transaction; on a full disk once more, with the log overwritten from its start."""
        try:
            self._transact(rows, lines, content_bytes)
        except apsw.FullError as first:
            # What was admitted must be able to end: its pages exist, so the log can be copied in place.
            if self._log_frames == 0 or not self._copy_log():
                raise StoreFull(f"no space in {self._path}") from first
            try:
                self._transact(rows, lines, content_bytes)
            except apsw.FullError as error:
                raise StoreFull(f"no space in {self._path}") from error

    def _transact(self, rows: Sequence[Row], lines: Sequence[Bound], content_bytes: int) -> None:
        """Store `lines` atomically.

        Raises:
            apsw.FullError: definite; it was rolled back.
        """
        connection = self._connection
        releases = self._headroom.is_release_due(content_bytes)
        prunes = [(row, self.position + at) for at, row in enumerate(rows, 1) if isinstance(row, PruneRow)]
        try:
            if len(lines) == 1 and not releases and not prunes:
                insert(connection, lines)
            else:
                connection.execute("BEGIN IMMEDIATE")
                if releases:
                    self._headroom.release()
                insert(connection, lines)
                for row, position in prunes:
                    remove_pruned(connection, row, position)
                connection.execute("COMMIT")
        except apsw.Error as error:
            # SQLite has rolled back by itself in most cases; a second rollback would be an error.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if database.is_full(self._connection, error):
                raise apsw.FullError(str(error)) from error
            raise
        if releases:
            self._headroom.released()
        self._headroom.spend(content_bytes)

    def _confirm(self, position: int) -> None:
        """Note that everything up to `position` is durable, in the files that are still in place.

        Source: reference/open-bugs.md O46: a holder of deleted files would go on acknowledging.
        """
        try:
            is_in_place = self._present_files() == self._inodes
        except FileNotFoundError:
            is_in_place = False
        if not is_in_place:
            raise self._poison(f"{self._path} or its log was removed or replaced while in use")
        self.position = position
        self._witness.tell(self._generation, position)

    # ------------------------------------------------------------ room

    def _make_room(self, content_bytes: int, reserve_bytes: int) -> None:
        """Have the pages for these rows and for the end of all that is unresolved, or refuse.

        Raises:
            StoreFull: the disk does not give them.
        """
        needed = pages_for(content_bytes) + reserve_pages(reserve_bytes)
        headroom = self._headroom
        if headroom.is_grown and headroom.room_pages >= needed:
            return
        headroom.measure()
        while not headroom.is_grown or headroom.room_pages < needed:
            self._seam("journal.before_growth")
            try:
                headroom.grow()
            except apsw.Error as error:
                if not database.is_full(self._connection, error):
                    raise
                headroom.measure()
                raise StoreFull(f"no space to keep what {self._path} accepts") from error
            self._log_frames = 0
            self._seam("journal.grown")

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the log has grown so far that it should be copied before the next group."""
        return self._log_frames * FRAME_BYTES >= CHECKPOINT_BYTES and not self._doubt

    @property
    def is_pause_useful(self) -> bool:
        """Whether a pause should be used to copy the log: not for a few pages, see `PAUSE_BYTES`."""
        is_large = self._log_frames * FRAME_BYTES >= PAUSE_BYTES
        return is_large and self._log_frames > self._stuck_frames and not self._doubt

    def checkpoint(self) -> None:
        """Copy the log into the database, so that it is overwritten from its start; for pauses.

        Raises:
            RecoveryRequired: the disk failed; the journal is poisoned.
        """
        with self._mutex:
            self._refuse_doubt()
            try:
                self._copy_log()
            except apsw.Error as error:
                raise self._poison(f"copying the log into {self._path} failed: {error}") from error

    def _copy_log(self) -> bool:
        """Copy the log; return False when the disk is full, which leaves everything in the log."""
        self._seam("journal.before_checkpoint")
        try:
            total, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            if database.is_full(self._connection, error):
                self._stuck_frames = self._log_frames  # the next pause need not try the same again
                return False
            raise
        if total == copied:
            self._log_frames = self._stuck_frames = 0
        self._seam("journal.checkpointed")
        return total == copied

    # ------------------------------------------------------------ reading

    def load(self) -> list[Row]:
        """Return all rows in the order of their commits, for `Messaging.restore`.

        Raises:
            RecoveryRequired: a row is damaged, or the journal is in doubt.
        """
        with self.reading() as connection:
            return self._believe(read_rows(connection, DATABASE))

    def content(self, cursor: int) -> Envelope | None:
        """Return the envelope of the message that has this cursor, None when forgotten; raises as `load`."""
        with self.reading() as connection:
            return message_envelope(connection, cursor, DATABASE)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Give the database to a reader that changes nothing; raises as `load`."""
        with self._mutex:
            self._refuse_doubt()
            with self._poisoning(), telling_damage(DATABASE):
                yield self._connection

    def _believe(self, stored: Stored) -> list[Row]:
        """Return the rows when nothing is missing that was acknowledged."""
        seen, found = Seen(self._generation, self.position), Seen(self._generation, stored.position)
        refuse_behind(seen, found, DATABASE)
        self.position = stored.position
        return stored.rows

    # ------------------------------------------------------------ doubt

    @property
    def doubt(self) -> str:
        """Why nothing is acknowledged, "" while all is well."""
        return self._doubt

    def reopen(self) -> list[Row]:
        """End a doubt in the same process: write anew what the files hold, sync, verify, load.

        Raises:
            RecoveryRequired: the doubt stands; it may be tried again.

        Source: reference/reliability.md K4, I50.
        """
        with self._mutex:
            if not self._lock.is_held:
                raise RecoveryRequired("the journal is closed")
            self._poison("the journal is being reopened")
            self._seam("journal.before_reopen")
            with suppress(apsw.Error):
                self._connection.close()
            try:
                if self._present_files() != self._inodes:
                    raise RecoveryRequired(f"{self._path} or its log was replaced while in use")
                with telling_damage(DATABASE):
                    database.rewrite(self._path, self._vfs)
                with telling_damage(LOG):
                    database.rewrite(self._log_path, self._vfs, apsw.SQLITE_OPEN_WAL)
                os.fsync(self._directory.fd)
                self._seam("journal.rewritten")
                rows = self._reconnect()
            except OSError as error:
                raise self._poison(f"{self._path} cannot be reopened: {error}") from error
            except TielineError as error:
                self._poison(str(error))
                raise
            self._doubt = ""
            self._seam("journal.reopened")
            return rows

    def _reconnect(self) -> list[Row]:
        with telling_damage(DATABASE):
            self._connect()
        rows = self._believe(
            database.read_verified(self._connection, self._path, self._vfs, self.identity.instance_id)
        )
        # A write that is synced shows that the disk takes them again; nothing else would.
        with telling_damage(DATABASE):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            next_generation = database.generation(self._connection) + 1
            self._connection.execute(
                "UPDATE meta SET value = ? WHERE name = 'generation'", (str(next_generation),)
            )
            self._headroom.measure()
        self._generation = next_generation
        self._confirm(self.position)
        return rows

    def _refuse_doubt(self) -> None:
        if self._doubt:
            raise RecoveryRequired(self._doubt)

    def _poison(self, text: str) -> RecoveryRequired:
        """Believe nothing more until `reopen`; return the error that says so."""
        self._doubt = text
        return RecoveryRequired(text)

    @contextmanager
    def _poisoning(self) -> Iterator[None]:
        try:
            yield
        except RecoveryRequired as error:
            self._poison(str(error))
            raise
