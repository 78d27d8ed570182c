"""One database file: opened safely or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.faults.rows import message
from tests.faults.vfs import FaultyVfs
from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.store.journal import database
from tieline.store.journal.rows import bound, insert

INSTANCE = "i-1"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of an empty file that is to be a database."""
    empty = tmp_path.resolve() / database.DATABASE
    empty.touch()
    return str(empty)


@pytest.fixture
def connection(path: str) -> Iterator[apsw.Connection]:
    """Give a database with tables and 20 messages, each its own transaction in the log."""
    opened = database.connect(path, None)
    database.create_schema(opened, INSTANCE)
    for position in range(1, 21):
        insert(opened, [bound(message(position, size=1_500), position)])
    yield opened
    opened.close()


def read(path: str) -> int:
    """Return how many rows a fresh, verified reading gives."""
    with database.telling_damage("f"):
        opened = database.connect(path, None)
    try:
        return database.read_verified(opened, path, None, INSTANCE).position
    finally:
        opened.close()


@pytest.mark.clause("O45")
@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_library_with_the_log_reset_fault_is_refused(connection: apsw.Connection, version: str) -> None:
    """A library that may damage its log is never used."""
    with pytest.raises(UsageError, match=version):
        database.refuse_unsafe(connection, version)
    database.refuse_unsafe(connection, "3.51.3")


@pytest.mark.clause("O45", "mutant-2")
@pytest.mark.parametrize("level", ["NORMAL", "OFF"])
def test_weaker_sync_level_is_refused_at_the_start(
    path: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that a power cut would shorten does not start."""
    monkeypatch.setattr(database, "SYNCHRONOUS", level)
    with pytest.raises(UsageError, match="power cut"):
        database.connect(path, None)


@pytest.mark.clause("O45")
def test_rollback_journal_is_refused_at_the_start(tmp_path: Path) -> None:
    """A database that is not in log mode is refused."""
    opened = apsw.Connection(str(tmp_path / "plain"))
    with pytest.raises(UsageError, match="journal_mode"):
        database.refuse_unsafe(opened, "3.51.3")
    opened.close()


@pytest.mark.clause("O46")
def test_database_in_use_is_locked_to_every_other_connection(connection: apsw.Connection, path: str) -> None:
    """A shell started on the live file is told "locked"; it reads nothing and deletes nothing."""
    script = (
        "import sqlite3, sys\n"
        "try: sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT count(*) FROM message')\n"
        "except sqlite3.OperationalError as error: sys.exit(7 if 'locked' in str(error) else 8)\n"
    )
    import subprocess
    import sys

    before = sorted(os.listdir(Path(path).parent))
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == 7
    assert sorted(os.listdir(Path(path).parent)) == before == [database.DATABASE, database.LOG]


def test_database_reached_through_a_link_is_refused(path: str, tmp_path: Path) -> None:
    """SQLite follows no link for us."""
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(apsw.CantOpenError):
        database.connect(str(link), None)


@pytest.mark.clause("K17")
def test_database_of_another_instance_is_refused(connection: apsw.Connection, path: str) -> None:
    """A file swapped in from another directory is not read as ours."""
    with pytest.raises(RecoveryRequired, match="i-1"):
        database.read_verified(connection, path, None, "i-2")


@pytest.mark.clause("K26")
def test_newer_schema_is_refused_and_left_alone(connection: apsw.Connection, path: str) -> None:
    """A newer version's database is not opened for anything."""
    connection.pragma("user_version", database.SCHEMA_VERSION + 1)
    connection.close()
    with pytest.raises(Refused) as refused:
        read(path)
    assert refused.value.code == "VERSION_SKEW"


@pytest.mark.clause("K17")
@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more (x)",
        "DROP TABLE mute",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 0",
        "CREATE TRIGGER t AFTER INSERT ON message BEGIN DELETE FROM move; END",
    ],
)
def test_database_with_other_tables_is_refused(connection: apsw.Connection, path: str, change: str) -> None:
    """A database that is not exactly of our making is damage."""
    connection.execute(change)
    connection.close()
    with pytest.raises(RecoveryRequired):
        read(path)


@pytest.mark.clause("native-180", "K17")
@pytest.mark.parametrize("content", [b"", b"not a database at all" * 300, bytes(8_192)])
def test_file_that_is_no_database_is_refused(path: str, content: bytes) -> None:
    """An empty, zeroed or foreign file is never read as an empty store."""
    Path(path).write_bytes(content)
    with pytest.raises(RecoveryRequired):
        read(path)


@pytest.mark.clause("K17", "I50")
def test_log_damaged_in_its_middle_is_refused(connection: apsw.Connection, path: str) -> None:
    """Commits that SQLite would silently leave out are noticed, wherever the log is damaged."""
    connection.close()
    log = Path(path + "-wal")
    whole = log.read_bytes()
    frame_bytes = database.FRAME_HEADER_BYTES + database.PAGE_BYTES
    frames = (len(whole) - database.LOG_HEADER_BYTES) // frame_bytes
    assert frames > 30
    assert read(path) == 20
    for number in range(frames - 10):
        log.write_bytes(whole)
        with log.open("r+b") as stream:
            stream.seek(database.LOG_HEADER_BYTES + number * frame_bytes + 500)
            stream.write(b"\xa5")
        with pytest.raises(RecoveryRequired):
            read(path)


@pytest.mark.clause("K17")
def test_log_header_with_any_bit_flipped_is_refused(connection: apsw.Connection, path: str) -> None:
    """A damaged header would make SQLite forget the whole log."""
    connection.close()
    log = Path(path + "-wal")
    whole = log.read_bytes()
    for bit in range(database.LOG_HEADER_BYTES * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        log.write_bytes(flipped)
        with pytest.raises(RecoveryRequired):
            read(path)


@pytest.mark.clause("K2")
def test_log_with_one_unfinished_transaction_is_believed(connection: apsw.Connection, path: str) -> None:
    """What a power cut tears is the transaction nobody was told of; the rest is read."""
    connection.close()
    log = Path(path + "-wal")
    whole = log.read_bytes()
    log.write_bytes(whole[:-1_000] + bytes(1_000))
    assert read(path) == 19


@pytest.mark.clause("K4", "mutant-4")
def test_rewrite_stores_again_what_a_failed_sync_lost(path: str) -> None:
    """After a failed sync a second sync stores nothing; writing anew does."""
    for is_rewritten, expected in ((False, b""), (True, b"kept" * 9_000)):
        Path(path).write_bytes(b"")
        layer = FaultyVfs()
        with database.opened_file(path, layer.name) as file:
            for offset in range(0, 36_000, 4_000):
                file.xWrite((b"kept" * 1_000), offset)
            layer._disks[path].pending.clear()  # what the failed sync lost, in the worst case
            file.xSync(apsw.SQLITE_SYNC_FULL)
        if is_rewritten:
            database.rewrite(path, layer.name)
        layer.cut_power()
        layer.close()
        assert Path(path).read_bytes() == expected


def test_damage_is_told_by_the_name_of_the_file() -> None:
    """Whatever SQLite says of a file becomes one error that names it."""
    for error in (apsw.CorruptError("x"), apsw.NotADBError("x"), apsw.BusyError("x"), apsw.IOError("x")):
        with pytest.raises(RecoveryRequired, match=r"messages\.db"), database.telling_damage("messages.db"):
            raise error


def test_generation_starts_at_one(connection: apsw.Connection) -> None:
    """A new database was opened once."""
    assert database.generation(connection) == 1
