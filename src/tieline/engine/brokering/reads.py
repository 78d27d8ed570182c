"""Reads of a peer's last answer or of a receipt, under tokens that only broker and owner know.

Rule 1: a read is asked only of a visible end that announced it, and never wakes anybody.
Rule 2: only the end that was asked may answer, once, and only with what was asked for.
Rule 3: each read ends: by its answer, by its time, or with either end; its asker is told in every case but
    its own leaving.

Source: specification of the intercom, "Read the last response without waking", "Native-owned receipts and
publication provenance"; reference/intercom.md 5, 136, 137.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tieline.engine.brokering.contract import ReadAnswered, ReadAsked, ReadReturned, ReadWanted
from tieline.engine.brokering.sessions import Session, Sessions
from tieline.engine.brokering.turn import Turn

__all__ = ["READS_PER_ASKER_MAX", "READ_MS", "Reads"]

READ_MS: Final = 5_000
READS_PER_ASKER_MAX: Final = 64


class _Read(NamedTuple):
    asked: ReadAsked
    asker_id: str
    owner_link: int
    owner_id: str
    due_ms: int


class Reads:
    """The reads that wait for their answers."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Read] = {}  # by token, in the order of their times

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due_ms(self) -> int | None:
        """When the next read ends, monotonic milliseconds; None where none waits."""
        return next((read.due_ms for read in self._waiting.values()), None)

    def ask(self, sessions: Sessions, asker: Session, asked: ReadAsked, turn: Turn) -> None:
        """Ask a read of its owner, or answer why not."""

        def refuse(error: str) -> None:
            turn.say(asker.link, ReadReturned(asked.kind, asked.request_id, {"error": error}))

        owner = next((one for one in sessions.seen_by(asker) if one.id == asked.to), None)
        if owner is None:
            refuse("not_found")
        elif not (owner.features.last_reads if asked.kind == "last" else owner.features.receipt_reads):
            refuse("unsupported")
        elif sum(read.asker_id == asker.id for read in self._waiting.values()) >= READS_PER_ASKER_MAX:
            refuse("busy")
        else:
            due_ms = turn.now.mono_ms + READ_MS
            self._waiting[asked.token] = _Read(asked, asker.id, owner.link, owner.id, due_ms)
            turn.say(owner.link, ReadWanted(asked.kind, asked.token, asker.row(), asked.body))

    def answer(self, sessions: Sessions, owner: Session, answered: ReadAnswered, turn: Turn) -> None:
        """Pass an answer on; one under a token that this end was not given is nobody's."""
        read = self._waiting.get(answered.token)
        if read is None or read.owner_link != owner.link or read.asked.kind != answered.kind:
            return
        body = answered.body
        if "error" not in body:
            checked = (
                _page(body, read.asked.body) if answered.kind == "last" else _receipt(body, read.asked.body)
            )
            body = {"error": "invalid_answer"} if checked is None else checked
        self._end(sessions, read, body, turn)

    def left(self, sessions: Sessions, session: Session, turn: Turn) -> None:
        """End the reads of one that left, and those that it was asked."""
        for read in [one for one in self._waiting.values() if session.id in (one.asker_id, one.owner_id)]:
            self._end(sessions, read, {"error": "disconnected"}, turn)

    def expire(self, sessions: Sessions, turn: Turn) -> None:
        """End the reads whose time is over."""
        for read in [one for one in self._waiting.values() if one.due_ms <= turn.now.mono_ms]:
            self._end(sessions, read, {"error": "timeout"}, turn)

    def _end(self, sessions: Sessions, read: _Read, body: Mapping[str, Any], turn: Turn) -> None:
        del self._waiting[read.asked.token]
        asker = sessions.of_link(read.asked.link)
        if asker is not None and asker.id == read.asker_id:
            turn.say(asker.link, ReadReturned(read.asked.kind, read.asked.request_id, body))


def _page(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a page that is of the wanted entry and place, or None."""
    if body.get("empty") is True:
        is_pinned = "entryId" in wanted
        return (
            None
            if is_pinned
            else {"entryId": None, "text": "", "offset": 0, "nextOffset": None, "empty": True}
        )
    entry, text = body.get("entryId"), body.get("text")
    offset, following = body.get("offset"), body.get("nextOffset")
    if not isinstance(entry, str) or not entry or not isinstance(text, str) or offset != wanted["offset"]:
        return None
    if entry != wanted.get("entryId", entry) or _units(text) > wanted["limit"]:
        return None
    if following is not None and following != wanted["offset"] + _units(text):
        return None
    return {"entryId": entry, "text": text, "offset": offset, "nextOffset": following}


def _units(text: str) -> int:
    """Return the UTF-16 code units of a text: a character beyond the first 65,536 is two."""
    return len(text) + sum(character > "\uffff" for character in text)


def _receipt(body: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a receipt that is of the wanted root and message, or None."""
    receipt = body.get("receipt")
    if not isinstance(receipt, dict) or receipt.get("version") != 1:
        return None
    if any(receipt.get(name) != wanted[name] for name in ("rootSessionId", "messageId")):
        return None
    return {"receipt": receipt}
