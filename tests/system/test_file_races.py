"""Another actor of this user exchanges names as fast as it can: nothing outside is read or written."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tieline.errors import TielineError
from tieline.store.files import Directory, open_directory

ROUNDS = 1_000
SECONDS_MAX = 5


@pytest.fixture
def directory(private_home: Path) -> Iterator[Directory]:
    """Give an empty verified directory."""
    with open_directory(str(private_home / "d"), create=True) as opened:
        yield opened


@contextlib.contextmanager
def swapper(place: Path, name: str, canary: Path, kinds: tuple[int, ...]) -> Iterator[None]:
    """Exchange `name` without end: a link, a second name of the canary, a file of ours, nothing."""
    end = threading.Event()

    def swap() -> None:
        aside = place / "aside"
        while not end.is_set():
            for kind in kinds:
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    if kind == 0:
                        aside.symlink_to(canary)
                    elif kind == 1:
                        aside.hardlink_to(canary)
                    elif kind == 2:
                        aside.touch(mode=0o600)
                    if kind == 3:
                        (place / name).unlink()
                    else:
                        aside.replace(place / name)
                        aside.unlink(missing_ok=True)  # renaming a second name onto the first leaves both

    thread = threading.Thread(target=swap)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they meet between any two calls
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        sys.setswitchinterval(interval)


def locked(directory: Directory) -> bytes:
    """Take the lock and let it go."""
    with directory.lock("f", 0):
        return b""


def removed(directory: Directory) -> bytes:
    """Remove the entry."""
    if not directory.remove("f"):
        raise FileNotFoundError
    return b""


ACTS: dict[str, Callable[[Directory], bytes]] = {
    "read": lambda directory: directory.read("f", 100),
    "write": lambda directory: b"" * directory.write_atomic("f", b"ours", sync=False),
    "lock": locked,
    "repair": lambda directory: b"" * directory.repair("f"),
    "remove": removed,
}


@pytest.mark.clause("S3", "K20", "O38", "O35")
@pytest.mark.parametrize("act", ACTS)
def test_name_exchanged_in_every_round_leads_to_nothing_outside(
    directory: Directory, private_home: Path, act: str
) -> None:
    """A thousand rounds of each act against a racing renamer: the canary is neither shown nor touched."""
    canary = private_home / "canary"
    canary.write_bytes(b"secret")
    # A second name that is gone again by the time of the look tells nothing to a reader of the same user.
    kinds = (0, 2, 3) if act == "read" else (0, 1, 2, 3)
    canary.chmod(0o600 if act == "read" else 0o640)
    before = canary.stat()
    done = missed = refused = 0
    until = time.monotonic() + SECONDS_MAX
    with swapper(Path(directory.path), "f", canary, kinds):
        while done + refused + missed < ROUNDS or (
            time.monotonic() < until and (done < 20 or (refused < 20 and act != "remove"))
        ):
            try:
                found = ACTS[act](directory)
            except FileNotFoundError:
                missed += 1
                continue
            except TielineError:
                refused += 1
                continue
            done += 1
            assert found in {b"", b"ours"}
    after = canary.stat()
    assert canary.read_bytes() == b"secret"
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (
        before.st_mode, before.st_mtime_ns, before.st_size,
    )  # fmt: skip
    assert done > 0
    assert refused > 0 or act == "remove"  # what was exchanged was met, and seen for what it was
