"""Where an endpoint is, and what a client checks before and after it connects.

Rule 1: a client verifies directory, name, owner and mode before it connects, and the kernel's word on
who listens before it reads a byte.
Rule 2: silence and a full backlog prove no death.
Rule 3: no abstract socket, no port.

Source: reference/native.md 2.5, 3.4 "peer credentials", 3.7; reference/reliability.md F9, F10, S4, S5,
S7, K12.
"""

import errno
import hashlib
import os
import socket
import stat
import tempfile
import time

from tieline.errors import Refusal, Refused, UsageError
from tieline.model.identity import is_instance
from tieline.shell.process import peer_credentials
from tieline.store.files import open_directory

__all__ = [
    "CONTROL_SUFFIX",
    "NATIVE_SUFFIX",
    "connect",
    "connect_refusal",
    "is_own_socket",
    "is_refusing",
    "socket_path",
    "verify_target",
]

NATIVE_SUFFIX = ".sock"
"""Of the endpoint that peers reach; the public profile asks for this name."""
CONTROL_SUFFIX = ".control"
"""Of the endpoint that only this user's own short-lived processes reach."""
PATH_BYTES_MAX = 100
"""The kernel takes 107 on Linux and 103 on macOS; the rest is room for other people's tools."""
KERNEL_PATH_BYTES_MAX = 107
BUSY_POLL_SECONDS = 0.005

SANDBOX_SENTENCE = (
    "this process may not open the agent's socket, as inside a sandbox:"
    " use the agent's MCP tool instead, or run the command outside the sandbox"
)


def socket_path(runtime_directory: str, instance: str, suffix: str = NATIVE_SUFFIX) -> str:
    """Return where this instance's socket is: in the directory, or in a short one when that is too long.

    Args:
        runtime_directory: Absolute, as it is configured; its spelling decides the short name.
        instance: Letters, digits, dashes; 1 to 128.
        suffix: `NATIVE_SUFFIX` or `CONTROL_SUFFIX`.

    Returns:
        A path of at most 100 UTF-8 bytes. Nothing is created or looked at.

    Raises:
        UsageError: the instance is not one, or even the short path is too long.

    Source: reference/native.md 2.5; reference/reliability.md S4.
    """
    if not is_instance(instance):
        raise UsageError(f"{instance!r} is not an instance id")
    name = instance + suffix
    mark = hashlib.sha256(os.fsencode(runtime_directory)).hexdigest()[:12]
    short = f"ahp-{os.geteuid()}-{mark}"
    # A long TMPDIR, as macOS has, leaves no room either: /tmp is the last place.
    for base in (runtime_directory, f"{tempfile.gettempdir().rstrip('/')}/{short}", f"/tmp/{short}"):  # noqa: S108 - verified 0700
        path = f"{base.rstrip('/')}/{name}"
        if len(os.fsencode(path)) <= PATH_BYTES_MAX:
            return path
    raise UsageError(f"no socket path of at most {PATH_BYTES_MAX} bytes for instance {instance}")


def verify_target(path: str, instance: str, suffix: str = NATIVE_SUFFIX) -> None:
    """Return when `path` may be connected to as this instance's endpoint.

    Raises:
        Refused: `UNSAFE_ENDPOINT` when the path is not absolute, too long, or not named after the
            instance, when its directory or the socket is not private and ours; `PEER_OFFLINE` when
            there is no such socket.

    Source: reference/native.md 2.5.
    """
    folder, _, name = path.rpartition("/")
    if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > KERNEL_PATH_BYTES_MAX:
        raise Refused("UNSAFE_ENDPOINT", "the endpoint is not an absolute path of at most 107 bytes")
    if not is_instance(instance) or name != instance + suffix:
        raise Refused("UNSAFE_ENDPOINT", "the endpoint is not named after its instance")
    try:
        with open_directory(folder or "/", create=False) as directory:
            status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        raise Refused("PEER_OFFLINE", f"instance {instance} has no endpoint: it has ended") from None
    if not is_own_socket(status):
        raise Refused("UNSAFE_ENDPOINT", f"{path} is not a private socket of yours")


def connect_refusal(error_number: int) -> Refusal:
    """Return what a failed connect to a Unix socket says, as a value.

    A full backlog belongs to a process that lives and is slow: it is busy, never stale.

    Source: reference/reliability.md F9; reference/native.md 2.5 "mapping".
    """
    if error_number in (errno.ECONNREFUSED, errno.ENOENT):
        return Refusal("PEER_OFFLINE", "nobody listens at the endpoint")
    if error_number in (errno.EAGAIN, errno.EINPROGRESS, errno.ETIMEDOUT):
        return Refusal(
            "RESOURCE_BUSY", "the peer lives and does not accept connections now", is_retryable=True
        )
    if error_number in (errno.EPERM, errno.EACCES):
        return Refusal("PERMISSION_DENIED", SANDBOX_SENTENCE)
    if error_number in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
        return Refusal("RESOURCE_BUSY", "this process has no free file descriptor", is_retryable=True)
    if error_number in (errno.ENOTSOCK, errno.EPROTOTYPE, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
        return Refusal("UNSAFE_ENDPOINT", "the endpoint is not a stream socket")
    return Refusal("PEER_OFFLINE", f"the endpoint cannot be reached: {os.strerror(error_number)}")


def connect(path: str, *, wait_ms: int = 0) -> socket.socket:
    """Return a connected, non-blocking socket whose far end is this user's, before any byte was read.

    Args:
        path: One that `verify_target` passed.
        wait_ms: How long to go on while the far end's backlog is full; blocks its thread meanwhile.

    Raises:
        Refused: as `connect_refusal` says; `UNSAFE_ENDPOINT` when another user listens there.

    Source: reference/reliability.md F9, S7; reference/native.md 3.4 "peer credentials".
    """
    deadline = time.monotonic() + wait_ms / 1000
    while True:
        try:
            sock = _connect_now(path)
        except OSError as error:
            if error.errno != errno.EAGAIN or time.monotonic() >= deadline:
                raise Refused.of(connect_refusal(error.errno or 0)) from error
            time.sleep(BUSY_POLL_SECONDS)
            continue
        if (uid := peer_credentials(sock).uid) == os.geteuid():
            return sock
        sock.close()
        raise Refused("UNSAFE_ENDPOINT", f"uid {uid} listens there, not you")


def _connect_now(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def is_own_socket(status: os.stat_result) -> bool:
    """Return whether the entry is a socket of this user that nobody else may connect to."""
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0


def is_refusing(path: str) -> bool:
    """Return whether nobody listens; a full backlog and every other answer leave it open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
