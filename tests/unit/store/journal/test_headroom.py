"""Space that the disk has already given."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.faults.vfs import FaultyVfs
from tieline.store.journal import database
from tieline.store.journal.headroom import FILLER_BYTES, FILLER_PAGES, Headroom, pages_for, reserve_pages


@pytest.fixture
def layer() -> Iterator[FaultyVfs]:
    """Give a disk that may be full."""
    opened = FaultyVfs()
    yield opened
    opened.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of an empty file that is to be a database."""
    empty = tmp_path.resolve() / database.DATABASE
    empty.touch()
    return str(empty)


@pytest.fixture
def connection(path: str, layer: FaultyVfs) -> Iterator[apsw.Connection]:
    """Give a database with tables."""
    opened = database.connect(path, layer.name)
    database.create_schema(opened, "i")
    yield opened
    opened.close()


@pytest.fixture
def headroom(connection: apsw.Connection, path: str, layer: FaultyVfs) -> Headroom:
    """Return its headroom, not grown yet."""
    return Headroom(connection, path, layer.name)


@pytest.mark.clause("I8", "mutant-5")
def test_growing_gives_a_filler_whose_bytes_are_in_both_files(headroom: Headroom, path: str) -> None:
    """After growing, database and log each hold 1 MiB that the disk cannot take back."""
    headroom.measure()
    assert not headroom.is_grown
    headroom.grow()
    assert headroom.is_grown
    assert headroom.room_pages >= FILLER_PAGES
    for name in (path, path + "-wal"):
        status = Path(name).stat()
        assert status.st_size >= FILLER_BYTES
        assert status.st_blocks * 512 >= FILLER_BYTES


def test_released_filler_becomes_free_pages(headroom: Headroom, connection: apsw.Connection) -> None:
    """Releasing a filler gives at least the pages that were promised."""
    headroom.grow()
    headroom.release()
    headroom.released()
    promised = headroom.room_pages
    headroom.measure()
    assert headroom.filler_count == 0
    assert headroom.room_pages >= promised >= FILLER_PAGES


def test_release_is_due_only_when_pages_run_short(headroom: Headroom) -> None:
    """A filler is kept until rows would take pages that are not there."""
    headroom.grow()
    assert headroom.is_release_due(1_000)
    headroom.release()
    headroom.released()
    headroom.grow()
    headroom.free_pages = pages_for(1_000) + 100
    assert not headroom.is_release_due(1_000)
    headroom.spend(200_000)
    assert headroom.is_release_due(1_000)


@pytest.mark.clause("K5")
def test_growing_on_a_full_disk_is_definite_at_every_size(
    connection: apsw.Connection, headroom: Headroom, layer: FaultyVfs, path: str
) -> None:
    """Whatever is missing to the megabyte, growing says so and the database goes on."""
    used = layer.used_bytes
    for extra_bytes in range(0, 2 * FILLER_BYTES, 64 * 1024):
        layer.quota_bytes = used + extra_bytes
        with pytest.raises(apsw.FullError):
            headroom.grow()
        assert not connection.in_transaction
        headroom.measure()
        assert headroom.filler_count == 0
    layer.quota_bytes = None
    headroom.grow()
    connection.execute("INSERT INTO meta VALUES ('still', 'works')")


def test_pages_that_only_the_database_knows_are_no_room(
    connection: apsw.Connection, headroom: Headroom, path: str
) -> None:
    """A page that is not in the file yet is not counted as free."""
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (zeroblob(400000))")
    connection.execute("DELETE FROM t")
    headroom.measure()
    assert headroom.free_pages == 0
    connection.wal_checkpoint()
    headroom.measure()
    assert headroom.free_pages >= 90


@pytest.mark.parametrize("size", [60, 200, 1_500, 2_049, 2_100, 4_100, 8_600, 30_000])
@pytest.mark.parametrize("count", [1, 7, 64])
def test_pages_for_rows_of_any_size_are_not_below_what_they_take(size: int, count: int) -> None:
    """The estimate is never too low, also for rows that fill half a page and a little."""
    connection = apsw.Connection(":memory:")
    connection.pragma("page_size", database.PAGE_BYTES)
    connection.execute("CREATE TABLE t (i INTEGER PRIMARY KEY, x BLOB)")
    connection.execute("INSERT INTO t VALUES (0, x'')")
    before = connection.pragma("page_count")
    for number in range(1, count + 1):
        connection.execute("INSERT INTO t VALUES (?, ?)", (number, bytes(size)))
    assert connection.pragma("page_count") - before <= pages_for(count * (size + 128))
    connection.close()


def test_reserve_covers_small_rows_in_separate_transactions() -> None:
    """Transitions of 200 bytes, stored one by one in three tables, fit into their reserve."""
    connection = apsw.Connection(":memory:")
    connection.pragma("page_size", database.PAGE_BYTES)
    for table in "abc":
        connection.execute(f"CREATE TABLE {table} (i INTEGER PRIMARY KEY, x BLOB)")
    before = connection.pragma("page_count")
    for number in range(32 * 9):
        connection.execute(f"INSERT INTO {'abc'[number % 3]} VALUES (?, ?)", (number, bytes(200)))
    assert connection.pragma("page_count") - before <= reserve_pages(32 * 2_048)
    connection.close()
