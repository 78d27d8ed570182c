"""A disk beneath SQLite that fails on purpose: cut power, failed syncs, no space, the n-th operation.

Rule 1: files are real, so that every reader sees what was written; beside them stands, per file, what a
power cut would leave: the synced bytes, and the writes since in their order.
Rule 2: a failed sync loses what it covered, and later syncs do not bring it back; only writing the same
place anew does. That is what Linux does.
Rule 3: the same seed and the same operations fail in the same way.

Source: reference/reliability.md F1, F4, F5, 2.2, K2, K4, K5; reference/substrate.md 5 "Crash".
"""

import errno
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import apsw

__all__ = ["FaultyVfs"]

SECTOR_BYTES = 512
_numbers = itertools.count()


class _Disk:
    """One file: what is surely stored, and what a sync would store."""

    def __init__(self, path: str) -> None:
        file = Path(path)
        self.durable = bytearray(file.read_bytes() if file.exists() else b"")
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, data), or (size, None) for a truncation

    def apply(self, offset: int, data: bytes | None) -> None:
        """Store one write for good."""
        if data is None:
            del self.durable[offset:]
            return
        if len(self.durable) < offset:
            self.durable.extend(bytes(offset - len(self.durable)))
        self.durable[offset : offset + len(data)] = data

    def sync(self) -> None:
        """Store all that is pending."""
        for write in self.pending:
            self.apply(*write)
        self.pending = []

    def fall_apart(self, chance: random.Random) -> None:
        """Store some of what is pending, some sectors of it, or nothing; forget the rest."""
        for offset, data in self.pending:
            fate = chance.random()
            if fate < 0.4:
                continue
            if data is None or fate < 0.7:
                self.apply(offset, data)
                continue
            for start in range(0, len(data), SECTOR_BYTES):
                if chance.random() < 0.5:
                    self.apply(offset + start, data[start : start + SECTOR_BYTES])
        self.pending = []


class FaultyVfs(apsw.VFS):
    """A file layer named `name`, for `Journal.open(..., vfs=layer.name)`; `close` unregisters it.

    Args:
        seed: Of what a power cut or a failed sync leaves.
        quota_bytes: Size of all files together above which writes are refused; None is no limit.

    Attributes:
        counts: Operations so far, by name: "write", "sync", "truncate".
    """

    def __init__(self, seed: int = 0, quota_bytes: int | None = None) -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.counts: Counter[str] = Counter()
        self.quota_bytes = quota_bytes
        self.is_dead = False
        self._cut_at = -1
        self._chance = random.Random(seed)
        self._disks: dict[str, _Disk] = {}
        self._faults: dict[tuple[str, int], int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}
        super().__init__(self.name, "")

    def close(self) -> None:
        """Unregister the layer; connections that use it must be closed before."""
        self.unregister()

    # ------------------------------------------------------------ what shall fail

    def fail(self, operation: str, at: int, error: int = errno.EIO, *, is_sticky: bool = False) -> None:
        """Let the `at`-th `operation` from now on (0 is the next) end in `error`, or all from there on.

        Args:
            operation: "write", "sync" or "truncate".
            at: 0 or more.
            error: errno.EIO, or errno.ENOSPC for writes.
            is_sticky: Also every later one, until `heal`.
        """
        number = self.counts[operation] + at
        if is_sticky:
            self._sticky[operation] = (number, error)
        else:
            self._faults[(operation, number)] = error

    def cut_power_at(self, number: int) -> None:
        """Cut the power instead of the `number`-th operation from now, whichever it is; 0 is the next."""
        self._cut_at = self.counts.total() + number

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._faults.clear()
        self._sticky.clear()

    def cut_power(self) -> None:
        """End every open file's life, and leave on the disk what a cut of power may leave."""
        self.is_dead = True
        for path, disk in self._disks.items():
            disk.fall_apart(self._chance)
            Path(path).write_bytes(disk.durable)

    @property
    def used_bytes(self) -> int:
        """Size of all files together."""
        return sum(Path(path).stat().st_size for path in self._disks if Path(path).exists())

    # ------------------------------------------------------------ called by files

    def disk(self, path: str) -> _Disk:
        """Return the books of one file."""
        if path not in self._disks:
            self._disks[path] = _Disk(path)
        return self._disks[path]

    def begin(self, operation: str) -> int:
        """Count one operation; return the errno it shall end in, 0 for none."""
        if self.is_dead:
            raise apsw.IOError("the power is off")
        if self.counts.total() == self._cut_at:
            self.cut_power()
            raise apsw.IOError("the power was cut")
        number = self.counts[operation]
        self.counts[operation] += 1
        first, error = self._sticky.get(operation, (number + 1, 0))
        return self._faults.get((operation, number), error if number >= first else 0)

    def break_sync(self, disk: _Disk) -> None:
        """Lose what a failed sync covered, as far as the disk had not taken it."""
        disk.fall_apart(self._chance)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """Open a file and keep books of it."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        assert path is not None, "the journal makes no temporary files"
        return _File(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Delete a file, durably."""
        self._disks.pop(filename, None)
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, layer: FaultyVfs, path: str, name: Any, flags: list[int]) -> None:
        self._layer = layer
        self._disk = layer.disk(path)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write, pending until the next sync."""
        error = self._layer.begin("write")
        if error == errno.ENOSPC:
            raise apsw.FullError("no space, on purpose")
        if error:
            raise apsw.IOError("a failed write, on purpose")
        quota = self._layer.quota_bytes
        grown = max(0, offset + len(data) - self.xFileSize())
        if quota is not None and grown and self._layer.used_bytes + grown > quota:
            raise apsw.FullError("no space within the quota")
        super().xWrite(data, offset)
        self._disk.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        """Shorten, pending until the next sync."""
        if self._layer.begin("truncate"):
            raise apsw.IOError("a failed truncation, on purpose")
        super().xTruncate(newsize)
        self._disk.pending.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Make what is pending durable, or lose it for good."""
        if self._layer.begin("sync"):
            self._layer.break_sync(self._disk)
            raise apsw.IOError("a failed sync, on purpose")
        # No real sync: the books say what is durable.
        self._disk.sync()
