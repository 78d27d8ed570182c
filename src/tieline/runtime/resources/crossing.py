"""Commands that wait in a ring, each for what the next one's launch holds: seen, and refused to the last one.

A command inside a launch may need something more. When another launch holds that, and a command inside of
that one waits for what is held around this one, neither ends before the other: no time helps. A ring may go
through more launches than two.

Rule 1: who waits inside a launch is proven by its process, not by a mark.
Rule 2: only the latest claim of a ring gives way, so the others go on.

Source: reference/native.md 3.5 "lock order", "nested gated commands".
"""

from collections.abc import Iterable, Mapping, Sequence

from tieline.errors import Refused
from tieline.model.resource import Document, Launch, Ticket, TicketState
from tieline.runtime.resources.coordinator import Coordinator, evidence_of
from tieline.shell.tree import is_inside

__all__ = ["crossed"]


def crossed(
    coordinator: Coordinator, launch_id: str, around: frozenset[str], wanted: Iterable[Document]
) -> Refused | None:
    """Return the refusal when a wait closes a ring of others that began before, else None.

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
    documents = coordinator.readable(coordinator.known_keys())
    for document in wanted:
        mine = document.launched(launch_id)
        if mine is None or mine.state is not TicketState.QUEUED:
            continue
        last = _end_of_ring(_holder_of(document), around, mine, documents, launches)
        if last is not None:
            text = (
                f"{document.resource} is held by a command that waits, itself or through others, for"
                f" {last.resource}, which is held around this one: neither would go on; nothing was started"
            )
            keys = f"--resource {last.resource} --resource {document.resource}"
            return Refused("RESOURCE_BUSY", text).advising(
                f"let the outer command hold both from its start: `tieline run {keys} -- COMMAND`"
            )
    return None


def _end_of_ring(
    first: str,
    around: frozenset[str],
    mine: Ticket,
    documents: Sequence[Document],
    launches: Mapping[str, Launch],
) -> Document | None:
    """Return what is held around us and waited for in `first`, or in a launch that one there waits for."""
    ahead, seen = [first], {first}
    while ahead:
        launch = launches.get(ahead.pop())
        if launch is None:
            continue
        for document in documents:
            holder = _holder_of(document)
            if holder in seen or not any(_waits_inside(launch, ticket, mine) for ticket in document.queue):
                continue
            if holder in around:
                return document
            seen.add(holder)
            ahead.append(holder)
    return None


def _holder_of(document: Document) -> str:
    return (document.holder.launch_id or "") if document.holder is not None else ""


def _waits_inside(launch: Launch, ticket: Ticket, mine: Ticket) -> bool:
    evidence, waiter = evidence_of(launch), ticket.claimant.waiter
    if evidence is None or waiter is None or ticket.requested_ms > mine.requested_ms:
        return False
    return ticket.launch_id != mine.launch_id and is_inside(evidence, waiter.pid)
