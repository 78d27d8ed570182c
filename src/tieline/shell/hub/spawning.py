"""Starting a broker where none answers: one starter at a time, whoever made it.

Theory. All revisions share `broker.spawn.lock`, a file that is created exclusively and names its maker and
the time. It is stale when that maker is gone, when it is ten seconds old, or when it cannot be read. Two that
find it stale could each take the other's fresh one away; starters of ours judge and take it under a lock of
the kernel, and remove only the inode that was judged.

Rule 1: a broker that answers is enough, whoever started it; losing a race is no failure.
Rule 2: beside a live process whose socket is dead nothing is started, and nothing is ended.
Rule 3: the spawn lock is always given back, and only while it is ours.
Rule 4: a broker that we started and that ends is collected by this process: an ended one that nobody collects
    would look alive to those who only ask whether its number is taken.

Source: reference/intercom.md 6.4; specification of the intercom, "Shared broker and migration".
"""

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final

from tieline.errors import Refused
from tieline.shell import process
from tieline.shell.hub.directories import open_records, read_record
from tieline.shell.hub.listening import refuse_beside_live
from tieline.shell.hub.place import Place
from tieline.shell.hub.reaching import is_answering
from tieline.store.files import Directory

__all__ = ["SPAWN_LOCK_NAME", "start_if_missing"]

SPAWN_LOCK_NAME: Final = "broker.spawn.lock"
JUDGING_LOCK_NAME: Final = "tieline-spawn.lock"
STALE_MS: Final = 10_000
ATTEMPTS_MAX: Final = 5
WAIT_MS: Final = 5_000
START_MS: Final = 8_000
"""For a broker of ours: a cold start on a busy machine takes seconds. Less than the age of a stale lock."""
POLL_SECONDS: Final = 0.1
SAID_BYTES_MAX: Final = 2_048
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def start_if_missing(
    place: Place, command: Sequence[str], environment: Mapping[str, str], now_wall_ms: Callable[[], int]
) -> bool:
    """Return when a broker answers: False where one did already, True where this call started it.

    Blocks its thread for up to 13 s.

    Args:
        place: Where the broker is looked for; `command` has to come up there.
        command: Program and words of the broker that is started where none answers.
        environment: All that it gets.
        now_wall_ms: The wall clock, which the shared lock file is dated by.

    Raises:
        Refused: RESOURCE_BUSY, a live process is named as the broker and does not answer, or another starter
            did not get one up in time (retryable); PEER_OFFLINE, the broker that was started ended, with what
            it said; UNSAFE_ENDPOINT, PERMISSION_DENIED, as its directories say.
    """
    if is_answering(place):
        return False
    with open_records(place) as records:
        for _ in range(ATTEMPTS_MAX):
            inode = _take(records, now_wall_ms())
            if inode is not None:
                try:
                    return _start(place, command, environment)
                finally:
                    records.remove(SPAWN_LOCK_NAME, inode=inode)
            if _is_answering_soon(place, WAIT_MS, lambda: _is_free(records, now_wall_ms())):
                return False
            if not _is_free(records, now_wall_ms()):
                break
    raise Refused(
        "RESOURCE_BUSY", "another process is starting the broker, and it did not come up", is_retryable=True
    )


def _take(records: Directory, now_wall_ms: int) -> int | None:
    """Return the inode of the spawn lock, made by us, or None where another starter holds it."""
    with records.lock(JUDGING_LOCK_NAME, WAIT_MS):
        _remove_stale(records, now_wall_ms)
        try:
            descriptor = os.open(SPAWN_LOCK_NAME, _CREATE, 0o600, dir_fd=records.fd)
        except FileExistsError:
            return None
        with open(descriptor, "wb") as stream:
            stream.write(f"{os.getpid()}\n{now_wall_ms}\n".encode("ascii"))
            return os.fstat(descriptor).st_ino


def _remove_stale(records: Directory, now_wall_ms: int) -> None:
    found = read_record(records, SPAWN_LOCK_NAME)
    if found is not None and _is_stale(found[0], found[1], now_wall_ms):
        records.remove(SPAWN_LOCK_NAME, inode=found[1].st_ino)


def _is_free(records: Directory, now_wall_ms: int) -> bool:
    """Return whether the spawn lock is gone, or may be taken away."""
    found = read_record(records, SPAWN_LOCK_NAME)
    return found is None or _is_stale(found[0], found[1], now_wall_ms)


def _is_stale(data: bytes, status: os.stat_result, now_wall_ms: int) -> bool:
    lines = data.decode("ascii", "replace").split("\n")
    numbers = [int(line) for line in lines[:2] if line.isascii() and line.isdigit() and len(line) < 17]
    written_ms = status.st_mtime_ns // 1_000_000
    if len(numbers) < 2 or not 0 < numbers[0] <= process.PROCESS_ID_MAX:
        # Its maker creates it first and fills it an instant later: an empty one is not stale at once.
        return now_wall_ms - written_ms > POLL_SECONDS * 1_000
    if abs(now_wall_ms - numbers[1]) > STALE_MS:
        return True
    try:
        os.kill(numbers[0], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _start(place: Place, command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Start a broker and return when it answers, as the only starter; False where one came meanwhile."""
    if is_answering(place):
        return False
    refuse_beside_live(place)
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen(  # noqa: S603 - our own program, or the one that the person configured
            command,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        threading.Thread(target=started.wait, name="broker", daemon=True).start()
        if _is_answering_soon(place, START_MS, lambda: started.poll() is not None):
            return True
        code = started.poll()
        if code is None:
            raise Refused(
                "RESOURCE_BUSY",
                f"the broker, process {started.pid}, does not answer within {START_MS} ms",
                is_retryable=True,
            )
        raise Refused("PEER_OFFLINE", f"the broker ended at once with code {code}: {_last_line(said)}")


def _is_answering_soon(place: Place, wait_ms: int, is_over: Callable[[], bool]) -> bool:
    """Return True when a broker answers, False after `wait_ms` or once `is_over` says that none will come."""
    deadline = time.monotonic() + wait_ms / 1000
    while time.monotonic() < deadline:
        is_last = is_over()
        if is_answering(place):
            return True
        if is_last:
            return False
        time.sleep(POLL_SECONDS)
    return False


def _last_line(said: IO[bytes]) -> str:
    """Return what the broker said at its end, as text of bounded length."""
    with contextlib.suppress(OSError):
        said.seek(0, os.SEEK_END)
        said.seek(max(0, said.tell() - SAID_BYTES_MAX))
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else "it said nothing"
