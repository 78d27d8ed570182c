"""Space that the disk has already given, so that what was accepted can end when the disk is full.

Rule 1: pages count as room only when their bytes are in the file: the file grows before the database
does, and a page that only the database knows of is no room.
Rule 2: room is held as fillers of 1 MiB, released into free pages when those run short. The log is
grown by the same act and then overwritten from its start, never shortened.
Rule 3: growing is definite: it happened, or the disk is full and nothing changed that matters.
Rule 4: this module commits no row of anybody.

A counter instead of pages fails: in this log mode even one receipt could not be stored on a full disk.
A file system that copies on write can still refuse an overwrite; there the same error is told.

Source: reference/reliability.md F5, I8, K5, K6; reference/native.md 2.8 "storage admission".
"""

import os

import apsw

from tieline.store.files.checks import FULL
from tieline.store.journal.database import CHUNK_BYTES, PAGE_BYTES, last_errno, opened_file

__all__ = ["FILLER_BYTES", "Headroom", "pages_for", "reserve_pages"]

FILLER_BYTES = 1_048_576
FILLER_PAGES = FILLER_BYTES // PAGE_BYTES
"""Pages that one filler gives back at least: its overflow pages hold 4 bytes less each, so one more."""
SLACK_PAGES = 16
"""Splits of inner pages, the free list's own pages, the page of a table's first row."""
EXTENSION_SLACK_PAGES = 8


def pages_for(content_bytes: int) -> int:
    """Return the pages that rows of so many bytes may take: one just over half a page fills it alone."""
    return 2 * content_bytes // PAGE_BYTES + 3


def reserve_pages(reserve_bytes: int) -> int:
    """Return the pages to hold for transitions of so many bytes: small rows, a quarter lost to packing."""
    return reserve_bytes * 5 // (4 * PAGE_BYTES) + SLACK_PAGES


class Headroom:
    """What room a database has; `measure` after opening, `spend` with each commit."""

    __slots__ = ("_connection", "_path", "_vfs", "filler_count", "free_pages", "is_grown")

    def __init__(self, connection: apsw.Connection, path: str, vfs: str | None) -> None:
        self._connection = connection
        self._path = path
        self._vfs = vfs
        self.free_pages = 0
        self.filler_count = 0
        self.is_grown = False

    @property
    def room_pages(self) -> int:
        """Pages that rows may still take without a byte more from the disk, at the least."""
        return self.free_pages + self.filler_count * FILLER_PAGES

    def measure(self) -> None:
        """Count free pages and fillers; pages not yet backed by bytes of the file are no room."""
        pragma = self._connection.pragma
        free_pages, page_count = pragma("freelist_count"), pragma("page_count")
        assert isinstance(free_pages, int)
        assert isinstance(page_count, int)
        unbacked_pages = max(0, page_count - os.stat(self._path).st_size // PAGE_BYTES)
        self.free_pages = max(0, free_pages - unbacked_pages)
        self.filler_count = self._connection.execute("SELECT count(*) FROM headroom").get
        self.is_grown = self.is_grown or self.room_pages >= FILLER_PAGES // 2

    def spend(self, content_bytes: int) -> None:
        """Note that rows of so many bytes were stored."""
        self.free_pages = max(0, self.free_pages - pages_for(content_bytes))

    def is_release_due(self, content_bytes: int) -> bool:
        """Return whether a filler should be released before rows of so many bytes are stored."""
        return self.filler_count > 0 and self.free_pages < pages_for(content_bytes) + SLACK_PAGES

    def release(self) -> None:
        """Turn one filler into free pages, inside the caller's transaction."""
        self._connection.execute("DELETE FROM headroom WHERE number = (SELECT max(number) FROM headroom)")

    def released(self) -> None:
        """Note that the transaction of `release` was stored."""
        self.filler_count -= 1
        self.free_pages += FILLER_PAGES

    def grow(self) -> None:
        """Add one filler: first the file's bytes, then the database's pages, then both in agreement.

        Raises:
            apsw.FullError: the disk is full; nothing was taken.
            apsw.Error: anything else is for the caller to distrust.
        """
        pages = self._connection.pragma("page_count")
        assert isinstance(pages, int)
        self._extend(pages * PAGE_BYTES, FILLER_BYTES + EXTENSION_SLACK_PAGES * PAGE_BYTES)
        self._connection.execute("INSERT INTO headroom (filler) VALUES (zeroblob(?))", (FILLER_BYTES,))
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self.measure()
        self.is_grown = True

    def _extend(self, from_byte: int, content_bytes: int) -> None:
        """Write zeros past the database's last page; a sparse tail would be an empty promise."""
        with opened_file(self._path, self._vfs) as file:
            size = file.xFileSize()
            offset = max(from_byte, size)
            end = from_byte + content_bytes
            zeros = bytes(CHUNK_BYTES)
            try:
                while offset < end:
                    file.xWrite(zeros[: end - offset], offset)
                    offset += len(zeros)
                file.xSync(apsw.SQLITE_SYNC_FULL)
            except apsw.Error as error:
                # A quota or a size limit is told as a failed write; it is a refusal of space all the same.
                is_full = isinstance(error, apsw.FullError) or last_errno(file) in FULL
                file.xTruncate(size)
                if is_full:
                    raise apsw.FullError(str(error)) from error
                raise
