"""Which revision of the JavaScript extension started us, by the script that it names as its own broker.

Theory. The extension starts its broker with `brokerCommand`, `brokerArgs` and, last, the path of the script
that it ships. That script lies among its sources, and those tell where its sessions look for a socket: the
newest revision reads `PI_INTERCOM_RUNTIME_DIR`; the ancestor is a package of a name of its own; what is left
keeps one broker for each agent directory.

Rule 1: what is read is never run; a bounded number of files of a bounded size is looked at.
Rule 2: what cannot be read proves nothing: the middle revision is the one that such a command was made for.

Source: reference/intercom.md 0, 6.1, 6.4.
"""

import json
import os
import stat
from typing import Final

from tieline.shell.hub.place import VARIABLE, Paths

__all__ = ["paths_of_script"]

ANCESTOR_PACKAGE: Final = "pi-intercom"
LEVELS_MAX: Final = 8
FILES_MAX: Final = 64
FILE_BYTES_MAX: Final = 1_048_576
SOURCES: Final = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts")


def paths_of_script(script: str) -> Paths:
    """Return by whose rules the sessions of the extension that ships `script` look for their broker."""
    folder = os.path.dirname(os.path.abspath(script))
    if _package_name(folder) == ANCESTOR_PACKAGE:
        return Paths.FOLDER
    for place in (folder, os.path.dirname(folder)):
        if any(VARIABLE.encode() in _content(path) for path in _sources(place)):
            return Paths.SHARED
    return Paths.AGENT


def _sources(folder: str) -> list[str]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SOURCES))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[:FILES_MAX]]


def _content(path: str) -> bytes:
    """Return what a regular file begins with, nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, FILE_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _package_name(folder: str) -> str:
    """Return the name in the nearest package.json, empty where there is none."""
    for _ in range(LEVELS_MAX):
        content = _content(os.path.join(folder, "package.json"))
        if content:
            try:
                found = json.loads(content)
            except (ValueError, RecursionError):
                return ""
            name = found.get("name") if isinstance(found, dict) else None
            return name if isinstance(name, str) else ""
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    return ""
