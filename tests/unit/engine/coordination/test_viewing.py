"""Show who sees what of a resource, and that events can be read on without a gap."""

import pytest

from tests.unit.engine.coordination.kit import (
    FACTS,
    KEY,
    RUN,
    STRANGER,
    A,
    B,
    C,
    at,
    do,
    facts,
    governed,
    grant,
    handle,
    holder,
    principal,
    request,
    reserved,
    running,
    set_policy,
)
from tieline.engine.coordination import AutoGrant, Status, events_after, reference
from tieline.model.identity import Principal
from tieline.model.resource import Blocker, Document, Snapshot


def seen(document: Document, who: Principal, ms: int = 0) -> Snapshot:
    after, outcome = handle(document, Status(who, KEY), facts(), at(ms))
    assert outcome.snapshot is not None
    assert after.tickets == document.tickets
    return outcome.snapshot


def test_snapshot_of_an_open_resource_shows_everything_to_who_may_claim() -> None:
    """Holder, queue and waiting times are there, and the command is not."""
    document = do(running(), request(B, "q2", reason="my tests"), 100)
    view = seen(document, B, 350)
    assert (view.state, view.is_configured, view.is_enrolled) == ("running", False, True)
    assert view.holder is not None
    assert (view.holder.alias, view.holder.executable, view.holder.fence) == ("a", "pytest", 1)
    assert view.holder.expires_in_ms is None
    assert view.request_id == "q2"
    assert [(one.reason, one.wait_ms) for one in view.queue] == [("my tests", 250)]
    assert seen(document, B, -5_000).queue[0].wait_ms == 0
    assert view.controller is None


@pytest.mark.clause("native-3.6.20")
def test_snapshot_for_others_says_free_or_busy_and_no_more() -> None:
    """Who is not enrolled learns nothing of reasons, names, numbers or processes."""
    document = do(governed(A, B), request(A, "q", reason="secret"))
    view = seen(document, STRANGER)
    assert view == Snapshot(KEY, "free", is_configured=True, is_enrolled=False)
    assert seen(do(document, grant("q")), STRANGER).state == "busy"
    blocked = Document(KEY, blockers=(Blocker("l", "p", "a", "sh", "boot-1", 1),))
    assert seen(blocked, principal("s", request=False)).state == "busy"
    assert not seen(blocked, principal("s", request=False)).is_configured


@pytest.mark.parametrize("who", [A, RUN, C, B])
def test_snapshot_is_whole_for_participant_child_controller_and_former_member(who: Principal) -> None:
    """Everybody whose commands are gated sees for whom they wait."""
    document = do(governed(A, B), set_policy(A))
    view = seen(document, who)
    assert (view.is_enrolled, view.controller, view.profile) == (True, C.peer.id, "strict")
    assert view.epoch == 2


def test_state_names_holder_blockers_and_absence() -> None:
    """A resource is in its holder's state, runs while blockers remain, or is available."""
    assert seen(Document(KEY), A).state == "unconfigured"
    assert seen(governed(A), A).state == "available"
    assert seen(reserved(), A).state == "reserved"
    blocked = Document(KEY, blockers=(Blocker("l", "p", "a", "sh", "boot-1", 1),))
    view = seen(blocked, A)
    assert view.state == "running"
    assert [one.launch_id for one in view.blockers] == ["l"]


def test_unused_reservation_shows_how_long_it_lasts() -> None:
    """A viewer can see when an unused right lapses."""
    view = seen(reserved(), A, 10_000)
    assert view.holder is not None
    assert view.holder.expires_in_ms == 20_000


def test_reference_names_one_grant_and_no_other() -> None:
    """Two grants of one resource never have the same reference."""
    first = reserved()
    one = reference(first, holder(first))
    second = do(do(do(first, AutoGrant(B), 30_000), request(B, "q2"), 30_000), AutoGrant(B), 30_000)
    other = reference(second, holder(second))
    assert one.startswith("machine/tests@0.1.")
    assert other.startswith("machine/tests@0.2.")


def test_events_after_a_sequence_are_exactly_the_later_ones_of_their_audience() -> None:
    """Reading on from the last sequence misses nothing, repeats nothing, and shows nobody else's."""
    document = do(do(Document(KEY), request(A, "q1")), request(B, "q2"))
    document = do(document, AutoGrant(A))
    page = events_after(document, frozenset({A.peer.id}), 0)
    assert [(one.sequence, one.state) for one in page.events] == [(1, "queued"), (3, "reserved")]
    assert (page.sequence, page.has_gap) == (3, False)
    assert events_after(document, frozenset({A.peer.id}), 1).events == page.events[1:]
    assert events_after(document, frozenset({A.peer.id}), page.sequence).events == ()
    assert FACTS.launches == {}


def test_events_that_are_no_longer_kept_are_told_as_a_gap() -> None:
    """Who asks from before what is kept is told that something is missing."""
    document = Document(KEY, event_sequence=9, events_dropped=4)
    assert events_after(document, frozenset(), 3).has_gap
    assert not events_after(document, frozenset(), 4).has_gap
