"""A verified private directory: whole files, exact removal, locks.

Rule 1: every access goes through the held descriptor. Nothing is opened by a path that another user
could exchange in between.
Rule 2: what is not ours is refused by name, owner and remedy; it is never changed and never deleted.
Rule 3: a replaced file is the old one or the new one, whole; with `sync` the answer comes after the
new one is on stable storage. When that is in doubt, nothing more is written through this directory.
Rule 4: this module knows neither what the bytes mean nor whose clock is right.

Every effect that others can see lies between two named seams; a test may kill or fail there.

Source: reference/native.md 1D, 2.1, 3.5, 5; reference/reliability.md F1, F4, S2, S3, K4, K5, K20;
reference/open-bugs.md O35, O37, O38, O52.
"""

import errno
import fcntl
import itertools
import os
import stat
import time
from types import TracebackType
from typing import Self

from tieline.errors import RecoveryRequired, Refused, TielineError, UsageError
from tieline.store.files.checks import (
    FULL,
    SPACE_ACTION,
    Seam,
    check_file,
    is_private_file,
    refuse_network_file_system,
    repair_open_file,
    system_refusal,
)
from tieline.store.files.lock import Lock

__all__ = ["Directory"]

NAME_BYTES_MAX = 255
TEMPORARY_PREFIX = ".tieline-"
TEMPORARY_SUFFIX = ".tmp"
TEMPORARY_ATTEMPTS_MAX = 1_000
LEFTOVER_AGE_MS_MIN = 600_000
"""A temporary file lives for milliseconds. A writer that was stopped for longer than this and finds its
file gone is told so and tries again; nothing is lost."""

# Without O_NONBLOCK a pipe planted at the name would hold the reader for ever.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_temporary_numbers = itertools.count()


class Directory:
    """A verified private directory; all access to its files goes through the descriptor it holds.

    Attributes:
        path: As it was named.
        fd: The held descriptor, close-on-exec; -1 after `close`.
        inode: The directory's own inode number.
    """

    __slots__ = ("_device", "_doubt", "_kind_is_checked", "_seam", "fd", "inode", "path")

    def __init__(self, path: str, descriptor: int, status: os.stat_result, seam: Seam) -> None:
        """Take over `descriptor`, which `open_directory` verified."""
        self.path = path
        self.fd = descriptor
        self.inode = status.st_ino
        self._device = status.st_dev
        self._seam = seam
        self._doubt = ""
        self._kind_is_checked = False

    def __enter__(self) -> Self:
        """Return this directory."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the descriptor."""
        self.close()

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        descriptor, self.fd = self.fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def is_current(self) -> bool:
        """Return whether `path` still leads to the directory that is held."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_ino, status.st_dev) == (self.inode, self._device)

    def names(self) -> list[str]:
        """Return the names in it, sorted, without our own unfinished files."""
        return sorted(name for name in os.listdir(self.fd) if not _is_temporary(name))

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole contents of a private file.

        Raises:
            FileNotFoundError: there is none.
            Refused: `UNSAFE_ENDPOINT` when it is a link, not a regular file, linked more than once,
                not ours, or open to others; `PERMISSION_DENIED` when the system says so.
            RecoveryRequired: it is larger than `bytes_max`, or cannot be read.
        """
        return self.read_with_status(name, bytes_max)[0]

    def read_with_status(self, name: str, bytes_max: int) -> tuple[bytes, os.stat_result]:
        """Return the contents and the status of the very file that was read; raises as `read`."""
        path = self._path(name)
        try:
            descriptor = os.open(name, _READ, dir_fd=self.fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise system_refusal(error, path) from error
        try:
            return _read_open_file(descriptor, path, bytes_max)
        finally:
            os.close(descriptor)

    def write_atomic(self, name: str, data: bytes, *, sync: bool) -> int:
        """Replace the file by `data`, mode 0600 from its first instant; return its inode.

        Args:
            name: One plain file name.
            data: The whole new contents.
            sync: Answer only after contents and name are on stable storage. Without it a power cut
                may leave the old file, the new one or an empty one: for hints only.

        Raises:
            Refused: nothing changed. `UNSAFE_ENDPOINT` when what stands at the name is not a file of
                ours; `QUEUE_FULL` (retryable) when the disk is full; `RESOURCE_BUSY` (retryable) when
                the unfinished file was swept away; `PERMISSION_DENIED`.
            RecoveryRequired: the device failed; whether the new contents last is in doubt, and so is
                all that follows: this directory writes nothing more until it is opened again.

        Source: reference/reliability.md F1, F4, S2, K4, K5.
        """
        path = self._path(name)
        if self._doubt:
            raise RecoveryRequired(self._doubt)
        self._refuse_foreign(name, path)
        is_renamed = False
        temporary = ""
        try:
            temporary, descriptor = self._create_temporary()
            try:
                _write_all(descriptor, data)
                self._seam("files.tmp_written")
                if sync:
                    os.fsync(descriptor)
                    self._seam("files.synced")
                inode = os.fstat(descriptor).st_ino
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            is_renamed = True
            self._seam("files.renamed")
            if sync:
                os.fsync(self.fd)
                self._seam("files.directory_synced")
        except OSError as error:
            if temporary and not is_renamed:
                self._discard(temporary)
            raise self._write_failure(error, path, is_renamed=is_renamed) from error
        return inode

    def _write_failure(self, error: OSError, path: str, *, is_renamed: bool) -> TielineError:
        """Return what a failed write means; after a device error nothing here is believed again."""
        if is_renamed or error.errno == errno.EIO:
            # A later sync may succeed although the pages were dropped: it is not tried.
            self._doubt = f"whether {path} was stored is in doubt: {os.strerror(error.errno or 0)}"
            return RecoveryRequired(self._doubt)
        if error.errno in FULL:
            text = f"no space to store {path}; nothing was changed"
            return Refused("QUEUE_FULL", text, is_retryable=True).advising(SPACE_ACTION)
        if error.errno == errno.ENOENT and self.is_current():
            return Refused("RESOURCE_BUSY", f"{path} was swept while it was written", is_retryable=True)
        return system_refusal(error, path)

    def _create_temporary(self) -> tuple[str, int]:
        for _ in range(TEMPORARY_ATTEMPTS_MAX):
            name = f"{TEMPORARY_PREFIX}{os.getpid()}-{next(_temporary_numbers)}{TEMPORARY_SUFFIX}"
            self._seam("files.create_tmp")
            try:
                descriptor = os.open(name, _CREATE, 0o600, dir_fd=self.fd)
            except FileExistsError:
                # Left by a dead process of the same number, or by one of another container.
                continue
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:
                os.fchmod(descriptor, 0o600)  # an umask that masks the owner's own bits
            return name, descriptor
        raise OSError(errno.EEXIST, "no free name for a temporary file")

    def _discard(self, temporary: str) -> None:
        try:
            os.unlink(temporary, dir_fd=self.fd)
        except OSError:
            # The caller is about to be told the first error; what stays is swept by age.
            return

    def _refuse_foreign(self, name: str, path: str) -> None:
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        check_file(status, path, is_broad_allowed=True)

    def repair(self, name: str) -> bool:
        """Take group and other permissions off our own file at `name`, as before a first write.

        Returns:
            Whether there was something to take off; False also when there is no file.

        Raises:
            Refused: `UNSAFE_ENDPOINT` when it is not a regular file of ours; it is left as it is.

        Source: reference/open-bugs.md O52.
        """
        path = self._path(name)
        try:
            descriptor = os.open(name, _READ, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise system_refusal(error, path) from error
        try:
            return repair_open_file(descriptor, path, name, self.fd)
        finally:
            os.close(descriptor)

    def remove(self, name: str, *, inode: int | None = None) -> bool:
        """Remove our own entry at `name`; return whether it was removed.

        Args:
            name: One plain file name.
            inode: Remove it only while it is this one: what was judged is what goes. Where another
                process of ours may put something else there, hold the lock as well.
        """
        self._path(name)
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            if status.st_uid != os.geteuid() or (inode is not None and status.st_ino != inode):
                return False
            self._seam("files.remove")
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        self._seam("files.removed")
        return True

    def remove_leftovers(self, now_wall_ms: int) -> int:
        """Remove unfinished files of dead writers, older than ten minutes; return how many."""
        removed = 0
        for name in filter(_is_temporary, os.listdir(self.fd)):
            try:
                status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if now_wall_ms - status.st_mtime_ns // 1_000_000 >= LEFTOVER_AGE_MS_MIN:
                removed += self.remove(name, inode=status.st_ino)
        return removed

    def lock(self, name: str, wait_ms: int) -> "Lock":
        """Return the exclusive lock of the file `name`, which holds nothing and is never renamed.

        Blocks its thread for up to `wait_ms`. Holding it twice in one process is refused like any
        other holder. A child of a fork holds and frees nothing.

        Raises:
            Refused: `RESOURCE_BUSY` (retryable) after the wait; `UNSAFE_ENDPOINT` when the file is
                not ours, or lies on a file system whose locks other machines do not see.

        Source: reference/native.md 3.5 "metadata lock"; reference/open-bugs.md O35, O37, O38.
        """
        path = self._path(name)
        if not self._kind_is_checked:
            refuse_network_file_system(self.path)
            self._kind_is_checked = True
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            lock = self._try_lock(name, path)
            if lock is not None:
                return lock
            left = deadline - time.monotonic()
            if left <= 0:
                raise Refused("RESOURCE_BUSY", f"{path} is held by another process", is_retryable=True)
            # Processes that started together drift apart; the low bits of the clock are jitter enough.
            time.sleep(min(left, 0.001 + (time.monotonic_ns() % 8191) / 1_000_000))

    def _try_lock(self, name: str, path: str) -> "Lock | None":
        try:
            descriptor = os.open(name, _LOCK, 0o600, dir_fd=self.fd)
        except OSError as error:
            raise system_refusal(error, path) from error
        is_kept = False
        try:
            repair_open_file(descriptor, path, name, self.fd)
            self._seam("files.lock_opened")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            # A cleaner may have taken the file away: whoever comes next locks another one.
            is_kept = self._is_at(name, descriptor)
            self._seam("files.locked")
            return Lock(descriptor, path, self._seam) if is_kept else None
        finally:
            if not is_kept:
                os.close(descriptor)

    def _is_at(self, name: str, descriptor: int) -> bool:
        try:
            there = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _path(self, name: str) -> str:
        """Return the full path for messages, after the name was seen to be one plain name."""
        if (
            not name
            or name in (".", "..")
            or "/" in name
            or "\0" in name
            or (len(name) > NAME_BYTES_MAX // 4 and len(os.fsencode(name)) > NAME_BYTES_MAX)
        ):
            raise UsageError(f"{name!r} is not a plain file name")
        return f"{self.path}/{name}"


def _read_open_file(descriptor: int, path: str, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """Return contents and status; of the file before when another has just taken its name."""
    try:
        status = os.fstat(descriptor)
        if not is_private_file(status):
            check_file(status, path)
        data = os.read(descriptor, min(status.st_size, bytes_max) + 1)
        # A regular file gives all that was asked for; fewer bytes are its end.
    except OSError as error:
        raise RecoveryRequired(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from error
    if len(data) > bytes_max or len(data) > status.st_size:
        raise RecoveryRequired(f"{path} is larger than {bytes_max} bytes, or grows while it is read")
    return data, status


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX)
