"""Whose an endpoint is, and when a dead one may be taken away.

Rule 1: who owns an endpoint is written beside it before it exists, in `<instance>.owner`.
Rule 2: a socket is removed on that owner's proven end and a refused connection, both, under the
directory's lock, and only the inode that was judged. Heartbeats, ages and silence prove nothing.
Rule 3: what has no owner file, or a damaged one, is left alone.

Source: reference/native.md 43, 44, 3.4 "stale sockets", 3.6 weak point 18; reference/reliability.md F9,
S6, K3, K12; reference/open-bugs.md O34, O35.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.model.identity import is_instance
from tieline.shell.endpoint.address import is_own_socket, is_refusing, socket_path
from tieline.shell.process import ProcessIdentity, State, probe
from tieline.store.files import Directory, Seam, no_seam, open_directory

__all__ = [
    "OWNER_SUFFIX",
    "Host",
    "Owner",
    "hosts",
    "locked",
    "owner_state",
    "read_owner",
    "remove_short_directory",
    "sweep",
    "write_owner",
]

OWNER_SUFFIX = ".owner"
LOCK_NAME = "tieline-endpoints.lock"
LOCK_WAIT_MS = 2_000
OWNER_BYTES_MAX = 16_384


class Owner(msgspec.Struct, frozen=True):
    """What stands in an owner file."""

    version: int
    instance: str
    owner: ProcessIdentity
    host: ProcessIdentity | None
    sockets: dict[str, str]


# Made in one thread: two that read the first owner file at the same instant would end the process.
_OWNER = msgspec.json.Decoder(Owner)


class Host(NamedTuple):
    """One root as a short-lived process of the same user finds it.

    `host` is the process that started the root's door, the harness; None when nobody did.
    `owner` is the root's own process. `sockets` maps a suffix to a path.
    """

    instance: str
    host: ProcessIdentity | None
    owner: ProcessIdentity
    sockets: dict[str, str]


@contextmanager
def locked(
    runtime_directory: str, *, create: bool, seam: Seam = no_seam, wait_ms: int = LOCK_WAIT_MS
) -> Iterator[Directory]:
    """Hold the runtime directory and its lock."""
    with (
        open_directory(runtime_directory, create=create, seam=seam) as directory,
        directory.lock(LOCK_NAME, wait_ms),
    ):
        yield directory


def write_owner(runtime: Directory, record: Owner) -> None:
    """Replace the owner file of the record's instance; the caller holds the lock."""
    # Not synced: after a power cut there is no process whose name it could carry.
    runtime.write_atomic(record.instance + OWNER_SUFFIX, msgspec.json.encode(record), sync=False)


def read_owner(runtime: Directory, instance: str) -> Owner | None:
    """Return the owner file of an instance, None when there is none.

    Raises:
        RecoveryRequired: it does not say what an owner file says; it is left as it is.
        Refused: `UNSAFE_ENDPOINT`: it is not a private file of ours.
    """
    name = instance + OWNER_SUFFIX
    try:
        data = runtime.read(name, OWNER_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        record = _OWNER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RecoveryRequired(f"{runtime.path}/{name} is damaged: keep it, and start a new agent") from error
    if record.version != 1 or record.instance != instance:
        raise RecoveryRequired(f"{runtime.path}/{name} is of another version, or of another instance")
    return record


def _instances(runtime: Directory) -> list[str]:
    names = [name[: -len(OWNER_SUFFIX)] for name in runtime.names() if name.endswith(OWNER_SUFFIX)]
    return [name for name in names if is_instance(name)]


def hosts(runtime_directory: str) -> list[Host]:
    """Return every root whose owner file can be read, live or not, in the order of their ids.

    Files that are damaged or not ours are passed over: they prove nothing and host nobody.

    Raises:
        Refused: the directory itself is not safe, or this process may not read it.
    """
    found: list[Host] = []
    try:
        directory = open_directory(runtime_directory, create=False)
    except FileNotFoundError:
        return found
    with directory:
        for instance in _instances(directory):
            try:
                record = read_owner(directory, instance)
            except (Refused, RecoveryRequired):
                continue
            if record is not None:
                found.append(Host(instance, record.host, record.owner, dict(record.sockets)))
    return found


def owner_state(runtime_directory: str, instance: str) -> State:
    """Return whether the process that owns an instance's endpoints is alive, proven gone, or unknown.

    Without a readable owner file it is unknown: roots of other makers write none.
    """
    try:
        with open_directory(runtime_directory, create=False) as directory:
            record = read_owner(directory, instance) if is_instance(instance) else None
    except (FileNotFoundError, Refused, RecoveryRequired):
        return "unknown"
    return "unknown" if record is None else probe(record.owner)


def sweep(runtime_directory: str, *, seam: Seam = no_seam) -> list[str]:
    """Remove what proven-dead owners left: sockets that refuse, then the owner files.

    Returns:
        The instances that were swept. A socket without an owner file, or one that answers, stays.

    Raises:
        Refused: the directory is not safe, or its lock is held.

    Source: reference/native.md 3.4 "stale sockets", 3.6 weak point 18.
    """
    swept: list[str] = []
    try:
        with locked(runtime_directory, create=False, seam=seam) as runtime:
            for instance in _instances(runtime):
                try:
                    record = read_owner(runtime, instance)
                except (Refused, RecoveryRequired):
                    continue
                if record is None or probe(record.owner) != "gone":
                    continue
                if all(_sweep_socket(runtime_directory, record, suffix) for suffix in record.sockets):
                    runtime.remove(instance + OWNER_SUFFIX)
                    swept.append(instance)
    except FileNotFoundError:
        return []
    return swept


def _sweep_socket(runtime_directory: str, record: Owner, suffix: str) -> bool:
    """Remove one dead socket; return whether nothing of it is left."""
    path = record.sockets[suffix]
    folder, _, name = path.rpartition("/")
    # The owner file says which; where it may be follows from us, so that no file makes us unlink elsewhere.
    if path != socket_path(runtime_directory, record.instance, suffix):
        return False
    try:
        with open_directory(folder, create=False) as directory:
            status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            if not is_own_socket(status) or not is_refusing(path):
                return False
            directory.remove(name, inode=status.st_ino)
            remove_short_directory(directory, runtime_directory)
    except FileNotFoundError:
        return True
    except (Refused, RecoveryRequired):
        return False
    return True


def remove_short_directory(directory: Directory, runtime_directory: str) -> None:
    """Remove the short directory when nothing is left in it; the configured one always stays."""
    if directory.path.rstrip("/") == runtime_directory.rstrip("/") or not directory.is_current():
        return
    try:
        os.rmdir(directory.path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise Refused(
                "PERMISSION_DENIED", f"{directory.path}: {os.strerror(error.errno or 0)}"
            ) from error
