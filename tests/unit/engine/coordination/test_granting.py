"""Show who gets the right, in which order, and that a command's rights come together."""

import pytest

from tests.unit.engine.coordination.kit import (
    ALIVE,
    FACTS,
    GONE,
    KEY,
    OTHER,
    UNKNOWN,
    A,
    B,
    C,
    D,
    at,
    begin,
    claim,
    claimant,
    do,
    do_all,
    facts,
    governed,
    grant,
    holder,
    process,
    refusal,
    request,
    reserved,
    set_policy,
    started,
    starting,
    state,
)
from tieline.engine.coordination import AutoGrant, Cancel, handle
from tieline.engine.coordination.granting import refusal_of_state
from tieline.model.resource import Blocker, Document, ResourceKey, Ticket, TicketState


def waiting(*names: str) -> Document:
    document = governed(A, B)
    for name in names:
        document = do(document, request(A, name))
    return document


def empty(*keys: ResourceKey) -> dict[ResourceKey, Document]:
    return {key: Document(key) for key in keys or (KEY, OTHER)}


# The order of the preconditions


def test_grant_gives_a_one_use_right_of_thirty_seconds() -> None:
    """A granted ticket is reserved under the next fence and the present epoch."""
    after, outcome = handle(waiting("q"), grant("q", epoch=1), FACTS, at(5))
    right = holder(after).reservation
    assert right is not None
    assert (right.fence, right.epoch, right.granted_mono_ms, right.expires_mono_ms) == (1, 1, 5, 30_005)
    assert outcome.tickets == (holder(after),)
    assert outcome.deadline_mono_ms == 30_005


def test_preconditions_of_a_grant_fail_in_their_order() -> None:
    """Of several reasons the first of the reference's list is told."""
    document = waiting("q", "other")
    blocked = do(document, grant("other"))
    blocked = Document(
        **{
            **{name: getattr(blocked, name) for name in blocked.__struct_fields__},
            "blockers": (Blocker("l", "p", "a", "sh", "boot-1", 1),),
        }
    )
    absent = {C.peer.id: "unknown", A.peer.id: "unknown"}
    known = facts(peers=absent)  # type: ignore[arg-type]
    assert refusal(blocked, grant("none", who=D, epoch=9), 0, known) == "STALE_POLICY"
    assert refusal(blocked, grant("none", who=D), 0, known) == "CAPABILITY_DENIED"
    assert refusal(blocked, grant("none"), 0, known) == "CONTROLLER_UNAVAILABLE"
    assert refusal(blocked, grant("none"), 0, facts()) == "INVALID_PARAMS"
    lost = facts(peers={A.peer.id: "unknown"})
    assert refusal(blocked, grant("q"), 0, lost) == "TARGET_ENDED"
    assert refusal(blocked, grant("q"), 0, facts()) == "RESOURCE_BUSY"


@pytest.mark.clause("native-209")
def test_grant_to_a_claimant_that_is_no_longer_enrolled_is_refused() -> None:
    """A place in the queue does not outlive the enrolment; the check is repeated at the grant."""
    document = waiting("q")
    changed = do(document, set_policy(B))
    assert state(changed, "q") == "stale"
    kept = Document(KEY, epoch=2, policy=changed.policy, tickets=(Ticket("q", 1, claimant(A), "r", 1),))
    assert refusal(kept, grant("q")) == "SCOPE_DENIED"


@pytest.mark.clause("native-187", "I31")
def test_grant_past_a_holder_is_refused() -> None:
    """One right at a time: whoever holds it, the next is told to wait."""
    document = do(waiting("q1", "q2"), grant("q1"))
    assert refusal(document, grant("q2")) == "RESOURCE_BUSY"


def test_grant_repeated_returns_the_same_right_and_does_not_wind_its_clock() -> None:
    """The answer to a grant that was given is the grant that was given."""
    document = do(waiting("q1"), grant("q1"))
    assert do(document, grant("q1"), 20_000) is document


@pytest.mark.clause("native-216", "I34")
def test_grant_past_a_holder_whose_owner_is_gone_needs_recovery() -> None:
    """Whoever waits for what nobody can prove is sent to recovery, not told to wait."""
    document = do(do(starting(supervisor=process(8)), started("l1")), set_policy(A, B))
    document = do(document, request(B, "q2"))
    gone = {process(8): "gone"}
    for probe in (UNKNOWN, None):
        known = facts(processes=gone, probes={"l1": probe} if probe else {}, launches={})  # type: ignore[arg-type]
        assert refusal(document, grant("q2"), 1, known) == "RECOVERY_REQUIRED"
    known = facts(processes=gone, probes={"l1": ALIVE}, launches={})  # type: ignore[arg-type]
    assert refusal(document, grant("q2"), 1, known) == "RESOURCE_BUSY"  # an orphan that is seen to run
    known = facts(processes=gone, probes={"l1": GONE}, launches={})  # type: ignore[arg-type]
    assert handle(document, grant("q2"), known, at(1))[1].refusal is not None  # its quarantine runs
    assert refusal(document, grant("q2"), 1, facts(processes={process(8): "alive"})) == "RESOURCE_BUSY"


def test_grant_on_an_open_resource_is_refused() -> None:
    """Nobody grants by hand what grants itself."""
    assert refusal(do(Document(KEY), request(A, "q")), grant("q")) == "CAPABILITY_DENIED"


def test_ticket_that_cannot_be_granted_tells_why() -> None:
    """Each state of a ticket that is not waiting has its code."""
    codes = {
        TicketState.STALE: "STALE_POLICY",
        TicketState.STARTING: "RESOURCE_BUSY",
        TicketState.RUNNING: "RESOURCE_BUSY",
        TicketState.QUEUED: "RESOURCE_BUSY",
        TicketState.RESERVED: "RESOURCE_BUSY",
        TicketState.ENDED: "TARGET_ENDED",
        TicketState.EXPIRED: "RESERVATION_EXPIRED",
        TicketState.CANCELLED: "RESERVATION_EXPIRED",
        TicketState.RELEASED: "RESERVATION_EXPIRED",
        TicketState.COMPLETED: "RESERVATION_EXPIRED",
    }
    for one, code in codes.items():
        assert refusal_of_state(Ticket("q", 1, claimant(A), "r", 1, state=one)).code == code


# The queue that grants itself


@pytest.mark.clause("native-3.6.11")
def test_open_resource_grants_the_oldest_and_then_the_next() -> None:
    """First come, first served, whoever's turn it is that looks."""
    document = do(do(Document(KEY), request(A, "q1")), request(B, "q2"))
    document = do(document, AutoGrant(B))
    assert (state(document, "q1"), state(document, "q2")) == ("reserved", "queued")
    assert do(document, AutoGrant(B)) is document
    document = do(do(document, Cancel(A, "q1")), AutoGrant(A))
    assert state(document, "q2") == "reserved"
    assert document.fence == 2


def test_open_resource_passes_by_whoever_does_not_answer() -> None:
    """A claimant that cannot be seen keeps its place and holds nobody up."""
    document = do(do(Document(KEY), request(A, "q1")), request(B, "q2"))
    lost = facts(peers={A.peer.id: "unknown"})
    document = do(document, AutoGrant(B), 0, lost)
    assert (state(document, "q1"), state(document, "q2")) == ("queued", "reserved")
    assert do(Document(KEY), AutoGrant(B)).tickets == ()


def test_policy_grants_itself_only_to_its_controller() -> None:
    """Under a policy the queue moves by the controller's word, with or without a model."""
    document = waiting("q1", "q2")
    assert do(document, AutoGrant(A)) is document
    assert do(document, AutoGrant(D)) is document
    assert state(do(document, AutoGrant(C)), "q1") == "reserved"


def test_policy_passes_by_whoever_is_not_enrolled() -> None:
    """A ticket from before a policy is not granted under it."""
    policy = governed(A).policy
    tickets = tuple(Ticket(f"q{n}", n, claimant(one), "r", 1) for n, one in enumerate((B, A), 1))
    document = Document(KEY, epoch=1, policy=policy, tickets=tickets)
    assert state(do(document, AutoGrant(C)), "q2") == "reserved"


def test_blocker_keeps_a_queue_from_moving() -> None:
    """Nothing is granted past a command that was admitted before."""
    document = Document(
        KEY,
        blockers=(Blocker("l", "p", "a", "sh", "boot-1", 1),),
        tickets=(Ticket("q", 1, claimant(A), "r", 1),),
    )
    assert state(do(document, AutoGrant(A), 0, facts()), "q") == "queued"


# A command that needs several


@pytest.mark.clause("native-3.6.10")
def test_bundle_is_granted_whole_and_its_clock_starts_together() -> None:
    """A command gets all its resources at once, and 30 s for all of them."""
    documents, outcome = do_all(empty(), claim(A, "l1"))
    assert [one.request_id for one in outcome.tickets] == ["q-l1.1", "q-l1.2"]
    documents, outcome = do_all(documents, AutoGrant(A), 700)
    assert [one.state for one in outcome.tickets] == [TicketState.RESERVED] * 2
    for document in documents.values():
        right = holder(document).reservation
        assert right is not None
        assert right.expires_mono_ms == 30_700


def test_bundle_waits_for_all_and_is_not_passed() -> None:
    """While one resource is taken none is granted, and nobody overtakes on the free one."""
    documents = empty()
    documents[OTHER] = do(do(documents[OTHER], request(B, "first", OTHER)), AutoGrant(B))
    documents, _ = do_all(documents, claim(A, "l1"))
    documents[KEY] = do(documents[KEY], request(B, "behind"))
    after, outcome = do_all(documents, AutoGrant(B))
    assert outcome.tickets == ()
    assert state(after[KEY], "q-l1.1") == "queued"
    assert state(after[KEY], "behind") == "queued"
    after[OTHER] = do(after[OTHER], Cancel(B, "first"))
    after, outcome = do_all(after, AutoGrant(B))
    assert len(outcome.tickets) == 2
    assert state(after[KEY], "behind") == "queued"


def test_bundle_behind_another_bundle_waits_without_deadlock() -> None:
    """Two commands stand in the same order everywhere, so one of them always gets all it needs."""
    documents, _ = do_all(empty(), claim(A, "l1"))
    documents, _ = do_all(documents, claim(B, "l2"))
    documents, outcome = do_all(documents, AutoGrant(B))
    assert {one.launch_id for one in outcome.tickets} == {"l1"}
    documents, outcome = do_all(documents, AutoGrant(B))
    assert outcome.tickets == ()
    for one in ("q-l1.1", "q-l1.2"):
        documents, _ = do_all(documents, Cancel(A, one))
    documents, outcome = do_all(documents, AutoGrant(B))
    assert {one.launch_id for one in outcome.tickets} == {"l2"}


def test_bundle_whose_other_resource_is_headed_by_another_waits() -> None:
    """A bundle at the head here and second there is not granted before the first there."""
    documents = empty()
    documents[OTHER] = do(Document(OTHER), request(B, "first", OTHER))
    fresh, _ = do_all(documents, claim(A, "l1"))
    lonely, outcome = do_all({OTHER: fresh[OTHER], KEY: fresh[KEY]}, AutoGrant(A))
    assert [one.request_id for one in outcome.tickets] == ["first"]
    assert state(lonely[KEY], "q-l1.1") == "queued"


def test_bundle_of_which_a_document_was_not_given_needs_it() -> None:
    """Nothing is decided on half of what a command needs: the rest is asked for."""
    documents, _ = do_all(empty(), claim(A, "l1"))
    after, outcome = do_all({KEY: documents[KEY]}, AutoGrant(A))
    assert outcome.needs == (OTHER,)
    assert outcome.tickets == ()
    assert after == {KEY: documents[KEY]}


def test_bundle_that_waits_for_somebodys_decision_is_passed_by() -> None:
    """While a controller has not decided about one resource, the other serves those behind."""
    documents = {KEY: governed(A, B), OTHER: Document(OTHER)}
    documents, _ = do_all(documents, claim(A, "l1"))
    documents[OTHER] = do(documents[OTHER], request(B, "behind", OTHER))
    after, outcome = do_all(documents, AutoGrant(B))
    assert [one.request_id for one in outcome.tickets] == ["behind"]
    after[OTHER] = do(after[OTHER], Cancel(B, "behind"))
    # The decision comes; the right's clock waits for the rest of the bundle.
    _, outcome = do_all({KEY: after[KEY]}, grant("q-l1.1"))
    assert outcome.needs == (OTHER,)
    after, outcome = do_all(after, grant("q-l1.1"), 10)
    right = outcome.tickets[0].reservation
    assert right is not None
    assert right.expires_mono_ms is None
    after, outcome = do_all(after, AutoGrant(B), 20_000)
    assert [one.request_id for one in outcome.tickets] == ["q-l1.2"]
    assert [holder(one).reservation.expires_mono_ms for one in after.values()] == [50_000, 50_000]  # type: ignore[union-attr]


def test_bundle_that_never_becomes_whole_lapses_after_the_longest_wait() -> None:
    """Half of a bundle does not hold a resource for ever."""
    documents = {KEY: governed(A, B), OTHER: Document(OTHER)}
    documents, _ = do_all(documents, claim(A, "l1"))
    documents, _ = do_all(documents, grant("q-l1.1"))
    assert state(do_all(documents, AutoGrant(B), 0, FACTS)[0][KEY], "q-l1.1") == "reserved"
    lost = facts(peers={A.peer.id: "unknown"})
    assert state(do_all(documents, AutoGrant(B), 299_999, lost)[0][KEY], "q-l1.1") == "reserved"
    assert state(do_all(documents, AutoGrant(B), 300_000, lost)[0][KEY], "q-l1.1") == "expired"


def test_bundle_of_which_one_ticket_is_over_is_passed_by() -> None:
    """A command that lost a ticket gets nothing more until it claims anew."""
    documents, _ = do_all(empty(), claim(A, "l1"))
    documents, _ = do_all(documents, Cancel(A, "q-l1.2"))
    documents[KEY] = do(documents[KEY], request(B, "behind"))
    _, outcome = do_all(documents, AutoGrant(B))
    assert [one.request_id for one in outcome.tickets] == ["behind"]


def test_controller_grants_a_bundle_of_its_own_and_an_open_resource_whole() -> None:
    """Where one controller decides about all that is not open, the bundle is granted by itself."""
    documents = {KEY: governed(A), OTHER: Document(OTHER)}
    documents, _ = do_all(documents, claim(A, "l1"))
    _, outcome = do_all(documents, AutoGrant(C))
    assert len(outcome.tickets) == 2


def test_grant_of_a_used_ticket_is_refused() -> None:
    """A right that is in use is not granted again."""
    document = do(waiting("q1"), grant("q1"))
    bound = do(document, claim(A, "l1", ticket_id="q1"))
    used = do(bound, begin(A, bound, "l1"))
    assert refusal(used, grant("q1")) == "RESOURCE_BUSY"
    assert refusal(do(used, started("l1")), grant("q1")) == "RESOURCE_BUSY"
    assert state(starting(), "q-l1") == "starting"
    assert state(reserved(), "q-l1") == "reserved"
