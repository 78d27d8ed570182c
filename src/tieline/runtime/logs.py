"""What a root writes about itself: a line an event, no content, no keys, bounded.

Rule 1: no text of a message, no alias that was not ours, no key and no token reaches a log.
Rule 2: five files of 1 MiB; a failing log never fails the root.
Rule 3: the same failure again within a second is counted, not written.

Source: DESIGN.md 8 "Logs"; reference/reliability.md F15, S14.
"""

import logging
import logging.handlers
import os
import time

from tieline.errors import Refused
from tieline.store.files import open_directory

__all__ = ["Log"]

FILE_BYTES = 1_048_576
FILES = 5
QUIET_SECONDS = 1.0


class Log:
    """The log of one root; made on the first line, so that a quiet root makes no file."""

    def __init__(self, directory: str, instance: str) -> None:
        self._directory, self._instance = directory, instance
        self._logger: logging.Logger | None = None
        self._level = os.environ.get("TIELINE_LOG", "info").upper()
        self._last: tuple[str, float] = ("", 0.0)
        self.suppressed_count = 0

    def note(self, what: str, **facts: object) -> None:
        """Write one line of facts."""
        self._write(logging.INFO, " ".join([what, *(f"{name}={value}" for name, value in facts.items())]))

    def failure(self, where: str, error: BaseException) -> None:
        """Write that something failed in the background: its place, its type, its code."""
        line = f"{where}: {type(error).__name__} {getattr(error, 'code', '')} {_place(error)}"
        now = time.monotonic()
        if self._last[0] == line and now - self._last[1] < QUIET_SECONDS:
            self.suppressed_count += 1
            return
        self._last = (line, now)
        self._write(logging.WARNING, line)

    def _write(self, level: int, line: str) -> None:
        try:
            if self._logger is None:
                self._logger = self._open()
            self._logger.log(level, line)
        except (OSError, Refused):
            self.suppressed_count += 1

    def _open(self) -> logging.Logger:
        open_directory(self._directory, create=True).close()
        path = os.path.join(self._directory, f"{self._instance}.log")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=FILE_BYTES, backupCount=FILES - 1, encoding="utf-8", delay=True
        )
        formatter = logging.Formatter(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
        level = getattr(logging, self._level, logging.INFO)
        logger = logging.Logger(self._instance, level)  # noqa: LOG001 - one per root, in no global tree
        logger.addHandler(handler)
        return logger

    def close(self) -> None:
        """Close the file."""
        for handler in self._logger.handlers if self._logger is not None else ():
            handler.close()


def _place(error: BaseException) -> str:
    """Return file and line of the innermost frame: enough to find it, without any value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
