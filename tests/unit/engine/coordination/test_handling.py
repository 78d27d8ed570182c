"""Show that a command takes effect wholly or not at all, and the same way each time."""

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
    C,
    at,
    begin,
    claim,
    do,
    do_all,
    facts,
    grant,
    handle,
    request,
    reserved,
    running,
    set_policy,
    started,
    state,
)
from tieline.engine.coordination import (
    AutoGrant,
    Cancel,
    Complete,
    EndClaimant,
    Observe,
    Recover,
    SpawnFailed,
    Started,
    Status,
    Unenrol,
)
from tieline.engine.coordination.commands import BUNDLE_KEYS_MAX, Request
from tieline.model.resource import Document, ResourceKey


def test_document_that_does_not_change_is_the_same_object() -> None:
    """Whoever stores can tell at once that there is nothing to store."""
    document = running()
    assert handle(document, Observe(), FACTS, at(5)) == (
        document,
        handle(document, Observe(), FACTS, at(5))[1],
    )
    assert do(document, Observe(), 5) is document


def test_same_command_facts_and_moment_give_the_same_bytes() -> None:
    """Nothing but what is passed in decides."""
    assert handle(reserved(), Cancel(A, "q-l1"), FACTS, at(9)) == handle(
        reserved(), Cancel(A, "q-l1"), FACTS, at(9)
    )


def test_refused_command_keeps_what_time_has_done() -> None:
    """A no to the command is no reason to forget that a right has lapsed."""
    after, outcome = handle(reserved(), Cancel(B, "q-l1"), FACTS, at(30_000))
    assert outcome.refusal is not None
    assert state(after, "q-l1") == "expired"
    assert [event.state for event in outcome.events] == ["expired"]


def test_claim_refused_on_one_resource_leaves_no_ticket_on_another() -> None:
    """A command is queued everywhere or nowhere."""
    taken = do(Document(OTHER), claim(A, "l1", digest="other"))
    before = {KEY: Document(KEY), OTHER: taken}
    after, outcome = do_all(before, claim(A, "l1"))
    assert outcome.refusal is not None
    assert after == before


def test_claim_of_too_many_resources_is_refused() -> None:
    """More resources than any command needs are a defect of a rule."""
    keys = [ResourceKey(f"machine/k{number}") for number in range(BUNDLE_KEYS_MAX + 1)]
    _, outcome = do_all({key: Document(key) for key in keys}, claim(A, "l1"))
    assert outcome.refusal is not None
    _, outcome = do_all({key: Document(key) for key in keys[1:]}, claim(A, "l1"))
    assert len(outcome.tickets) == BUNDLE_KEYS_MAX


def test_claim_bundles_only_what_an_ancestor_does_not_hold() -> None:
    """The rest of an inheriting command's resources is claimed as if it were all."""
    documents = {KEY: running(), OTHER: Document(OTHER)}
    inner = claim(A, "l2", inherits_from="l1")
    after, outcome = do_all(documents, inner, 5, facts(ancestors=("l1",)))
    assert outcome.inherited == (KEY,)
    assert [(one.request_id, one.bundle) for one in outcome.tickets] == [("q-l2", ())]
    assert after[KEY] is documents[KEY]


def test_claim_that_completes_a_granted_bundle_starts_its_clock() -> None:
    """A right that waited unassigned runs its 30 s with the command's other rights."""
    documents = {
        key: do(do(Document(key), request(A, f"asked-{number}", key)), AutoGrant(A))
        for number, key in enumerate((KEY, OTHER))
    }
    _, outcome = do_all(documents, claim(A, "l1"), 20_000)
    rights = [one.reservation for one in outcome.tickets]
    assert [right.expires_mono_ms for right in rights if right is not None] == [50_000, 50_000]
    waiting = {KEY: documents[KEY], OTHER: Document(OTHER)}
    _, outcome = do_all(waiting, claim(A, "l1"), 20_000)
    first = outcome.tickets[0].reservation
    assert first is not None
    assert first.expires_mono_ms is None


def test_command_for_a_request_finds_its_resource() -> None:
    """A ticket is found wherever it is among the documents."""
    documents = {KEY: Document(KEY), OTHER: do(Document(OTHER), request(A, "q", OTHER))}
    after, outcome = do_all(documents, Cancel(A, "q"))
    assert [one.state.value for one in outcome.tickets] == ["cancelled"]
    assert after[KEY] is documents[KEY]
    _, outcome = do_all(documents, Cancel(A, "none"))
    assert outcome.refusal is not None


def test_end_of_a_claimant_reaches_all_its_resources_or_none() -> None:
    """An ended run leaves every queue it stood in."""
    documents: dict[ResourceKey, Document] = {}
    for key in (KEY, OTHER):
        asked = request(RUN, f"q-{key}", key)
        assert isinstance(asked, Request)
        documents[key] = do(Document(key), asked)
    after, outcome = do_all(documents, EndClaimant(A, RUN.peer.id))
    assert [one.state.value for one in outcome.tickets] == ["ended", "ended"]
    unchanged, outcome = do_all(documents, EndClaimant(B, RUN.peer.id))
    assert outcome.refusal is not None
    assert unchanged == documents
    assert after != documents


def test_launch_is_followed_over_all_its_resources() -> None:
    """Start, failure and end of a command of two resources are told once for both."""
    documents, _ = do_all({KEY: Document(KEY), OTHER: Document(OTHER)}, claim(A, "l1"))
    documents, _ = do_all(documents, AutoGrant(A))
    fences = {KEY: 1, OTHER: 1}
    documents, _ = do_all(documents, begin(A, documents[KEY], "l1", fences=fences))
    failed, _ = do_all(documents, SpawnFailed("l1", "nonce-l1", fences))
    assert all(one.holder is None for one in failed.values())
    told = started("l1")
    documents, outcome = do_all(documents, Started("l1", "nonce-l1", fences, told.processes, "group"))
    assert [one.state.value for one in outcome.tickets] == ["running", "running"]
    _, outcome = do_all({KEY: documents[KEY]}, Complete("l1", "nonce-l1", fences, GONE))
    assert outcome.needs == (OTHER,)
    documents, outcome = do_all(documents, Complete("l1", "nonce-l1", fences, GONE))
    assert all(one.holder is None for one in documents.values())


def test_recover_frees_a_launch_wherever_it_stands() -> None:
    """An operator answers for a launch once; one look that sees it alive stops all of it."""
    documents = {KEY: running(), OTHER: Document(OTHER)}
    known = facts(probes={"l1": UNKNOWN})
    after, outcome = do_all(documents, Recover(A, "l1", "looked"), 1, known)
    assert [one.state.value for one in outcome.tickets] == ["released"]
    assert after[OTHER] is documents[OTHER]
    _, outcome = do_all(documents, Recover(A, "l9", "looked"), 1, known)
    assert outcome.refusal is not None
    assert outcome.refusal.code == "INVALID_PARAMS"
    unchanged, outcome = do_all(documents, Recover(A, "l1", "looked"), 1, facts(probes={"l1": ALIVE}))
    assert outcome.refusal is not None
    assert outcome.refusal.code == "RESOURCE_BUSY"
    assert unchanged == documents


@pytest.mark.clause("I31")
def test_outcome_tells_every_event_and_the_next_deadline() -> None:
    """What happened, also by time, is handed on; and when to look again."""
    documents = {KEY: reserved(), OTHER: do(Document(OTHER), request(B, "q", OTHER))}
    after, outcome = do_all(documents, AutoGrant(B), 30_000)
    assert [(one.resource, one.state) for one in outcome.events] == [(KEY, "expired"), (OTHER, "reserved")]
    assert outcome.deadline_mono_ms == 60_000
    assert after[KEY].holder is None


def test_command_for_one_resource_leaves_the_others() -> None:
    """A look, a request and a policy concern the resource that they name."""
    documents = {KEY: Document(KEY), OTHER: Document(OTHER)}
    _, outcome = do_all(documents, Status(A, OTHER))
    assert outcome.snapshot is not None
    assert outcome.snapshot.resource == OTHER
    governed, outcome = do_all(documents, set_policy(A))
    assert (governed[KEY].epoch, governed[OTHER]) == (1, documents[OTHER])
    freed, _ = do_all(governed, Unenrol(C, KEY, (A.peer.id,)))
    assert freed[KEY].epoch == 2
    waiting, _ = do_all(governed, request(A, "q"))
    granted, outcome = do_all(waiting, grant("q"))
    assert [one.state.value for one in outcome.tickets] == ["reserved"]
    assert granted[OTHER] is documents[OTHER]


def test_launch_refused_on_one_resource_is_begun_on_none() -> None:
    """One old fence among several stops the whole command."""
    documents, _ = do_all({KEY: Document(KEY), OTHER: Document(OTHER)}, claim(A, "l1"))
    documents, _ = do_all(documents, AutoGrant(A))
    after, outcome = do_all(documents, begin(A, documents[KEY], "l1", fences={KEY: 1, OTHER: 9}))
    assert outcome.refusal is not None
    assert outcome.refusal.code == "RESERVATION_EXPIRED"
    assert after == documents


def test_claim_that_names_what_is_nowhere_is_refused() -> None:
    """A ticket that no resource has, and an ancestor that nobody has proven, are refused."""
    documents = {KEY: running(), OTHER: Document(OTHER)}
    _, outcome = do_all(documents, claim(A, "l2", ticket_id="none"))
    assert outcome.refusal is not None
    assert outcome.refusal.code == "INVALID_PARAMS"
    _, outcome = do_all(documents, claim(A, "l2", inherits_from="l1"))
    assert outcome.refusal is not None
    assert outcome.refusal.code == "SCOPE_DENIED"


def test_claim_of_what_an_ancestor_holds_whole_makes_no_ticket() -> None:
    """A command whose every resource is held for it queues nowhere."""
    document = running()
    after, outcome = handle(document, claim(A, "l2", inherits_from="l1"), facts(ancestors=("l1",)), at(5))
    assert (outcome.tickets, outcome.inherited) == ((), (KEY,))
    assert after is document
