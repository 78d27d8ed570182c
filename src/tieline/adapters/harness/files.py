"""A harness's own files, read and replaced so that nothing of theirs is lost.

Rule 1: a file is replaced whole or not at all, keeps its mode, and a link keeps leading to its file.
Rule 2: one that was changed since it was read, or that nobody may write, is not written.
Rule 3: a folder that was made for a file goes with it, when nothing else is in it.
Rule 4: what a writer that was killed left beside a file goes with the next writing, and with the file.

Source: DESIGN.md 3, 4 "setup"; reference/reliability.md S1.
"""

import os
import stat
from typing import Final

from tieline.errors import Refused, UsageError
from tieline.runtime.configuration import swept

__all__ = [
    "BYTES_MAX",
    "SUFFIX",
    "missing_folders",
    "read",
    "remove_folders",
    "replace",
    "require_writable",
]

BYTES_MAX: Final = 33_554_432
"""Of a harness's file; some keep the history of every project in one."""
SUFFIX: Final = ".tieline"
"""Of what a writer has beside a file until it is whole."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read(path: str) -> str | None:
    """Return the text of a file, None where there is none.

    Raises:
        UsageError: it is no regular file, too large, or not UTF-8, which is said with the line.
        Refused: `PERMISSION_DENIED`.
    """
    try:
        file = os.open(path, _READ)
    except FileNotFoundError:
        if os.path.islink(path):
            raise UsageError(f"{path} is a link that leads nowhere") from None
        return None
    except OSError as error:
        raise _refusal(path, error) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UsageError(f"{path} is not a regular file")
    with os.fdopen(file, "rb") as stream:
        data = stream.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise UsageError(f"{path} is larger than {BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}, line {line}: not UTF-8") from None


def require_writable(path: str) -> None:
    """Return when the file may be written, or made.

    Raises:
        Refused: `PERMISSION_DENIED`: it is read-only, or its folder is.
    """
    real = os.path.realpath(path)
    if os.path.exists(real) and not stat.S_IMODE(os.stat(real).st_mode) & 0o222:
        raise _denied(f"{path} is read-only: make it writable, or change it there yourself")
    folder = os.path.dirname(real)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise _denied(f"{folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK) or not stat.S_IMODE(os.stat(folder).st_mode) & 0o222:
        raise _denied(f"nothing can be written into {folder}")


def missing_folders(path: str) -> list[str]:
    """Return the folders that have to be made for a file, the outermost first."""
    found: list[str] = []
    folder = os.path.dirname(path)
    while folder and not os.path.isdir(folder):
        found.insert(0, folder)
        folder = os.path.dirname(folder)
    return found


def replace(path: str, text: str | None, was: str | None) -> None:
    """Put `text` where the file was `was`; None is no file.

    Raises:
        UsageError: somebody else has written it since.
        Refused: `PERMISSION_DENIED`.
    """
    require_writable(path)
    if read(path) != was:
        raise UsageError(f"{path} was changed by somebody else just now: look at it, then try again")
    real = os.path.realpath(path)
    try:
        swept(real, SUFFIX)
        if text is None:
            if was is not None:
                os.unlink(real)
            return
        for folder in missing_folders(real):
            os.mkdir(folder, 0o700)
        mode = stat.S_IMODE(os.stat(real).st_mode) if was is not None else 0o600
        _put(real, text.encode(), mode)
    except OSError as error:
        raise _refusal(path, error) from None


def remove_folders(folders: list[str]) -> None:
    """Remove those of our folders that are empty, the innermost first."""
    for folder in reversed(folders):
        try:
            os.rmdir(folder)
        except FileNotFoundError:  # it is gone; the one around it may be there
            continue
        except OSError:  # something of another is in it
            return


def _put(path: str, data: bytes, mode: int) -> None:
    beside = f"{path}.{os.getpid()}{SUFFIX}"
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            os.fchmod(file, mode)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise


def _refusal(path: str, error: OSError) -> Refused | UsageError:
    if isinstance(error, PermissionError):
        return _denied(f"{path}: {error.strerror}")
    return UsageError(f"{path}: {error.strerror}")


def _denied(text: str) -> Refused:
    advice = "make it writable for you, then run this again; --dry-run shows what it would write"
    return Refused("PERMISSION_DENIED", text).advising(advice)
