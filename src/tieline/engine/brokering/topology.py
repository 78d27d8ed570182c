"""Who may see whom: the one rule that lists, targets, errors, departures and counts are made of.

Rule 1: a main and its children are a group; across groups, mains see mains and nobody else sees anybody.
Rule 2: who states no lineage is a main of a group of its own. Equal scopes see each other, others never;
    no scope is a scope too.
Rule 3: nobody asks in any other way: what is not visible is answered as what is not there.

Source: specification of the intercom, "Discovery and groups"; reference/intercom.md 3.
"""

from typing import Protocol

from tieline.engine.brokering.contract import Lineage

__all__ = ["Placed", "is_child", "is_visible"]


class Placed(Protocol):
    """Anybody who stands somewhere: a session, or one that left and will come back."""

    @property
    def scope(self) -> str | None:
        """Its scope, None for none."""

    @property
    def lineage(self) -> Lineage | None:
        """Its group, None for a main that names none."""


def is_child(one: Placed) -> bool:
    """Return whether it was started by a main of its group."""
    return one.lineage is not None and one.lineage.parent is not None


def is_visible(one: Placed, other: Placed) -> bool:
    """Return whether these two may see and address each other; it holds both ways or neither."""
    if one.scope != other.scope:
        return False
    if not is_child(one) and not is_child(other):
        return True
    return one.lineage is not None and other.lineage is not None and one.lineage.root == other.lineage.root
