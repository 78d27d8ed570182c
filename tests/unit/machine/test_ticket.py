"""Show that a claim moves by its table, and that what may run is ended by proof alone."""

from itertools import product

import pytest

from tieline.machine.ticket import IGNORED, MOVES, REFUSED, Step, reserve, step
from tieline.model.process import ProcessIdentity
from tieline.model.resource import ACTIVE, FINISHED, Claimant, Reservation, Ticket, TicketState

Q, R, S, N = TicketState.QUEUED, TicketState.RESERVED, TicketState.STARTING, TicketState.RUNNING
OWNER = ProcessIdentity("b", 1, 2, 3, None, "linux")

# reference/native.md 2.13 and 2.14, written out again by hand.
TABLE = {
    Q: {Step.RESERVE: R, Step.CANCEL: "cancelled", Step.SUPERSEDE: "stale", Step.END: "ended"},
    R: {
        Step.LAPSE: "expired",
        Step.RELEASE: "released",
        Step.CANCEL: "cancelled",
        Step.SUPERSEDE: "stale",
        Step.END: "ended",
        Step.BEGIN: S,
    },
    S: {Step.START: N, Step.SPAWN_FAILED: "released", Step.COMPLETE: "completed", Step.RECOVER: "released"},
    N: {Step.COMPLETE: "completed", Step.RECOVER: "released"},
}


def ticket(state: TicketState) -> Ticket:
    return Ticket("q", 1, Claimant("p", "i", "a", OWNER), "why", 5, state=state)


def test_pair_of_state_and_step_is_in_exactly_one_table() -> None:
    """Every pair has exactly one answer."""
    for pair in product(TicketState, Step):
        assert sum(pair in table for table in (MOVES, REFUSED, IGNORED)) == 1, pair


@pytest.mark.parametrize(("before", "taken"), list(product(TicketState, Step)))
def test_step_in_every_state_moves_only_along_the_table(before: TicketState, taken: Step) -> None:
    """A step changes the state where the reference says so, and nothing elsewhere."""
    expected = TABLE.get(before, {}).get(taken)
    if taken is Step.RESERVE:
        after = reserve(ticket(before), Reservation("r", 1, 0, "b", 5, 5))
    else:
        after = step(ticket(before), taken, 77)
    assert (after.state if after is not None else None) == expected
    if after is not None:
        assert after.finished_ms == (77 if after.state in FINISHED else None)


def test_reserve_as_a_plain_step_does_nothing() -> None:
    """A right is given with its reservation or not at all."""
    assert step(ticket(Q), Step.RESERVE, 1) is None


@pytest.mark.clause("I34")
def test_time_policy_or_claimant_takes_nothing_that_may_run() -> None:
    """From `starting` on neither time nor a policy nor a lost claimant ends a right."""
    for state in (S, N):
        for taken in (Step.LAPSE, Step.SUPERSEDE, Step.END, Step.RELEASE, Step.CANCEL):
            assert step(ticket(state), taken, 1) is None


@pytest.mark.clause("I35")
def test_finished_ticket_is_never_given_a_right() -> None:
    """What was cancelled, ended or otherwise finished has no way out."""
    assert not [pair for pair in MOVES if pair[0] in FINISHED]
    for state in FINISHED | ACTIVE:
        assert reserve(ticket(state), Reservation("r", 1, 0, "b", 5, 5)) is None
