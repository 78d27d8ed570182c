"""What a person's screen keeps between two starts: a draft, what was sent before; private to this user.

Rule 1: it is a file of mode 0600 in a directory of mode 0700, replaced whole.
Rule 2: what cannot be read is as if nothing had been kept: a screen starts in any case.

Source: reference/native.md 1N (125, 129); reference/reliability.md S1.
"""

import json
from typing import Any

from tieline.errors import TielineError
from tieline.store.files import open_directory

__all__ = ["BYTES_MAX", "export", "keep", "kept"]

FOLDER = "desk"
BYTES_MAX = 8_388_608


def kept(home: str, name: str) -> dict[str, Any]:
    """Return what was kept under a name; {} where nothing can be read."""
    try:
        with open_directory(f"{home}/{FOLDER}", create=False) as directory:
            found = json.loads(directory.read(f"{name}.json", BYTES_MAX))
    except (TielineError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(home: str, name: str, shape: dict[str, Any]) -> bool:
    """Keep a JSON object under a name, an alias; return whether it was written."""
    data = json.dumps(shape, ensure_ascii=True, separators=(",", ":")).encode()
    if len(data) > BYTES_MAX:
        return False
    try:
        with open_directory(f"{home}/{FOLDER}", create=True) as directory:
            directory.write_atomic(f"{name}.json", data, sync=False)
    except (TielineError, OSError):
        return False
    return True


def export(home: str, name: str, text: str) -> str:
    """Write a private file beside what is kept; return its path.

    Raises:
        TielineError, OSError: it was not written.
    """
    with open_directory(f"{home}/{FOLDER}", create=True) as directory:
        directory.write_atomic(name, text.encode("utf-8", "backslashreplace"), sync=False)
    return f"{home}/{FOLDER}/{name}"
