"""What time and proof do to a resource, before any command is looked at.

Rule 1: time ends only what nothing can have run under: unused rights.
Rule 2: a command that may have started ends by proof, seen over the quarantine; no age of a heartbeat,
no missing number and no missing file is one.
Rule 3: a command that never reached the ledger never started, once whoever would have put it there is
proven gone: the record comes before the start.

Source: reference/native.md 2.13, 2.14, 5; reference/reliability.md I31, I32, I34, I36.
"""

import msgspec

from tieline.engine.coordination.commands import QUARANTINE_MS
from tieline.engine.coordination.turn import Turn, lapse_mono_ms
from tieline.machine.launch import is_proven_gone
from tieline.machine.ticket import Step
from tieline.model.resource import FINISHED, Blocker, Probe, Reservation, Ticket, TicketState

__all__ = ["gone_since", "is_seen_long_enough", "observe"]


def observe(turn: Turn) -> None:
    """Let time and proof have their effect on one document."""
    for ticket in turn.document.tickets:
        if ticket.state in FINISHED:
            continue
        if ticket.state is TicketState.RESERVED and _is_lapsed(turn, ticket):
            turn.move(ticket, Step.LAPSE)
        elif ticket.state in (TicketState.QUEUED, TicketState.RESERVED):
            if turn.facts.liveness(ticket.claimant) == "gone":
                turn.move(ticket, Step.END)
        else:
            _observe_holder(turn, ticket)
    _observe_blockers(turn)
    turn.prune()


def gone_since(known: int | None, probe: Probe | None, now_mono_ms: int, *, is_gone: bool) -> int | None:
    """Return since when a tree is seen gone, None while it is not.

    Args:
        known: What earlier looks left.
        probe: This look; None when nobody looked, which changes nothing.
        now_mono_ms: The moment of this look.
        is_gone: Whether this look proves it.
    """
    if probe is None:
        return known
    if not is_gone:
        return None
    seen = [since for since in (known, probe.since_mono_ms, now_mono_ms) if since is not None]
    return min(seen)


def is_seen_long_enough(since_mono_ms: int | None, now_mono_ms: int) -> bool:
    """Return whether the quarantine has passed."""
    return since_mono_ms is not None and now_mono_ms - since_mono_ms >= QUARANTINE_MS


def _is_lapsed(turn: Turn, ticket: Ticket) -> bool:
    right = _right(ticket)
    here = turn.facts.boot_id
    if right.boot_id and here and right.boot_id != here:
        return True  # its clock stopped with its boot, and so did whoever would have used it
    return turn.now.mono_ms >= lapse_mono_ms(right)


def _observe_holder(turn: Turn, ticket: Ticket) -> None:
    right = _right(ticket)
    if _was_never_admitted(turn, ticket, right):
        turn.move(ticket, Step.SPAWN_FAILED)
        return
    probe = turn.facts.probes.get(ticket.launch_id or "")
    if _is_of_another_boot(turn, right.boot_id):
        turn.move(ticket, Step.COMPLETE)
        return
    is_gone = is_proven_gone(probe, right.boot_id, turn.facts.boot_id, has_evidence=bool(right.processes))
    since = gone_since(right.gone_since_mono_ms, probe, turn.now.mono_ms, is_gone=is_gone)
    if since != right.gone_since_mono_ms:
        ticket = turn.set_right(ticket, gone_since_mono_ms=since)
    if probe is not None and is_seen_long_enough(since, turn.now.mono_ms):
        turn.move(ticket, Step.COMPLETE)


def _was_never_admitted(turn: Turn, ticket: Ticket, right: Reservation) -> bool:
    """Return whether it is proven that the command was never put in the ledger, so never started."""
    launches = turn.facts.launches
    if ticket.state is not TicketState.STARTING or launches is None or ticket.launch_id in launches:
        return False
    # The ledger was read under its lock: whoever is gone cannot add the record any more. Both may
    # start the command, so both must be gone.
    starters = {ticket.claimant.starter, right.supervisor or ticket.claimant.starter}
    return all(turn.facts.process(starter) == "gone" for starter in starters)


def _observe_blockers(turn: Turn) -> None:
    before = turn.document.blockers
    after = tuple(left for blocker in before if (left := _observe_blocker(turn, blocker)) is not None)
    if after == before:
        return
    turn.change(blockers=after)
    if not after:
        turn.emit("previous_commands_completed", turn.everyone())


def _observe_blocker(turn: Turn, blocker: Blocker) -> Blocker | None:
    """Return the blocker as it is now known, or None when its end is proven."""
    facts = turn.facts
    launch = None
    if facts.launches is not None:
        # A record leaves the ledger by proof or by an operator's act, and by nothing else.
        launch = facts.launches.get(blocker.launch_id)
        if launch is None:
            return None
    if _is_of_another_boot(turn, blocker.boot_id):
        return None
    has_evidence = blocker.has_evidence or (launch is not None and bool(launch.processes))
    probe = facts.probes.get(blocker.launch_id)
    is_gone = is_proven_gone(probe, blocker.boot_id, facts.boot_id, has_evidence=has_evidence)
    since = gone_since(blocker.gone_since_mono_ms, probe, turn.now.mono_ms, is_gone=is_gone)
    if probe is not None and is_seen_long_enough(since, turn.now.mono_ms):
        return None
    return msgspec.structs.replace(blocker, has_evidence=has_evidence, gone_since_mono_ms=since)


def _is_of_another_boot(turn: Turn, boot_id: str) -> bool:
    return is_proven_gone(None, boot_id, turn.facts.boot_id, has_evidence=False)


def _right(ticket: Ticket) -> Reservation:
    assert ticket.reservation is not None, "a holder has a right"
    return ticket.reservation
