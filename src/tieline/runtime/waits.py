"""Which peers of ours wait for an answer of whom, right now.

Rule: a wait is known from before its question is stored until the call that waits has ended.

Source: reference/reliability.md I30; docs/decisions.md, D18.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

from tieline.model.identity import Peer

__all__ = ["Waits"]


class Waits:
    """The waits of one root."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()  # asker and asked, by peer id

    @contextlib.contextmanager
    def waiting(self, asker: Peer, asked: Peer | None) -> Iterator[None]:
        """Say that a peer of ours waits for an answer, until the block ends; None: of whom, is not known."""
        key = asker.id, "" if asked is None else asked.id
        self._counts[key] += 1
        try:
            yield
        finally:
            self._counts[key] -= 1
            self._counts += Counter()  # forgets those that are zero

    def is_waiting(self, asker: Peer, asked: Peer) -> bool:
        """Return whether a peer of ours waits for an answer of `asked` now, or may."""
        return self._counts[asker.id, asked.id] + self._counts[asker.id, ""] > 0
