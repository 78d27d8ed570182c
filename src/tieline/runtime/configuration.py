"""config.toml as text, read and replaced so that no file that stands at its name can hold or mislead us.

Rule 1: what is read is a regular file of at most 1 MiB, ours or root's, that nobody else may write: who
may write it decides with whom the agents speak. It may be a link. A group that may write the file but not
enter the home, as umask 002 leaves it, can do nothing.
Rule 2: a file that cannot be read is an error with a code, never the same as no file.
Rule 3: who changes what `setup` keeps in a home does it alone, so that two at once lose nothing of either;
what a writer left beside its file when it was killed goes with the next writing.
Rule 4: standard library only: a person pays this start every time.

Source: reference/reliability.md S1; reference/native.md 1P; DESIGN.md 3, 4.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import Final

from tieline.errors import Refused, UsageError

__all__ = [
    "BYTES_MAX",
    "alone",
    "configuration_path",
    "configuration_text",
    "replace_configuration",
    "swept",
]

BYTES_MAX: Final = 1_048_576
_SUFFIX: Final = ".new"
# Without O_NONBLOCK a pipe that stands at the name would hold the reader for ever.
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def configuration_path(home: str) -> str:
    """Return where the configuration of a home is."""
    return home + "/config.toml"


def configuration_text(home: str) -> str:
    """Return the text of config.toml, "" where there is none.

    Args:
        home: TIELINE_HOME, absolute.

    Raises:
        UsageError: it is not a regular file, larger than 1 MiB, or not UTF-8.
        Refused: `PERMISSION_DENIED`, this process may not read it; `UNSAFE_ENDPOINT`, others may write
            it, or the home is not a directory.
    """
    path = configuration_path(home)
    try:
        file = os.open(path, _READ)
    except FileNotFoundError:
        if os.path.islink(path):
            raise UsageError(f"{path} is a link that leads nowhere") from None
        return ""
    except OSError as error:
        raise _unread(path, home, error) from None
    try:
        return _text(file, path, home)
    except OSError as error:
        raise _unread(path, home, error) from None
    finally:
        os.close(file)


def _text(file: int, path: str, home: str) -> str:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise Refused("UNSAFE_ENDPOINT", f"{path} belongs to uid {status.st_uid}, not to you")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o002 or (mode & 0o020 and os.stat(home).st_mode & 0o070):
        raise Refused(
            "UNSAFE_ENDPOINT", f"{path} may be written by others (mode {mode:04o}): run `chmod 600`"
        )
    data = b""
    while len(data) <= BYTES_MAX and (chunk := os.read(file, BYTES_MAX + 1 - len(data))):
        data += chunk
    if len(data) > BYTES_MAX:
        raise UsageError(f"{path} is larger than {BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not UTF-8") from None


def _unread(path: str, home: str, error: OSError) -> Refused | UsageError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return Refused("PERMISSION_DENIED", f"{path}: {error.strerror}")
    if error.errno == errno.ENOTDIR:
        return Refused("UNSAFE_ENDPOINT", f"{home} is not a directory: move it away, or set TIELINE_HOME")
    return UsageError(f"{path}: {error.strerror}")


def replace_configuration(home: str, text: str, was: str) -> None:
    """Put `text` where config.toml was `was`, whole or not at all; a link keeps leading to its file.

    Args:
        home: TIELINE_HOME, absolute; made where it is missing.
        text: The new configuration; "" removes the file, and a home that nothing else is in.
        was: What it was read as; "" where there was no file.

    Raises:
        UsageError: somebody else has written it since.
        Refused: `PERMISSION_DENIED`, this process may not write there.
    """
    path = os.path.realpath(configuration_path(home))
    try:
        with alone(home):
            os.makedirs(home, mode=0o700, exist_ok=True)
            if configuration_text(home) != was:
                raise UsageError(f"{path} was changed by somebody else just now: look at it, then try again")
            swept(path, _SUFFIX)
            if text:
                mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
                _replace(path, text.encode(), mode)
                return
            if os.path.lexists(configuration_path(home)):
                os.unlink(path)
            with contextlib.suppress(OSError):  # most have more in it
                os.rmdir(home)
    except OSError as error:
        raise _unread(path, home, error) from None


@contextlib.contextmanager
def alone(home: str) -> Iterator[None]:
    """Wait until nobody else changes what `setup` keeps in a home; not where its file system has no locks."""
    # Above the home, since that comes and goes with what is in it.
    folder = os.path.dirname(os.path.abspath(home))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def swept(path: str, suffix: str) -> None:
    """Remove what writers that were killed left beside a file, called `FILE.PID` and `suffix`."""
    folder, name = os.path.split(path)
    for one in os.listdir(folder) if os.path.isdir(folder) else ():
        pid = one.removeprefix(f"{name}.").removesuffix(suffix)
        if one == f"{name}.{pid}{suffix}" and pid.isdecimal() and _is_gone(int(pid)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, one))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _replace(path: str, data: bytes, mode: int) -> None:
    """Write a file beside `path`, then put it in its place; a failure leaves nothing behind."""
    beside = f"{path}.{os.getpid()}{_SUFFIX}"
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            os.fchmod(file, mode)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
