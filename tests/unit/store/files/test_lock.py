"""One holder at a time, freed by the kernel, untouched by children."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.store.files import Directory, open_directory


@pytest.fixture
def directory(private_home: Path) -> Iterator[Directory]:
    """Give an empty verified directory."""
    with open_directory(str(private_home / "d"), create=True) as opened:
        yield opened


def is_free(directory: Directory) -> bool:
    """Ask as another process would: through a descriptor of its own."""
    with open_directory(directory.path, create=False) as other:
        try:
            other.lock("l", 0).release()
        except Refused:
            return False
    return True


def in_child(work: object) -> int:
    """Run `work` in a forked child; return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()  # type: ignore[operator]
        except BaseException:  # noqa: BLE001 - the exit status is the answer
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.clause("native-179", "K16")
def test_lock_held_refuses_others_until_released(directory: Directory) -> None:
    """A second holder is refused, in the same process too; after the release it is free."""
    with directory.lock("l", 0) as lock:
        assert lock.is_held
        with pytest.raises(Refused) as caught:
            directory.lock("l", 0)
        assert (caught.value.code, caught.value.is_retryable) == ("RESOURCE_BUSY", True)
        assert not is_free(directory)
    assert not lock.is_held
    lock.release()
    assert is_free(directory)


def test_lock_waits_about_as_long_as_it_was_told(directory: Directory) -> None:
    """The wait ends at its bound with `RESOURCE_BUSY`."""
    with directory.lock("l", 0):
        begin = time.monotonic()
        with pytest.raises(Refused):
            directory.lock("l", 100)
        assert 0.09 <= time.monotonic() - begin < 5


@pytest.mark.clause("O34", "mutant-16", "K3")
@pytest.mark.parametrize("text", ["", "0", "-1", "2147483648", "1", "garbage"])
def test_lock_file_with_any_contents_is_free(directory: Directory, text: str) -> None:
    """What stands in the file, such as a dead or a live process id, decides nothing."""
    Path(directory.path, "l").write_text(text)
    Path(directory.path, "l").chmod(0o600)
    with directory.lock("l", 0):
        assert Path(directory.path, "l").read_text() == text


@pytest.mark.clause("native-3.6.14", "O34")
def test_lock_of_a_killed_holder_is_free_at_once(directory: Directory) -> None:
    """The kernel frees the lock of a process that was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with open_directory(directory.path, create=False) as own:
            own.lock("l", 0)
            os.write(write, b"x")
            time.sleep(60)
    os.read(read, 1)
    assert not is_free(directory)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    directory.lock("l", 1_000).release()
    os.close(read)
    os.close(write)


@pytest.mark.clause("O37", "K29")
@pytest.mark.parametrize("end", ["exit", "release", "exec"])
def test_lock_of_a_parent_is_neither_freed_nor_held_by_its_child(directory: Directory, end: str) -> None:
    """A child's end, release or exec frees nothing; a child that lives on holds nothing."""
    lock = directory.lock("l", 0)

    def work() -> None:
        if end == "release":
            lock.release()
        if end == "exec":
            os.execv("/bin/true", ["true"])

    assert in_child(work) == 0
    assert lock.is_held
    assert not is_free(directory)
    lock.release()


@pytest.mark.clause("O37", "K29")
def test_lock_is_free_although_a_child_of_the_dead_holder_lives(directory: Directory) -> None:
    """A forked child that outlives the holder does not keep its lock."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with open_directory(directory.path, create=False) as own:
            own.lock("l", 0)
            grandchild = os.fork()
            if grandchild == 0:
                os.write(write, str(os.getpid()).encode())  # by now its fork has let go
                time.sleep(30)
            os._exit(0)
    grandchild = int(os.read(read, 20))
    os.waitpid(child, 0)
    try:
        assert is_free(directory)
    finally:
        os.kill(grandchild, signal.SIGKILL)
        os.close(read)
        os.close(write)


@pytest.mark.clause("K29", "O37")
def test_lock_released_is_free_although_a_copy_of_its_descriptor_is_open(directory: Directory) -> None:
    """A release unlocks, also while some library's child still holds a copy of the descriptor."""
    lock = directory.lock("l", 0)
    copy = os.dup(lock.fd)
    lock.release()
    assert is_free(directory)
    os.close(copy)


@pytest.mark.clause("S3", "O35")
def test_lock_on_a_file_that_was_taken_away_is_not_taken(directory: Directory) -> None:
    """A file removed between opening and locking is not the lock: the next one at the name is."""
    taken: list[int] = []

    def cleaner(seam: str) -> None:
        if seam == "files.lock_opened" and not taken:
            taken.append(Path(directory.path, "l").stat().st_ino)
            Path(directory.path, "l").unlink()

    directory._seam = cleaner
    with directory.lock("l", 1_000) as lock:
        assert os.fstat(lock.fd).st_ino == Path(directory.path, "l").stat().st_ino
    assert taken


@pytest.mark.clause("O38", "K20", "S3")
def test_lock_at_a_link_is_refused_and_its_target_kept(directory: Directory, private_home: Path) -> None:
    """A link planted at the lock's name is refused; nothing is truncated."""
    canary = private_home / "canary"
    canary.write_bytes(b"untouched")
    Path(directory.path, "l").symlink_to(canary)
    with pytest.raises(Refused) as caught:
        directory.lock("l", 0)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert canary.read_bytes() == b"untouched"
