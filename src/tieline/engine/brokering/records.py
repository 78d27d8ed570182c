"""What became of messages of senders who may repeat them under the same id.

Rule 1: a repeat that says the same to the same target gets the recorded answer and is not delivered again;
    one that says something else is refused.
Rule 2: a refusal that delivered nothing is not recorded: the same id may try again.
Rule 3: a record ends after an hour, or as the oldest of too many; it is memory, not mail.

Source: reference/intercom.md 1.5 "Per-sender delivery records"; 52, 53.
"""

from typing import Final, NamedTuple

from tieline.engine.brokering.contract import Letter, Output

__all__ = ["RECORDS_MAX", "RECORDS_PER_SENDER_MAX", "RECORD_MS", "Place", "Record", "Records"]

RECORD_MS: Final = 3_600_000
RECORDS_PER_SENDER_MAX: Final = 4_096
RECORDS_MAX: Final = 131_072


class Place(NamedTuple):
    """A session by its scope and id."""

    scope: str | None
    id: str


class Record:
    """One message that was delivered or held, and what its sender was told last."""

    __slots__ = ("at_ms", "content_key", "message_id", "outcome", "sender", "target_id", "to")

    def __init__(
        self, sender: Place, target_id: str, to: str, letter: Letter, outcome: Output, at_ms: int
    ) -> None:
        """Begin at a monotonic moment."""
        self.sender = sender
        self.target_id = target_id
        self.to = to
        self.message_id = letter.message_id
        self.content_key = letter.content_key
        self.outcome = outcome
        self.at_ms = at_ms

    def is_repeated_by(self, letter: Letter, to: str | None, target_id: str | None) -> bool:
        """Return whether a message says the same to the same: by the name it used, or to the same id."""
        return self.content_key == letter.content_key and (self.to == to or self.target_id == target_id)


class Records:
    """The records of all senders."""

    def __init__(self) -> None:
        self._by_sender: dict[Place, dict[str, Record]] = {}
        self._senders: dict[tuple[str, str], Place] = {}  # of (target, message id)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, sender: Place, message_id: str, now_ms: int) -> Record | None:
        """Return the record of a message, or None where there is none of the last hour."""
        record = self._by_sender.get(sender, {}).get(message_id)
        return record if record is not None and record.at_ms + RECORD_MS > now_ms else None

    def sender_of(self, target_id: str, message_id: str) -> Place | None:
        """Return who sent a message to this target, or None where that is not recorded."""
        return self._senders.get((target_id, message_id))

    def add(self, record: Record) -> None:
        """Keep a record; the oldest one of its sender gives way where it has too many."""
        mine = self._by_sender.setdefault(record.sender, {})
        if record.message_id in mine:
            self._forget(mine, record.message_id)
        if len(mine) >= RECORDS_PER_SENDER_MAX:
            self._forget(mine, next(iter(mine)))
        while self._count >= RECORDS_MAX:
            oldest = next(iter(self._by_sender.values()))
            self._forget(oldest, next(iter(oldest)))
            if not oldest:
                del self._by_sender[next(iter(self._by_sender))]
        self._by_sender.setdefault(record.sender, mine)[record.message_id] = record
        self._senders[record.target_id, record.message_id] = record.sender
        self._count += 1

    def remove(self, record: Record) -> None:
        """Forget a record: what it tells of did not happen."""
        self._forget(self._by_sender[record.sender], record.message_id)

    def sweep(self, now_ms: int) -> None:
        """Forget what is older than an hour."""
        for sender, mine in list(self._by_sender.items()):
            for message_id in [one for one, record in mine.items() if record.at_ms + RECORD_MS <= now_ms]:
                self._forget(mine, message_id)
            if not mine:
                del self._by_sender[sender]

    def _forget(self, mine: dict[str, Record], message_id: str) -> None:
        record = mine.pop(message_id)
        self._senders.pop((record.target_id, message_id), None)
        self._count -= 1
