"""Who says that it is there: the shared directory of presence records.

Rule 1: an instance writes and removes exactly its own file, by name and by inode.
Rule 2: a foreign record is removed only when its owner is proven dead, which the caller proves. What
cannot be read is left alone while it is young, and reported afterwards.
Rule 3: cost grows with what changed: a file that did not change is not read again.

Source: reference/native.md 1C, 2.1; reference/reliability.md K31; reference/substrate.md 8.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tieline.config import STALE_MS
from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.store.files import Directory, Seam, no_seam, open_directory
from tieline.store.presence.record import Freshness, Record, file_name, parse

__all__ = ["Fault", "PresenceStore"]

RECORD_BYTES_MAX = 131_072
RECORDS_MAX = 16_384
"""Files read in one scan; more than this on one machine is a defect of somebody's clean-up."""
SETTLED_NS = 100_000_000
"""A file changed again within the clock's grain may look unchanged: one that was this young when it
was read is read again."""


class Fault(NamedTuple):
    """A file that was passed over, for the doctor to show."""

    file_name: str
    text: str


def _process_exists(pid: int) -> bool:
    """Return whether a process with this number exists; not being allowed to signal it says that it does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


_Judge = Callable[[int, int], Freshness]


class _Known(msgspec.Struct, gc=False):
    """A file as it was read: what it held, and what its status was."""

    inode: int
    mtime_ns: int
    ctime_ns: int
    size: int
    is_settled: bool
    record: Record | None
    fault: str

    def is_of(self, status: os.stat_result) -> bool:
        """Return whether the file did not change since."""
        return (
            self.is_settled
            and self.mtime_ns == status.st_mtime_ns
            and self.inode == status.st_ino
            and self.ctime_ns == status.st_ctime_ns
            and self.size == status.st_size
        )


class PresenceStore:
    """The shared directory of presence records, as one process reads it and writes its own record there.

    Attributes:
        faults: What the last `scan` passed over.
    """

    def __init__(
        self,
        directory_path: str,
        *,
        process_exists: Callable[[int], bool] = _process_exists,
        seam: Seam = no_seam,
    ) -> None:
        """Remember where the records are; nothing is opened, created or read yet.

        Args:
            directory_path: `<coordination directory>/active-agents`, absolute.
            process_exists: Asked for the process of each record.
            seam: Called at every effect.
        """
        self.faults: list[Fault] = []
        self._path = directory_path
        self._process_exists = process_exists
        self._seam = seam
        self._directory: Directory | None = None
        self._known: dict[str, _Known] = {}
        self._names: dict[str, str] = {}
        self._own: tuple[str, int, int] | None = None  # file name, inode, process

    def close(self) -> None:
        """Let go of the directory; the own record stays where it is."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def publish(self, record: dict[str, Any], session: str, instance: str | None) -> None:
        """Replace our own record, mode 0600 and whole for every reader; not synced, for it is a hint.

        After a change of session the record under the earlier name is removed.

        Args:
            record: The record in the words of the file, times as ISO-8601 UTC with milliseconds and `Z`.
            session: Must be the record's `sessionId`.
            instance: Must be the extension's `instanceId`; None for a record without the extension.

        Raises:
            UsageError: a reader would refuse the record or its extension.
            FileNotFoundError, Refused, RecoveryRequired: as `Directory.write_atomic`.

        Source: reference/native.md 22 to 25, 2.1.
        """
        data = msgspec.json.encode(record)
        self._check_own(data, session, instance)
        name = file_name(session, instance)
        directory = self._open(create=True)
        inode = directory.write_atomic(name, data, sync=False)
        earlier, self._own = self._own, (name, inode, os.getpid())
        if earlier is not None and earlier[0] != name and earlier[2] == os.getpid():
            directory.remove(earlier[0], inode=earlier[1])

    def _check_own(self, data: bytes, session: str, instance: str | None) -> None:
        if len(data) > RECORD_BYTES_MAX:
            raise UsageError(f"the presence record is larger than {RECORD_BYTES_MAX} bytes")
        try:
            own = parse(data)
        except ValueError as error:
            raise UsageError(str(error)) from error
        stated = own.communication.instance if own.communication is not None else None
        if own.communication_fault is not None or own.session != session or stated != instance:
            raise UsageError(
                own.communication_fault or "the presence record is of another session or instance"
            )

    def withdraw(self) -> bool:
        """Remove our own record; return whether it was still there and still ours."""
        own, self._own = self._own, None
        if own is None or own[2] != os.getpid():
            return False
        try:
            return self._open(create=False).remove(own[0], inode=own[1])
        except FileNotFoundError:
            return False

    def read_instance(self, instance: str, now_wall_ms: int | None = None) -> Record | None:
        """Return the record of one instance, read anew; None when there is no valid one.

        Costs one file where the name is known from before, else one listing of names.

        Args:
            instance: The exact instance id.
            now_wall_ms: For `freshness`; the system's clock when None.
        """
        try:
            directory = self._open(create=False)
        except FileNotFoundError:
            return None
        now = _wall_ms() if now_wall_ms is None else now_wall_ms
        known = self._names.get(instance)
        if known is not None and (record := self._of(directory, known, instance, now)) is not None:
            return record
        tail = f".{instance}.json"
        names = [name for name in os.listdir(directory.fd) if name.endswith(tail)][:RECORDS_MAX]
        found = [record for name in names if (record := self._of(directory, name, instance, now)) is not None]
        if not found:
            self._names.pop(instance, None)
            return None
        newest = max(found, key=partial(_rank, instance))
        self._names[instance] = newest.file_name
        return newest

    def _of(self, directory: Directory, name: str, instance: str, now: int) -> Record | None:
        """Return the record in this file if it is this instance's."""
        known = self._load(directory, name, now, self._judge(now))
        record = known.record if known is not None else None
        if record is None or record.communication is None or record.communication.instance != instance:
            return None
        return record

    def scan(self, now_wall_ms: int | None = None) -> list[Record]:
        """Return every valid record, in the order of file names, one per instance: the newest.

        Nothing is deleted. What was passed over is in `faults` afterwards: unsafe files at once, an
        unreadable one when it is older than 15 s, because not every writer is atomic.

        Args:
            now_wall_ms: For `freshness` and ages; the system's clock when None.

        Raises:
            Refused: the directory is not safe, or this process may not read it.
        """
        self.faults = []
        try:
            directory = self._open(create=False)
        except FileNotFoundError:
            self._known.clear()
            self._names.clear()
            return []
        now = _wall_ms() if now_wall_ms is None else now_wall_ms
        records = list(self._records(directory, now))
        newest: dict[str, Record] = {}
        for record in records:
            if record.communication is not None:
                instance = record.communication.instance
                other = newest.get(instance)
                if other is None or _rank(instance, record) > _rank(instance, other):
                    newest[instance] = record
        self._names = {instance: record.file_name for instance, record in newest.items()}
        return [
            record
            for record in records
            if record.communication is None or newest[record.communication.instance] is record
        ]

    def _records(self, directory: Directory, now: int) -> Iterator[Record]:
        names = sorted(name for name in os.listdir(directory.fd) if name.endswith(".json") and name[0] != ".")
        if len(names) > RECORDS_MAX:
            self.faults.append(Fault("", f"{len(names)} records; only the first {RECORDS_MAX} were read"))
            del names[RECORDS_MAX:]
        known: dict[str, _Known] = {}
        judge = self._judge(now)
        for name in names:
            entry = self._current(directory, name, now, judge)
            if entry is None:
                continue
            known[name] = entry
            if entry.record is not None:
                yield entry.record
            elif abs(now - entry.mtime_ns // 1_000_000) > STALE_MS or entry.inode == 0:
                self.faults.append(Fault(name, entry.fault))
        self._known = known

    def _current(self, directory: Directory, name: str, now: int, judge: _Judge) -> _Known | None:
        """Return what the file holds, from memory when it did not change."""
        known = self._known.get(name)
        if known is not None and known.is_settled:
            try:
                status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if known.is_of(status):
                if (record := known.record) is not None:
                    freshness = judge(record.pid, record.updated_ms)
                    if freshness != record.freshness:
                        known.record = msgspec.structs.replace(record, freshness=freshness)
                return known
        return self._load(directory, name, now, judge)

    def _load(self, directory: Directory, name: str, now: int, judge: _Judge) -> _Known | None:
        """Read one file; None when it is gone. Inode 0 marks one that was not fit to be read."""
        try:
            data, status = directory.read_with_status(name, RECORD_BYTES_MAX)
        except FileNotFoundError:
            return None
        except (Refused, RecoveryRequired) as error:
            return _Known(0, 0, 0, 0, is_settled=False, record=None, fault=str(error))
        try:
            record, fault = parse(data, name, judge), ""
        except ValueError as error:
            record, fault = None, str(error)
        is_settled = now * 1_000_000 - status.st_mtime_ns > SETTLED_NS
        return _Known(
            status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, is_settled, record, fault
        )

    def _judge(self, now: int) -> _Judge:
        """Return the judgement of one instant; a process is asked for once."""
        exists: dict[int, bool] = {}

        def judge(pid: int, updated_ms: int) -> Freshness:
            if pid not in exists:
                exists[pid] = self._process_exists(pid)
            if not exists[pid]:
                return "ended"
            # A time ahead of ours is not fresh for ever: the next heartbeat puts it right.
            return "fresh" if abs(now - updated_ms) <= STALE_MS else "stale"

        return judge

    def prune(self, owner_state: Callable[[str], str], now_wall_ms: int | None = None) -> list[str]:
        """Remove the records of proven-dead owners; return the names of their files.

        Args:
            owner_state: Says of an instance `alive`, `gone` or `unknown`, from the owner file beside
                its endpoint. A record of another maker has none, is `unknown`, and stays.
            now_wall_ms: As for `scan`.

        Source: reference/reliability.md K31; reference/native.md 35.
        """
        removed: list[str] = []
        for record in self.scan(now_wall_ms):
            if record.communication is None or record.freshness == "fresh":
                continue
            known = self._known.get(record.file_name)
            if known is None or owner_state(record.communication.instance) != "gone":
                continue
            if self._open(create=False).remove(record.file_name, inode=known.inode):
                removed.append(record.file_name)
        return removed

    def _open(self, *, create: bool) -> Directory:
        """Return the held directory, or the one now at the path when that was removed or exchanged."""
        if self._directory is None or not self._directory.is_current():
            self.close()
            self._known.clear()
            self._directory = open_directory(self._path, create=create, seam=self._seam)
        return self._directory


def _rank(instance: str, record: Record) -> tuple[int, bool]:
    """Return what orders two records of one instance: the newer, then the one under its proper name."""
    return record.updated_ms, record.file_name == file_name(record.session, instance)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
