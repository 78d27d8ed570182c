"""What the kernel shows of another process of this user: its program, its words, the files it holds open.

Rule 1: a look changes nothing, and what cannot be seen is empty: another user's process, another system.
Rule 2: what is seen is a hint about a process that is known by other means; it proves nobody.

Source: proc(5).
"""

import os
from typing import Final

__all__ = ["held_files", "program", "words"]

_FILES_MAX: Final = 4_096
_WORDS_BYTES_MAX: Final = 131_072


def program(pid: int) -> str:
    """Return the path of the program that a process runs, or ''."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
    return path if os.path.exists(path) else ""


def words(pid: int) -> tuple[str, ...]:
    """Return the words that a process was started with, its own name first; none where they are not shown."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(_WORDS_BYTES_MAX)
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0")) if data else ()


def held_files(pid: int, folder: str) -> tuple[str, ...]:
    """Return the names of the files straight below `folder` that a process holds open, each once, sorted."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")[:_FILES_MAX]
    except OSError:
        return ()
    found: set[str] = set()
    for number in numbers:
        try:
            parent, name = os.path.split(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue  # closed meanwhile
        if parent == folder:
            found.add(name)
    return tuple(sorted(found))
