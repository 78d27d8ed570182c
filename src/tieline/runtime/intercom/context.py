"""What a companion of a root may know and set: which session this is, in which life, under which guard.

Rule 1: a life is minted at start and when the session becomes another one; its guard ends with it.
Rule 2: a guard is set for the exact context that the companion saw, or not at all.
Rule 3: this is an observation, not consent: a guard lets conditional messages in and does nothing else.

Source: specification of the intercom, "Conditional native context targeting"; reference/intercom.md 5.
"""

from collections.abc import Callable
from typing import Any

from tieline.runtime.intercom.lineage import Lineage
from tieline.wire.intercom.forms import is_label

__all__ = ["VERSION", "Context"]

VERSION = 1


class Context:
    """One root's context on the intercom."""

    def __init__(self, lineage: Lineage, session: str, mint: Callable[[], str]) -> None:
        self.lineage, self.session = lineage, session
        self.guard: str | None = None
        self._mint = mint
        self.incarnation = mint()

    @property
    def root(self) -> str:
        """The native session whose group this is: our own, or our main's."""
        return self.lineage.parent or self.session

    def replace(self, session: str) -> None:
        """Be another session from now on: another life, and no guard."""
        self.session, self.guard, self.incarnation = session, None, self._mint()

    def fields(self) -> dict[str, Any]:
        """Return what a registration says of it."""
        made: dict[str, Any] = {**self.lineage.fields(self.session), "incarnation": self.incarnation}
        return made if self.guard is None else {**made, "applicationGuard": self.guard}

    def snapshot(self, peer: str, *, is_guarded: bool) -> dict[str, Any]:
        """Return what a companion is told; `peer` is our id at the broker, "" while we have none."""
        shape: dict[str, Any] = {
            "version": VERSION,
            "rootSessionId": self.root,
            "peerId": peer or None,
            "incarnation": self.incarnation,
            "connected": bool(peer),
            "guardedDelivery": 1 if is_guarded and peer else None,
        }
        if self.lineage.is_child:
            shape["parentSessionId"] = self.lineage.parent
        return shape if self.guard is None else {**shape, "applicationGuard": self.guard}

    def set_guard(self, target: dict[str, Any], revision: str | None, peer: str) -> str | None:
        """Set or withdraw the guard; return the error that a companion is told, or None.

        Args:
            target: The context that the companion saw.
            revision: The guard, opaque and not empty; None withdraws it.
            peer: Our id at the broker now.
        """
        is_same = (target.get("rootSessionId"), target.get("peerId"), target.get("incarnation")) == (
            self.root,
            peer,
            self.incarnation,
        )
        if not is_same or not peer or self.lineage.is_child:
            return "context_changed"
        if revision is not None and not is_label(revision):
            return "invalid_revision"
        self.guard = revision
        return None
