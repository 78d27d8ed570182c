"""The directories of a broker: private where the socket is, ours where the records are.

Rule 1: a foreign directory, and one behind a link, is refused; it is neither changed nor deleted.
Rule 2: a loose mode of a directory that follows from the user's number is tightened; one that a person
    named is refused.
Rule 3: what stands in a file of these directories was written by programs of several revisions: it is read
    whatever its mode, as long as it is a regular file of this user.

Source: reference/intercom.md 6.1, 6.2; reference/reliability.md S1, S2.
"""

import os
import stat

from tieline.errors import Refused
from tieline.shell.hub.place import Place
from tieline.store.files import Directory, Seam, no_seam, open_directory

__all__ = ["open_records", "open_runtime", "read_record"]

RECORD_BYTES_MAX = 4_096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_runtime(place: Place, *, create: bool = True, seam: Seam = no_seam) -> Directory:
    """Return the private directory that holds the socket.

    Raises:
        FileNotFoundError: it is not there, and `create` is false.
        Refused: UNSAFE_ENDPOINT, it is foreign, a link, or reached through what others could exchange;
            PERMISSION_DENIED.
    """
    if not place.is_named:
        _tighten(place.folder)
    return open_directory(place.folder, create=create, seam=seam)


def open_records(place: Place, *, create: bool = True, seam: Seam = no_seam) -> Directory:
    """Return the directory of the process record and the spawn lock; raises as `open_runtime`."""
    if not place.is_agents:
        return open_runtime(place, create=create, seam=seam)
    if create:
        os.makedirs(place.records, mode=0o700, exist_ok=True)
    # Where a user has a group alone, directories are writable for it: whoever made this one did not mind.
    # Settings are often kept elsewhere behind a link; the extension follows it, and so must we.
    path = os.path.realpath(place.records)
    try:
        descriptor = os.open(path, _DIRECTORY)
    except NotADirectoryError:
        raise Refused("UNSAFE_ENDPOINT", f"{path} is not a directory: move it away") from None
    except PermissionError as error:
        raise Refused("PERMISSION_DENIED", f"{path}: {error.strerror}") from error
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o002:
        os.close(descriptor)
        raise Refused(
            "UNSAFE_ENDPOINT",
            f"{path} (uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}) may be written by others",
        )
    return Directory(path, descriptor, status, seam)


def read_record(directory: Directory, name: str) -> tuple[bytes, os.stat_result] | None:
    """Return the first bytes of a file and its status, None where there is no file.

    Raises:
        Refused: UNSAFE_ENDPOINT, it is not a regular file of this user.
    """
    path = f"{directory.path}/{name}"
    try:
        descriptor = os.open(name, _READ, dir_fd=directory.fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused("UNSAFE_ENDPOINT", f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise Refused("UNSAFE_ENDPOINT", f"{path} is not a file of yours: remove it")
        return os.read(descriptor, RECORD_BYTES_MAX), status
    finally:
        os.close(descriptor)


def _tighten(path: str) -> None:
    """Take other users' permissions off our own directory; whatever else stands there is judged later."""
    try:
        descriptor = os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
