"""One claim on a resource, from the queue to its end.

Theory. A claim gives a right in two parts. Up to the moment its command is put in the ledger the right
is unused: it lapses, is given back, or falls with its policy, and nothing can have run under it. From
that moment something may run, and only proof that nothing does, or an operator's act, takes it away.
So the steps that time, a policy or a lost claimant may take stop at `starting`.

Rule 1: every (state, step) pair is in exactly one table.
Rule 2: only `reserve` gives a fence, and the caller gives it one higher than any before.
Rule 3: this module knows neither clock nor disk nor process; it is told.

Source: reference/native.md 2.13, 2.14; reference/reliability.md I31, I33 to I35, I40.
"""

from enum import StrEnum

import msgspec

from tieline.model.resource import ACTIVE, FINISHED, Reservation, Ticket, TicketState

__all__ = ["IGNORED", "MOVES", "REFUSED", "Step", "reserve", "step"]


class Step(StrEnum):
    """What may happen to a claim."""

    RESERVE = "reserve"
    LAPSE = "lapse"  # its 30 s passed unused
    RELEASE = "release"  # its owner gives the unused right back
    CANCEL = "cancel"  # its owner no longer wants it
    SUPERSEDE = "supersede"  # another policy
    END = "end"  # its claimant is gone
    BEGIN = "begin"  # its command goes into the ledger
    START = "start"  # its processes are known
    SPAWN_FAILED = "spawn_failed"  # proven: nothing was started
    COMPLETE = "complete"  # proven: nothing runs any more
    RECOVER = "recover"  # an operator answers for it


_Q, _R, _S, _N = TicketState.QUEUED, TicketState.RESERVED, TicketState.STARTING, TicketState.RUNNING

MOVES: dict[tuple[TicketState, Step], TicketState] = {
    (_Q, Step.RESERVE): _R,
    (_Q, Step.CANCEL): TicketState.CANCELLED,
    (_Q, Step.SUPERSEDE): TicketState.STALE,
    (_Q, Step.END): TicketState.ENDED,
    (_R, Step.LAPSE): TicketState.EXPIRED,
    (_R, Step.RELEASE): TicketState.RELEASED,
    (_R, Step.CANCEL): TicketState.CANCELLED,
    (_R, Step.SUPERSEDE): TicketState.STALE,
    (_R, Step.END): TicketState.ENDED,
    (_R, Step.BEGIN): _S,
    (_S, Step.START): _N,
    (_S, Step.SPAWN_FAILED): TicketState.RELEASED,
    (_S, Step.COMPLETE): TicketState.COMPLETED,  # it ended before its processes were published
    (_S, Step.RECOVER): TicketState.RELEASED,
    (_N, Step.COMPLETE): TicketState.COMPLETED,
    (_N, Step.RECOVER): TicketState.RELEASED,
}
"""What changes the state."""

REFUSED: frozenset[tuple[TicketState, Step]] = frozenset(
    {
        (_Q, Step.RELEASE), (_Q, Step.BEGIN), (_Q, Step.START), (_Q, Step.SPAWN_FAILED), (_Q, Step.COMPLETE),
        (_Q, Step.RECOVER),
        (_R, Step.START), (_R, Step.SPAWN_FAILED), (_R, Step.COMPLETE), (_R, Step.RECOVER),
        (_S, Step.RESERVE), (_S, Step.RELEASE), (_S, Step.CANCEL), (_N, Step.RESERVE), (_N, Step.RELEASE),
        (_N, Step.CANCEL), (_N, Step.SPAWN_FAILED),
    }
    | {(state, one) for state in FINISHED for one in (Step.RESERVE, Step.BEGIN, Step.START, Step.RECOVER)}
)  # fmt: skip
"""What the asker is told a no for."""

IGNORED: frozenset[tuple[TicketState, Step]] = frozenset(
    {(_Q, Step.LAPSE), (_R, Step.RESERVE), (_S, Step.BEGIN), (_N, Step.BEGIN), (_N, Step.START)}
    | {(state, one) for state in (_S, _N) for one in (Step.LAPSE, Step.SUPERSEDE, Step.END)}
    | {
        (state, one)
        for state in FINISHED
        for one in (
            Step.LAPSE, Step.RELEASE, Step.CANCEL, Step.SUPERSEDE, Step.END, Step.SPAWN_FAILED, Step.COMPLETE
        )
    }
)  # fmt: skip
"""Late or repeated, or without power over what may run: the first truth stands."""


def step(ticket: Ticket, taken: Step, now_wall_ms: int) -> Ticket | None:
    """Return the ticket after `taken`, or None when it does not change (`REFUSED` and `IGNORED`).

    `reserve` is the step that needs more: it has its own function.
    """
    after = MOVES.get((ticket.state, taken))
    if after is None or taken is Step.RESERVE:
        return None
    finished_ms = None if after in ACTIVE else now_wall_ms
    return msgspec.structs.replace(ticket, state=after, finished_ms=finished_ms)


def reserve(ticket: Ticket, reservation: Reservation) -> Ticket | None:
    """Return the ticket with its right, or None when it does not wait for one."""
    after = MOVES.get((ticket.state, Step.RESERVE))
    return None if after is None else msgspec.structs.replace(ticket, state=after, reservation=reservation)
