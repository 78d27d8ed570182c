"""Which process is which, and what is proven of its end.

Rule 1: a process id is not an identity, and neither is a process id with a start time: both were
made to recur together. The inode of a pidfd does not recur within one boot; where the kernel has it,
it decides.
Rule 2: a probe has three answers. `gone` is proven, `unknown` frees nothing.
Rule 3: nothing here signals another process.
Rule 4: this module knows neither roots nor resources.

Source: reference/native.md 2.14, 3.5, 5; reference/reliability.md F7, F10, I36, K3, K11, S7, S14;
reference/open-bugs.md O34, O36; reference/substrate.md 9.
"""

import os
import select
import socket
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tieline.errors import Refused
from tieline.model.process import Liveness, ProcessIdentity

__all__ = [
    "PeerCredentials",
    "ProcessIdentity",
    "State",
    "ancestors",
    "identify",
    "make_undumpable",
    "peer_credentials",
    "peer_identity",
    "probe",
    "require_supported_platform",
    "self_identity",
]

State = Liveness
"""What `probe` answers."""

ANCESTORS_MAX = 64
"""Deeper than any shell nesting; a loop that a race made ends here."""
IDENTIFY_ATTEMPTS_MAX = 8
PROCESS_ID_MAX = 2**31 - 1
PEER_PIDFD = 77
"""SO_PEERPIDFD, Linux 6.5; the standard library has no name for it."""
DARWIN_SOL_LOCAL = 0
DARWIN_LOCAL_PEERCRED = 1
DARWIN_LOCAL_PEERPID = 2
SET_DUMPABLE = 4
"""PR_SET_DUMPABLE."""
PS_SECONDS_MAX = 5

# A variable, so that a type checker for one system still reads the branches of the others.
PLATFORM: str = sys.platform


def require_supported_platform() -> None:
    """Return when this system has what communication needs.

    Raises:
        Refused: `UNSUPPORTED_PLATFORM`: there is no per-user pipe and no process ownership here yet.

    Source: reference/native.md 45, 46, 217.
    """
    if PLATFORM not in ("linux", "darwin"):
        raise Refused("UNSUPPORTED_PLATFORM", f"Tieline runs on Linux and macOS, not on {PLATFORM}")


class _Status(NamedTuple):
    """What /proc says of a process at one moment."""

    state: str
    parent: int
    thread_count: int
    start_ticks: int

    @property
    def is_ended(self) -> bool:
        # A leader that ended its own thread while others run is shown as a zombie and is not one.
        return self.state in ("Z", "X", "x") and self.thread_count <= 1


def self_identity() -> ProcessIdentity:
    """Return this process's own identity.

    Raises:
        Refused: `PERMISSION_DENIED`: /proc is missing or belongs to another container.
    """
    identity = identify(os.getpid())
    if identity is None:
        raise Refused("PERMISSION_DENIED", "/proc does not show this process: mount one for this container")
    return identity


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process that has not ended, or None.

    None says only that nothing could be read of it; `probe` tells whether an end is proven.
    """
    if not 0 < pid <= PROCESS_ID_MAX:
        return None
    if PLATFORM == "darwin":
        return _identify_darwin(pid)
    found = _read_linux(pid)
    if found is None or found[0].is_ended:
        return None
    status, pidfd_inode = found
    return ProcessIdentity(
        boot_id=_boot_id(),
        pid_namespace=_namespace("pid"),
        pid=pid,
        start_ticks=status.start_ticks,
        pidfd_inode=pidfd_inode,
        platform=PLATFORM,
        time_namespace=_namespace("time"),
    )


def probe(identity: ProcessIdentity) -> State:
    """Return whether that very process lives.

    Returns:
        `gone` only when it is proven: another boot, no such process, an ended one, or another one
        under its number. `unknown` when a part of the identity or of /proc cannot be read, when it
        belongs to another container, or when number and start time agree but the kernel's own
        number for it is missing on one side.

    Source: reference/reliability.md I36; reference/native.md 3.5 "proof of death".
    """
    if identity.platform != PLATFORM or not 0 < identity.pid <= PROCESS_ID_MAX:
        return "unknown"
    here = _boot_id()
    if not here or not identity.boot_id:
        return "unknown"
    if here != identity.boot_id:
        return "gone"
    if PLATFORM == "darwin":
        return _probe_darwin(identity)
    namespace = _namespace("pid")
    if not namespace or namespace != identity.pid_namespace:
        return "unknown"
    found = _read_linux(identity.pid)
    if found is None:
        return "gone" if _is_absent(identity.pid) else "unknown"
    return _compare(identity, *found)


def _compare(identity: ProcessIdentity, status: _Status, pidfd_inode: int | None) -> State:
    """Return what the process now under the number says of the one that was recorded."""
    if identity.pidfd_inode is not None and pidfd_inode is not None:
        if identity.pidfd_inode != pidfd_inode or status.is_ended:
            return "gone"
        return "alive"
    if identity.time_namespace != _namespace("time"):
        return "unknown"  # the start time is shifted: a difference proves nothing
    if identity.start_ticks != status.start_ticks or status.is_ended:
        return "gone"
    return "alive" if identity.pidfd_inode is pidfd_inode else "unknown"


def ancestors(pid: int) -> list[ProcessIdentity]:
    """Return the identities of a process's parent, its parent, and so on; nearest first, at most 64.

    The list ends early where a parent ends meanwhile, or lies outside this container.
    """
    found: list[ProcessIdentity] = []
    while len(found) < ANCESTORS_MAX:
        parent = _parent_darwin(pid) if PLATFORM == "darwin" else _parent_linux(pid)
        identity = identify(parent) if parent else None
        if identity is None:
            return found
        found.append(identity)
        pid = parent
    return found


# ---------------------------------------------------------------- Linux


@cache
def _boot_id() -> str:
    """Return what names this boot, empty when it cannot be read. It does not change while we live."""
    if PLATFORM == "darwin":
        return _run("sysctl", "-n", "kern.bootsessionuuid")
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace(kind: str) -> int:
    """Return the inode of our own namespace of this kind, 0 when it cannot be read.

    Not remembered: a child of this process may have another.
    """
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0


def _is_proc_ours() -> bool:
    """Return whether /proc counts as we do: one mounted for another container names other processes."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _read_linux(pid: int) -> tuple[_Status, int | None] | None:
    """Return the status and the pidfd's inode of one and the same process, or None."""
    if not _is_proc_ours():
        return None
    for _ in range(IDENTIFY_ATTEMPTS_MAX):
        descriptor = _open_pidfd(pid)
        try:
            status = _read_status(pid)
            if status is None or descriptor is None:
                return None if status is None else (status, None)
            # Still the process of the descriptor: it had not ended after its status was read. A
            # zombie's number is not given away, so its status is its own as well.
            if status.is_ended or not _has_ended(descriptor):
                return status, (os.fstat(descriptor).st_ino if _has_numbered_pidfds() else None)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return None


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor of the process, or None: not there, not a leader, or not allowed here."""
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return None
    try:
        return int(opener(pid))
    except OSError:
        return None


def _has_ended(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


@cache
def _has_numbered_pidfds() -> bool:
    """Return whether a pidfd's inode names its process (Linux 6.9), not all anonymous descriptors."""
    descriptor = _open_pidfd(os.getpid())
    if descriptor is None:
        return False
    other = select.epoll()
    try:
        return os.fstat(descriptor).st_dev != os.fstat(other.fileno()).st_dev
    finally:
        other.close()
        os.close(descriptor)


def _read_status(pid: int) -> _Status | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may hold some itself: the fields follow the last one.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return _Status(fields[0].decode("ascii"), int(fields[1]), int(fields[17]), int(fields[19]))


def _parent_linux(pid: int) -> int:
    status = _read_status(pid) if _is_proc_ours() else None
    return status.parent if status is not None else 0


def _is_absent(pid: int) -> bool:
    """Return whether the kernel says that no process has this number; being refused is not absence."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


# ---------------------------------------------------------------- macOS, by construction


def _run(*command: str) -> str:
    """Return what a system tool prints, empty when it fails or takes too long."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed tools with numbers as arguments
            command,
            capture_output=True,
            check=True,
            timeout=PS_SECONDS_MAX,
            env={"LC_ALL": "C", "TZ": "UTC0"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("ascii", "replace").strip()


def _identify_darwin(pid: int) -> ProcessIdentity | None:
    from datetime import UTC, datetime  # noqa: PLC0415 - only here, and every hook pays for imports

    text = _run("/bin/ps", "-o", "stat=,lstart=", "-p", str(pid))
    state, _, started = text.partition(" ")
    if not text or state.startswith("Z"):
        return None
    try:
        moment = datetime.strptime(" ".join(started.split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
    return ProcessIdentity(_boot_id(), 0, pid, int(moment.timestamp()), None, PLATFORM)


def _probe_darwin(identity: ProcessIdentity) -> State:
    now = _identify_darwin(identity.pid)
    if now is None:
        return "gone" if _is_absent(identity.pid) else "unknown"
    return "alive" if now.start_ticks == identity.start_ticks else "gone"


def _parent_darwin(pid: int) -> int:
    text = _run("/bin/ps", "-o", "ppid=", "-p", str(pid))
    return int(text) if text.isdigit() else 0


# ---------------------------------------------------------------- the far end of a socket


class PeerCredentials(NamedTuple):
    """Who was at the other end when the connection was made: a client sees who called `listen`."""

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: socket.socket) -> PeerCredentials:
    """Return what the kernel says of the other end of a connected Unix socket.

    They are facts of the moment of connecting and do not change after it. On macOS the group is the
    first of its groups.

    Raises:
        OSError: the socket is not connected.

    Source: reference/reliability.md F10, S7.
    """
    if PLATFORM == "darwin":
        record = sock.getsockopt(DARWIN_SOL_LOCAL, DARWIN_LOCAL_PEERCRED, 76)
        _, uid, count, gid = struct.unpack_from("=IIhxxI", record)
        pid = sock.getsockopt(DARWIN_SOL_LOCAL, DARWIN_LOCAL_PEERPID)
        return PeerCredentials(pid, uid, gid if count else 0)
    size = struct.calcsize("3i")
    return PeerCredentials(*struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)))


def peer_identity(sock: socket.socket) -> ProcessIdentity | None:
    """Return the identity of the process at the other end, or None when it cannot be established.

    Where the kernel hands out a pidfd of the far end (Linux 6.5), a recycled number is noticed.
    """
    identity = identify(peer_credentials(sock).pid)
    if PLATFORM == "darwin" or identity is None:
        return identity
    try:
        descriptor = sock.getsockopt(socket.SOL_SOCKET, PEER_PIDFD)
    except OSError:
        return identity  # an older kernel: number and start time are what there is
    try:
        is_same = identity.pidfd_inode in (None, os.fstat(descriptor).st_ino)
        return identity if is_same and not _has_ended(descriptor) else None
    finally:
        os.close(descriptor)


def make_undumpable() -> bool:
    """Keep this process's memory, with its keys, out of core files and away from other processes.

    Returns:
        Whether the system did so; False on one without the call.

    Source: reference/reliability.md S14.
    """
    if PLATFORM != "linux":
        return False
    import ctypes  # noqa: PLC0415 - only roots pay for it

    return bool(ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0) == 0)
