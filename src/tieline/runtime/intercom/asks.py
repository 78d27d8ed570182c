"""Questions of intercom sessions that wait for our answer, and which one a reply without a name means.

Rule 1: at most `ASKS_MAX`, oldest first; one ends by its answer, its replacement, its time, or when whoever
    asked is gone. The message itself stays in the mailbox.
Rule 2: a reply names its question, or its asker, or means the one that this turn began with, or the only
    one; else it is refused with what could be meant.

Source: reference/intercom.md 4.3, cases 99, 105 to 108; specification of the intercom, "Send, ask,
and reply".
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tieline.errors import Refusal

__all__ = ["ASKS_MAX", "ASK_MS", "Ask", "Asks"]

ASKS_MAX: Final = 100
ASK_MS: Final = 600_000
"""The longest that a known revision's asker waits."""


class Ask(msgspec.Struct, frozen=True):
    """One question; `session_id` is its asker's at the broker, times are monotonic milliseconds."""

    message_id: str
    session_id: str
    sender: str  # peer id
    alias: str
    preview: str
    thread: str | None
    at_ms: int


class Asks:
    """What waits."""

    def __init__(self) -> None:
        self._asks: OrderedDict[tuple[str, str], Ask] = OrderedDict()

    def add(self, ask: Ask) -> None:
        """A question came; a newer one of the same asker and thread replaces the older one."""
        if ask.thread is not None:
            for key, other in list(self._asks.items()):
                if (other.session_id, other.thread) == (ask.session_id, ask.thread):
                    del self._asks[key]
        self._asks[ask.session_id, ask.message_id] = ask
        while len(self._asks) > ASKS_MAX:
            self._asks.popitem(last=False)

    def end(self, session_id: str, message_id: str) -> None:
        """A question was answered, or is over."""
        self._asks.pop((session_id, message_id), None)

    def left(self, session_id: str) -> None:
        """An asker is gone."""
        for key in [key for key in self._asks if key[0] == session_id]:
            del self._asks[key]

    def waiting(self, now_ms: int) -> list[Ask]:
        """Return what waits, oldest first."""
        for key, ask in list(self._asks.items()):
            if ask.at_ms + ASK_MS <= now_ms:
                del self._asks[key]
        return list(self._asks.values())

    def pick(
        self,
        now_ms: int,
        *,
        reply_to: str | None,
        to: str | None,
        resolve: Callable[[str], str | Refusal],
        is_of_turn: Callable[[Ask], bool],
    ) -> Ask | Refusal:
        """Return the question that a reply answers.

        Args:
            now_ms: Monotonic.
            reply_to: Its message id, where the caller names it.
            to: Its asker, where the caller names that.
            resolve: Returns the session id that a name means among the askers.
            is_of_turn: Whether the current turn of the model was shown this question.
        """
        waiting = self.waiting(now_ms)
        if reply_to is not None:
            waiting = [ask for ask in waiting if ask.message_id == reply_to]
            if not waiting:
                return Refusal("INVALID_REPLY", f"no question {reply_to[:64]} waits here: see action pending")
        if to is not None:
            found = resolve(to)
            if isinstance(found, Refusal):
                return found
            waiting = [ask for ask in waiting if ask.session_id == found]
            if not waiting:
                return Refusal("INVALID_REPLY", f"{to[:64]} asked nothing that waits: see action pending")
        if not waiting:
            return Refusal("INVALID_REPLY", "No active intercom context to reply to")
        if len(waiting) == 1:
            return waiting[0]
        shown = [ask for ask in waiting if is_of_turn(ask)]
        if to is None and reply_to is None and shown:
            return shown[0]
        return _several(waiting)


def _several(waiting: Iterable[Ask]) -> Refusal:
    options = [f"replyTo {ask.message_id} to {ask.session_id}" for ask in waiting][:8]
    text = f"Multiple pending asks \u2014 specify `to` or `replyTo`: {', '.join(options)}"
    return Refusal("AMBIGUOUS_TARGET", text)
