"""One database file: opened safely or not at all, and read without believing it.

Rule 1: write-ahead log, a sync for every commit, a library without the log-reset fault, one connection
that locks everybody else out; anything less is refused at the start.
Rule 2: damage is told by the file's name and leaves the bytes as they are.
Rule 3: nothing is created with a mode that others may read, not for an instant.
Rule 4: all access goes through SQLite's own file layer, so that tests may put a faulty one beneath.

EXCLUSIVE locking keeps the log's index in memory: no `-shm` file, six system calls fewer a commit, and a
shell that somebody starts on the live file is told "locked" instead of deleting the log under us.

Source: reference/reliability.md F1, F2, F4, S2, K4, K17; reference/open-bugs.md O45, O46.
"""

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import apsw

from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.store.files.checks import FULL
from tieline.store.journal.rows import Stored, read_rows

__all__ = [
    "CHUNK_BYTES",
    "DATABASE",
    "LIBRARY_MIN",
    "LOG",
    "PAGE_BYTES",
    "SCHEMA_VERSION",
    "connect",
    "create_schema",
    "generation",
    "is_full",
    "last_errno",
    "opened_file",
    "read_verified",
    "refuse_damaged_log",
    "refuse_unsafe",
    "rewrite",
    "telling_damage",
]

DATABASE = "messages.db"
LOG = "messages.db-wal"
PAGE_BYTES = 4_096
"""8 KiB pages measured 1.1 times slower: half of each synced page would be old content."""
SYNCHRONOUS = "FULL"
SYNCHRONOUS_LEVEL_MIN = 2
LIBRARY_MIN = (3, 51, 3)
"""Earlier ones may lose pages when the log restarts: reference/open-bugs.md O45."""
APPLICATION_ID = 0x7469656C
SCHEMA_VERSION = 1
CHUNK_BYTES = 65_536
"""SQLite's own file layer takes less than 128 KiB at once and calls more than that a full disk."""

LOG_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_LOG_MAGIC = (0x377F0682, 0x377F0683)


@contextmanager
def telling_damage(name: str) -> Iterator[None]:
    """Turn what SQLite says of an unreadable file into `RecoveryRequired` with the file's name."""
    try:
        yield
    except apsw.BusyError as error:
        raise RecoveryRequired(f"{name} is open in another program: end it, then try again") from error
    except (apsw.Error, UnicodeDecodeError) as error:
        raise RecoveryRequired(f"{name} cannot be read: {error}") from error


def connect(path: str, vfs: str | None) -> apsw.Connection:
    """Return the one connection to the database at `path`, which must exist.

    Args:
        path: Absolute, without symbolic links.
        vfs: SQLite's file layer; None is the system's.

    Raises:
        UsageError: library, log mode or sync level is not safe.
        apsw.Error: the file cannot be opened, or is no database.

    Source: reference/reliability.md F2.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.pragma("page_size", PAGE_BYTES)
        # Before the first access: only then does the log's index live in memory.
        connection.pragma("locking_mode", "EXCLUSIVE")
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", SYNCHRONOUS)
        connection.pragma("fullfsync", 1)  # macOS: a sync that reaches the platter
        connection.pragma("checkpoint_fullfsync", 1)
        connection.pragma("cell_size_check", 1)
        connection.pragma("temp_store", "MEMORY")
        connection.wal_autocheckpoint(0)
        refuse_unsafe(connection, apsw.sqlite_lib_version())
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_unsafe(connection: apsw.Connection, library_version: str) -> None:
    """Return when library, log mode and sync level together keep what was acknowledged.

    Raises:
        UsageError: they do not.

    Source: reference/reliability.md F1, F2; reference/open-bugs.md O45.
    """
    if tuple(int(part) for part in library_version.split(".")) < LIBRARY_MIN:
        raise UsageError(
            f"SQLite {library_version} may damage its log; 3.51.3 or newer is needed: update apsw"
        )
    mode = connection.pragma("journal_mode")
    level = connection.pragma("synchronous")
    locking = connection.pragma("locking_mode")
    if mode != "wal" or not isinstance(level, int) or level < SYNCHRONOUS_LEVEL_MIN or locking != "exclusive":
        raise UsageError(
            f"the journal would not survive a power cut: journal_mode {mode}, synchronous {level},"
            f" locking_mode {locking}; wal, 2 and exclusive are needed"
        )


# ---------------------------------------------------------------- schema


@cache
def _schema() -> str:
    return (Path(__file__).parents[1] / "schema.sql").read_text(encoding="utf-8")


@cache
def _expected_objects() -> frozenset[str]:
    """Return the texts of the tables, as SQLite keeps them."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(_schema())
        return frozenset(
            row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOTNULL")
        )
    finally:
        connection.close()


def create_schema(connection: apsw.Connection, instance: str) -> None:
    """Make the tables of an empty database that belongs to `instance`, in one synced transaction."""
    with connection:
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)
        connection.execute(_schema())
        connection.execute("INSERT INTO meta VALUES ('instance', ?), ('generation', '1')", (instance,))


def generation(connection: apsw.Connection) -> int:
    """Return how often this database was opened: 1 at first, one more at each reopening."""
    return int(connection.execute("SELECT value FROM meta WHERE name = 'generation'").get)


def read_verified(connection: apsw.Connection, path: str, vfs: str | None, instance: str) -> Stored:
    """Return all rows of a database that was shown to be whole and to belong to `instance`.

    Raises:
        RecoveryRequired: damaged, not ours, or another instance's.
        Refused: `VERSION_SKEW`, a newer version wrote it; nothing was changed.

    Source: reference/reliability.md K17, K26, I50.
    """
    name = Path(path).name
    with telling_damage(name):
        version = connection.pragma("user_version")
        if connection.pragma("application_id") != APPLICATION_ID:
            raise RecoveryRequired(f"{name} is not a journal of ours")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise Refused(
                "VERSION_SKEW", f"{name} has schema {version}, this version knows {SCHEMA_VERSION}: update it"
            )
        refuse_damaged_log(connection, path, vfs)
        found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql NOTNULL")}
        if version < 1 or found != _expected_objects():
            raise RecoveryRequired(f"{name}: its tables are not those of schema {SCHEMA_VERSION}")
        for (says,) in connection.execute("PRAGMA integrity_check(1)"):
            if says != "ok":
                # The first of several lines is a heading.
                raise RecoveryRequired(f"{name} is damaged: {str(says).splitlines()[-1]}")
        owner = connection.execute("SELECT value FROM meta WHERE name = 'instance'").get
        if owner != instance:
            raise RecoveryRequired(f"{name} belongs to instance {owner}, not to {instance}")
        return read_rows(connection, name)


# ---------------------------------------------------------------- the log, byte by byte


def refuse_damaged_log(connection: apsw.Connection, path: str, vfs: str | None) -> None:
    """Refuse a log of which SQLite silently left out commits that were synced.

    SQLite reads the log up to its first bad frame. A cut of power explains one unfinished transaction
    there, because the next one starts only after a sync. The end of a second one is proof of damage.

    Source: reference/reliability.md K17.
    """
    frame_count = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
    with opened_file(path + "-wal", vfs, apsw.SQLITE_OPEN_WAL) as log:
        size = log.xFileSize()
        if size == 0:
            return
        header = log.xRead(LOG_HEADER_BYTES, 0) if size >= LOG_HEADER_BYTES else b""
        if not _is_log_header(header):
            raise RecoveryRequired(f"{Path(path).name}-wal: its header is damaged")
        salt = header[16:24]
        frame_bytes = FRAME_HEADER_BYTES + PAGE_BYTES
        commit_count = 0
        for number in range(max(frame_count, 0), (size - LOG_HEADER_BYTES) // frame_bytes):
            frame = log.xRead(FRAME_HEADER_BYTES, LOG_HEADER_BYTES + number * frame_bytes)
            commit_count += frame[8:16] == salt and frame[4:8] != b"\0\0\0\0"
            if commit_count > 1:
                raise RecoveryRequired(f"{Path(path).name}-wal is damaged at frame {frame_count + 1}")


def _is_log_header(header: bytes) -> bool:
    """Return whether the log's header is whole, by its own checksum."""
    if len(header) != LOG_HEADER_BYTES:
        return False
    magic, version, page_bytes = struct.unpack(">III", header[:12])
    if magic not in _LOG_MAGIC or version != 3_007_000 or page_bytes != PAGE_BYTES:
        return False
    words = struct.unpack((">" if magic & 1 else "<") + "6I", header[:24])
    first = second = 0
    for index in range(0, 6, 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return struct.pack(">II", first, second) == header[24:]


# ---------------------------------------------------------------- files beneath SQLite


@contextmanager
def opened_file(path: str, vfs: str | None, kind: int = apsw.SQLITE_OPEN_MAIN_DB) -> Iterator[apsw.VFSFile]:
    """Give one file of the database as SQLite's file layer sees it; it must exist.

    Opened by the system's own calls it would, on closing, free the locks of this process's connection.
    """
    filename: str | apsw.URIFilename = path
    file = apsw.VFSFile(vfs or "", filename, [kind | apsw.SQLITE_OPEN_READWRITE, 0])
    try:
        yield file
    finally:
        file.xClose()


def is_full(connection: apsw.Connection, error: Exception) -> bool:
    """Return whether the system refused space: definite, because the transaction was rolled back."""
    if isinstance(error, apsw.FullError):
        return True
    if isinstance(error, OSError):
        return error.errno in FULL
    # A quota or a size limit is told as a failed write; a failed sync is never a refusal of space.
    is_write = (
        isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
    )
    return is_write and connection.system_errno in FULL


def last_errno(file: apsw.VFSFile) -> int:
    """Return the system's error number of the last failed operation on the file."""
    number = ctypes.c_int(0)
    file.xFileControl(apsw.SQLITE_FCNTL_LAST_ERRNO, ctypes.addressof(number))
    return number.value


def rewrite(path: str, vfs: str | None, kind: int = apsw.SQLITE_OPEN_MAIN_DB) -> None:
    """Write every byte of a file again, as it is read, and sync it.

    After a failed sync the system calls the lost pages clean: they read well and are not on the disk,
    and a second sync "succeeds". Only what is written anew can be believed to be stored.

    Source: reference/reliability.md K4, "PostgreSQL fsyncgate".
    """
    with opened_file(path, vfs, kind) as file:
        size = file.xFileSize()
        for offset in range(0, size, CHUNK_BYTES):
            file.xWrite(file.xRead(min(CHUNK_BYTES, size - offset), offset), offset)
        file.xSync(apsw.SQLITE_SYNC_FULL)
