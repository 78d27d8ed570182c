"""Whole files, exact removal, and failures at every seam."""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.store.files import Directory, open_directory
from tieline.store.files.directory import LEFTOVER_AGE_MS_MIN

WRITE_SEAMS = ["files.tmp_written", "files.synced", "files.renamed", "files.directory_synced"]


@pytest.fixture
def directory(private_home: Path) -> Iterator[Directory]:
    """Give an empty verified directory."""
    with open_directory(str(private_home / "d"), create=True) as opened:
        yield opened


def fail_at(directory: Directory, seam: str, number: int) -> None:
    """Let the effect before `seam` fail with an errno."""

    def hook(name: str) -> None:
        if name == seam:
            raise OSError(number, os.strerror(number))

    directory._seam = hook


@pytest.mark.clause("native-40", "S2", "O52", "native-179")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177, 0o777])
def test_file_written_under_any_umask_has_mode_0600(directory: Directory, umask: int) -> None:
    """A written file is 0600 whatever the umask is, and reads back whole."""
    before = os.umask(umask)
    try:
        inode = directory.write_atomic("f", b"data", sync=True)
    finally:
        os.umask(before)
    status = Path(directory.path, "f").stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_ino == inode
    assert directory.read("f", 100) == b"data"


@pytest.mark.clause("native-25", "S2")
def test_file_being_written_is_never_seen_half_or_broad(directory: Directory) -> None:
    """A reader sees the old contents or the new, and no file that is open to others."""
    seen: set[bytes] = set()
    broad: list[str] = []
    end = threading.Event()
    directory.write_atomic("f", b"a" * 50_000, sync=False)

    def watch() -> None:
        with open_directory(directory.path, create=False) as other:
            while not end.is_set():
                seen.add(other.read("f", 100_000))
                for name in os.listdir(other.fd):
                    try:
                        mode = os.stat(name, dir_fd=other.fd).st_mode
                    except FileNotFoundError:
                        continue
                    broad.extend([name] if mode & 0o077 else [])

    watcher = threading.Thread(target=watch)
    before = os.umask(0)
    watcher.start()
    try:
        for turn in range(300):
            directory.write_atomic("f", b"ab"[turn % 2 : turn % 2 + 1] * 50_000, sync=False)
    finally:
        end.set()
        watcher.join()
        os.umask(before)
    assert seen <= {b"a" * 50_000, b"b" * 50_000}
    assert broad == []


@pytest.mark.clause("mutant-3", "K2")
def test_write_with_sync_passes_every_seam_in_order(private_home: Path) -> None:
    """The file is synced before it is renamed, and the directory after."""
    passed: list[str] = []
    with open_directory(str(private_home / "d"), create=True, seam=passed.append) as directory:
        passed.clear()
        directory.write_atomic("f", b"x", sync=True)
    assert passed == ["files.create_tmp", *WRITE_SEAMS]


@pytest.mark.clause("K2", "mutant-3")
def test_write_with_sync_syncs_file_then_directory(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the file's data and its name are handed to the disk before the answer."""
    synced: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        synced.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    directory.write_atomic("f", b"x", sync=True)
    assert synced == ["file", "directory"]


@pytest.mark.clause("K5", "I50")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("seam", WRITE_SEAMS[:2])
def test_write_on_a_full_disk_changes_nothing(directory: Directory, seam: str, number: int) -> None:
    """A full disk is `QUEUE_FULL`, the old file stays whole, and space makes it work again."""
    directory.write_atomic("f", b"old", sync=True)
    fail_at(directory, seam, number)
    with pytest.raises(Refused) as caught:
        directory.write_atomic("f", b"new", sync=True)
    assert (caught.value.code, caught.value.is_retryable) == ("QUEUE_FULL", True)
    assert directory.read("f", 9) == b"old"
    assert os.listdir(directory.fd) == ["f"]
    directory._seam = lambda name: None
    directory.write_atomic("f", b"new", sync=True)
    assert directory.read("f", 9) == b"new"


@pytest.mark.clause("K4", "mutant-4")
@pytest.mark.parametrize("seam", WRITE_SEAMS)
def test_write_after_a_device_error_is_refused_until_reopened(directory: Directory, seam: str) -> None:
    """An error of the device leaves the outcome in doubt; no later sync is believed, until reopening."""
    directory.write_atomic("f", b"old", sync=True)
    fail_at(directory, seam, errno.EIO)
    with pytest.raises(RecoveryRequired):
        directory.write_atomic("f", b"new", sync=True)
    directory._seam = lambda name: None
    with pytest.raises(RecoveryRequired, match="in doubt"):
        directory.write_atomic("f", b"again", sync=True)
    assert directory.read("f", 9) in (b"old", b"new")
    with open_directory(directory.path, create=False) as fresh:
        fresh.write_atomic("f", b"again", sync=True)
        assert fresh.read("f", 9) == b"again"


@pytest.mark.clause("K1")
@pytest.mark.parametrize("seam", ["files.create_tmp", *WRITE_SEAMS])
def test_write_killed_at_any_seam_leaves_old_or_new(private_home: Path, seam: str) -> None:
    """A process that dies at any seam leaves the old file or the new one, whole, and the next write works."""
    path = str(private_home / "d")
    with open_directory(path, create=True) as directory:
        directory.write_atomic("f", b"old", sync=True)
    child = os.fork()
    if child == 0:
        with open_directory(
            path, create=False, seam=lambda name: os._exit(9) if name == seam else None
        ) as own:
            own.write_atomic("f", b"new", sync=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with open_directory(path, create=False) as directory:
        is_new = WRITE_SEAMS.index(seam) >= 2 if seam in WRITE_SEAMS else False
        assert directory.read("f", 9) == (b"new" if is_new else b"old")
        assert directory.names() == ["f"]
        directory.write_atomic("f", b"next", sync=True)
        assert directory.read("f", 9) == b"next"


def test_write_swept_meanwhile_may_be_tried_again(directory: Directory) -> None:
    """A writer whose unfinished file was swept is told to try again, and nothing changed."""

    def sweep(name: str) -> None:
        if name == "files.synced":
            for left in os.listdir(directory.fd):
                os.unlink(left, dir_fd=directory.fd)

    directory._seam = sweep
    with pytest.raises(Refused) as caught:
        directory.write_atomic("f", b"x", sync=True)
    assert (caught.value.code, caught.value.is_retryable) == ("RESOURCE_BUSY", True)


@pytest.mark.clause("native-41", "S3", "O38", "K20")
@pytest.mark.parametrize("kind", ["link", "directory"])
def test_write_over_what_is_no_file_of_ours_is_refused(
    directory: Directory, private_home: Path, kind: str
) -> None:
    """A link or a directory at the name is refused, and what it leads to is untouched."""
    canary = private_home / "canary"
    canary.write_bytes(b"untouched")
    at = Path(directory.path, "f")
    if kind == "link":
        at.symlink_to(canary)
    else:
        at.mkdir()
    with pytest.raises(Refused) as caught:
        directory.write_atomic("f", b"x", sync=True)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert canary.read_bytes() == b"untouched"


@pytest.mark.clause("O52", "S2")
def test_broad_own_file_is_repaired_before_the_first_write(directory: Directory) -> None:
    """An own file that was left open to others is closed by `repair`, once, with its contents kept."""
    path = Path(directory.path, "f")
    path.write_bytes(b"kept")
    path.chmod(0o644)
    with pytest.raises(Refused):
        directory.read("f", 9)
    assert directory.repair("f") is True
    assert directory.repair("f") is False
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert directory.read("f", 9) == b"kept"
    assert directory.repair("none") is False


@pytest.mark.clause("O52", "O38", "K20")
def test_repair_of_a_link_is_refused_and_its_target_kept(directory: Directory, private_home: Path) -> None:
    """A link is not followed by a repair."""
    canary = private_home / "canary"
    canary.write_bytes(b"x")
    canary.chmod(0o644)
    Path(directory.path, "f").symlink_to(canary)
    with pytest.raises(Refused):
        directory.repair("f")
    assert stat.S_IMODE(canary.stat().st_mode) == 0o644


@pytest.mark.clause("K20", "native-41")
@pytest.mark.parametrize("kind", ["link", "hard", "fifo", "directory"])
def test_read_of_what_is_not_a_private_file_is_refused(
    directory: Directory, private_home: Path, kind: str
) -> None:
    """A link, a second name, a pipe or a directory is refused at once; a pipe does not block."""
    at = Path(directory.path, "f")
    (private_home / "other").write_bytes(b"x")
    (private_home / "other").chmod(0o600)
    if kind == "link":
        at.symlink_to(private_home / "other")
    elif kind == "hard":
        at.hardlink_to(private_home / "other")
    elif kind == "fifo":
        os.mkfifo(at, 0o600)
    else:
        at.mkdir(mode=0o700)
    with pytest.raises(Refused) as caught:
        directory.read("f", 9)
    assert caught.value.code == "UNSAFE_ENDPOINT"


def test_read_larger_than_its_bound_requires_recovery(directory: Directory) -> None:
    """A file at the bound is read, one above it is not ours as it stands."""
    directory.write_atomic("f", b"12345", sync=False)
    assert directory.read("f", 5) == b"12345"
    with pytest.raises(RecoveryRequired):
        directory.read("f", 4)
    with pytest.raises(FileNotFoundError):
        directory.read("none", 4)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0", "x" * 256, "é" * 128])
def test_name_that_is_not_plain_is_a_usage_error(directory: Directory, name: str) -> None:
    """A name with a slash, a NUL, or too many bytes never reaches the system."""
    with pytest.raises(UsageError):
        directory.read(name, 1)
    with pytest.raises(UsageError):
        directory.write_atomic(name, b"", sync=False)
    with pytest.raises(UsageError):
        directory.remove(name)
    with pytest.raises(UsageError):
        directory.lock(name, 0)


@pytest.mark.clause("O35", "S6", "native-24")
def test_remove_takes_only_the_inode_that_was_judged(directory: Directory) -> None:
    """A file that was exchanged after it was judged stays."""
    judged = directory.write_atomic("f", b"dead", sync=False)
    live = directory.write_atomic("f", b"live", sync=False)
    assert judged != live
    assert directory.remove("f", inode=judged) is False
    assert directory.read("f", 9) == b"live"
    assert directory.remove("f", inode=live) is True
    assert directory.remove("f") is False


def test_leftovers_of_dead_writers_go_by_age_and_are_not_listed(directory: Directory) -> None:
    """Old unfinished files are removed, young ones and other files stay; none is listed."""
    for name, age_s in ((".tieline-1-1.tmp", 7200), (".tieline-1-2.tmp", 1), ("mine.tmp", 7200)):
        path = Path(directory.path, name)
        path.write_bytes(b"")
        os.utime(path, (1_000_000_000 - age_s, 1_000_000_000 - age_s))
    assert directory.names() == ["mine.tmp"]
    assert directory.remove_leftovers(1_000_000_000_000) == 1
    assert sorted(os.listdir(directory.fd)) == [".tieline-1-2.tmp", "mine.tmp"]
    assert LEFTOVER_AGE_MS_MIN < 7_200_000


def test_temporary_name_in_use_is_passed_over(directory: Directory) -> None:
    """A file left by a dead process of the same number does not stop a write."""
    from tieline.store.files import directory as module

    number = next(module._temporary_numbers)
    for ahead in range(1, 4):
        Path(directory.path, f".tieline-{os.getpid()}-{number + ahead}.tmp").write_bytes(b"")
    directory.write_atomic("f", b"x", sync=False)
    assert directory.read("f", 1) == b"x"


@pytest.mark.clause("O29")
def test_directory_removed_meanwhile_is_noticed(directory: Directory, private_home: Path) -> None:
    """A held directory that lost its name says so, and a write into it is refused as such."""
    assert directory.is_current()
    (private_home / "d").rename(private_home / "e")
    (private_home / "d").mkdir(mode=0o700)
    assert not directory.is_current()
    (private_home / "e").rmdir()
    with pytest.raises(Refused) as caught:
        directory.write_atomic("f", b"x", sync=False)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert os.listdir(private_home / "d") == []
