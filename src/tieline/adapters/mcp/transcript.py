"""Which model a session has, from its harness's own record of it, where the hooks do not say.

Rule 1: only the end of the record is read, and only a regular file of this user: the path comes from a hook.
Rule 2: a record that is not as expected tells nothing, and is no fault.

Source: docs/harnesses/claude-code.md, docs/harnesses/gemini.md; seen on the real programs.
"""

import json
import os
import stat
from typing import Any, Final

__all__ = ["last_model"]

TAIL_BYTES: Final = 65_536
"""Of the record's end: the last answer is there, unless it is longer; then the next turn tells."""
MADE_UP: Final = "<synthetic>"
"""What Claude Code calls the model of lines that no model wrote."""


def last_model(path: str) -> str:
    """Return the model of the last answer in a record with one JSON document a line, "" where none is told.

    Args:
        path: As the hook names the record.
    """
    for line in reversed(_tail(path).splitlines()):
        model = _model_of(line)
        if model:
            return model
    return ""


def _tail(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        held = os.fstat(descriptor)
        if not stat.S_ISREG(held.st_mode) or held.st_uid != os.geteuid():
            return b""
        return os.pread(descriptor, TAIL_BYTES, max(0, held.st_size - TAIL_BYTES))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _model_of(line: bytes) -> str:
    try:
        document: Any = json.loads(line)
    except ValueError:  # the first line of the tail is cut
        return ""
    if not isinstance(document, dict) or document.get("isSidechain") is True:
        return ""
    said = document.get("message") if document.get("type") == "assistant" else document
    if not isinstance(said, dict) or document.get("type") not in ("assistant", "gemini"):
        return ""
    model = said.get("model")
    return model if isinstance(model, str) and model.isprintable() and model != MADE_UP else ""
