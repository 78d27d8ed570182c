"""Failures in the background: told to a host that listens, else on standard error, at the end in a file.

Rule 1: the same failure of one operation is told once, until that operation succeeds.
Rule 2: no text of a message and no key is in it; a file that cannot be written is nobody's failure.

Source: specification of the intercom, opening; DESIGN.md 8 "Logs".
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from tieline.model.moment import to_iso

__all__ = ["FILE_NAME", "Failures", "errors_path"]

FILE_NAME: Final = "background-errors.log"
FILE_BYTES_MAX: Final = 1_048_576
TEXT_CHARACTERS_MAX: Final = 500
AGENT_VARIABLE: Final = "PI_CODING_AGENT_DIR"


def errors_path(environment: Mapping[str, str], home: str) -> str:
    """Return where failures of an ending session are written: in the agent directory that is set, or ours."""
    agent = environment.get(AGENT_VARIABLE, "").strip()
    return os.path.join(os.path.expanduser(agent) if agent else home, "intercom", FILE_NAME)


class Failures:
    """The failures of one root's intercom."""

    def __init__(self, path: str, tell: Callable[[str, str], None], now_ms: Callable[[], int]) -> None:
        """Write to `path` at the end; `tell` gets operation and text while a host listens."""
        self._path, self._tell, self._now_ms = path, tell, now_ms
        self._known: dict[str, str] = {}

    @property
    def known(self) -> dict[str, str]:
        """What failed last and has not recovered, by operation."""
        return dict(self._known)

    def recovered(self, operation: str) -> None:
        """The operation succeeded: its next failure is news."""
        self._known.pop(operation, None)

    def failed(self, operation: str, text: str, *, has_host: bool, is_ending: bool) -> bool:
        """Tell of a failure; return whether it was news."""
        text = " ".join(text.split())[:TEXT_CHARACTERS_MAX]
        if self._known.get(operation) == text:
            return False
        self._known[operation] = text
        if is_ending:
            self._write(operation, text)
        elif has_host:
            self._tell(operation, text)
        else:
            sys.stderr.write(f"tieline: intercom {operation}: {text}\n")
        return True

    def _write(self, operation: str, text: str) -> None:
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
            try:
                if os.fstat(file).st_size < FILE_BYTES_MAX:
                    os.write(file, f"{to_iso(self._now_ms())} {operation}: {text}\n".encode())
            finally:
                os.close(file)
        except OSError:
            return  # the specification knows this end: what cannot be written is not recorded
