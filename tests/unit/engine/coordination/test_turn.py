"""Show that numbers only grow, that history is bounded, and who is told what."""

import msgspec
import pytest

from tests.unit.engine.coordination.kit import FACTS, KEY, RUN, A, B, C, at, claimant, policy, principal
from tieline.engine.coordination.commands import EVENTS_MAX, FINISHED_KEPT_MAX, FINISHED_KEPT_MS
from tieline.engine.coordination.turn import Turn, controls, is_enrolled, is_granting
from tieline.machine.ticket import Step
from tieline.model.resource import Blocker, Document, Ticket, TicketState


def turn(document: Document | None = None, ms: int = 0) -> Turn:
    return Turn(document or Document(KEY), FACTS, at(ms))


def ticket(request_id: str = "q", **fields: object) -> Ticket:
    return msgspec.structs.replace(Ticket(request_id, 0, claimant(A), "why", 5), **fields)  # type: ignore[arg-type]


def test_enrolled_are_all_without_a_policy_else_participants_and_controller() -> None:
    """A child counts as its root; the controller needs no listing."""
    governed = Document(KEY, policy=policy(A))
    assert is_enrolled(Document(KEY), claimant(B))
    assert is_enrolled(governed, claimant(A))
    assert is_enrolled(governed, claimant(RUN))
    assert is_enrolled(governed, claimant(C))
    assert not is_enrolled(governed, claimant(B))


def test_control_needs_the_very_peer_and_the_capability() -> None:
    """Neither the name nor the capability alone makes a controller, and nobody controls an open one."""
    governed = Document(KEY, policy=policy(A))
    assert controls(governed, C)
    assert not controls(governed, principal("c"))
    assert not controls(governed, principal("c", run="r", control=True))
    assert not controls(governed, principal("d", control=True))
    assert not controls(Document(KEY), C)
    assert is_granting(Document(KEY), A)
    assert is_granting(governed, C)
    assert not is_granting(governed, A)


@pytest.mark.clause("I38")
def test_ticket_numbers_fences_and_sequences_grow_by_one() -> None:
    """Each claim, each grant and each event gets the next number of its kind."""
    one = turn()
    for number in range(1, 4):
        added = one.add(ticket(f"q{number}"))
        assert added.number == number
        after = one.reserve(added)
        assert after.reservation is not None
        assert after.reservation.fence == number
        one.move(after, Step.RELEASE)
    assert [event.sequence for event in one.events] == list(range(1, 10))
    assert one.document.events == tuple(one.events)
    assert len({t.reservation.reservation_id for t in one.document.tickets if t.reservation}) == 3


def test_step_that_does_not_apply_tells_nothing() -> None:
    """A late step neither changes the ticket nor raises an event."""
    one = turn()
    added = one.add(ticket())
    assert one.move(added, Step.LAPSE) is None
    assert len(one.events) == 1


@pytest.mark.clause("native-203")
def test_event_of_a_ticket_goes_to_owner_and_controller() -> None:
    """An event names resource, request, epoch and sequence, and goes to whom it concerns."""
    one = turn(Document(KEY, epoch=4, policy=policy(A, B)))
    one.reserve(one.add(ticket()))
    event = one.events[-1]
    assert (event.resource, event.request_id, event.epoch, event.sequence) == (KEY, "q", 4, 2)
    assert (event.state, event.fence, event.principal) == ("reserved", 1, A.peer.id)
    assert event.audience == tuple(sorted({A.peer.id, C.peer.id}))
    assert event.controller == C.peer.id
    alone = turn()
    alone.add(ticket())
    assert alone.events[0].audience == (A.peer.id,)
    assert alone.events[0].controller is None


def test_everyone_is_the_enrolled_and_the_live() -> None:
    """A policy's event reaches the enrolled and those whose tickets live."""
    done = ticket("old", claimant=claimant(C), state=TicketState.EXPIRED, finished_ms=1)
    document = Document(KEY, enrolment=(B.peer.id,), tickets=(ticket(), done))
    assert turn(document).everyone() == {A.peer.id, B.peer.id}


@pytest.mark.clause("native-193")
def test_history_is_bounded_and_what_is_active_stays() -> None:
    """Old finished tickets and events go; what waits, runs or blocks does not."""
    count = FINISHED_KEPT_MAX + 10
    tickets = tuple(
        ticket(f"q{n}", state=TicketState.COMPLETED, finished_ms=1_000_000 + n) for n in range(count)
    )
    live = ticket("live"), ticket("run", state=TicketState.RUNNING)
    one = turn(Document(KEY, tickets=(live[0], *tickets, live[1])), 500)
    one.prune()
    kept = one.document.tickets
    assert (kept[0], kept[-1]) == live
    assert [t.request_id for t in kept[1:-1]] == [f"q{n}" for n in range(10, count)]
    unchanged = one.document
    one.prune()
    assert one.document is unchanged
    later = turn(one.document, FINISHED_KEPT_MS + count)
    later.prune()
    assert later.document.tickets == live


def test_events_past_their_number_are_counted_as_dropped() -> None:
    """A reader can tell that events it never saw are no longer kept."""
    one = turn()
    for number in range(EVENTS_MAX + 3):
        one.emit(f"s{number}", ())
    one.prune()
    assert len(one.document.events) == EVENTS_MAX
    assert one.document.events_dropped == 3
    assert one.document.events[0].sequence == 4


def test_deadline_is_the_next_instant_that_time_alone_matters() -> None:
    """A right that lapses and an end in quarantine have one; a running command has none."""
    one = turn()
    assert one.deadline_mono_ms() is None
    held = one.reserve(one.add(ticket()))
    assert one.deadline_mono_ms() == 30_000
    held = one.set_right(held, expires_mono_ms=None)
    assert one.deadline_mono_ms() == 300_000
    used = one.move(held, Step.BEGIN)
    assert used is not None
    assert one.deadline_mono_ms() is None
    one.set_right(used, gone_since_mono_ms=40)
    assert one.deadline_mono_ms() == 540
    blocker = Blocker("l", "p", "a", "sh", "b", 1, gone_since_mono_ms=10)
    one.change(blockers=(blocker, msgspec.structs.replace(blocker, gone_since_mono_ms=None)))
    assert one.deadline_mono_ms() == 510
