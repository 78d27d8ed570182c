"""Whom a send is for: the one that its sender can see and means, or why there is none.

Rule 1: an exact id goes before every name; a name that several bear is refused, never guessed.
Rule 2: who is hidden is not there: neither found, nor counted, nor told apart from nobody.
Rule 3: who left is found only where its mail is held, and after everybody who is live bears the name.

Source: reference/intercom.md 1.5, 2 "Broker resolution", 3; 43 to 49, 54 to 57.
"""

from collections.abc import Sequence

from tieline.engine.brokering.contract import Failed, SendAsked
from tieline.engine.brokering.guards import NOT_FOUND
from tieline.engine.brokering.mailbox import Absent
from tieline.engine.brokering.sessions import Session
from tieline.engine.brokering.state import State
from tieline.engine.brokering.topology import is_visible

__all__ = ["Target", "target_of"]

Target = Session | Absent


def target_of(state: State, sender: Session, asked: SendAsked, to: str) -> Target | Failed:
    """Return whom a send is for, or its refusal."""
    if asked.target_id is not None:
        return _bound(state, sender, asked, asked.target_id)
    exact = state.sessions.of_id(to)
    if exact is not None and is_visible(sender, exact):
        return exact
    gone = [one for one in state.mailbox if _is_held_for(sender, one)]
    parted = next((one for one in gone if one.id == to), None)
    if parted is not None:
        return parted
    live = list(state.sessions.seen_by(sender))
    name = to.lower()
    found: Sequence[Target] = [one for one in live if one.name is not None and one.name.lower() == name]
    if not found and sender.features.matches_prefixes:
        found = [one for one in live if one.id.startswith(to)]
    if not found:
        found = [one for one in gone if one.name is not None and one.name.lower() == name]
    return _sole(found, asked, to)


def _sole(found: Sequence[Target], asked: SendAsked, to: str) -> Target | Failed:
    if len(found) == 1 and to:
        return found[0]
    if len(found) > 1:
        reason = f'Multiple sessions named "{to}" are connected. Use the session ID instead.'
        return Failed(asked.message_id, reason, "E_AMBIGUOUS_TARGET")
    return Failed(asked.message_id, NOT_FOUND, "E_TARGET_NOT_FOUND")


def _bound(state: State, sender: Session, asked: SendAsked, target_id: str) -> Target | Failed:
    """Return the very registration that a send is bound to."""
    target = state.sessions.of_id(target_id)
    if target is not None and is_visible(sender, target):
        if target.epoch == asked.target_epoch:
            return target
        return Failed(asked.message_id, "Target endpoint was replaced", "E_TARGET_REBOUND", is_retryable=True)
    gone = state.mailbox.absent(target_id)
    if gone is not None and _is_held_for(sender, gone):
        return Failed(asked.message_id, "Target endpoint is gone", "E_TARGET_REBOUND", is_retryable=True)
    return Failed(asked.message_id, NOT_FOUND, "E_TARGET_NOT_FOUND")


def _is_held_for(sender: Session, one: Absent) -> bool:
    """Return whether what this sender sends to one that left is held."""
    if one.is_back or not is_visible(sender, one):
        return False
    return one.is_parked or sender.features.has_mailbox
