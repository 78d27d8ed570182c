"""Who a root is on the intercom: its native session, its group, and this life of it.

Rule 1: the two variables of a child count together and exactly: one alone, an empty, a padded or a different
    one stops the wire, and nothing is trimmed into another identity. So does a pair that names the very
    session that reads it.
Rule 2: a life is minted when the root starts and when its host's session becomes another one; never when a
    connection is made again.

Source: specification of the intercom, "Discovery and groups"; reference/intercom.md 3, 5.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tieline.errors import UsageError
from tieline.wire.intercom.forms import is_label

__all__ = ["PARENT_VARIABLE", "ROOT_VARIABLE", "Lineage", "child_environment", "lineage_of"]

ROOT_VARIABLE: Final = "PI_INTERCOM_ROOT_SESSION_ID"
PARENT_VARIABLE: Final = "PI_INTERCOM_PARENT_SESSION_ID"


class Lineage(msgspec.Struct, frozen=True):
    """The main session that a child belongs to; "" for a main itself."""

    parent: str = ""

    @property
    def is_child(self) -> bool:
        """Whether this is a child."""
        return bool(self.parent)

    def fields(self, session: str) -> dict[str, str]:
        """Return what a registration says of the group of the native session `session`."""
        if self.is_child:
            return {"rootSessionId": self.parent, "parentSessionId": self.parent}
        return {"rootSessionId": session}

    def require_other(self, session: str) -> None:
        """Raise where the native session `session` would be its own main.

        Raises:
            UsageError: the pair names this very session. Registered so, it would be a child that nobody
                started, and hidden from every other main.
        """
        if self.is_child and session == self.parent:
            raise UsageError(
                f"{ROOT_VARIABLE} and {PARENT_VARIABLE} name this very session: a main sets neither, "
                "and a child has a session of its own"
            )


def lineage_of(environment: Mapping[str, str]) -> Lineage:
    """Return the lineage that an environment states.

    Raises:
        UsageError: the two variables are not both absent, nor both the same id.
    """
    root, parent = environment.get(ROOT_VARIABLE), environment.get(PARENT_VARIABLE)
    if root is None and parent is None:
        return Lineage()
    if root is None or parent is None:
        lacking = ROOT_VARIABLE if root is None else PARENT_VARIABLE
        raise UsageError(
            f"{lacking} is not set and its counterpart is: set both to the main's id, or neither"
        )
    if root != parent:
        raise UsageError(f"{ROOT_VARIABLE} and {PARENT_VARIABLE} differ: a child's parent is its main")
    if not is_label(root) or root != root.strip():
        raise UsageError(f"{ROOT_VARIABLE} is empty, padded or holds control characters")
    return Lineage(root)


def child_environment(session: str) -> dict[str, str]:
    """Return what the processes of a main's run get, so that they join its group."""
    return {ROOT_VARIABLE: session, PARENT_VARIABLE: session}
