"""What a command prints: safe text for people, versioned JSON for programs, errors with their next action.

Rule 1: every text of another's making goes through `line` or `block` before it reaches a stream; in JSON
everything beyond ASCII is escaped, so no sequence of a peer's choosing reaches a terminal either way.
Rule 2: data to stdout, everything else to stderr; colour only to a terminal, never with `NO_COLOR`.
Rule 3: `flush` returns only when the bytes were taken by the reader's side; what is consumed on
evidence is consumed after it.
Rule 4: shapes are versioned: a member may be added, none changes its meaning within a version.

Source: DESIGN.md 4; reference/reliability.md 3.6, K33; docs/json-shapes.md.
"""

import json
import os
import sys
import time
from typing import Any, Final, TextIO

from tieline.errors import OutcomeUnknown, TielineError, next_action
from tieline.runtime.glance import epoch_ms

__all__ = [
    "VERSION",
    "block",
    "clock",
    "error_shape",
    "fail",
    "flush",
    "line",
    "note",
    "paint",
    "table",
    "write",
    "write_json",
    "write_json_line",
]

VERSION: Final = 1
"""Of every JSON shape; see docs/json-shapes.md."""
LINE_CHARACTERS_MAX: Final = 200
_STYLES: Final = {
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "good": "\x1b[32m",
    "bad": "\x1b[31m",
    "warn": "\x1b[33m",
}


def line(text: object, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """Return foreign text as one safe line of at most `characters_max` characters."""
    raw = str(text)
    if not (raw.isascii() and raw.isprintable()):
        from tieline.text.terminal import printable

        raw = printable(" ".join(raw.split()))
    return raw if len(raw) <= characters_max else raw[: characters_max - 1] + "…"


def block(text: object, indent: str = "  | ") -> str:
    """Return foreign text as safe lines, each behind `indent`, so that none can pose as a line of ours."""
    raw = str(text)
    if not (raw.isascii() and raw.replace("\n", "").replace("\t", "").isprintable()):
        from tieline.text.terminal import printable

        raw = printable(raw, multiline=True)
    return "\n".join(indent + part for part in raw.split("\n"))


def _put(stream: TextIO | None, text: str) -> None:
    if stream is None:  # the descriptor was closed before we started
        raise BrokenPipeError
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def write(text: str) -> None:
    """Put one line, or several, of data on stdout.

    Raises:
        BrokenPipeError: nobody reads it.
    """
    _put(sys.stdout, text + "\n")


def flush() -> None:
    """Return when stdout has taken every byte.

    Raises:
        OSError: it did not; what was to be consumed on evidence must not be.
    """
    if sys.stdout is None:
        raise BrokenPipeError
    sys.stdout.flush()


def note(text: str) -> None:
    """Put a line for a person on stderr. Its reader having gone away is no reason to fail."""
    try:
        if sys.stderr is not None:
            _put(sys.stderr, text + "\n")
            sys.stderr.flush()
    except OSError:
        return


def write_json_line(document: dict[str, Any]) -> None:
    """Put one JSON object on stdout, on one line, in ASCII."""
    write(json.dumps(document, ensure_ascii=True, separators=(",", ":")))


def write_json(command: str, body: dict[str, Any]) -> None:
    """Put a command's versioned shape on stdout."""
    write_json_line({"version": VERSION, "command": command, **body})


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return `text` in a style of `_STYLES` where its stream (None: stdout) is a terminal that wants it."""
    target = sys.stdout if stream is None else stream
    if target is None or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return f"{_STYLES[style]}{text}\x1b[0m" if target.isatty() else text


def table(rows: list[tuple[str, ...]], indent: str = "") -> str:
    """Return rows of equal length in aligned columns; the last column is as wide as it is."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        (
            indent
            + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        ).rstrip()
        for row in rows
    )


def clock(moment: object) -> str:
    """Return local time and its zone for an ISO-8601 UTC moment, with the date on another day."""
    wall_ms = epoch_ms(str(moment))
    if wall_ms is None:
        return line(moment, 40)
    try:
        local = time.localtime(wall_ms // 1_000)
    except (OverflowError, OSError, ValueError):
        return line(moment, 40)
    is_today = local[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S%z" if is_today else "%Y-%m-%d %H:%M:%S%z", local)


def error_shape(error: Exception) -> dict[str, Any]:
    """Return {code, text, action, retryable} for any error, and messageId or candidates where it has them."""
    if isinstance(error, TielineError):
        shape: dict[str, Any] = {
            "code": error.code,
            "text": str(error),
            "action": error.action,
            "retryable": bool(getattr(error, "is_retryable", False)),
        }
        if isinstance(error, OutcomeUnknown) and error.message_id:
            shape["messageId"] = error.message_id
        candidates = getattr(error, "candidates", None)
        if candidates:
            shape["candidates"] = candidates
        return shape
    if isinstance(error, OSError):
        is_denied = isinstance(error, PermissionError)
        code = "PERMISSION_DENIED" if is_denied else "IO_ERROR"
        action = next_action(code) if is_denied else "correct what the system names, then repeat"
        where = f": {error.filename}" if error.filename else ""
        return {
            "code": code,
            "text": f"{error.strerror or error}{where}",
            "action": action,
            "retryable": False,
        }
    return {
        "code": "INTERNAL_ERROR",
        "text": f"a defect of tieline: {type(error).__name__}",
        "action": "repeat it with TIELINE_DEBUG=1 and report what it prints",
        "retryable": False,
    }


def fail(error: Exception, command: str, *, as_json: bool) -> str:
    """Tell an error on stderr, and on stdout with `as_json`; return its code."""
    shape = error_shape(error)
    name = f"tieline {command}".rstrip()
    note(f"{name}: {paint(shape['code'], 'bad', sys.stderr)}: {line(shape['text'], 2_000)}")
    for candidate in shape.get("candidates", ()):
        note("  " + line(", ".join(f"{key} {value}" for key, value in candidate.items() if value), 400))
    note(f"  next: {shape['action']}")
    if as_json:
        try:
            write_json_line({"version": VERSION, "command": command, "error": shape})
            flush()
        except BrokenPipeError:
            raise
        except OSError:
            return str(shape["code"])  # stdout takes nothing: stderr has said it
    return str(shape["code"])
