"""One document while one command changes it.

Rule 1: every move of a ticket raises an event; nothing else writes a ticket's state.
Rule 2: an event goes to the ticket's owner and the controller, a policy's to everyone enrolled.

Source: reference/native.md 2.13 "Events", "Bounds"; reference/reliability.md I38.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from tieline.engine.coordination.commands import (
    BUNDLE_WAIT_MS_MAX,
    EVENTS_MAX,
    FINISHED_KEPT_MAX,
    FINISHED_KEPT_MS,
    QUARANTINE_MS,
    RESERVATION_MS,
    Facts,
)
from tieline.machine.ticket import Step, reserve, step
from tieline.model.identity import Capability, Principal
from tieline.model.moment import Moment
from tieline.model.process import Liveness
from tieline.model.resource import (
    FINISHED,
    Claimant,
    Document,
    Reservation,
    ResourceEvent,
    ResourceKey,
    Ticket,
    TicketState,
)

__all__ = ["Turn", "controls", "is_enrolled", "is_granting"]


def is_enrolled(document: Document, claimant: Claimant) -> bool:
    """Return whether it may claim: on an open resource everyone, else a participant or the controller.

    A child is enrolled through its root.
    """
    policy = document.policy
    if policy is None:
        return True
    named = {policy.controller, *policy.participants}
    return not named.isdisjoint({claimant.peer_id, claimant.enrollment_peer_id})


def controls(document: Document, caller: Principal) -> bool:
    """Return whether `caller` is the controller itself and holds `resource.control`."""
    policy = document.policy
    return policy is not None and caller.peer.id == policy.controller and caller.may(Capability.CONTROL)


def is_granting(document: Document, caller: Principal) -> bool:
    """Return whether a grant on this resource needs nobody else than `caller`."""
    return document.policy is None or controls(document, caller)


class Turn:
    """A document, what was observed, and what has happened to it so far."""

    def __init__(self, document: Document, facts: Facts, now: Moment) -> None:
        """Start from `document`, which stays as it is."""
        self.document = document
        self.facts = facts
        self.now = now
        self.events: list[ResourceEvent] = []

    @property
    def key(self) -> ResourceKey:
        """The resource."""
        return self.document.resource

    def change(self, **fields: object) -> None:
        """Replace fields of the document."""
        self.document = msgspec.structs.replace(self.document, **fields)

    def put(self, ticket: Ticket) -> Ticket:
        """Replace the ticket of the same request and return it; nothing is told of it."""
        self.change(
            tickets=tuple(
                ticket if other.request_id == ticket.request_id else other for other in self.document.tickets
            )
        )
        return ticket

    def add(self, ticket: Ticket) -> Ticket:
        """Append a new ticket under the next number and return it."""
        number = self.document.ticket_number + 1
        ticket = msgspec.structs.replace(ticket, number=number)
        self.change(tickets=(*self.document.tickets, ticket), ticket_number=number)
        self.tell(ticket)
        return ticket

    def move(self, ticket: Ticket, taken: Step) -> Ticket | None:
        """Take a step with a ticket; return it, or None when it does not move."""
        after = step(ticket, taken, self.now.wall_ms)
        if after is not None:
            self.put(after)
            self.tell(after)
        return after

    def reserve(self, ticket: Ticket) -> Ticket:
        """Give a waiting ticket the right under the next fence; its clock runs when no bundle waits."""
        fence = self.document.fence + 1
        epoch = self.document.epoch
        identity = hashlib.sha256(f"{self.key}\n{epoch}\n{fence}\n{ticket.request_id}".encode()).hexdigest()
        right = Reservation(
            reservation_id=identity[:32],
            fence=fence,
            epoch=epoch,
            boot_id=self.facts.boot_id,
            granted_ms=self.now.wall_ms,
            granted_mono_ms=self.now.mono_ms,
            expires_mono_ms=None if ticket.bundle else self.now.mono_ms + RESERVATION_MS,
        )
        after = reserve(ticket, right)
        assert after is not None, "only a waiting ticket is given a right"
        # Raise the fence with the right: one document, one write, so neither is ever stored alone.
        self.change(fence=fence)
        self.put(after)
        self.tell(after)
        return after

    def set_right(self, ticket: Ticket, **fields: object) -> Ticket:
        """Change fields of a ticket's right and return the ticket; nothing is told of it."""
        assert ticket.reservation is not None
        right = msgspec.structs.replace(ticket.reservation, **fields)
        return self.put(msgspec.structs.replace(ticket, reservation=right))

    def tell(self, ticket: Ticket) -> None:
        """Record a ticket's new state for its owner and the controller."""
        policy = self.document.policy
        audience = {ticket.claimant.peer_id} | ({policy.controller} if policy else set())
        self.emit(ticket.state, audience, ticket)

    def emit(self, state: str, audience: Iterable[str], ticket: Ticket | None = None, note: str = "") -> None:
        """Record an event under the next sequence."""
        sequence = self.document.event_sequence + 1
        policy = self.document.policy
        right = ticket.reservation if ticket is not None else None
        event = ResourceEvent(
            resource=self.key,
            sequence=sequence,
            epoch=self.document.epoch,
            state=str(state),
            at_ms=self.now.wall_ms,
            audience=tuple(sorted(audience)),
            request_id=ticket.request_id if ticket is not None else None,
            principal=ticket.claimant.peer_id if ticket is not None else None,
            controller=policy.controller if policy is not None else None,
            fence=right.fence if right is not None else None,
            note=note,
        )
        self.change(events=(*self.document.events, event), event_sequence=sequence)
        self.events.append(event)

    def controller_life(self) -> Liveness | None:
        """Return what is known of the controller, None where there is none; `gone` is proven."""
        policy = self.document.policy
        if policy is None:
            return None
        seen = self.facts.process(policy.controller_owner)
        told = self.facts.peers.get(policy.controller)
        return "gone" if "gone" in (seen, told) else told or seen

    def everyone(self) -> set[str]:
        """Return the audience of a policy's events: who is enrolled, and who waits or holds."""
        live = {ticket.claimant.peer_id for ticket in self.document.tickets if ticket.state not in FINISHED}
        return live | set(self.document.enrolment)

    def prune(self) -> None:
        """Forget finished tickets past their time or number, and the oldest events past theirs."""
        oldest_ms = self.now.wall_ms - FINISHED_KEPT_MS
        finished = [ticket for ticket in self.document.tickets if ticket.finished_ms is not None]
        kept = {
            ticket.request_id for ticket in finished[-FINISHED_KEPT_MAX:] if _ended_ms(ticket) > oldest_ms
        }
        if len(kept) < len(finished):
            self.change(
                tickets=tuple(
                    ticket
                    for ticket in self.document.tickets
                    if ticket.finished_ms is None or ticket.request_id in kept
                )
            )
        events = self.document.events
        if len(events) > EVENTS_MAX:
            self.change(events=events[-EVENTS_MAX:], events_dropped=events[-EVENTS_MAX - 1].sequence)

    def deadline_mono_ms(self) -> int | None:
        """Return when time alone will change the document next, or None."""
        instants: list[int] = []
        holder = self.document.holder
        right = holder.reservation if holder is not None else None
        if holder is not None and right is not None:
            if holder.state is TicketState.RESERVED:
                instants.append(lapse_mono_ms(right))
            elif right.gone_since_mono_ms is not None:
                instants.append(right.gone_since_mono_ms + QUARANTINE_MS)
        instants += [
            blocker.gone_since_mono_ms + QUARANTINE_MS
            for blocker in self.document.blockers
            if blocker.gone_since_mono_ms is not None
        ]
        return min(instants, default=None)


def lapse_mono_ms(right: Reservation) -> int:
    """Return when an unused right lapses, in monotonic milliseconds of its own boot."""
    if right.expires_mono_ms is not None:
        return right.expires_mono_ms
    return right.granted_mono_ms + BUNDLE_WAIT_MS_MAX


def _ended_ms(ticket: Ticket) -> int:
    return ticket.finished_ms or 0
