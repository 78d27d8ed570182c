"""Who gets the right next.

Theory. All tickets of one command are queued in one transaction, so two commands stand in the same
order in every queue they share. Where nobody decides by hand, the head of a queue is therefore never
passed by: a command that waits for one more resource keeps the others from those behind it, no two
commands can wait for each other, and none starves. A ticket that waits for somebody's decision about
another resource, or whose claimant does not answer, is passed by and keeps its place.

Rule 1: the preconditions of a grant are checked in one order, and the first that fails is told.
Rule 2: a right is given by capacity: never past a holder, never past a blocker.
Rule 3: the rights of one command start their clock together, when the last of them is given.

Source: reference/native.md 2.13 "Grant preconditions", 3.5 "several resources", "grant mode"; I31, I35.
"""

from collections.abc import Mapping

from tieline.engine.coordination.commands import RESERVATION_MS, AutoGrant, Grant
from tieline.engine.coordination.turn import Turn, controls, is_enrolled, is_granting
from tieline.errors import Refusal
from tieline.machine.launch import is_proven_gone
from tieline.model.resource import ResourceKey, Ticket, TicketState

__all__ = ["MissingError", "Turns", "auto_grant", "grant", "refusal_of_state", "start_clock"]

Turns = Mapping[ResourceKey, Turn]


class MissingError(Exception):
    """Nothing can be decided without these documents."""

    def __init__(self, keys: frozenset[ResourceKey]) -> None:
        """Name the resources."""
        super().__init__(*sorted(keys))
        self.keys = keys


def grant(turn: Turn, command: Grant, turns: Turns) -> Ticket | Refusal:
    """Return the ticket with its right, or the first precondition that fails.

    Raises:
        MissingError: the ticket belongs to a bundle of which a document was not given.
    """
    document = turn.document
    if command.epoch is not None and command.epoch != document.epoch:
        return Refusal("STALE_POLICY", "the policy of the resource has changed")
    if document.policy is None:
        return Refusal("CAPABILITY_DENIED", "nobody controls an open resource: it grants itself in order")
    if not controls(document, command.caller):
        return Refusal("CAPABILITY_DENIED", "only the controller of the resource grants it")
    if turn.facts.peers.get(document.policy.controller) != "alive":
        return Refusal("CONTROLLER_UNAVAILABLE", "the controller of the resource does not answer")
    ticket = document.ticket(command.request_id)
    if ticket is None:
        return Refusal("INVALID_PARAMS", "no ticket here has this request id")
    if ticket.state not in (TicketState.QUEUED, TicketState.RESERVED):
        return refusal_of_state(ticket)
    if turn.facts.liveness(ticket.claimant) != "alive":
        return Refusal("TARGET_ENDED", "the claimant does not answer")
    if not is_enrolled(document, ticket.claimant):
        return Refusal("SCOPE_DENIED", "the claimant is no longer enrolled")
    obstacle = _obstacle(turn, ticket)
    if obstacle is not None:
        return obstacle
    if ticket.state is TicketState.RESERVED:
        return ticket  # granted already: the answer is repeated, its clock is not
    _need(ticket, turns)
    turn.reserve(ticket)
    start_clock(ticket, turns)
    after = turn.document.ticket(ticket.request_id)
    assert after is not None
    return after


def auto_grant(turns: Turns, command: AutoGrant) -> tuple[Ticket, ...]:
    """Return the tickets that were given the right, in order; a command's are given all or none.

    Raises:
        MissingError: whether the head of a queue may go depends on documents that were not given.
    """
    given: list[Ticket] = []
    for key in sorted(turns):
        turn = turns[key]
        if _is_in_order(turn, command) and _is_free(turn):
            given += _grant_head(turn, turns, command)
    return tuple(given)


def refusal_of_state(ticket: Ticket) -> Refusal:
    """Return why a ticket that does not wait, or no longer, cannot be used."""
    match ticket.state:
        case TicketState.STALE:
            return Refusal("STALE_POLICY", "another policy came before the ticket was used")
        case TicketState.STARTING | TicketState.RUNNING:
            return Refusal("RESOURCE_BUSY", "the ticket is in use")
        case TicketState.QUEUED | TicketState.RESERVED:
            return Refusal("RESOURCE_BUSY", "the ticket waits", is_retryable=True)
        case TicketState.ENDED:
            return Refusal("TARGET_ENDED", "the claimant ended before the ticket was used")
        case _:
            return Refusal("RESERVATION_EXPIRED", f"the ticket is {ticket.state}")


def _obstacle(turn: Turn, ticket: Ticket) -> Refusal | None:
    """Return who stands in the way of a grant, or None."""
    if turn.document.blockers:
        return Refusal("RESOURCE_BUSY", "commands admitted before the policy have not ended")
    holder = turn.document.holder
    if holder is None or holder.request_id == ticket.request_id:
        return None
    right = holder.reservation
    assert right is not None, "a holder has a right"
    probe = turn.facts.probes.get(holder.launch_id or "")
    owner = right.supervisor or holder.claimant.owner
    is_lost = turn.facts.process(owner) != "alive" and (probe is None or probe.state != "alive")
    if holder.state is not TicketState.RESERVED and is_lost:
        # Not the next look's business: what the quarantine will free needs no operator.
        is_gone = is_proven_gone(probe, right.boot_id, turn.facts.boot_id, has_evidence=bool(right.processes))
        if not is_gone:
            return Refusal("RECOVERY_REQUIRED", "the holder's owner is gone, the end of its command unproven")
    return Refusal("RESOURCE_BUSY", "another ticket holds the resource", is_retryable=True)


def _is_free(turn: Turn) -> bool:
    return turn.document.holder is None and not turn.document.blockers


def _is_in_order(turn: Turn, command: AutoGrant) -> bool:
    """Return whether the caller's looking on alone gives this resource to who is due."""
    is_chosen = turn.document.policy is None or command.only is None or turn.key in command.only
    return is_chosen and is_granting(turn.document, command.caller)


def _grant_head(turn: Turn, turns: Turns, command: AutoGrant) -> list[Ticket]:
    """Grant the ticket whose turn it is, with all that its command needs, or nothing."""
    ticket = _head(turn, turns, command)
    if ticket is None:
        return []
    pending: list[tuple[Turn, Ticket]] = []
    for key in ticket.bundle or (turn.key,):
        other = turns[key]
        mine = _of_bundle(other, ticket)
        assert mine is not None, "the head of a queue has all its tickets"
        if mine.state is TicketState.RESERVED:
            continue
        head = _head(other, turns, command)
        if not _is_free(other) or head is None or head.request_id != mine.request_id:
            return []
        pending.append((other, mine))
    for other, mine in pending:
        other.reserve(mine)
    start_clock(ticket, turns)
    return [_latest(other, mine) for other, mine in pending]


def _head(turn: Turn, turns: Turns, command: AutoGrant) -> Ticket | None:
    """Return the oldest ticket that nothing but the resources themselves keeps waiting."""
    for ticket in turn.document.queue:
        is_able = turn.facts.liveness(ticket.claimant) == "alive" and is_enrolled(
            turn.document, ticket.claimant
        )
        if is_able and _is_ours_to_decide(ticket, turns, command):
            return ticket
    return None


def _is_ours_to_decide(ticket: Ticket, turns: Turns, command: AutoGrant) -> bool:
    """Return whether every resource of the ticket's command is given already, or needs only the caller."""
    _need(ticket, turns)
    for key in ticket.bundle:
        mine = _of_bundle(turns[key], ticket)
        if mine is None or mine.state not in (TicketState.QUEUED, TicketState.RESERVED):
            return False
        if mine.state is TicketState.QUEUED and not _is_in_order(turns[key], command):
            return False
    return True


def _need(ticket: Ticket, turns: Turns) -> None:
    missing = frozenset(ticket.bundle) - frozenset(turns)
    if missing:
        raise MissingError(missing)


def _of_bundle(turn: Turn, ticket: Ticket) -> Ticket | None:
    """Return the ticket of the same command on another resource."""
    if not ticket.bundle:
        return ticket
    return turn.document.launched(ticket.launch_id or "")


def start_clock(ticket: Ticket, turns: Turns) -> None:
    """Start the clock of a bundle that has become whole."""
    rights = [(turns[key], _of_bundle(turns[key], ticket)) for key in ticket.bundle]
    if not all(mine is not None and mine.state is TicketState.RESERVED for _, mine in rights):
        return
    for turn, mine in rights:
        assert mine is not None
        turn.set_right(mine, expires_mono_ms=turn.now.mono_ms + RESERVATION_MS)


def _latest(turn: Turn, ticket: Ticket) -> Ticket:
    after = turn.document.ticket(ticket.request_id)
    assert after is not None, "a ticket that was just granted is kept"
    return after
