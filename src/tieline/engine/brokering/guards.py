"""Conditional sends: the whole binding holds at the moment of routing, or nothing is routed.

Rule 1: a guarded send names one exact, visible main, the only one of its root, and everything that its sender
    recorded of it is still so. What is not holds the send back; it is never sent elsewhere, or unguarded.
Rule 2: a target that is hidden or gone is "not found", as for any other send.
Rule 3: acceptance here proves nothing of the recipient, which checks again.

Source: specification of the intercom, "Conditional native context targeting"; reference/intercom.md 5, 135.
"""

from typing import Final

from tieline.engine.brokering.contract import Failed, Letter
from tieline.engine.brokering.sessions import Session, Sessions
from tieline.engine.brokering.topology import is_child

__all__ = ["NOT_FOUND", "guarded_target", "is_conditional"]

NOT_FOUND: Final = "Session not found"
_CODE: Final = "E_GUARD"


def is_conditional(sender: Session, letter: Letter) -> bool:
    """Return whether a message bears a guard, whole or broken, or what its sender knows to need one."""
    if letter.guard is not None or "guard" in letter.fields:
        return True
    return letter.is_guard_broken and sender.features.guarded_delivery


def guarded_target(sessions: Sessions, sender: Session, to: str, letter: Letter) -> Session | Failed:
    """Return the one session that a guarded send is for, or why it is refused."""

    def refused(reason: str) -> Failed:
        return Failed(letter.message_id, reason, _CODE)

    guard = letter.guard
    if not sender.features.guarded_delivery:
        return refused("Guarded delivery was not negotiated")
    if guard is None or letter.is_guard_broken or not letter.is_guardable:
        return refused("Guarded delivery needs a whole guard, a delivery and expectsReply false")
    target = next((one for one in sessions.seen_by(sender) if one.id == to), None)
    if target is None:
        return Failed(letter.message_id, NOT_FOUND, "E_TARGET_NOT_FOUND")
    if not target.is_guarded:
        return refused("Recipient does not take guarded delivery")
    lineage = target.lineage
    assert lineage is not None, "who is guarded says its root"
    if (guard.peer, guard.root, guard.incarnation) != (target.id, lineage.root, target.incarnation):
        return refused("Recipient context changed")
    if guard.application_guard != target.application_guard:
        return refused("Recipient application guard changed")
    if sum(_is_main_of(one, guard.root) for one in sessions.seen_by(sender)) != 1:
        return refused("Recipient root is ambiguous")
    return target


def _is_main_of(one: Session, root: str) -> bool:
    return one.lineage is not None and one.lineage.root == root and not is_child(one)
