"""Wakes of parked children: asked of their main, and what became of them told to who waits.

Rule 1: mail that is not passive asks for a wake each time; passive mail waits for the next one.
Rule 2: a main that comes back is asked at once for every child of its that mail waits for.
Rule 3: a failed wake is told to the askers that wait and can hear it; the mail stays held.

Source: specification of the intercom, "Send, ask, and reply"; reference/intercom.md 4.6, 104, 131.
"""

from functools import partial
from typing import NamedTuple

from tieline.engine.brokering.contract import WakeFailed, WakeTold, WakeWanted
from tieline.engine.brokering.mailbox import Absent, Mailbox
from tieline.engine.brokering.sessions import Session, Sessions
from tieline.engine.brokering.topology import is_child, is_visible
from tieline.engine.brokering.turn import Turn

__all__ = ["Wakes"]


class _Wake(NamedTuple):
    main_link: int
    child_id: str
    message_id: str


class Wakes:
    """The wakes that were asked for and not answered."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Wake] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, sessions: Sessions, child: Absent, message_id: str, token: str, turn: Turn) -> None:
        """Ask the child's main for a wake; nobody is asked where it is not there or cannot answer."""
        main = next((one for one in sessions.seen_by(child) if _is_main_of(one, child)), None)
        if main is not None:
            self._ask(main, child.id, message_id, token, turn)

    def main_is_back(self, mailbox: Mailbox, main: Session, token: str, turn: Turn) -> None:
        """Ask a main that registered for every child of its that mail waits for; `token` is fresh."""
        for number, child in enumerate(one for one in mailbox if one.is_parked and _is_main_of(main, one)):
            active = [held for held in mailbox.held_for(child.id) if not held.is_passive]
            if active and not child.is_back:
                self._ask(main, child.id, active[-1].message_id, f"{token}-{number}", turn)

    def told(
        self, sessions: Sessions, mailbox: Mailbox, main: Session, outcome: WakeTold, turn: Turn
    ) -> None:
        """Take a main's word on a wake that this very main was asked."""
        wake = self._waiting.get(outcome.token)
        if wake is None or wake.main_link != main.link:
            return
        del self._waiting[outcome.token]
        child = mailbox.absent(wake.child_id)
        if outcome.is_ok or child is None or child.is_back:
            return
        for held in mailbox.held_for(wake.child_id):
            asker = sessions.of_id(held.sender.session_id)
            if (
                held.is_ask
                and asker is not None
                and asker.features.wake_outcomes
                and is_visible(asker, child)
            ):
                turn.say(asker.link, WakeFailed(held.message_id, outcome.detail))

    def child_is_back(self, session_id: str) -> None:
        """Forget the wakes of a child that registered."""
        self._waiting = {token: one for token, one in self._waiting.items() if one.child_id != session_id}

    def link_lost(self, link: int) -> None:
        """Forget the wakes asked of a main that left: it is asked again when it is back."""
        if self._waiting:
            self._waiting = {token: one for token, one in self._waiting.items() if one.main_link != link}

    def _ask(self, main: Session, child_id: str, message_id: str, token: str, turn: Turn) -> None:
        turn.undo.append(partial(self._waiting.pop, token, None))
        self._waiting[token] = _Wake(main.link, child_id, message_id)
        turn.say(main.link, WakeWanted(token, child_id, message_id))


def _is_main_of(one: Session, child: Absent) -> bool:
    if is_child(one) or not one.features.wake_outcomes or not is_visible(one, child):
        return False
    return one.lineage is not None and child.lineage is not None and one.lineage.root == child.lineage.root
