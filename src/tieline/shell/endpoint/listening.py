"""The side that listens: bind, publish again, take away.

Rule 1: the process that serves is the one that binds and listens, under an umask that lets nobody
else in from the first instant, in a verified directory, while it holds that directory's lock.
Rule 2: a name that is in use, or not proven free, is refused; the first owner goes on serving.
Rule 3: this module knows no frames and no event loop; accepting is the caller's.

Source: reference/native.md 1D, 2.5, 3.7; reference/reliability.md F8, F10, S4, S6, K12, K16;
reference/open-bugs.md O25, O28 to O30.
"""

import errno
import os
import socket
import threading
from typing import NamedTuple

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.shell.endpoint.address import NATIVE_SUFFIX, is_own_socket, is_refusing, socket_path
from tieline.shell.endpoint.owners import (
    OWNER_SUFFIX,
    Owner,
    locked,
    read_owner,
    remove_short_directory,
    write_owner,
)
from tieline.shell.process import ProcessIdentity, probe, require_supported_platform
from tieline.store.files import Directory, Seam, no_seam, open_directory

__all__ = ["BACKLOG", "Endpoint", "bind_endpoint", "listen_private"]

BACKLOG = 128
PRIVATE_UMASK = 0o177

# The umask belongs to the process: two threads that bind in different directories would restore each
# other's.
_umask_is_ours = threading.Lock()


class Endpoint:
    """A bound, listening, non-blocking socket and the right to take its name away.

    Attributes:
        sock: Listens; accepting is the caller's.
        path: Where it is bound, as it is to be advertised.
        inode: Of the socket's name.
        directory_inode: Of the directory that holds it.
    """

    def __init__(
        self, sock: socket.socket, path: str, status: os.stat_result, directory: Directory, plan: "_Plan"
    ) -> None:
        """Take over a socket that `bind_endpoint` bound and verified, and its directory."""
        self.sock = sock
        self.path = path
        self.inode = status.st_ino
        self.directory_inode = directory.inode
        self._directory = directory
        self._plan = plan
        self._process = os.getpid()

    def missing(self) -> bool:
        """Return whether the name is gone or leads elsewhere, as after a cleaner of temporary files."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return status.st_ino != self.inode or not self._directory.is_current()

    def republish(self) -> "Endpoint":
        """Return a new listening socket at the same path, after the name of this one was lost.

        Connections already made stay; this endpoint's socket is closed when the new one listens.
        The owner stays the same, so no second root can take the name in between.

        Raises:
            Refused: as `bind_endpoint`; the old socket then stays as it is.

        Source: reference/reliability.md S6; reference/open-bugs.md O29.
        """
        plan = self._plan
        renewed = bind_endpoint(
            plan.runtime_directory,
            plan.instance,
            plan.suffix,
            owner=plan.owner,
            host=plan.host,
            backlog=plan.backlog,
            seam=plan.seam,
        )
        self.sock.close()
        self._directory.close()
        return renewed

    def close(self) -> bool:
        """Stop listening and take the name away if it is still ours; return whether it was.

        In a forked child only the child's copy of the socket is closed.
        """
        is_removed = False
        if self._process == os.getpid():
            try:
                is_removed = self._unlink()
            except (Refused, RecoveryRequired, FileNotFoundError):
                # The name stays. It is harmless: a sweep takes it when this process is proven gone.
                is_removed = False
        self.sock.close()
        self._directory.close()
        return is_removed

    def _unlink(self) -> bool:
        plan = self._plan
        with locked(plan.runtime_directory, create=False, seam=plan.seam) as runtime:
            if not self._directory.is_current():
                return False
            is_removed = self._directory.remove(self.path.rpartition("/")[2], inode=self.inode)
            record = read_owner(runtime, plan.instance)
            if record is None or record.owner != plan.owner:
                return is_removed
            left = {suffix: path for suffix, path in record.sockets.items() if suffix != plan.suffix}
            if left:
                write_owner(runtime, msgspec.structs.replace(record, sockets=left))
            else:
                runtime.remove(plan.instance + OWNER_SUFFIX)
            remove_short_directory(self._directory, plan.runtime_directory)
        return is_removed


class _Plan(NamedTuple):
    """What an endpoint was asked to be."""

    runtime_directory: str
    instance: str
    suffix: str
    owner: ProcessIdentity
    host: ProcessIdentity | None
    backlog: int
    seam: Seam


def bind_endpoint(
    runtime_directory: str,
    instance: str,
    suffix: str = NATIVE_SUFFIX,
    *,
    owner: ProcessIdentity,
    host: ProcessIdentity | None = None,
    backlog: int = BACKLOG,
    seam: Seam = no_seam,
) -> Endpoint:
    """Return this process's listening endpoint, mode 0600 from its first instant.

    Args:
        runtime_directory: Absolute; made with mode 0700 when it is missing.
        instance: Of the root that will serve.
        suffix: Which of its endpoints.
        owner: This very process, as `process.self_identity` gives it.
        host: The process that started the door, by which short-lived processes find their root.
        backlog: Connections that the kernel holds until they are accepted.
        seam: Called at every effect.

    Raises:
        Refused: `RESOURCE_BUSY` when the name or the instance is another's, live or not proven
            gone; `UNSAFE_ENDPOINT`, `PERMISSION_DENIED`, `UNSUPPORTED_PLATFORM`.

    Source: reference/reliability.md F8, S4, S6; reference/open-bugs.md O25, O30.
    """
    require_supported_platform()
    path = socket_path(runtime_directory, instance, suffix)
    folder, _, name = path.rpartition("/")
    plan = _Plan(runtime_directory, instance, suffix, owner, host, backlog, seam)
    with locked(runtime_directory, create=True, seam=seam) as runtime:
        _claim(runtime, plan, path)
        directory = open_directory(folder, create=True, seam=seam)
        try:
            _vacate(directory, name, path)
            sock, status = listen_private(directory, name, path, backlog, seam)
        except BaseException:
            directory.close()
            raise
    return Endpoint(sock, path, status, directory, plan)


def _claim(runtime: Directory, plan: _Plan, path: str) -> None:
    """Write whose the endpoint is going to be, unless it may be somebody else's."""
    sockets = {plan.suffix: path}
    record = read_owner(runtime, plan.instance)
    if record is not None and record.owner == plan.owner:
        sockets = {**record.sockets, **sockets}
    elif record is not None and probe(record.owner) != "gone":
        raise Refused(
            "RESOURCE_BUSY",
            f"instance {plan.instance} is served by process {record.owner.pid}, which is not proven gone",
        )
    write_owner(runtime, Owner(1, plan.instance, plan.owner, plan.host, sockets))
    plan.seam("endpoint.owner_written")


def _vacate(directory: Directory, name: str, path: str) -> None:
    """Remove a dead socket at our name, whose owner `_claim` found to be gone or ourselves."""
    try:
        status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not is_own_socket(status):
        raise Refused("UNSAFE_ENDPOINT", f"{path} is not a private socket of yours: remove it")
    if not is_refusing(path):
        raise Refused("RESOURCE_BUSY", f"{path} is in use: another process listens there")
    directory.remove(name, inode=status.st_ino)


def listen_private(
    directory: Directory, name: str, path: str, backlog: int, seam: Seam
) -> tuple[socket.socket, os.stat_result]:
    """Return a socket that listens at `path`, seen through its directory, private from its first instant."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        seam("endpoint.bind")
        with _umask_is_ours:
            before = os.umask(PRIVATE_UMASK)
            try:
                sock.bind(path)
            finally:
                os.umask(before)
        seam("endpoint.bound")
        status = _verify(directory, name, path)
        sock.listen(backlog)
        seam("endpoint.listening")
    except OSError as error:
        sock.close()
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise Refused("PERMISSION_DENIED", f"{path}: {os.strerror(error.errno)}") from error
        raise Refused(
            "UNSAFE_ENDPOINT", f"{path} cannot be bound: {os.strerror(error.errno or 0)}"
        ) from error
    except BaseException:
        sock.close()
        raise
    return sock, status


def _verify(directory: Directory, name: str, path: str) -> os.stat_result:
    """Return the status of the socket just bound, seen through the directory that is held."""
    status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    if not is_own_socket(status) or not directory.is_current():
        raise Refused("UNSAFE_ENDPOINT", f"{path} was exchanged while it was made: choose another directory")
    return status
