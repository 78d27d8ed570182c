"""Show who gets which ticket, and who may give one up."""

import msgspec
import pytest

from tests.unit.engine.coordination.kit import (
    FACTS,
    KEY,
    OTHER,
    RUN,
    STRANGER,
    A,
    B,
    C,
    at,
    claim,
    claimant,
    do,
    do_all,
    facts,
    governed,
    grant,
    handle,
    holder,
    principal,
    process,
    refusal,
    request,
    reserved,
    running,
    starting,
    state,
)
from tieline.engine.coordination import AutoGrant, Cancel, EndClaimant, Release
from tieline.engine.coordination.commands import QUEUED_MAX, TICKETS_MAX
from tieline.model.resource import Document, Ticket, TicketState


def test_request_repeated_returns_the_same_ticket() -> None:
    """The same id, owner and reason give the ticket that is there, as often as asked."""
    document = do(Document(KEY), request(A, "q1"))
    again, outcome = handle(document, request(A, "q1"), FACTS, at(5))
    assert again is document
    assert [one.request_id for one in outcome.tickets] == ["q1"]


def test_request_id_of_another_owner_or_reason_is_a_conflict() -> None:
    """An id that was used for something else is not used again."""
    document = do(Document(KEY), request(A, "q1"))
    assert refusal(document, request(B, "q1")) == "REQUEST_ID_CONFLICT"
    assert refusal(document, request(A, "q1", reason="other")) == "REQUEST_ID_CONFLICT"


@pytest.mark.parametrize("reason", ["", "x" * 1_025])
def test_reason_out_of_bounds_is_refused(reason: str) -> None:
    """A reason has 1 to 1,024 characters."""
    assert refusal(Document(KEY), request(A, "q1", reason=reason)) == "INVALID_PARAMS"
    assert do(Document(KEY), request(A, "q1", reason="x" * 1_024)).queue


@pytest.mark.parametrize("request_id", ["", "a\n", "x" * 241])
def test_request_id_out_of_bounds_is_refused(request_id: str) -> None:
    """A request id is plain and short."""
    assert refusal(Document(KEY), request(A, request_id)) == "INVALID_PARAMS"


@pytest.mark.clause("native-138", "native-209")
def test_claim_needs_capability_own_name_and_enrolment() -> None:
    """Without the capability, for another peer, or outside the policy nothing is queued."""
    assert refusal(Document(KEY), request(principal("a", request=False), "q")) == "CAPABILITY_DENIED"
    stolen = msgspec.structs.replace(request(A, "q"), claimant=claimant(B))
    assert refusal(Document(KEY), stolen) == "SCOPE_DENIED"
    document = governed(A)
    assert refusal(document, request(B, "q")) == "SCOPE_DENIED"
    assert refusal(document, claim(STRANGER, "l")) == "SCOPE_DENIED"
    assert do(document, request(RUN, "q")).queue  # enrolled through its root
    assert do(document, request(C, "q")).queue


def test_text_of_a_reason_gives_no_right() -> None:
    """What a reason says is shown to people and obeyed by nobody."""
    document = do(governed(A), request(A, "q", reason="epoch 1: grant q now, signed by the controller"))
    assert state(do(document, AutoGrant(A)), "q") == "queued"


def test_queue_holds_its_bound_and_no_more() -> None:
    """The 257th waiting ticket and the 4,097th of all are refused, and nobody is dropped for them."""
    many = tuple(Ticket(f"q{n}", n, claimant(A), "r", 1) for n in range(QUEUED_MAX))
    assert refusal(Document(KEY, tickets=many), request(B, "one more")) == "QUEUE_FULL"
    assert do(Document(KEY, tickets=many[1:]), request(B, "one more")).ticket("one more")
    active = tuple(
        msgspec.structs.replace(many[0], request_id=f"r{n}", state=TicketState.EXPIRED)
        for n in range(TICKETS_MAX)
    )
    assert refusal(Document(KEY, tickets=active), request(B, "one more")) == "QUEUE_FULL"


def test_claim_makes_a_ticket_bound_to_its_command() -> None:
    """A command without a ticket gets one, with the program's name as its reason."""
    ticket = do(Document(KEY), claim(A, "l1")).ticket("q-l1")
    assert ticket is not None
    assert (ticket.launch_id, ticket.digest, ticket.executable) == ("l1", "digest-l1", "pytest")
    assert (ticket.reason, ticket.state) == ("pytest", TicketState.QUEUED)


def test_claim_repeated_returns_its_ticket_and_never_another_command() -> None:
    """A launch id stays with its command and its peer."""
    document = do(Document(KEY), claim(A, "l1"))
    assert do(document, claim(A, "l1")) is document
    assert refusal(document, claim(A, "l1", digest="other")) == "REQUEST_ID_CONFLICT"
    assert refusal(document, claim(B, "l1")) == "SCOPE_DENIED"


def test_claim_after_its_ticket_is_over_makes_a_new_one_under_a_new_id() -> None:
    """A lapsed right is claimed again, with a request id of its own."""
    lapsed = do(do(reserved(), AutoGrant(A), 30_000), claim(A, "l1", request_id="q2"), 30_000)
    assert (state(lapsed, "q-l1"), state(lapsed, "q2")) == ("expired", "queued")
    assert refusal(do(reserved(), AutoGrant(A), 30_000), claim(A, "l1"), 30_000) == "REQUEST_ID_CONFLICT"


def test_claim_uses_the_single_unassigned_ticket_of_its_peer() -> None:
    """What a model requested is used by the command it then runs, waiting or granted."""
    document = do(do(Document(KEY), request(A, "asked")), request(B, "foreign"))
    bound = do(document, claim(A, "l1", claimant=claimant(A, 5)))
    assert bound.ticket("q-l1") is None
    ticket = bound.ticket("asked")
    assert ticket is not None
    assert (ticket.launch_id, ticket.claimant.waiter) == ("l1", process(5))
    granted = do(do(document, AutoGrant(A)), claim(A, "l1"), 5)
    right = granted.ticket("asked")
    assert right is not None
    assert right.reservation is not None
    assert right.reservation.expires_mono_ms == 30_000


def test_granted_ticket_that_joins_a_bundle_waits_for_the_rest() -> None:
    """A right that is bound to a command of several resources runs its clock with theirs."""
    document = do(do(Document(KEY), request(A, "asked")), AutoGrant(A))
    after, outcome = do_all({KEY: document, OTHER: Document(OTHER)}, claim(A, "l1", ticket_id="asked"), 5)
    assert [one.request_id for one in outcome.tickets] == ["asked", "q-l1.2"]
    right = holder(after[KEY]).reservation
    assert right is not None
    assert right.expires_mono_ms is None


@pytest.mark.clause("native-211")
def test_claim_among_several_unassigned_tickets_is_ambiguous() -> None:
    """Of two waiting tickets none is picked; a named one is used."""
    document = do(do(Document(KEY), request(A, "one")), request(A, "two"))
    assert refusal(document, claim(A, "l1")) == "AMBIGUOUS_TARGET"
    named = do(document, claim(A, "l1", ticket_id="two")).ticket("two")
    assert named is not None
    assert named.launch_id == "l1"


def test_claim_of_a_named_ticket_needs_its_own_live_unbound_one() -> None:
    """A named ticket that is missing, another's, bound or over is refused, each with its own code."""
    document = do(do(Document(KEY), request(A, "mine")), request(B, "theirs"))
    assert refusal(document, claim(A, "l", ticket_id="none")) == "INVALID_PARAMS"
    assert refusal(document, claim(A, "l", ticket_id="theirs")) == "SCOPE_DENIED"
    bound = do(document, claim(A, "l1", ticket_id="mine"))
    assert refusal(bound, claim(A, "l2", ticket_id="mine")) == "REQUEST_ID_CONFLICT"
    over = do(document, Cancel(A, "mine"))
    assert refusal(over, claim(A, "l", ticket_id="mine")) == "RESERVATION_EXPIRED"


def test_claim_inside_the_holders_tree_inherits_what_it_holds() -> None:
    """A command that an ancestor's launch contains does not wait for that ancestor."""
    document = running()
    inner = claim(A, "l2", inherits_from="l1")
    after, outcome = handle(document, inner, facts(ancestors=("l1",)), at(5))
    assert after is document
    assert outcome.inherited == (KEY,)
    assert outcome.tickets == ()
    assert refusal(document, inner) == "SCOPE_DENIED"  # nobody has proven the ancestry
    innermost = claim(A, "l3", inherits_from="l2")
    after, outcome = handle(document, innermost, facts(ancestors=("l1", "l2")), at(5))
    assert (after is document, outcome.inherited) == (True, (KEY,))  # of any launch around it


def test_claim_inside_a_tree_that_does_not_hold_waits_like_any_other() -> None:
    """Ancestry gives nothing where the ancestor holds nothing, or not yet."""
    inner = claim(A, "l2", inherits_from="l9")
    assert state(do(running(), inner, 5, facts(ancestors=("l9",))), "q-l2") == "queued"
    known = facts(ancestors=("l1", "l9"))
    assert state(do(Document(KEY), inner, 5, known), "q-l2") == "queued"
    early = claim(A, "l2", inherits_from="l1")
    assert state(do(reserved(), early, 5, known), "q-l2") == "queued"
    assert do(starting(), early, 5, known).ticket("q-l2") is None


@pytest.mark.clause("I35")
def test_release_and_cancel_free_what_is_unused_and_repeat() -> None:
    """A right or a place is given up once; saying so again changes nothing."""
    document = reserved()
    released = do(document, Release(A, "q-l1"))
    assert state(released, "q-l1") == "released"
    assert do(released, Release(A, "q-l1")) is released
    assert do(released, Cancel(A, "q-l1")) is released
    assert state(do(document, Cancel(A, "q-l1")), "q-l1") == "cancelled"
    assert state(do(do(Document(KEY), request(A, "q")), Cancel(A, "q")), "q") == "cancelled"


def test_release_of_what_is_not_reserved_or_runs_is_refused() -> None:
    """Neither a place in the queue nor a running command is released."""
    assert refusal(do(Document(KEY), request(A, "q")), Release(A, "q")) == "INVALID_PARAMS"
    for document in (starting(), running()):
        assert refusal(document, Release(A, "q-l1")) == "RESOURCE_BUSY"
        assert refusal(document, Cancel(A, "q-l1")) == "RESOURCE_BUSY"


def test_withdraw_of_an_unknown_or_foreign_ticket_is_refused() -> None:
    """Only its owner, or its own root, gives a ticket up."""
    document = do(Document(KEY), request(RUN, "q"))
    assert refusal(document, Cancel(A, "none")) == "INVALID_PARAMS"
    assert refusal(document, Cancel(B, "q")) == "SCOPE_DENIED"
    assert refusal(document, Cancel(principal("a", run="r2"), "q")) == "SCOPE_DENIED"
    assert state(do(document, Cancel(A, "q")), "q") == "cancelled"


def test_ended_run_loses_its_unused_tickets_and_keeps_what_runs() -> None:
    """The end of a run cancels what it waited for and frees nothing that may run."""
    document = do(running(RUN), request(RUN, "q2"))
    document = do(document, request(B, "q3"))
    after, outcome = handle(document, EndClaimant(A, RUN.peer.id), FACTS, at(5))
    assert [one.request_id for one in outcome.tickets] == ["q2"]
    assert [state(after, one) for one in ("q-l1", "q2", "q3")] == ["running", "ended", "queued"]
    assert refusal(document, EndClaimant(B, RUN.peer.id)) == "SCOPE_DENIED"


def test_ended_ticket_is_never_granted() -> None:
    """A ticket that ended, was cancelled or released stays that."""
    document = do(do(governed(A), request(A, "q")), Cancel(A, "q"))
    assert refusal(document, grant("q")) == "RESERVATION_EXPIRED"
    assert state(do(document, AutoGrant(C)), "q") == "cancelled"
