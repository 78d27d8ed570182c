"""Show that only the present grant is used, and that an end is proven or answered for."""

import msgspec
import pytest

from tests.unit.engine.coordination.kit import (
    ALIVE,
    FACTS,
    GONE,
    KEY,
    OTHER,
    RUN,
    UNKNOWN,
    A,
    B,
    at,
    begin,
    claim,
    complete,
    do,
    do_all,
    facts,
    handle,
    holder,
    launch,
    process,
    refusal,
    request,
    reserved,
    running,
    started,
    starting,
    state,
)
from tieline.engine.coordination import AutoGrant, Cancel, Observe, Recover, SpawnFailed
from tieline.model.resource import Blocker, Document


def recover(launch_id: str = "l1", evidence: str = "looked myself") -> Recover:
    return Recover(A, launch_id, evidence)


def failed(launch_id: str = "l1", fence: int = 1, nonce: str = "nonce-l1") -> SpawnFailed:
    return SpawnFailed(launch_id, nonce, {KEY: fence})


def test_begin_uses_the_right_and_the_same_launch_may_repeat_it() -> None:
    """A right is used once; the launch that used it may ask again, no other."""
    document = starting(supervisor=process(8))
    right = holder(document).reservation
    assert right is not None
    assert (right.nonce, right.supervisor) == ("nonce-l1", process(8))
    assert do(document, begin(A, document, "l1")) is document
    assert refusal(document, begin(A, document, "l1", nonce="other")) == "RESOURCE_BUSY"
    active = running()
    assert do(active, begin(A, active, "l1")) is active


def test_begin_of_another_peer_command_or_launch_is_refused() -> None:
    """What is begun is exactly what was claimed, by whom it was claimed."""
    document = reserved()
    assert refusal(document, begin(B, document, "l1")) == "SCOPE_DENIED"
    assert refusal(document, begin(A, document, "l1", digest="other")) == "REQUEST_ID_CONFLICT"
    assert refusal(document, begin(A, document, "l9")) == "INVALID_PARAMS"


@pytest.mark.clause("I35", "mutant-17", "O40")
def test_begin_after_its_right_lapsed_is_refused() -> None:
    """A holder that was paused past its 30 s starts nothing, even when nobody competed."""
    document = reserved()
    late = begin(A, document, "l1")
    assert refusal_after(document, late, 30_000) == "RESERVATION_EXPIRED"
    assert refusal_after(document, late, 3_600_000) == "RESERVATION_EXPIRED"


def refusal_after(document: Document, command: object, ms: int) -> str:
    """Return the code at an instant at which time has changed the tickets as well."""
    after, outcome = handle(document, command, FACTS, at(ms))  # type: ignore[arg-type]
    assert outcome.refusal is not None
    assert after.holder is None
    return outcome.refusal.code


@pytest.mark.clause("I40")
def test_begin_with_an_old_fence_is_refused() -> None:
    """A paused holder that wakes under another grant of the same launch is refused."""
    first = reserved()
    late = begin(A, first, "l1")
    second = do(
        do(do(first, AutoGrant(A), 30_000), claim(A, "l1", request_id="again"), 30_000), AutoGrant(A), 30_000
    )
    assert holder(second).request_id == "again"
    assert refusal(second, late, 30_001) == "RESERVATION_EXPIRED"
    assert state(do(second, begin(A, second, "l1"), 30_001), "again") == "starting"


def test_begin_before_the_grant_is_refused() -> None:
    """A ticket that waits, or never got a right, starts nothing."""
    document = do(Document(KEY), claim(A, "l1"))
    assert refusal(document, begin(A, document, "l1")) == "RESOURCE_BUSY"
    assert refusal(do(document, Cancel(A, "q-l1")), begin(A, document, "l1")) == "RESERVATION_EXPIRED"


def test_begin_under_another_epoch_is_refused() -> None:
    """A right that names another policy than the present one is not used, however it came about."""
    document = msgspec.structs.replace(reserved(), epoch=1)
    assert refusal(document, begin(A, document, "l1")) == "STALE_POLICY"


def test_begin_without_all_rights_of_its_command_is_refused() -> None:
    """A command that needs two resources starts with both or not at all."""
    documents, _ = do_all({KEY: Document(KEY), OTHER: Document(OTHER)}, claim(A, "l1"))
    documents, _ = do_all(documents, AutoGrant(A))
    assert refusal(documents[KEY], begin(A, documents[KEY], "l1")) == "RESOURCE_BUSY"
    both = begin(A, documents[KEY], "l1", fences={KEY: 1, OTHER: 1})
    after, outcome = do_all(documents, both)
    assert [one.state.value for one in outcome.tickets] == ["starting", "starting"]
    wrong = begin(A, documents[KEY], "l1", fences={KEY: 1, OTHER: 7})
    unchanged, outcome = do_all(documents, wrong)
    assert outcome.refusal is not None
    assert unchanged == documents
    assert after != documents


def test_begin_of_a_bundle_that_is_not_whole_is_refused() -> None:
    """A right whose clock has not started cannot be used."""
    document = reserved()
    ticket = holder(document)
    assert ticket.reservation is not None
    half = msgspec.structs.replace(ticket.reservation, expires_mono_ms=None)
    document = msgspec.structs.replace(document, tickets=(msgspec.structs.replace(ticket, reservation=half),))
    assert refusal(document, begin(A, document, "l1")) == "RESOURCE_BUSY"


@pytest.mark.clause("native-191")
def test_start_is_published_once_and_more_processes_may_follow() -> None:
    """The evidence of a start only grows."""
    document = running()
    right = holder(document).reservation
    assert right is not None
    assert (right.processes, right.ownership) == ((process(7),), "supervised")
    more = do(document, started("l1", processes=(process(7), process(9))))
    right = holder(more).reservation
    assert right is not None
    assert right.processes == (process(7), process(9))
    assert refusal(starting(), started("l1", processes=())) == "INVALID_PARAMS"


@pytest.mark.clause("I40")
@pytest.mark.parametrize("command", [started("l1", 9), complete("l1", 9), failed(fence=9)])
def test_step_with_another_fence_is_refused(command: object) -> None:
    """Whoever presents another grant than the present one changes nothing."""
    assert refusal(running(), command) == "RESERVATION_EXPIRED"  # type: ignore[arg-type]


def test_step_without_the_nonce_is_refused() -> None:
    """Only the launch that began the right may go on with it."""
    stolen = started("l1", nonce="other")
    assert refusal(starting(), stolen) == "SCOPE_DENIED"
    assert refusal(reserved(), started("l1", nonce="")) == "SCOPE_DENIED"
    assert refusal(reserved(), started("l9")) == "INVALID_PARAMS"
    assert refusal(do(Document(KEY), claim(A, "l1")), started("l1")) == "INVALID_PARAMS"


@pytest.mark.clause("I34")
def test_complete_needs_a_proof() -> None:
    """An end that is not proven frees nothing; a proven one frees at once and may be told again."""
    document = running()
    for doubt in (ALIVE, UNKNOWN):
        assert refusal(document, complete("l1", proof=doubt)) == "RESOURCE_BUSY"
    done = do(document, complete("l1"))
    assert (state(done, "q-l1"), done.holder) == ("completed", None)
    assert do(done, complete("l1")) is done
    assert state(do(starting(), complete("l1")), "q-l1") == "completed"
    assert refusal(done, started("l1")) == "RESERVATION_EXPIRED"


def test_spawn_that_failed_gives_the_right_back() -> None:
    """When nothing was started the resource is free at once; what was started is no failed spawn."""
    document = do(starting(), failed())
    assert state(document, "q-l1") == "released"
    assert do(document, failed()) is document
    assert refusal(running(), failed()) == "RESOURCE_BUSY"
    assert refusal(starting(), failed(nonce="other")) == "SCOPE_DENIED"


@pytest.mark.clause("native-195", "native-216", "I34")
def test_operator_recovers_a_holder_and_the_act_is_recorded() -> None:
    """An operator who looked may answer for the end, and who and why stays written down."""
    document = starting()
    known = facts(probes={"l1": UNKNOWN}, launches={"l1": launch("l1")})
    after, outcome = handle(document, recover(), known, at(9))
    assert state(after, "q-l1") == "released"
    assert [event.state for event in outcome.events] == ["recovered", "released"]
    assert outcome.events[0].note == f"{A.peer.id}: looked myself"
    assert outcome.events[0].at_ms == 1_000_009
    assert outcome.events[0].request_id == "q-l1"


def test_operator_does_not_recover_what_is_alive() -> None:
    """While anything of the launch is seen to live, nobody's word frees it."""
    for known in (
        facts(probes={"l1": ALIVE}),
        facts(probes={"l1": UNKNOWN}, processes={process(7): "alive"}),
        facts(
            probes={"l1": UNKNOWN},
            processes={process(9): "alive"},
            launches={"l1": launch("l1", processes=(process(9),))},
        ),
    ):
        assert refusal(running(), recover(), 1, known) == "RESOURCE_BUSY"
    supervised = do(starting(supervisor=process(8)), started("l1"))
    known = facts(probes={"l1": UNKNOWN}, processes={process(8): "alive"})
    assert refusal(supervised, recover(), 1, known) == "RESOURCE_BUSY"


def test_operator_must_look_name_the_launch_and_say_why() -> None:
    """Without a look, the launch id or a reason, or from a run, nothing is recovered."""
    known = facts(probes={"l1": UNKNOWN, "l2": UNKNOWN})
    assert refusal(running(), recover()) == "INVALID_PARAMS"
    assert refusal(running(), recover("l2"), 1, known) == "INVALID_PARAMS"
    assert refusal(running(), recover(evidence=""), 1, known) == "INVALID_PARAMS"
    assert refusal(running(), recover(evidence="x" * 1_025), 1, known) == "INVALID_PARAMS"
    assert refusal(running(), Recover(RUN, "l1", "mine"), 1, known) == "CAPABILITY_DENIED"
    assert refusal(reserved(), recover(), 1, known) == "INVALID_PARAMS"


def test_operator_recovers_a_blocker() -> None:
    """A blocker is answered for like a holder."""
    blockers = tuple(
        Blocker(name, B.peer.id, "b", "make", "boot-1", 1, supervisor=process(8)) for name in "xy"
    )
    document = Document(KEY, blockers=blockers, enrolment=(A.peer.id,))
    known = facts(probes={"x": UNKNOWN})
    after, outcome = handle(document, recover("x"), known, at(1))
    assert [one.launch_id for one in after.blockers] == ["y"]
    assert [event.state for event in outcome.events] == ["recovered"]
    alive = facts(probes={"x": UNKNOWN}, processes={process(8): "alive"})
    assert refusal(document, recover("x"), 1, alive) == "RESOURCE_BUSY"


@pytest.mark.clause("I40")
def test_holder_that_was_recovered_and_wakes_up_changes_nothing() -> None:
    """What an operator ended stays ended, whoever comes back."""
    known = facts(probes={"l1": UNKNOWN})
    freed = do(running(), recover(), 1, known)
    assert do(freed, complete("l1")) is freed
    assert refusal(freed, started("l1")) == "RESERVATION_EXPIRED"
    assert refusal(freed, begin(A, freed, "l1")) == "RESERVATION_EXPIRED"
    next_one = do(do(freed, request(B, "q2")), AutoGrant(B))
    assert holder(next_one).reservation is not None
    assert next_one.fence == 2
    assert do(next_one, Observe(), 5) is next_one
    assert GONE.state == "gone"
