"""Show what time and proof end, and what they do not."""

import pytest

from tests.unit.engine.coordination.kit import (
    ALIVE,
    GONE,
    KEY,
    UNKNOWN,
    A,
    B,
    at,
    claim,
    claimant,
    complete,
    do,
    facts,
    holder,
    launch,
    process,
    request,
    reserved,
    running,
    starting,
    state,
)
from tieline.engine.coordination import Observe, handle
from tieline.engine.coordination.observing import gone_since, is_seen_long_enough
from tieline.model.resource import Blocker, Document, Probe

HOUR = 3_600_000


@pytest.mark.clause("native-198")
def test_unused_reservation_expires_at_thirty_seconds() -> None:
    """A right that nobody uses lapses after 30 s and not before."""
    document = reserved()
    assert state(do(document, Observe(), 29_999), "q-l1") == "reserved"
    after = do(document, Observe(), 30_000)
    assert state(after, "q-l1") == "expired"
    assert after.holder is None


def test_unused_reservation_of_another_boot_expires() -> None:
    """A right from before a reboot does not wait for a clock that started anew."""
    assert state(do(reserved(), Observe(), 1, facts(boot="boot-2")), "q-l1") == "expired"
    assert state(do(reserved(), Observe(), 1, facts(boot="")), "q-l1") == "reserved"


@pytest.mark.clause("native-198", "I35")
def test_ticket_of_a_dead_waiter_ends_and_of_an_unknown_one_waits() -> None:
    """A waiter that is proven gone loses its place; one that cannot be seen keeps it."""
    waiting = do(Document(KEY), claim(A, "l1", claimant=claimant(A, 5)))
    assert state(do(waiting, Observe(), 1, facts(processes={process(5): "gone"})), "q-l1") == "ended"
    assert state(do(waiting, Observe(), 1, facts(processes={process(5): "unknown"})), "q-l1") == "queued"
    assert state(do(reserved(), Observe(), 1, facts(peers={A.peer.id: "gone"})), "q-l1") == "ended"


@pytest.mark.clause("native-35", "I34", "mutant-15", "O40")
def test_running_command_is_not_freed_by_time_heartbeat_or_missing_root() -> None:
    """No age, no vanished peer and no dead root frees what may run."""
    lost = facts(
        peers={A.peer.id: "gone"},
        processes={process(100): "gone", process(7): "gone"},
        probes={"l1": UNKNOWN},
        launches={"l1": launch("l1")},
    )
    document = running()
    for hour in range(5):
        document = do(document, Observe(), hour * HOUR, lost)
    assert state(document, "q-l1") == "running"
    assert state(do(starting(), Observe(), HOUR, lost), "q-l1") == "starting"


@pytest.mark.clause("I31", "I34", "native-192")
def test_holder_proven_gone_twice_over_the_quarantine_is_completed() -> None:
    """A tree that is seen gone at two looks half a second apart frees its resource."""
    gone = facts(probes={"l1": GONE})
    document = do(running(), Observe(), 1_000, gone)
    assert state(document, "q-l1") == "running"
    assert handle(document, Observe(), gone, at(1_200))[1].deadline_mono_ms == 1_500
    document = do(document, Observe(), 1_499, gone)
    assert state(document, "q-l1") == "running"
    assert state(do(document, Observe(), 9_000), "q-l1") == "running"  # nobody looked again
    assert state(do(document, Observe(), 1_500, gone), "q-l1") == "completed"


@pytest.mark.clause("I36", "mutant-16")
def test_look_that_does_not_prove_it_starts_the_quarantine_again() -> None:
    """One alive or unknown look takes back what a look before it seemed to prove."""
    for doubt in (ALIVE, UNKNOWN):
        document = do(running(), Observe(), 1_000, facts(probes={"l1": GONE}))
        document = do(document, Observe(), 1_400, facts(probes={"l1": doubt}))
        document = do(document, Observe(), 1_600, facts(probes={"l1": GONE}))
        assert state(document, "q-l1") == "running"


def test_observer_that_looked_over_the_quarantine_itself_is_believed() -> None:
    """Somebody who has watched the tree be gone for long enough frees it at once."""
    seen = facts(probes={"l1": Probe("gone", since_mono_ms=400)})
    assert state(do(running(), Observe(), 1_000, seen), "q-l1") == "completed"


@pytest.mark.clause("native-3.6.9")
def test_holder_of_another_boot_is_completed_at_once() -> None:
    """After a reboot nothing of it runs, whatever process bears its number now."""
    after = facts(boot="boot-2", probes={"l1": UNKNOWN})
    assert state(do(running(), Observe(), 1, after), "q-l1") == "completed"
    assert state(do(starting(), Observe(), 1, facts(boot="boot-2")), "q-l1") == "completed"


@pytest.mark.clause("native-195", "I32", "I34")
def test_start_that_was_never_published_is_not_freed_by_a_look() -> None:
    """Of a command whose processes nobody published no look proves the end."""
    known = facts(probes={"l1": GONE}, launches={"l1": launch("l1")}, processes={process(100): "gone"})
    document = starting()
    for ms in (0, 1_000, 2_000):
        document = do(document, Observe(), ms, known)
    assert state(document, "q-l1") == "starting"


@pytest.mark.clause("native-190", "I32")
def test_start_that_never_reached_the_ledger_is_given_back_when_its_starters_are_gone() -> None:
    """No record means no start, as soon as nobody is left who could still make both."""
    document = starting(supervisor=process(8))
    both = {process(100): "gone", process(8): "gone"}
    for partly in ({process(100): "gone"}, {process(8): "gone"}, {**both, process(8): "unknown"}):
        known = facts(launches={}, processes=partly, peers={A.peer.id: "gone"})  # type: ignore[arg-type]
        assert state(do(document, Observe(), 1, known), "q-l1") == "starting"
    assert state(do(document, Observe(), 1, facts(launches={}, processes=both)), "q-l1") == "released"  # type: ignore[arg-type]
    recorded = facts(launches={"l1": launch("l1")}, processes=both)  # type: ignore[arg-type]
    assert state(do(document, Observe(), 1, recorded), "q-l1") == "starting"
    assert state(do(document, Observe(), 1, facts(processes=both)), "q-l1") == "starting"  # type: ignore[arg-type]


def test_running_command_missing_from_the_ledger_is_not_given_back() -> None:
    """What was published has started: its absence from the ledger proves nothing."""
    known = facts(launches={}, processes={process(100): "gone"})
    assert state(do(running(), Observe(), 1, known), "q-l1") == "running"


@pytest.mark.clause("native-189", "I33")
def test_blocker_clears_by_proof_or_when_its_record_has_left_the_ledger() -> None:
    """Grants wait until each earlier command is proven to have ended, and then all are told."""
    blocker = Blocker("old", B.peer.id, "b", "make", "boot-1", 1)
    document = Document(KEY, blockers=(blocker,), enrolment=(A.peer.id,))
    unpublished = facts(probes={"old": GONE}, launches={"old": launch("old")})
    for ms in (0, 600, 1_200):
        document = do(document, Observe(), ms, unpublished)
    assert document.blockers == (blocker,)
    known = facts(probes={"old": GONE}, launches={"old": launch("old", processes=(process(7),))})
    once = do(document, Observe(), 2_000, known)
    assert [one.gone_since_mono_ms for one in once.blockers] == [2_000]
    assert do(once, Observe(), 9_000).blockers == ()  # absent from the ledger that was read
    assert do(once, Observe(), 9_000, facts()).blockers == once.blockers  # nobody looked
    after, outcome = handle(once, Observe(), known, at(2_500))
    assert after.blockers == ()
    assert [event.state for event in outcome.events] == ["previous_commands_completed"]
    assert outcome.events[0].audience == (A.peer.id,)
    assert do(once, Observe(), 1, facts(boot="boot-2")).blockers == ()


def test_one_of_two_blockers_that_clears_tells_nobody_yet() -> None:
    """The message that earlier commands have ended comes with the last of them."""
    two = tuple(Blocker(name, B.peer.id, "b", "make", "boot-1", 1) for name in ("x", "y"))
    known = facts(launches={"y": launch("y")})
    after, outcome = handle(Document(KEY, blockers=two), Observe(), known, at(1))
    assert [one.launch_id for one in after.blockers] == ["y"]
    assert outcome.events == ()


def test_finished_and_waiting_tickets_are_left_alone() -> None:
    """Nothing happens to a ticket that is over, nor to one whose claimant lives."""
    done = do(running(), complete("l1"))
    waiting = do(done, request(B, "q2"))
    assert do(waiting, Observe(), 5) is waiting
    assert waiting.holder is None


def test_gone_since_is_the_earliest_look_and_ends_with_a_doubt() -> None:
    """The instant of the first proof stands while looks confirm it."""
    assert gone_since(5, None, 9, is_gone=False) == 5
    assert gone_since(5, GONE, 9, is_gone=True) == 5
    assert gone_since(None, GONE, 9, is_gone=True) == 9
    assert gone_since(8, Probe("gone", 3), 9, is_gone=True) == 3
    assert gone_since(5, ALIVE, 9, is_gone=False) is None
    assert not is_seen_long_enough(None, 9_999)
    assert is_seen_long_enough(1, 501)
    assert not is_seen_long_enough(1, 500)


def test_holder_keeps_its_evidence_while_it_is_watched() -> None:
    """A look changes nothing of a right but since when its tree is gone."""
    before = running()
    after = do(before, Observe(), 10, facts(probes={"l1": GONE}))
    right = holder(after).reservation
    assert right is not None
    assert right.processes == (process(7),)
    assert right.gone_since_mono_ms == 10
    assert do(before, Observe(), 10, facts(probes={"l1": ALIVE})) is before
