"""What happened in one simulated history, written by the harness at the ports and by nobody else.

Rule 1: the product writes nothing here; the checker reads nothing but this.
Rule 2: the digest covers every field of every entry, so that two runs are equal or they are not.

Source: reference/reliability.md 2.1 "History log", "Determinism check".
"""

import hashlib
from typing import Any, NamedTuple

import msgspec

__all__ = ["Entry", "History"]

_encode = msgspec.json.Encoder(order="deterministic").encode


class Entry(NamedTuple):
    """One event: monotonic milliseconds of the world, whose port it passed, what it was, its facts."""

    at_ms: int
    root: str
    event: str
    data: dict[str, Any]


class History:
    """An append-only list of entries."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, at_ms: int, root: str, event: str, **data: Any) -> None:
        """Append one entry."""
        self.entries.append(Entry(at_ms, root, event, data))

    def digest(self) -> str:
        """Return the SHA-256 over all entries, in hex."""
        total = hashlib.sha256()
        for entry in self.entries:
            total.update(_encode(entry))
            total.update(b"\n")
        return total.hexdigest()

    def lines(self) -> list[str]:
        """Return one line of JSON per entry, for a person."""
        return [_encode(entry).decode() for entry in self.entries]
