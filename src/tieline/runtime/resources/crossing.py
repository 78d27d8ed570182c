"""Two commands that wait for what the other's launch holds: seen, and refused to the later one.

A command inside a launch may need something more. When another launch holds that, and a command inside of
that one waits for what is held around this one, neither ends before the other: no time helps.

Rule 1: who waits inside a launch is proven by its process, not by a mark.
Rule 2: only the later claim gives way, so one of the two goes on.

Source: reference/native.md 3.5 "lock order", "nested gated commands".
"""

from collections.abc import Iterable

from tieline.errors import Refused
from tieline.model.resource import Document, Launch, Ticket, TicketState
from tieline.runtime.resources.coordinator import Coordinator, evidence_of
from tieline.shell.tree import is_inside

__all__ = ["crossed"]


def crossed(
    coordinator: Coordinator, launch_id: str, around: frozenset[str], wanted: Iterable[Document]
) -> Refused | None:
    """Return the refusal when a wait would cross another one that began before, else None.

    Args:
        coordinator: The door to the files.
        launch_id: Of the command that waits.
        around: The launches in whose trees it is proven to run; none of them: nothing can cross.
        wanted: What it waits for.

    Raises:
        Refused, RecoveryRequired: as `Coordinator.readable`.
    """
    if not around:
        return None
    launches = {launch.launch_id: launch for launch in coordinator.store.read_ledger().launches}
    held = [one for one in coordinator.readable(coordinator.known_keys()) if _holder_of(one) in around]
    for document in wanted:
        mine, other = document.launched(launch_id), launches.get(_holder_of(document))
        if mine is None or mine.state is not TicketState.QUEUED or other is None:
            continue
        for theirs in held:
            if any(_waits_inside(other, ticket, mine) for ticket in theirs.queue):
                text = (
                    f"{document.resource} is held by a command in which another one waits for"
                    f" {theirs.resource}, which is held around this one: neither would go on; nothing was"
                    " started"
                )
                keys = f"--resource {theirs.resource} --resource {document.resource}"
                return Refused("RESOURCE_BUSY", text).advising(
                    f"let the outer command hold both from its start: `tieline run {keys} -- COMMAND`"
                )
    return None


def _holder_of(document: Document) -> str:
    return (document.holder.launch_id or "") if document.holder is not None else ""


def _waits_inside(launch: Launch, ticket: Ticket, mine: Ticket) -> bool:
    evidence, waiter = evidence_of(launch), ticket.claimant.waiter
    if evidence is None or waiter is None or ticket.requested_ms > mine.requested_ms:
        return False
    return ticket.launch_id != mine.launch_id and is_inside(evidence, waiter.pid)
