"""Updates that wait a moment, in case a later one of their thread replaces them.

Rule 1: one update per (sender, recipient, thread); a newer one replaces it and starts the time anew.
Rule 2: bounds refuse what would be new, never what replaces.
Rule 3: a sender who leaves takes its staged asks along, its other updates arrive; a recipient who leaves
    takes all along.

Source: reference/intercom.md 4.2.
"""

from typing import Final, NamedTuple

from tieline.engine.brokering.contract import Letter, Row

__all__ = ["STAGED_MAX", "STAGED_PER_SENDER_MAX", "STAGING_MS", "Staged", "Staging"]

STAGING_MS: Final = 1_500
STAGED_PER_SENDER_MAX: Final = 100
STAGED_MAX: Final = 1_000

_Key = tuple[str, str, str]


class Staged(NamedTuple):
    """One update that waits; `sender` is who it was when it sent."""

    sender: Row
    recipient_id: str
    letter: Letter
    due_ms: int
    received_ms: int


class Staging:
    """All updates that wait."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, Staged] = {}  # in the order of their times
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due_ms(self) -> int | None:
        """When the next update is due, monotonic milliseconds; None where none waits."""
        return next((staged.due_ms for staged in self._waiting.values()), None)

    def put(self, staged: Staged) -> bool:
        """Let an update wait instead of an older one of its thread; False where there is no room."""
        key = _key(staged)
        sender_id = staged.sender.session_id
        if key in self._waiting:
            del self._waiting[key]
        elif self._counts.get(sender_id, 0) >= STAGED_PER_SENDER_MAX or len(self._waiting) >= STAGED_MAX:
            return False
        else:
            self._counts[sender_id] = self._counts.get(sender_id, 0) + 1
        self._waiting[key] = staged
        return True

    def waiting(self, sender_id: str, recipient_id: str, thread_id: str) -> Staged | None:
        """Return what waits in a thread, or None."""
        return self._waiting.get((sender_id, recipient_id, thread_id))

    def replaced(self, sender_id: str, recipient_id: str, thread_id: str) -> None:
        """Let go of what waits in a thread, because a newer update went on at once."""
        if (sender_id, recipient_id, thread_id) in self._waiting:
            self._take((sender_id, recipient_id, thread_id))

    def due(self, now_ms: int) -> list[Staged]:
        """Return and let go of the updates whose time has come, in the order of their times."""
        keys = [key for key, staged in self._waiting.items() if staged.due_ms <= now_ms]
        return [self._take(key) for key in keys]

    def sender_left(self, session_id: str) -> None:
        """Let go of the asks of a sender."""
        if session_id in self._counts:
            asks = [key for key, one in self._waiting.items() if key[0] == session_id and one.letter.is_ask]
            for key in asks:
                self._take(key)

    def recipient_left(self, session_id: str) -> list[Staged]:
        """Return and let go of all for a recipient."""
        return [self._take(key) for key in [key for key in self._waiting if key[1] == session_id]]

    def _take(self, key: _Key) -> Staged:
        staged = self._waiting.pop(key)
        self._counts[key[0]] -= 1
        if not self._counts[key[0]]:
            del self._counts[key[0]]
        return staged


def _key(staged: Staged) -> _Key:
    assert staged.letter.thread_id is not None, "only what replaces is staged"
    return staged.sender.session_id, staged.recipient_id, staged.letter.thread_id
