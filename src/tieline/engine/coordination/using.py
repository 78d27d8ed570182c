"""A right in use: begun, started, ended; or answered for by an operator.

Rule 1: every step presents the fence it was granted; an older holder that wakes up is refused.
Rule 2: what begins was checked an instant before: state, command, fence, epoch, and that the rights of
all its resources are there.
Rule 3: the end of what may have started is told with a proof. An operator's word is recorded with it.

Source: reference/native.md 2.14, 3.5 "fencing", "operator recovery"; I32 to I35, I40.
"""

from tieline.engine.coordination.commands import (
    REASON_CHARACTERS_MAX,
    Begin,
    Complete,
    Recover,
    SpawnFailed,
    Started,
)
from tieline.engine.coordination.granting import refusal_of_state
from tieline.engine.coordination.turn import Turn
from tieline.errors import Refusal
from tieline.machine.ticket import Step
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Reservation, Ticket, TicketState

__all__ = ["begin", "complete", "recover", "spawn_failed", "started"]

_OVER = Refusal("RESERVATION_EXPIRED", "the right was given to somebody else since")
_USED = frozenset({TicketState.STARTING, TicketState.RUNNING})


def begin(turn: Turn, command: Begin) -> Ticket | Refusal:
    """Return the ticket, whose command may now be put in the ledger; the same launch may ask again."""
    ticket = turn.document.launched(command.launch_id)
    if ticket is None:
        return Refusal("INVALID_PARAMS", "the launch has no ticket here")
    if ticket.claimant.peer_id != command.caller.peer.id:
        return Refusal("SCOPE_DENIED", "the ticket belongs to another peer")
    if ticket.digest != command.digest:
        return Refusal("REQUEST_ID_CONFLICT", "the ticket was claimed for another command")
    right = ticket.reservation
    if right is None:
        return refusal_of_state(ticket)
    if right.fence != command.fences[turn.key]:
        return _OVER
    if ticket.state in _USED and right.nonce == command.nonce:
        return ticket
    if ticket.state is not TicketState.RESERVED:
        return refusal_of_state(ticket)
    if right.epoch != turn.document.epoch:
        return Refusal("STALE_POLICY", "the policy of the resource has changed")
    if right.expires_mono_ms is None or not command.fences.keys() >= frozenset(ticket.bundle):
        return Refusal("RESOURCE_BUSY", "the command needs more than was granted", is_retryable=True)
    turn.set_right(ticket, nonce=command.nonce, supervisor=command.supervisor)
    return _moved(turn, ticket, Step.BEGIN)


def started(turn: Turn, command: Started) -> Ticket | Refusal:
    """Return the ticket with the processes that were started; more of them may be told later."""
    ticket = _held(turn, command)
    if isinstance(ticket, Refusal):
        return ticket
    if not command.processes:
        return Refusal("INVALID_PARAMS", "a start is told with its processes")
    if ticket.state not in _USED:
        return refusal_of_state(ticket)
    known = _right(ticket).processes
    processes = known + tuple(one for one in command.processes if one not in known)
    ticket = turn.set_right(ticket, processes=processes, ownership=command.ownership, gone_since_mono_ms=None)
    return turn.move(ticket, Step.START) or ticket


def spawn_failed(turn: Turn, command: SpawnFailed) -> Ticket | Refusal:
    """Return the ticket, whose right is given back: nothing was started."""
    ticket = _held(turn, command)
    if isinstance(ticket, Refusal):
        return ticket
    if ticket.state is TicketState.RUNNING:
        return Refusal("RESOURCE_BUSY", "the start was published: the ticket ends with its processes")
    return turn.move(ticket, Step.SPAWN_FAILED) or ticket


def complete(turn: Turn, command: Complete) -> Ticket | Refusal:
    """Return the ticket, whose command is proven to have ended; a repeat changes nothing."""
    ticket = _held(turn, command)
    if isinstance(ticket, Refusal):
        return ticket
    if command.proof.state != "gone":
        return Refusal("RESOURCE_BUSY", "the end of the command is not proven")
    return turn.move(ticket, Step.COMPLETE) or ticket


def recover(turn: Turn, command: Recover) -> tuple[Ticket, ...] | Refusal:
    """End a holder or a blocker on the operator's word; return its ticket, empty for a blocker."""
    if command.caller.peer.run is not None:
        return Refusal("CAPABILITY_DENIED", "only the local user answers for a command")
    if not 0 < len(command.evidence) <= REASON_CHARACTERS_MAX:
        return Refusal("INVALID_PARAMS", f"the evidence has 1 to {REASON_CHARACTERS_MAX} characters")
    holder = turn.document.holder
    blockers = turn.document.blockers
    blocker = next((one for one in blockers if one.launch_id == command.launch_id), None)
    is_holder = holder is not None and holder.launch_id == command.launch_id and holder.state in _USED
    if not is_holder and blocker is None:
        return Refusal("INVALID_PARAMS", "no command of this launch id holds or blocks the resource")
    right = holder.reservation if holder is not None and is_holder else None
    owners = (right.supervisor if right else None, blocker.supervisor if blocker else None)
    refusal = _is_alive(turn, command.launch_id, (*owners, *(right.processes if right else ())))
    if refusal is not None:
        return refusal
    note = f"{command.caller.peer.id}: {command.evidence}"
    if is_holder:
        assert holder is not None
        turn.emit("recovered", turn.everyone(), holder, note)
        return (_moved(turn, holder, Step.RECOVER),)
    turn.change(blockers=tuple(one for one in blockers if one is not blocker))
    turn.emit("recovered", turn.everyone(), note=note)
    return ()


def _is_alive(turn: Turn, launch_id: str, processes: tuple[ProcessIdentity | None, ...]) -> Refusal | None:
    """Return the refusal to recover from what is seen to live, or was not looked at."""
    probe = turn.facts.probes.get(launch_id)
    if probe is None:
        return Refusal("INVALID_PARAMS", "an operator answers for a launch that was looked at")
    launch = (turn.facts.launches or {}).get(launch_id)
    known = (launch.supervisor, *launch.processes) if launch is not None else ()
    if probe.state == "alive" or "alive" in {turn.facts.process(one) for one in (*processes, *known)}:
        return Refusal("RESOURCE_BUSY", "a process of this launch is alive: end it yourself first")
    return None


def _held(turn: Turn, command: Started | SpawnFailed | Complete) -> Ticket | Refusal:
    """Return the ticket that this fence and nonce hold, or held last."""
    ticket = turn.document.launched(command.launch_id)
    right = ticket.reservation if ticket is not None else None
    if ticket is None or right is None:
        return Refusal("INVALID_PARAMS", "the launch holds nothing here")
    if right.fence != command.fences[turn.key]:
        return _OVER
    if not right.nonce or right.nonce != command.nonce:
        return Refusal("SCOPE_DENIED", "the right was not begun by this launch")
    return ticket


def _moved(turn: Turn, ticket: Ticket, taken: Step) -> Ticket:
    current = turn.document.ticket(ticket.request_id)
    assert current is not None
    after = turn.move(current, taken)
    assert after is not None, "the state was checked before"
    return after


def _right(ticket: Ticket) -> Reservation:
    assert ticket.reservation is not None, "a ticket in use has a right"
    return ticket.reservation
