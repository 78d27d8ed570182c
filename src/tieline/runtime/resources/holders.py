"""What a look without a lock shows of who is in the way: alive, at its end, or proven neither.

Theory. Most holders have a living supervisor, which writes its own end down: one look at one process tells
that. Where it is gone, the launch's tree is searched, at first often, since its end is near. A tree that
stays unproven is looked at ever more rarely: only a person can answer for it.

Rule 1: nothing is decided here; what is seen gone is decided again under the locks.
Rule 2: a look writes nothing, and waits for nobody.

Source: reference/native.md 2.13, 3.5 "proof of death"; reference/reliability.md I31, I34.
"""

from collections.abc import Sequence
from typing import Final

from tieline.model.process import Liveness
from tieline.model.resource import Document, TicketState
from tieline.runtime.resources.coordinator import Coordinator
from tieline.shell.process import probe

__all__ = ["Doubt", "has_no_controller", "is_seen_held", "is_tended"]

LOOK_S: Final = 1.0
PROOF_LOOK_S: Final = 0.6
"""While the holder's supervisor is not seen alive: two looks fit around the quarantine into 2 s."""
UNPROVEN_LOOK_S_MAX: Final = 10.0
"""Between two looks at a holder of which neither life nor end is proven."""
SOON_LOOKS: Final = 3
"""So many looks are made at the first pace: a process is unknown for a moment while it starts or ends."""


class Doubt:
    """The looks of one who waits at holders without a living supervisor.

    Attributes:
        unproven: The launch of which `SOON_LOOKS` looks in a row proved neither life nor end, else empty.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        """Start with nothing seen."""
        self.unproven = ""
        self._coordinator = coordinator
        self._look_count = 0

    def look(self, documents: Sequence[Document]) -> Liveness:
        """Return `gone` when something in the way may have ended, `alive` when all of it is seen to live.

        Raises:
            Refused, RecoveryRequired: as `ResourceStore.read_ledger`.
        """
        doubted = [document for document in documents if not is_seen_held(document)]
        if any(_is_unused(document) for document in doubted):
            return "gone"
        states = [self._state_of(launch_id) for document in doubted for launch_id in _in_the_way(document)]
        unknown = [launch_id for launch_id, state in states if state == "unknown"]
        self._look_count = self._look_count + 1 if unknown else 0
        self.unproven = unknown[0] if unknown and self._look_count >= SOON_LOOKS else ""
        if any(state == "gone" for _, state in states):
            return "gone"
        return "unknown" if unknown else "alive"

    def pause_s(self, documents: Sequence[Document]) -> float:
        """Return when to look again, from now."""
        if self._look_count >= SOON_LOOKS:
            doublings = min(self._look_count - SOON_LOOKS + 1, 8)
            return float(min(UNPROVEN_LOOK_S_MAX, PROOF_LOOK_S * 2**doublings))
        return LOOK_S if all(is_tended(document) for document in documents) else PROOF_LOOK_S

    def _state_of(self, launch_id: str) -> tuple[str, Liveness]:
        launch = self._coordinator.store.read_ledger().launch(launch_id)
        return launch_id, "unknown" if launch is None else self._coordinator.probe(launch).state


def _is_unused(document: Document) -> bool:
    """Return whether only a right that was never used is in the way."""
    return not document.blockers and (
        document.holder is None or document.holder.state is TicketState.RESERVED
    )


def _in_the_way(document: Document) -> list[str]:
    """Return the launches that hold or block a resource."""
    found = [blocker.launch_id for blocker in document.blockers]
    holder = document.holder
    if holder is not None and holder.launch_id is not None:
        found.append(holder.launch_id)
    return found


def has_no_controller(document: Document) -> bool:
    """Return whether the controller of a resource is proven to have ended, so that nobody grants it."""
    owner = document.policy.controller_owner if document.policy is not None else None
    return owner is not None and probe(owner) == "gone"


def is_tended(document: Document) -> bool:
    """Return whether somebody alive will tell the end of what stands in the way."""
    holder = document.holder
    if document.blockers:
        return False
    if holder is None or holder.state is TicketState.RESERVED or holder.reservation is None:
        return True
    supervisor = holder.reservation.supervisor
    return supervisor is not None and probe(supervisor) == "alive"


def is_seen_held(document: Document) -> bool:
    """Return whether one look at one process shows that nothing can have become of what is in the way."""
    holder = document.holder
    if holder is not None and holder.state is TicketState.RESERVED and not document.blockers:
        return probe(holder.claimant.starter) != "gone"
    if is_tended(document):
        return True
    if document.blockers:
        return any(
            one.supervisor is not None and probe(one.supervisor) == "alive" for one in document.blockers
        )
    right = holder.reservation if holder is not None else None
    return right is not None and any(probe(process) == "alive" for process in right.processes[:1])
