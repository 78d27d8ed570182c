"""Show what a policy changes, what it leaves alone, and who may install one."""

import pytest

from tests.unit.engine.coordination.kit import (
    FACTS,
    KEY,
    OTHER,
    RUN,
    A,
    B,
    C,
    D,
    at,
    begin,
    claim,
    do,
    facts,
    governed,
    grant,
    handle,
    launch,
    principal,
    process,
    refusal,
    request,
    reserved,
    running,
    set_policy,
    state,
)
from tieline.engine.coordination import AutoGrant, SetPolicy, Status, Unenrol
from tieline.engine.coordination.governing import is_gated
from tieline.model.resource import Document


@pytest.mark.clause("native-188", "I33")
def test_policy_gets_the_next_epoch_and_voids_what_was_not_used() -> None:
    """A new policy ends unused rights, and places of those it leaves out; the others keep theirs."""
    document = do(do(reserved(), request(A, "in")), request(B, "out"))
    after, outcome = handle(document, set_policy(A), FACTS, at(5))
    assert after.epoch == 1
    assert [state(after, one) for one in ("q-l1", "in", "out")] == ["stale", "queued", "stale"]
    assert after.holder is None
    assert [event.state for event in outcome.events] == ["policy_changed", "stale", "stale"]
    told = outcome.events[0]
    assert told.epoch == 1
    assert set(told.audience) == {A.peer.id, B.peer.id, C.peer.id}


@pytest.mark.clause("native-215", "I33", "I40", "O40")
def test_right_of_an_earlier_policy_cannot_be_used() -> None:
    """A waiter that slept through a change of policy is told so, and starts nothing."""
    document = reserved()
    late = begin(A, document, "l1")
    assert refusal(do(document, set_policy(A)), late) == "STALE_POLICY"


@pytest.mark.clause("I33")
def test_policy_leaves_what_runs_and_counts_it() -> None:
    """The holder keeps its right until its proven end; nothing is granted before."""
    document = do(running(), set_policy(A))
    assert state(document, "q-l1") == "running"
    assert document.blockers == ()
    waiting = do(document, request(A, "q2"))
    assert refusal(waiting, grant("q2"), 1, facts(processes={process(100): "alive"})) == "RESOURCE_BUSY"


@pytest.mark.clause("native-189", "I33")
def test_policy_adopts_every_running_command_that_it_asks_for() -> None:
    """What was admitted under another policy blocks, whether or not it knew of this resource."""
    launches = {
        one.launch_id: one
        for one in (
            launch("build", A, classes=("build",)),
            launch("child", RUN, classes=("build",), processes=(process(7),)),
            launch("plain", A),
            launch("foreign", B, classes=("build",)),
            launch("named", B, resources=((KEY, 1),)),
            launch("elsewhere", B, resources=((OTHER, 1),)),
        )
    }
    known = facts(launches=launches)
    built = do(Document(KEY), set_policy(A, profile="build"), 0, known)
    assert {one.launch_id for one in built.blockers} == {"build", "child", "named"}
    assert {one.launch_id: one.has_evidence for one in built.blockers}["child"] is True
    strict = do(built, set_policy(A), 1, known)
    assert [one.launch_id for one in strict.blockers] == ["build", "child", "named", "plain"]
    waiting = do(strict, request(A, "q"), 1, known)
    assert refusal(waiting, grant("q"), 1, known) == "RESOURCE_BUSY"


def test_holder_is_not_its_own_blocker() -> None:
    """A launch that holds the resource is counted once."""
    known = facts(launches={"l1": launch("l1", resources=((KEY, 1),))})
    assert do(running(), set_policy(A), 1, known).blockers == ()


def test_gated_are_commands_of_the_enrolled_that_the_profile_names() -> None:
    """`strict` asks for every command, `build` for builds, and nobody else's."""
    strict = do(Document(KEY), set_policy(A))
    build = do(Document(KEY), set_policy(A, profile="build"))
    own, other = frozenset({A.peer.id}), frozenset({B.peer.id})
    nothing: frozenset[str] = frozenset()
    assert is_gated(strict, own, nothing)
    assert not is_gated(strict, other, frozenset({"build"}))
    assert is_gated(build, own, frozenset({"build"}))
    assert not is_gated(build, own, nothing)
    assert not is_gated(Document(KEY), own, frozenset({"build"}))


def test_member_left_out_stays_gated_until_it_is_taken_out() -> None:
    """Leaving a member out refuses its commands; only an explicit act frees them."""
    document = do(governed(A, B), set_policy(A))
    assert refusal(document, request(B, "q")) == "SCOPE_DENIED"
    assert is_gated(document, frozenset({B.peer.id}), frozenset())
    freed = do(document, Unenrol(C, KEY, (B.peer.id,)))
    assert not is_gated(freed, frozenset({B.peer.id}), frozenset())
    assert freed.epoch == 3


def test_unenrol_takes_a_participant_out_and_tells_it() -> None:
    """Who is taken out loses its place, and is told."""
    document = do(governed(A, B), request(B, "q"))
    after, outcome = handle(document, Unenrol(C, KEY, (B.peer.id,)), FACTS, at(1))
    assert state(after, "q") == "stale"
    assert after.policy is not None
    assert after.policy.participants == (A.peer.id,)
    assert B.peer.id in outcome.events[0].audience
    assert refusal(document, Unenrol(A, KEY, (B.peer.id,))) == "CAPABILITY_DENIED"
    assert refusal(Document(KEY), Unenrol(C, KEY, (B.peer.id,))) == "CAPABILITY_DENIED"
    assert refusal(document, Unenrol(C, KEY, (C.peer.id,))) == "INVALID_PARAMS"


@pytest.mark.clause("native-139", "native-138")
def test_policy_needs_the_capability_and_a_present_controller() -> None:
    """Control is a capability that was given, and a controller one that answers."""
    assert refusal(Document(KEY), set_policy(A, controller=A)) == "CAPABILITY_DENIED"
    assert refusal(Document(KEY), set_policy(A), 0, facts(launches={}, peers={C.peer.id: "unknown"})) == (
        "CONTROLLER_UNAVAILABLE"
    )


def test_policy_with_wrong_fields_is_refused() -> None:
    """Another epoch, too many participants and what is no peer id are refused."""
    assert refusal(governed(A), set_policy(A, epoch=9)) == "STALE_POLICY"
    assert do(governed(A), set_policy(A, epoch=1)).epoch == 2
    crowd = tuple(A.peer.id for _ in range(257))
    assert refusal(Document(KEY), set_policy(participants=crowd)) == "INVALID_PARAMS"
    assert refusal(Document(KEY), set_policy(participants=("name",))) == "INVALID_PARAMS"
    assert refusal(Document(KEY), set_policy(participants=("peer-" + "g" * 32,))) == "INVALID_PARAMS"


@pytest.mark.clause("native-194", "native-3.6.13")
def test_live_controller_is_replaced_by_itself_or_by_confirmation() -> None:
    """Another controller comes in when the present one is proven gone, or the local user says so."""
    document = governed(A)
    by_d = set_policy(A, controller=D)
    assert refusal(document, by_d) == "CAPABILITY_DENIED"
    unsure = facts(launches={}, peers={C.peer.id: "unknown"})
    assert refusal(document, by_d, 0, unsure) == "CAPABILITY_DENIED"
    gone = facts(launches={}, peers={C.peer.id: "gone"})
    replaced = do(document, by_d, 0, gone)
    assert replaced.epoch == 2
    assert replaced.policy is not None
    assert replaced.policy.controller == D.peer.id
    assert do(document, set_policy(A, controller=D, is_takeover=True)).epoch == 2
    assert do(document, set_policy(B, controller=C)).epoch == 2


@pytest.mark.clause("I38")
def test_resource_made_open_again_keeps_counting() -> None:
    """Taking the policy away is a change of policy like any other."""
    document = do(governed(A), request(A, "q"))
    document = do(document, SetPolicy(C, KEY, None))
    assert document.policy is None
    assert document.epoch == 2
    assert state(do(document, AutoGrant(B)), "q") == "reserved"
    assert handle(document, Status(B, KEY), FACTS, at(1))[1].snapshot is not None


def test_child_of_the_controller_controls_nothing() -> None:
    """A run is enrolled through its root and gains no control by that."""
    child = principal("c", run="r", control=True)
    document = do(governed(A), request(A, "q"))
    assert refusal(document, grant("q", who=child)) == "CAPABILITY_DENIED"
    assert do(governed(A), claim(child, "l")).queue


@pytest.mark.clause("native-194")
def test_controller_of_a_process_that_is_gone_may_be_replaced_and_keeps_the_participants() -> None:
    """The proof is its process; who waits keeps ticket and place."""
    owner = process(77)
    document = do(Document(KEY), set_policy(A, controller_owner=owner))
    document = do(document, request(A, "r1"))
    wish = SetPolicy(D, KEY, D.peer.id, None, None)
    assert refusal(document, wish) == "CAPABILITY_DENIED"
    after = do(document, wish, known=facts(launches={}, processes={owner: "gone"}))
    assert after.policy is not None
    assert (after.policy.participants, after.policy.profile) == ((A.peer.id,), "strict")
    assert state(after, "r1") == "queued"


@pytest.mark.clause("native-189")
def test_command_that_holds_nothing_becomes_a_blocker_of_a_later_policy() -> None:
    """It was admitted when nothing was asked of it, and is not overlooked."""
    known = facts(launches={"l9": launch("l9", A)})
    after = do(Document(KEY), set_policy(A), known=known)
    assert [one.launch_id for one in after.blockers] == ["l9"]
