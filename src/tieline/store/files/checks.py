"""What makes a directory or a file ours and private, and what a no of the system means.

Rule: a check looks at the status of what is held open; it never looks a second time by name.

Source: reference/native.md 1D, 2.1, 5; reference/reliability.md S1, S2, K35; reference/open-bugs.md O28, O52.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from tieline.errors import RecoveryRequired, Refused, TielineError

__all__ = [
    "FULL",
    "SPACE_ACTION",
    "Seam",
    "check_ancestor",
    "check_directory",
    "check_file",
    "file_system_kind",
    "is_private_file",
    "no_seam",
    "refuse_network_file_system",
    "repair_open_file",
    "system_refusal",
]

Seam = Callable[[str], None]
"""Called with a seam's name right before or after an effect; raising there simulates a failure."""

NETWORK_KINDS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs2", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.vmhgfs-fuse", "gfs2", "glusterfs", "gpfs", "lustre",
    "ncpfs",
    "nfs", "nfs4", "ocfs2", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
"""File systems that more than one kernel may mount: a lock taken here is not seen there, and another
kernel's boot id would look like a reboot of ours."""

SPACE_ACTION = "free some space on the disk that holds it, then repeat"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


PRIVATE_MASK = 0o170077
"""The bits of a mode that say type, group and others."""


def no_seam(name: str) -> None:
    """Do nothing at the seam `name`: what runs outside tests."""


def check_ancestor(status: os.stat_result, path: str) -> None:
    """Refuse a path of which another user could exchange a part."""
    if status.st_uid not in (0, os.geteuid()):
        raise Refused(
            "UNSAFE_ENDPOINT",
            f"{path} lies in a directory of uid {status.st_uid}, who could exchange it:"
            " choose a directory of your own",
        )
    is_shared_safely = status.st_uid == 0 and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not is_shared_safely:
        raise Refused(
            "UNSAFE_ENDPOINT",
            f"{path} lies in a directory of uid {status.st_uid} that others may write"
            f" (mode {stat.S_IMODE(status.st_mode):04o}): take their write permission away,"
            " or choose another place",
        )


def check_directory(status: os.stat_result, path: str) -> None:
    """Refuse what is not a private directory of this user.

    Raises:
        Refused: `UNSAFE_ENDPOINT`, naming path, owner and remedy.
    """
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(
            "UNSAFE_ENDPOINT", f"{path} is a symbolic link: name the directory it leads to, or remove it"
        )
    if not stat.S_ISDIR(status.st_mode):
        raise Refused("UNSAFE_ENDPOINT", f"{path} is not a directory: move it away, or choose another path")
    if status.st_uid != os.geteuid():
        raise Refused(
            "UNSAFE_ENDPOINT",
            f"{path} is owned by uid {status.st_uid}, not by you (uid {os.geteuid()}):"
            " choose a directory of your own",
        )
    if mode & 0o077:
        raise Refused("UNSAFE_ENDPOINT", f"{path} is open to others (mode {mode:04o}): run `chmod 700` on it")


def is_private_file(status: os.stat_result) -> bool:
    """Return whether `check_file` has nothing to say: the short way for ten thousand files."""
    return (
        status.st_mode & PRIVATE_MASK == stat.S_IFREG
        and status.st_nlink <= 1
        and status.st_uid == os.geteuid()
    )


def check_file(status: os.stat_result, path: str, *, is_broad_allowed: bool = False) -> None:
    """Refuse what is not a private regular file of this user with one name.

    Args:
        status: Of the opened descriptor, or of the entry itself (not of what a link leads to).
        path: For the message.
        is_broad_allowed: Let group and other permissions pass, for a file about to be replaced.

    Raises:
        Refused: `UNSAFE_ENDPOINT`, naming path, owner and remedy.
    """
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise Refused("UNSAFE_ENDPOINT", f"{path} is not a regular file: remove it")
    if status.st_uid != os.geteuid():
        raise Refused(
            "UNSAFE_ENDPOINT", f"{path} is owned by uid {status.st_uid}, not by you (uid {os.geteuid()})"
        )
    if status.st_nlink > 1:  # none is left when another file took its name meanwhile
        raise Refused("UNSAFE_ENDPOINT", f"{path} has {status.st_nlink} names: remove the other links to it")
    if mode & 0o077 and not is_broad_allowed:
        raise Refused(
            "UNSAFE_ENDPOINT", f"{path} is open to others (mode {stat.S_IMODE(mode):04o}): run `chmod 600`"
        )


def repair_open_file(descriptor: int, path: str, name: str, directory: int) -> bool:
    """Take group and other permissions off our own open file; return whether that was done.

    What stands at `name` in `directory` by now must be this very file under this one name: a second
    name of a file elsewhere, put there and taken away again, is not ours to change.
    """
    status = os.fstat(descriptor)
    check_file(status, path, is_broad_allowed=True)
    if status.st_mode & 0o077 == 0:
        return False
    try:
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not os.path.samestat(there, status) or there.st_nlink != 1:
        return False
    os.fchmod(descriptor, 0o600)
    return True


def system_refusal(error: OSError, path: str) -> TielineError:
    """Return what an errno at a verified path means for the caller."""
    reason = os.strerror(error.errno or 0)
    if error.errno == errno.ENOENT:
        return Refused("UNSAFE_ENDPOINT", f"{path}: its directory was removed: start again")
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EMLINK):
        return Refused("UNSAFE_ENDPOINT", f"{path} is a link, or not what it should be ({reason}): remove it")
    if error.errno in _DENIED:
        return Refused("PERMISSION_DENIED", f"{path}: {reason}")
    if error.errno in FULL:
        return Refused("QUEUE_FULL", f"no space for {path}", is_retryable=True).advising(SPACE_ACTION)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Refused("RESOURCE_BUSY", f"{path}: {reason}", is_retryable=True)
    return RecoveryRequired(f"{path}: {reason}")


def file_system_kind(path: str) -> str:
    """Return the kernel's name for the file system that holds `path`, empty when it does not tell.

    Source: /proc/self/fdinfo and /proc/self/mountinfo; another system than Linux has neither.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Path(f"/proc/self/fdinfo/{descriptor}").open(encoding="ascii") as stream:
            facts = dict(line.split(":", 1) for line in stream if ":" in line)
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        return _kind_in(mounts, facts.get("mnt_id", "").strip())
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _kind_in(mounts: str, mount_id: str) -> str:
    """Return the type of the mount `mount_id` in the text of mountinfo."""
    for line in mounts.split("\n"):
        before, separator, after = line.partition(" - ")
        if separator and before.split(" ", 1)[0] == mount_id:
            return after.split(" ", 1)[0]
    return ""


def refuse_network_file_system(path: str) -> None:
    """Return when locks at `path` are seen by all who can reach it.

    Raises:
        Refused: `UNSAFE_ENDPOINT`, naming the file system.

    Source: reference/native.md 5; reference/reliability.md K35.
    """
    kind = file_system_kind(path)
    if kind in NETWORK_KINDS:
        raise Refused(
            "UNSAFE_ENDPOINT",
            f"{path} is on a {kind} file system, where a lock does not reach other machines:"
            " set coordination_directory to a local one",
        )
