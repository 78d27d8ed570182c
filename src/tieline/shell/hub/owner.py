"""Which process a broker's record names, and whether that one still lives.

Theory. The record is `<pid>` in its first line, for every reader; a second line says which life of that
number is meant. A number that nobody has is gone. A number that somebody has is taken for the broker until
the second line proves otherwise; being refused a signal is no proof.

Rule 1: nothing here signals or ends a process.
Rule 2: an ended process that its parent has not collected is gone.
Rule 3: where the number of this process is not the one that others see, no second line is written.

Source: reference/intercom.md 6.2, 6.4, 6.5.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from tieline.shell import process

__all__ = ["PID_NAME", "Record", "is_live", "own_record", "parse_record"]

PID_NAME: Final = "broker.pid"
_LIFE: Final = re.compile(
    r"linux-v1 ([0-9a-f-]{1,64}) (pid:\[[0-9]{1,20}\]) (time:\[[0-9]{1,20}\]) ([0-9]{1,20})", re.ASCII
)
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_START_FIELD: Final = 19
"""Of the start time, counted from the state, which follows the last parenthesis."""


class Life(NamedTuple):
    """One life of a process id, as the second line has it."""

    boot: str
    pid_namespace: str
    time_namespace: str
    start_ticks: int


class Record(NamedTuple):
    """What a process record says; `life` is None where it does not say, or not in a form that we know."""

    pid: int
    life: Life | None


def own_record() -> bytes:
    """Return what this process writes of itself."""
    pid = os.getpid()
    life = _own_life(pid)
    second = "" if life is None else f"linux-v1 {' '.join(map(str, life))}\n"
    return f"{pid}\n{second}".encode("ascii")


def parse_record(data: bytes) -> Record | None:
    """Return what a record says, None where its first line is no process id."""
    first, _, rest = data.decode("ascii", "replace").partition("\n")
    if not _NUMBER.fullmatch(first.strip()) or not 0 < int(first) <= process.PROCESS_ID_MAX:
        return None
    found = _LIFE.fullmatch(rest.removesuffix("\n"))
    life = None if found is None else Life(found[1], found[2], found[3], int(found[4]))
    return Record(int(first), life)


def is_live(record: Record) -> bool:
    """Return whether the recorded process may still be there: False only where its end is proven."""
    if record.pid == os.getpid():
        return False  # our number now, so it was given up by whoever wrote it
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody has the number; whether it is that one, the second line may tell
    return not _is_proven_other(record)


def _is_proven_other(record: Record) -> bool:
    """Return whether the process that has the number now is not the recorded one, or has ended."""
    try:
        # Held open, so that all that is read is of one and the same process.
        pinned = os.open(f"/proc/{record.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _differs(record, pinned)
    except (OSError, ValueError, IndexError):
        return False
    finally:
        os.close(pinned)


def _differs(record: Record, pinned: int) -> bool:
    fields = _stat_fields(_read(pinned, "stat"))
    # A leader that ended its own thread while others run is shown as a zombie and is not one.
    if fields[0] in (b"Z", b"X", b"x") and int(fields[17]) <= 1:
        return True
    life = record.life
    if life is None:
        return False
    group = _status_line(_read(pinned, "status"), "Tgid:")
    if len(group) == 1 and group[0] != str(record.pid):
        return True
    if _boot() != life.boot or os.readlink("ns/pid", dir_fd=pinned) != life.pid_namespace:
        return True
    # In another time namespace the same start is another number: a difference proves nothing.
    is_comparable = os.readlink("/proc/self/ns/time") == life.time_namespace
    return is_comparable and int(fields[_START_FIELD]) != life.start_ticks


def _own_life(pid: int) -> Life | None:
    if process.PLATFORM != "linux":
        return None
    try:
        pinned = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _status_line(_read(pinned, "status"), "NStgid:") != [str(pid)]:
                return None
            start = int(_stat_fields(_read(pinned, "stat"))[_START_FIELD])
            namespaces = [os.readlink(f"ns/{kind}", dir_fd=pinned) for kind in ("pid", "time")]
        finally:
            os.close(pinned)
        return Life(_boot(), namespaces[0], namespaces[1], start)
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str:
    return Path(_BOOT).read_text(encoding="ascii").strip()


def _read(pinned: int, name: str) -> bytes:
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=pinned), "rb") as stream:
        return stream.read()


def _stat_fields(data: bytes) -> list[bytes]:
    """Return the fields from the state on: the name before them may hold anything."""
    return data[data.rfind(b")") + 1 :].split()


def _status_line(data: bytes, name: str) -> list[str]:
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.startswith(name):
            return line[len(name) :].split()
    return []
