"""Which process a text record means: number, start and domain as other programs write them.

Rule 1: a record is proven dead only in its own domain, and only when no process has its number or when
its start is written as we write it and differs. Another form of start is compared as far as it is known;
where it does not agree, nothing is proven.
Rule 2: being refused a signal is not death.
Rule 3: the proof itself is `shell/process`'s; this module only reads and writes the texts.

Source: specification of the pi-peers wire, "Discovery"; reference rules 3, 11, U1, U2.
"""

import os
import time
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import msgspec

from tieline.model.process import Life, ProcessIdentity
from tieline.shell import process
from tieline.shell.process import identify, probe

__all__ = ["Life", "life_of", "pid_domain", "process_start_text"]

LSTART = "%a %b %d %H:%M:%S %Y"
"""As `ps -o lstart=` prints it in the C locale."""
LSTART_TOLERANCE_SECONDS = 2
"""`ps` rounds, and the kernel's idea of the boot's wall time moves by a second."""
DIGITS_MAX = 18


def process_start_text(pid: int) -> str:
    """Return the start of a process as records bear it; empty when it has ended or cannot be read.

    Linux: clock ticks after boot, field 22 of its stat file. macOS: `ps -o lstart=`, UTC.
    """
    identity = identify(pid)
    if identity is None:
        return ""
    if identity.platform == "darwin":
        return datetime.fromtimestamp(identity.start_ticks, UTC).strftime(LSTART)
    return str(identity.start_ticks)


def pid_domain() -> str:
    """Return where our process ids count, as records bear it; empty when that cannot be read.

    Linux: `linux:<machine id>:pid:[<inode>]`. macOS: `darwin`.
    """
    if process.PLATFORM == "darwin":
        return "darwin"
    try:
        # Not remembered: a child of this process may count in another namespace.
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return f"linux:{_machine_id()}:{namespace}"


def life_of(pid: int, process_start: str, domain: str) -> Life:
    """Return what is proven of the process that a record names.

    Args:
        pid: Its number.
        process_start: Its start, in whatever form the record bears.
        domain: Its `pidDomain`; another one than ours is `FOREIGN`, whatever the number says here.

    Returns:
        `DEAD` only on proof; `UNPROVED` where a connection has to decide.
    """
    ours = pid_domain()
    if not ours or domain != ours:
        return Life.FOREIGN
    if not 0 < pid <= process.PROCESS_ID_MAX:
        return Life.UNPROVED
    try:
        os.kill(pid, 0)
        is_refused = False
    except ProcessLookupError:
        return Life.DEAD
    except OSError:
        is_refused = True
    identity = identify(pid)
    if identity is not None and process_start and process_start == process_start_text(pid):
        return Life.ALIVE
    recorded = _seconds_or_ticks(process_start)
    if recorded is not None:
        return _compare(pid, recorded, is_refused=is_refused)
    if identity is None:
        return Life.ALIVE if is_refused else Life.UNPROVED
    return Life.ALIVE if _agrees(process_start, identity) else Life.UNPROVED


def _seconds_or_ticks(process_start: str) -> int | None:
    """Return the number in a start of our own form, None for any other form.

    A Linux number beyond the age of this boot is no start within it: it is of an earlier boot, or it
    counts something else, such as milliseconds since 1970. Which one is not ours to guess.
    """
    if process.PLATFORM == "darwin":
        moment = _lstart(process_start, UTC)
        return None if moment is None else int(moment)
    if not process_start.isascii() or not process_start.isdigit() or len(process_start) > DIGITS_MAX:
        return None
    ticks = int(process_start)
    return ticks if ticks <= _boot_age_ticks() else None


def _compare(pid: int, start_ticks: int, *, is_refused: bool) -> Life:
    """Return what the process now under the number says of a start of our own form."""
    own = identify(os.getpid())
    if own is None:
        return Life.UNPROVED
    verdict = probe(msgspec.structs.replace(own, pid=pid, start_ticks=start_ticks, pidfd_inode=None))
    if verdict == "gone":
        return Life.DEAD
    identity = identify(pid)
    if identity is None:
        return Life.ALIVE if is_refused else Life.UNPROVED
    # `probe` says unknown where only the kernel's own number is missing, which no text record bears.
    return Life.ALIVE if identity.start_ticks == start_ticks else Life.UNPROVED


def _agrees(process_start: str, identity: ProcessIdentity) -> bool:
    """Return whether a start in another form names this process: its boot and ticks, or `lstart`."""
    boot_id, colon, ticks = process_start.rpartition(":")
    if colon and boot_id == identity.boot_id and ticks == str(identity.start_ticks):
        return True
    started = _started_wall_seconds(identity)
    if started is None:
        return False
    # `ps` prints the wall time of wherever it ran: UTC where its maker asked for it, else the local one.
    moments = (_lstart(process_start, UTC), _lstart(process_start, None))
    return any(one is not None and abs(one - started) <= LSTART_TOLERANCE_SECONDS for one in moments)


def _lstart(text: str, zone: tzinfo | None) -> float | None:
    try:
        moment = datetime.strptime(" ".join(text.split()), LSTART)  # noqa: DTZ007 - the zone follows
        return moment.replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _started_wall_seconds(identity: ProcessIdentity) -> float | None:
    """Return seconds since 1970 at the process's start, None when the boot's time cannot be read."""
    if identity.platform == "darwin":
        return float(identity.start_ticks)
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "btime" and value.strip().isdigit():
            return int(value) + identity.start_ticks / _ticks_per_second()
    return None


def _boot_age_ticks() -> int:
    # One second more: a process that starts while we look is not of another boot.
    return int((time.clock_gettime(time.CLOCK_BOOTTIME) + 1) * _ticks_per_second())


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"
