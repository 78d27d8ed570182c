"""What the desk shows, as pieces of text with a role; every foreign text passes the one sanitiser here.

Theory. A row is a list of pieces. A piece has a role, never a colour: a widget decides how a role looks, and
what a role means also stands there as a word or a mark, for who sees no colours.

Rule 1: no piece is made of foreign text but by `fit` or `safe`; markup is never parsed.
Rule 2: a state is said in the words of its receipt, with its time; nothing is inferred.

Source: reference/reliability.md 3.6; reference/native.md 2.8, 2.11.
"""

from typing import Any, NamedTuple

from rich.cells import cell_len

from tieline.text import printable

__all__ = ["Piece", "Row", "age", "fit", "named", "role_of", "safe", "state_words", "width"]


class Piece(NamedTuple):
    """Some text, and how it looks: "", "strong", "weak", "good", "warn" or "bad"."""

    text: str
    role: str = ""


Row = tuple[Piece, ...]
NAME_COLUMNS = 20

_STATES = {
    "pending": "stored here, not handed over yet",
    "unknown": "sent, not known whether it arrived",
    "accepted": "arrived, not read yet",
    "consumed": "read",
    "replied": "replied",
    "rejected": "refused",
    "expired": "expired unread",
}
_OUTCOMES = {
    "HELD": "waits for its person's word",
    "DENIED": "its person said no",
    "HELD_EXPIRED": "its person said nothing in time",
    "TARGET_ENDED": "that run ended before reading it",
    "NOT_DELIVERED": "never delivered",
    "REPLACED": "replaced by a later message",
    "BROKER_ACCEPTED": "the broker passed it on",
    "BROKER_QUEUED": "the broker holds it back",
    "CHECKPOINTED": "the recipient's program wrote it down",
    "PLACED": "placed before the recipient's model",
}


def safe(text: object) -> str:
    """Return foreign text as one line that may be shown."""
    return printable(str(text))


def width(text: str) -> int:
    """Return the columns that this text takes on the screen."""
    return cell_len(text)


def fit(text: object, count: int, *, is_right: bool = False) -> str:
    """Return foreign text in exactly `count` columns: cut, or filled with blanks."""
    shown = printable(str(text), count)
    filling = " " * max(0, count - cell_len(shown))
    return filling + shown if is_right else shown + filling


def named(alias: object, count: int = NAME_COLUMNS) -> str:
    """Return a name with its colon in at most `count` columns: none pushes others off the row."""
    return printable(f":{alias}", count)


def age(milliseconds: int) -> str:
    """Return a span in the words of a listing: at most five characters."""
    seconds = max(0, milliseconds) // 1_000
    if seconds < 100:
        return f"{seconds} s"
    if seconds < 6_000:
        return f"{seconds // 60} m"
    return f"{seconds // 3_600} h" if seconds < 360_000 else f"{seconds // 86_400} d"


def state_words(state: str, outcome: str | None = None) -> str:
    """Return what a receipt's state means, in a few true words; an outcome says it more exactly."""
    if outcome in _OUTCOMES:
        return _OUTCOMES[outcome]
    said = _STATES.get(state, safe(state))
    return said if outcome is None else f"{said} ({safe(outcome)})"


def role_of(state: Any) -> str:
    """Return the role of a state; its words stand beside it."""
    if state in ("rejected", "expired"):
        return "bad"
    if state in ("pending", "unknown"):
        return "warn"
    return "good" if state == "replied" else ""
