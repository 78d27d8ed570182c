"""Which asks are open between two sessions, where one of them goes by it.

Rule 1: an ask opens one edge from its asker to its target; the correlated reply, its cancellation, or its
    time closes it. An edge outlives the sockets of both.
Rule 2: a reply names an open edge of the right pair, or it is none.
Rule 3: a pair that waits for each other never ends: the second ask of such a pair is refused.
Rule 4: every open edge is in the journal, for whoever shows a person what others wait for.

Source: reference/intercom.md 1.5 "Asks"; 100, 102.
"""

from functools import partial
from typing import Any, Final

import msgspec

from tieline.engine.brokering.contract import Codec, Drop, Letter, Put
from tieline.engine.brokering.turn import Turn
from tieline.model.moment import Moment

__all__ = ["ASKS_PER_ASKER_MAX", "ASK_MS", "Ask", "Asks"]

ASK_MS: Final = 600_000
ASKS_PER_ASKER_MAX: Final = 256
_QUESTION_CHARACTERS_MAX: Final = 4_096


class Ask(msgspec.Struct, frozen=True):
    """One open ask; both times are wall time."""

    message_id: str
    asker_id: str
    target_id: str
    created_ms: int
    expires_ms: int
    question: str = ""


class Asks:
    """The open asks of one broker."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._open: dict[str, dict[str, Ask]] = {}  # by asker, then by message id

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def answered_by(self, sender_id: str, target_id: str, reply_to: str, now: Moment) -> Ask | None:
        """Return the open ask that a reply from `sender_id` to `target_id` answers, or None."""
        ask = self._open.get(target_id, {}).get(reply_to)
        return (
            ask if ask is not None and ask.target_id == sender_id and ask.expires_ms > now.wall_ms else None
        )

    def would_cross(self, asker_id: str, target_id: str, but: Ask | None, now: Moment) -> bool:
        """Return whether the target itself waits for the asker, in another ask than `but`."""
        return any(
            ask.target_id == asker_id and ask is not but and ask.expires_ms > now.wall_ms
            for ask in self._open.get(target_id, {}).values()
        )

    def has_room(self, asker_id: str) -> bool:
        """Return whether one more ask of this session can be open."""
        return len(self._open.get(asker_id, ())) < ASKS_PER_ASKER_MAX

    def open(self, asker_id: str, target_id: str, letter: Letter, turn: Turn) -> None:
        """Open the edge of an ask; the same one again keeps its first time.

        Of an asker that is not refused where it has no room, the oldest edge gives way.
        """
        mine = self._open.setdefault(asker_id, {})
        if letter.message_id in mine:
            return
        if len(mine) >= ASKS_PER_ASKER_MAX:
            oldest = mine.pop(next(iter(mine)))
            turn.rows.append(Drop("ask", row_key(oldest)))
            turn.undo.append(partial(self._open_again, oldest))
        content = letter.fields.get("content")
        question = content.get("text") if isinstance(content, dict) else ""
        now_ms = turn.now.wall_ms
        ask = Ask(
            letter.message_id,
            asker_id,
            target_id,
            now_ms,
            now_ms + ASK_MS,
            str(question)[:_QUESTION_CHARACTERS_MAX],
        )
        mine[letter.message_id] = ask
        turn.rows.append(Put("ask", row_key(ask), self._codec.dump(_document(ask))))
        turn.undo.append(partial(self._remove, ask))

    def _open_again(self, ask: Ask) -> None:
        mine = {**self._open.get(ask.asker_id, {}), ask.message_id: ask}
        self._open[ask.asker_id] = dict(sorted(mine.items(), key=lambda one: one[1].created_ms))

    def _remove(self, ask: Ask) -> bool:
        """Let this edge be closed; False where it is already."""
        mine = self._open.get(ask.asker_id, {})
        is_open = mine.pop(ask.message_id, None) is not None
        if not mine:
            self._open.pop(ask.asker_id, None)
        return is_open

    def close(self, ask: Ask, turn: Turn) -> None:
        """Close an edge."""
        if self._remove(ask):
            turn.rows.append(Drop("ask", row_key(ask)))
            turn.undo.append(partial(self._open_again, ask))

    def cancel(self, asker_id: str, message_id: str, turn: Turn) -> None:
        """Close the edge of one ask, where it is open."""
        ask = self._open.get(asker_id, {}).get(message_id)
        if ask is not None:
            self.close(ask, turn)

    def sweep(self, turn: Turn) -> None:
        """Close the edges whose time is over."""
        every = [ask for mine in self._open.values() for ask in mine.values()]
        for ask in every:
            if ask.expires_ms <= turn.now.wall_ms:
                self.close(ask, turn)

    def restore(self, document: Any) -> None:
        """Take an ask that an earlier broker kept; ValueError where it is none."""
        try:
            ask = Ask(
                str(document["messageId"]),
                str(document["asker"]),
                str(document["target"]),
                int(document["createdAt"]),
                int(document["expiresAt"]),
                str(document["question"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError("not an ask") from error
        self._open.setdefault(ask.asker_id, {})[ask.message_id] = ask


def row_key(ask: Ask) -> str:
    """Return the key under which the journal keeps an ask."""
    return f"{ask.asker_id}\n{ask.message_id}"


def _document(ask: Ask) -> dict[str, Any]:
    return {
        "askId": ask.message_id,
        "messageId": ask.message_id,
        "asker": ask.asker_id,
        "target": ask.target_id,
        "question": ask.question,
        "createdAt": ask.created_ms,
        "expiresAt": ask.expires_ms,
    }
