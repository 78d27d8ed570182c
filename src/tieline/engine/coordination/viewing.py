"""What one viewer may see of a resource, and which events are theirs.

Rule 1: reasons, names and queues are for those who are enrolled; others learn free or busy.
Rule 2: nothing here changes a document.

Source: reference/native.md 2.13 "Snapshot", "Events", 3.5 "status visibility", 3.6 number 20.
"""

from typing import NamedTuple

from tieline.engine.coordination.turn import Turn, lapse_mono_ms
from tieline.model.identity import Capability, Principal
from tieline.model.resource import (
    FINISHED,
    Document,
    HolderView,
    QueueEntry,
    ResourceEvent,
    Snapshot,
    Ticket,
    TicketState,
)

__all__ = ["EventPage", "events_after", "reference", "snapshot"]


class EventPage(NamedTuple):
    """Events of one audience, oldest first.

    Attributes:
        events: Those after the asked sequence.
        sequence: To ask after next time.
        has_gap: Whether some after the asked sequence are no longer kept.
    """

    events: tuple[ResourceEvent, ...]
    sequence: int
    has_gap: bool


def events_after(document: Document, peer_ids: frozenset[str], sequence: int) -> EventPage:
    """Return the events after `sequence` whose audience holds one of `peer_ids`."""
    found = tuple(
        event
        for event in document.events
        if event.sequence > sequence and not peer_ids.isdisjoint(event.audience)
    )
    return EventPage(found, document.event_sequence, has_gap=sequence < document.events_dropped)


def reference(document: Document, ticket: Ticket) -> str:
    """Return the text that names this grant and no other: resource, epoch, fence, reservation."""
    right = ticket.reservation
    assert right is not None, "a holder has a right"
    return f"{document.resource}@{right.epoch}.{right.fence}.{right.reservation_id}"


def snapshot(turn: Turn, caller: Principal) -> Snapshot:
    """Return the resource as `caller` may see it."""
    document = turn.document
    holder = document.holder
    is_enrolled = _may_see(document, caller)
    is_busy = holder is not None or bool(document.blockers)
    if not is_enrolled:
        return Snapshot(
            resource=document.resource,
            state="busy" if is_busy else "free",
            is_configured=document.policy is not None,
            is_enrolled=False,
        )
    policy = document.policy
    own = next(
        (
            ticket.request_id
            for ticket in document.tickets
            if ticket.claimant.peer_id == caller.peer.id and ticket.state not in FINISHED
        ),
        None,
    )
    return Snapshot(
        resource=document.resource,
        state=_state(document, holder),
        is_configured=policy is not None,
        is_enrolled=True,
        epoch=document.epoch,
        fence=document.fence,
        controller=policy.controller if policy else None,
        controller_alias=policy.controller_alias if policy else "",
        profile=policy.profile if policy else None,
        request_id=own,
        holder=_holder(turn, holder) if holder is not None else None,
        queue=tuple(_entry(turn, ticket) for ticket in document.queue),
        blockers=document.blockers,
        controller_life=turn.controller_life(),
        may_claim=_may_claim(document, caller),
        viewer_alias=caller.alias,
    )


def _may_see(document: Document, caller: Principal) -> bool:
    """Return whether everything is shown: to the enrolled, and on an open resource to who may claim it."""
    if document.policy is None:
        return caller.may(Capability.REQUEST)
    shown = {document.policy.controller, *document.policy.participants, *document.enrolment}
    return not shown.isdisjoint({caller.peer.id, caller.peer.root.id})


def _may_claim(document: Document, caller: Principal) -> bool:
    """Return whether the policy names the viewer or its root; one that it left out is still shown all."""
    policy = document.policy
    named = {policy.controller, *policy.participants} if policy is not None else {caller.peer.id}
    return not named.isdisjoint({caller.peer.id, caller.peer.root.id})


def _state(document: Document, holder: Ticket | None) -> str:
    if holder is not None:
        return holder.state.value
    if document.blockers:
        return TicketState.RUNNING.value
    return "unconfigured" if document.policy is None else "available"


def _holder(turn: Turn, ticket: Ticket) -> HolderView:
    right = ticket.reservation
    assert right is not None, "a holder has a right"
    is_unused = ticket.state is TicketState.RESERVED
    return HolderView(
        request_id=ticket.request_id,
        peer_id=ticket.claimant.peer_id,
        alias=ticket.claimant.alias,
        state=ticket.state,
        fence=right.fence,
        since_ms=right.granted_ms,
        reference=reference(turn.document, ticket),
        launch_id=ticket.launch_id,
        executable=ticket.executable,
        ownership=right.ownership,
        expires_in_ms=max(lapse_mono_ms(right) - turn.now.mono_ms, 0) if is_unused else None,
    )


def _entry(turn: Turn, ticket: Ticket) -> QueueEntry:
    return QueueEntry(
        request_id=ticket.request_id,
        peer_id=ticket.claimant.peer_id,
        alias=ticket.claimant.alias,
        reason=ticket.reason,
        wait_ms=max(turn.now.wall_ms - ticket.requested_ms, 0),
    )
