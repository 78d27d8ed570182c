"""The mail journal: whole commits, found again after a kill, damage told and left."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tieline.engine.brokering.contract import Drop, Put
from tieline.errors import RecoveryRequired, Refused
from tieline.store.files import Directory, open_directory
from tieline.store.mail.journal import NAME, MailJournal

FIRST, SECOND = Put("mail", "1", b'{"text":"\xc3\xa9"}'), Put("parked", "1", b"{}")


@pytest.fixture
def directory(private_home: Path) -> Iterator[Directory]:
    """The private directory of a broker."""
    with open_directory(str(private_home / "i"), create=True) as opened:
        yield opened


@pytest.fixture
def journal(directory: Directory) -> Iterator[MailJournal]:
    """A new journal."""
    opened = MailJournal.open(directory)
    yield opened
    opened.close()


def test_rows_are_found_again_in_the_order_of_their_first_put(directory: Directory) -> None:
    """A second put replaces, a drop removes; order, kind and bytes are kept."""
    journal = MailJournal.open(directory)
    assert journal.load() == []
    journal.commit([FIRST, SECOND, Put("mail", "2", b"x")])
    journal.commit([Put("mail", "1", b"new"), Drop("mail", "2"), Drop("ask", "never")])
    journal.close()
    again = MailJournal.open(directory)
    assert again.load() == [Put("mail", "1", b"new"), SECOND]
    again.close()


def test_key_of_any_text_is_kept_apart_and_dropped(journal: MailJournal) -> None:
    """Half of a surrogate pair, which a message may be named by, is not the text of its escape."""
    keys = ["\ud800", "\\d800", "\\\\d800", "\\\ud800", "a\0b", "\\", "\U0001f600\udc00"]
    journal.commit([Put("ask", key, key.encode("utf-8", "surrogatepass")) for key in keys])
    assert [(row.key, row.body.decode("utf-8", "surrogatepass")) for row in journal.load()] == [
        (key, key) for key in keys
    ]
    journal.commit([Drop("ask", key) for key in keys[:1]])
    assert [row.key for row in journal.load()] == keys[1:]


@pytest.mark.clause("S2")
def test_journal_is_private_from_its_first_instant(directory: Directory, journal: MailJournal) -> None:
    """Whatever the umask; its log, too."""
    journal.commit([FIRST])
    for name in (NAME, f"{NAME}-wal"):
        assert (Path(directory.path) / name).stat().st_mode & 0o777 == 0o600
    assert not (Path(directory.path) / f"{NAME}-shm").exists()


KILLED = """
import os, signal, sys
from tieline.engine.brokering.contract import Put
from tieline.store.files import open_directory
from tieline.store.mail import MailJournal
def seam(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
journal = MailJournal.open(open_directory(sys.argv[1], create=False), seam=seam)
journal.commit([Put("mail", "1", b"held"), Put("mail", "2", b"held")])
"""


@pytest.mark.clause("K1", "intercom-131")
@pytest.mark.parametrize(("seam", "count"), [("mail.before_commit", 0), ("mail.committed", 2)])
def test_killed_writer_leaves_all_or_nothing(directory: Directory, seam: str, count: int) -> None:
    """What was answered is there, in the process that comes next."""
    done = subprocess.run([sys.executable, "-c", KILLED, directory.path, seam], check=False)
    assert done.returncode == -signal.SIGKILL
    journal = MailJournal.open(directory)
    assert len(journal.load()) == count
    journal.close()


def test_open_journal_is_nobody_elses(directory: Directory, journal: MailJournal) -> None:
    """Two brokers never write one journal."""
    journal.commit([FIRST])
    with pytest.raises(RecoveryRequired, match="open in another program"):
        MailJournal.open(directory)
    assert journal.load() == [FIRST]


def test_start_that_ended_before_its_tables_is_made_good(directory: Directory) -> None:
    """An empty file is a new journal."""
    (Path(directory.path) / NAME).touch(mode=0o600)
    journal = MailJournal.open(directory)
    journal.commit([FIRST])
    journal.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database, and long enough to be looked at" * 100)


def _foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE other(x)")
    connection.close()


def _page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 + 100 :] = bytes(len(data) - 4196)
    path.write_bytes(data)


@pytest.mark.clause("K17")
@pytest.mark.parametrize("damage", [_garbage, _foreign, _page])
def test_damaged_journal_is_named_and_left(directory: Directory, damage: Callable[[Path], None]) -> None:
    """No byte of it is changed by the try."""
    path = Path(directory.path) / NAME
    if damage is not _foreign:
        journal = MailJournal.open(directory)
        journal.commit([Put("mail", str(number), bytes(900)) for number in range(64)])
        journal.close()
        connection = apsw.Connection(str(path))
        assert connection.execute("SELECT count(*) FROM held").get == 64
        connection.close()  # the last one to close moves the log into the file
    damage(path)
    os.chmod(path, 0o600)
    before = path.read_bytes()

    def attempt() -> None:
        journal = MailJournal.open(directory)
        try:
            journal.load()
        finally:
            journal.close()

    with pytest.raises(RecoveryRequired, match=NAME):
        attempt()
    assert path.read_bytes()[100:] == before[100:]


@pytest.mark.clause("K17")
def test_log_of_which_synced_commits_would_be_left_out_is_told(directory: Directory) -> None:
    """SQLite reads a log up to its first bad frame and says nothing of those behind it."""
    journal = MailJournal.open(directory)
    for number in range(8):
        journal.commit([Put("mail", str(number), bytes(900))])
    journal.close()
    log = Path(directory.path) / f"{NAME}-wal"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(RecoveryRequired, match=f"{NAME}-wal"):
        MailJournal.open(directory)
    assert log.read_bytes() == data


def test_row_of_an_unknown_kind_is_kept(directory: Directory) -> None:
    """A later version may have put it there; it is handed on as it is."""
    MailJournal.open(directory).close()
    connection = apsw.Connection(str(Path(directory.path) / NAME))
    connection.execute("INSERT INTO held(kind, key, body) VALUES ('new', '1', x'00')")
    connection.close()
    journal = MailJournal.open(directory)
    journal.commit([FIRST])
    assert [row.kind for row in journal.load()] == ["new", "mail"]
    journal.close()


def test_journal_of_a_newer_version_is_refused(directory: Directory) -> None:
    """An older program leaves it alone."""
    MailJournal.open(directory).close()
    connection = apsw.Connection(str(Path(directory.path) / NAME))
    connection.pragma("user_version", 2)
    connection.close()
    with pytest.raises(Refused) as caught:
        MailJournal.open(directory)
    assert caught.value.code == "VERSION_SKEW"


@pytest.mark.clause("S2")
def test_journal_that_is_a_link_is_refused(directory: Directory, private_home: Path) -> None:
    """What it leads to is not touched; a directory that cannot be written is told."""
    (private_home / "elsewhere").write_text("x")
    (Path(directory.path) / NAME).symlink_to(private_home / "elsewhere")
    with pytest.raises(Refused) as caught:
        MailJournal.open(directory)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert (private_home / "elsewhere").read_text() == "x"
    (Path(directory.path) / NAME).unlink()
    os.chmod(directory.path, 0o500)
    with pytest.raises(Refused) as caught:
        MailJournal.open(directory)
    os.chmod(directory.path, 0o700)
    assert caught.value.code == "PERMISSION_DENIED"


@pytest.mark.clause("K5", "intercom-131")
def test_limit_on_a_files_size_is_a_no_and_with_room_again_it_goes_on(journal: MailJournal) -> None:
    """The system tells it as a failed write, of which SQLite keeps nothing: the same as a full disk."""
    journal.commit([FIRST])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(journal._path + "-wal") + 8_192, limits[1]))
    try:
        with pytest.raises(Refused) as caught:
            journal.commit([Put("mail", "large", b"x" * 100_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.code, caught.value.is_retryable) == ("QUEUE_FULL", True)
    journal.commit([SECOND])
    assert journal.load() == [FIRST, SECOND]


class _Failing:
    """A connection whose transactions end badly."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __enter__(self) -> None:
        raise self.error

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.clause("K4", "K5")
def test_full_disk_is_a_no_and_a_failed_device_is_doubt(journal: MailJournal) -> None:
    """After the first nothing was kept and the next commit works; after the other none does."""
    connection = journal._connection
    journal._connection = _Failing(apsw.FullError())  # type: ignore[assignment]
    with pytest.raises(Refused) as caught:
        journal.commit([FIRST])
    assert (caught.value.code, caught.value.is_retryable) == ("QUEUE_FULL", True)
    journal._connection = connection
    journal.commit([FIRST])
    journal._connection = _Failing(apsw.IOError())  # type: ignore[assignment]
    with pytest.raises(RecoveryRequired):
        journal.commit([SECOND])
    journal._connection = connection
    with pytest.raises(RecoveryRequired, match="in doubt"):
        journal.commit([SECOND])
    assert journal.load() == [FIRST]
