"""The way to a private directory, each step taken from the descriptor of the step before.

Rule: no other user may be able to exchange a part of the way. What is not safe is refused with path,
owner and remedy; nothing is created, changed or deleted then.

Source: reference/reliability.md S1, K20; reference/open-bugs.md O28, O54; reference/native.md 39, 41.
"""

import os
import stat

from tieline.errors import Refused, UsageError
from tieline.store.files.checks import Seam, check_ancestor, check_directory, no_seam, system_refusal
from tieline.store.files.directory import Directory

__all__ = ["open_directory"]

LINKS_FOLLOWED_MAX = 40
"""Symbolic links among the ancestors; the kernel's own bound."""

_DESCRIBE = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WALK = _DESCRIBE | getattr(os, "O_PATH", 0)


def open_directory(path: str, *, create: bool, seam: Seam = no_seam) -> Directory:
    """Return the private directory at `path`, held open and verified.

    Args:
        path: Absolute. Ancestors may be links that root or this user owns; the last part may not.
        create: Make what is missing, mode 0700, each made part synced into its parent.
        seam: Called at every effect, here and in what is returned.

    Raises:
        UsageError: `path` is not absolute.
        FileNotFoundError: it is not there, and `create` is false.
        Refused: `UNSAFE_ENDPOINT` when owner, mode, type or an ancestor is not safe; nothing was
            changed. `PERMISSION_DENIED` when the system does not let this process in.

    Source: reference/reliability.md S1.
    """
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{path!r} is not an absolute path")
    try:
        return _walk(path, create=create, seam=seam)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise system_refusal(error, path) from error


def _walk(path: str, *, create: bool, seam: Seam) -> Directory:
    """Return the verified directory; each step is taken from the descriptor of the step before."""
    pending = [part for part in path.split("/") if part not in ("", ".")][::-1]
    if not pending:
        raise Refused("UNSAFE_ENDPOINT", "/ is not a private directory: name one of your own")
    links = 0
    here = os.open("/", _WALK)
    try:
        while True:
            check_ancestor(os.fstat(here), path)
            part = pending.pop()
            is_last = not pending
            try:
                status = os.stat(part, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                if not create:
                    raise
                _make(here, part, seam)
                pending.append(part)
                continue
            if stat.S_ISLNK(status.st_mode) and not is_last:
                links += 1
                here = _follow(here, part, status, pending, links, path)
                continue
            if is_last:
                return _open_last(here, part, status, path, seam)
            here, left = os.open(part, _WALK, dir_fd=here), here
            os.close(left)
    finally:
        os.close(here)


def _follow(here: int, part: str, status: os.stat_result, pending: list[str], links: int, path: str) -> int:
    """Put a link's target before what is pending; return the descriptor to go on from."""
    if status.st_uid not in (0, os.geteuid()) or links > LINKS_FOLLOWED_MAX:
        raise Refused(
            "UNSAFE_ENDPOINT",
            f"{path} leads through the link {part!r} of uid {status.st_uid}: use the path without that link",
        )
    target = os.readlink(part, dir_fd=here)
    pending.extend([step for step in target.split("/") if step not in ("", ".")][::-1])
    if not target.startswith("/"):
        return here
    top = os.open("/", _WALK)
    os.close(here)
    return top


def _make(here: int, part: str, seam: Seam) -> None:
    """Make one missing directory, mode 0700, and sync its entry; another that made it first keeps it."""
    seam("files.make_directory")
    try:
        os.mkdir(part, 0o700, dir_fd=here)
    except FileExistsError:
        return
    if stat.S_IMODE(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode) & 0o777 != 0o700:
        # A default ACL or an odd umask. It was made an instant ago, where nobody else could exchange it.
        os.chmod(part, 0o700, dir_fd=here)
    seam("files.directory_made")
    readable = os.open(".", os.O_RDONLY | _DESCRIBE, dir_fd=here)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def _open_last(here: int, part: str, status: os.stat_result, path: str, seam: Seam) -> Directory:
    """Open and verify the directory itself; a foreign one is refused before it is opened."""
    check_directory(status, path)
    descriptor = os.open(part, os.O_RDONLY | _DESCRIBE, dir_fd=here)
    try:
        status = os.fstat(descriptor)
        check_directory(status, path)
    except BaseException:
        os.close(descriptor)
        raise
    return Directory(path, descriptor, status, seam)
