"""Tickets: made, bound to a command, given back, withdrawn.

Rule 1: the same request gives the same ticket; the same id for something else is a conflict.
Rule 2: a ticket belongs to the peer that made it; a root may act for its own ended runs.
Rule 3: a launch is one command: its id is never bound to another.
Rule 4: what an ancestor of the command holds is not claimed again, or the two would wait for ever.

Source: reference/native.md 2.13, 2.14 "Claim rules", 3.5 "nested gated commands"; I35.
"""

import msgspec

from tieline.engine.coordination.commands import (
    QUEUED_MAX,
    REASON_CHARACTERS_MAX,
    TICKETS_MAX,
    Cancel,
    Claim,
    EndClaimant,
    Release,
    Request,
)
from tieline.engine.coordination.turn import Turn, is_enrolled
from tieline.errors import Refusal
from tieline.machine.ticket import REFUSED, Step
from tieline.model.identity import Capability, Principal, is_plain_id
from tieline.model.resource import FINISHED, Claimant, ResourceKey, Ticket, TicketState

__all__ = ["claim", "end_claimant", "inherited", "request", "withdraw"]

REQUEST_ID_CHARACTERS_MAX = 240
"""Below the 256 of an id: several tickets of one command add a number to it."""
_UNUSED = frozenset({TicketState.QUEUED, TicketState.RESERVED})


def request(turn: Turn, command: Request) -> Ticket | Refusal:
    """Return the ticket of this request, made when it is new."""
    refusal = _may_claim(turn, command.caller, command.claimant, command.reason, command.request_id)
    if refusal is not None:
        return refusal
    known = turn.document.ticket(command.request_id)
    if known is None:
        return _make(turn, command.claimant, command.request_id, command.reason)
    if known.claimant.peer_id != command.claimant.peer_id or known.reason != command.reason:
        return Refusal("REQUEST_ID_CONFLICT", "this request id was used for another request")
    return known


def inherited(turn: Turn, command: Claim) -> Ticket | None:
    """Return the ticket of the ancestor that holds this resource for the command, or None."""
    holder = turn.document.holder
    # Launches stand in launches: what any of them holds waits for this command, not the innermost's alone.
    if command.inherits_from is None or holder is None or holder.launch_id not in turn.facts.ancestors:
        return None
    return holder if holder.state in (TicketState.STARTING, TicketState.RUNNING) else None


def claim(turn: Turn, command: Claim, bundle: tuple[ResourceKey, ...], request_id: str) -> Ticket | Refusal:
    """Return this command's ticket here: the one bound to it, an unassigned one, or a new one.

    Args:
        turn: The resource.
        command: Who claims what.
        bundle: All resources of the command, empty when it is this one alone.
        request_id: For a ticket that must be made.
    """
    refusal = _may_claim(turn, command.caller, command.claimant, command.reason, request_id)
    if refusal is not None:
        return refusal
    bound = turn.document.launched(command.launch_id)
    if bound is not None:
        if bound.claimant.peer_id != command.claimant.peer_id:
            return Refusal("SCOPE_DENIED", "this launch belongs to another peer")
        if bound.digest != command.digest:
            return Refusal("REQUEST_ID_CONFLICT", "this launch id was used for another command")
        if bound.state not in FINISHED:
            return bound
    found = _unassigned(turn, command)
    if isinstance(found, Refusal):
        return found
    if found is None:
        if turn.document.ticket(request_id) is not None:
            return Refusal("REQUEST_ID_CONFLICT", "this request id was used for another request")
        ticket = _bound(_new(turn, command.claimant, request_id, command.reason), command, bundle)
        return _admitted(turn, ticket)
    ticket = turn.put(_bound(found, command, bundle))
    if ticket.bundle and ticket.reservation is not None:
        # Its clock starts again when the rest of the bundle is granted.
        ticket = turn.set_right(ticket, expires_mono_ms=None)
    return ticket


def withdraw(turn: Turn, command: Release | Cancel) -> Ticket | Refusal:
    """Return the ticket after its owner gave it up; a repeat changes nothing."""
    ticket = turn.document.ticket(command.request_id)
    if ticket is None:
        return Refusal("INVALID_PARAMS", "no ticket here has this request id")
    if not _may_act(command.caller, ticket):
        return Refusal("SCOPE_DENIED", "the ticket belongs to another peer")
    taken = Step.RELEASE if isinstance(command, Release) else Step.CANCEL
    if (ticket.state, taken) in REFUSED:
        if ticket.state is TicketState.QUEUED:
            return Refusal("INVALID_PARAMS", "the ticket holds no reservation yet: cancel it instead")
        return Refusal("RESOURCE_BUSY", "its command may be running: the ticket ends when that is over")
    return turn.move(ticket, taken) or ticket


def end_claimant(turn: Turn, command: EndClaimant) -> tuple[Ticket, ...] | Refusal:
    """Return the unused tickets of an ended peer, which end with it; its commands keep theirs."""
    ended: list[Ticket] = []
    for ticket in turn.document.tickets:
        if ticket.claimant.peer_id != command.peer_id or ticket.state not in _UNUSED:
            continue
        if not _may_act(command.caller, ticket):
            return Refusal("SCOPE_DENIED", "the ticket belongs to another peer")
        after = turn.move(ticket, Step.END)
        assert after is not None, "an unused ticket can end"
        ended.append(after)
    return tuple(ended)


def _may_claim(
    turn: Turn, caller: Principal, claimant: Claimant, reason: str, request_id: str
) -> Refusal | None:
    """Return why this claimant may not claim here, or None. Text in a reason gives no right."""
    if not caller.may(Capability.REQUEST):
        return Refusal("CAPABILITY_DENIED", "this peer may not request resources")
    if caller.peer.id != claimant.peer_id:
        return Refusal("SCOPE_DENIED", "a ticket is claimed by its own peer")
    if not 0 < len(reason) <= REASON_CHARACTERS_MAX:
        return Refusal("INVALID_PARAMS", f"a reason has 1 to {REASON_CHARACTERS_MAX} characters")
    if not is_plain_id(request_id) or len(request_id) > REQUEST_ID_CHARACTERS_MAX:
        return Refusal(
            "INVALID_PARAMS", f"a request id has 1 to {REQUEST_ID_CHARACTERS_MAX} plain characters"
        )
    if not is_enrolled(turn.document, claimant):
        return Refusal(
            "SCOPE_DENIED",
            f"the policy of {turn.key}, epoch {turn.document.epoch}, does not name this peer a participant",
        )
    return None


def _may_act(caller: Principal, ticket: Ticket) -> bool:
    """Return whether it is the caller's own ticket, or one of the runs of the caller's root."""
    is_root = caller.peer.run is None and caller.peer.instance == ticket.claimant.instance_id
    return is_root or caller.peer.id == ticket.claimant.peer_id


def _unassigned(turn: Turn, command: Claim) -> Ticket | Refusal | None:
    """Return the ticket that the command shall use, None when one must be made."""
    own = command.claimant.peer_id
    ticket = turn.document.ticket(command.ticket_id) if command.ticket_id is not None else None
    if ticket is not None:
        if ticket.claimant.peer_id != own:
            return Refusal("SCOPE_DENIED", "the ticket belongs to another peer")
        if ticket.launch_id not in (None, command.launch_id):
            return Refusal("REQUEST_ID_CONFLICT", "the ticket is bound to another command")
        if ticket.state not in _UNUSED:
            return Refusal("RESERVATION_EXPIRED", "the ticket is over")
        return ticket
    free = [
        ticket
        for ticket in turn.document.tickets
        if ticket.claimant.peer_id == own and ticket.launch_id is None and ticket.state in _UNUSED
    ]
    if len(free) > 1:
        return Refusal("AMBIGUOUS_TARGET", f"{len(free)} tickets of this peer wait: name one of them")
    return free[0] if free else None


def _bound(ticket: Ticket, command: Claim, bundle: tuple[ResourceKey, ...]) -> Ticket:
    return msgspec.structs.replace(
        ticket,
        # The process that waits is the one that claims for the command, not the one that once asked.
        claimant=command.claimant,
        launch_id=command.launch_id,
        digest=command.digest,
        executable=command.executable,
        bundle=bundle,
    )


def _make(turn: Turn, claimant: Claimant, request_id: str, reason: str) -> Ticket | Refusal:
    return _admitted(turn, _new(turn, claimant, request_id, reason))


def _new(turn: Turn, claimant: Claimant, request_id: str, reason: str) -> Ticket:
    return Ticket(request_id, 0, claimant, reason, turn.now.wall_ms)


def _admitted(turn: Turn, ticket: Ticket) -> Ticket | Refusal:
    if len(turn.document.queue) >= QUEUED_MAX:
        return Refusal("QUEUE_FULL", f"{QUEUED_MAX} tickets wait for the resource", is_retryable=True)
    if len(turn.document.tickets) >= TICKETS_MAX:
        return Refusal("QUEUE_FULL", f"the resource keeps {TICKETS_MAX} tickets", is_retryable=True)
    return turn.add(ticket)
