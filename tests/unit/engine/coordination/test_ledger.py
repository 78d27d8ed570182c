"""Show that a command is in the ledger before it runs and leaves it by proof."""

import msgspec
import pytest

from tests.unit.engine.coordination.kit import (
    ALIVE,
    GONE,
    KEY,
    OTHER,
    UNKNOWN,
    A,
    at,
    facts,
    launch,
    process,
    reserved,
    running,
    starting,
)
from tieline.engine.coordination import (
    admit,
    answer_for_launch,
    drain_launch,
    drop_launch,
    identify_launch,
    sweep,
)
from tieline.engine.coordination.commands import LAUNCHES_MAX
from tieline.errors import Refusal
from tieline.model.resource import Document, Launch, LaunchState, Ledger, ResourceKey

NOBODY: frozenset[str] = frozenset()
HELD = launch("l1", resources=((KEY, 1),))


def ledger(*launches: Launch) -> Ledger:
    return Ledger(launches=launches)


def code(result: Ledger | Refusal) -> str:
    assert isinstance(result, Refusal)
    return result.code


def states(result: Ledger | Refusal) -> dict[str, LaunchState]:
    assert isinstance(result, Ledger)
    return {one.launch_id: one.state for one in result.launches}


@pytest.mark.clause("native-190", "I32", "mutant-18")
def test_launch_is_admitted_while_it_holds_all_it_names() -> None:
    """A command enters the ledger in `starting`, under the fence and the epoch of its grant."""
    documents = {KEY: starting()}
    assert states(admit(Ledger(), HELD, documents)) == {"l1": LaunchState.ADMITTED}
    assert states(admit(Ledger(), launch("free"), {})) == {"free": LaunchState.ADMITTED}


@pytest.mark.clause("I33", "I40", "native-215")
@pytest.mark.parametrize(
    ("document", "one"),
    [
        (reserved(), HELD),
        (running(), HELD),
        (Document(KEY), HELD),
        (starting(), launch("l1", resources=((KEY, 2),))),
        (starting(), launch("l2", resources=((KEY, 1),))),
        (starting(), launch("l1", digest="other", resources=((KEY, 1),))),
        (starting(), launch("l1", nonce="other", resources=((KEY, 1),))),
        (starting(), launch("l1", resources=((OTHER, 1),))),
        (msgspec.structs.replace(starting(), epoch=1), HELD),
    ],
)
def test_launch_that_does_not_hold_what_it_names_is_refused(document: Document, one: Launch) -> None:
    """Another state, fence, epoch, launch, command or resource than was granted is stale."""
    assert code(admit(Ledger(), one, {KEY: document})) == "STALE_POLICY"


@pytest.mark.clause("native-189")
def test_launch_that_lacks_what_a_present_policy_asks_is_refused() -> None:
    """A policy installed while a command waited is not overlooked."""
    documents: dict[ResourceKey, Document] = {KEY: starting()}
    assert code(admit(Ledger(), HELD, documents, [OTHER])) == "STALE_POLICY"
    assert states(admit(Ledger(), HELD, documents, [KEY])) == {"l1": LaunchState.ADMITTED}


def test_launch_admitted_twice_is_there_once_and_its_id_is_never_rebound() -> None:
    """Admission repeats for the same command and is refused for another."""
    there = ledger(HELD)
    assert admit(there, HELD, {}) is there
    assert code(admit(there, launch("l1", digest="other"), {})) == "REQUEST_ID_CONFLICT"
    assert code(admit(there, launch("l1", nonce="other"), {})) == "REQUEST_ID_CONFLICT"


@pytest.mark.clause("native-193")
def test_ledger_that_is_full_refuses_and_drops_nothing() -> None:
    """Room is made by commands that end, by nothing else."""
    full = ledger(*(launch(f"x{number}") for number in range(LAUNCHES_MAX)))
    assert code(admit(full, launch("one more"), {})) == "QUEUE_FULL"
    assert states(admit(ledger(*full.launches[1:]), launch("one more"), {}))["one more"]


def test_step_needs_a_known_launch_and_its_nonce() -> None:
    """Nobody else's launch is identified or ended."""
    there = ledger(HELD)
    assert code(identify_launch(there, "l2", "nonce-l2", (process(7),), "group")) == "INVALID_PARAMS"
    assert code(identify_launch(there, "l1", "other", (process(7),), "group")) == "SCOPE_DENIED"
    assert code(drain_launch(there, "l1", "other", GONE)) == "SCOPE_DENIED"
    assert code(drop_launch(there, "l1", "other")) == "SCOPE_DENIED"


def test_launch_is_identified_once() -> None:
    """The processes of a launch are published once, and stay."""
    after = identify_launch(ledger(HELD, launch("l2")), "l1", "nonce-l1", (process(7),), "cgroup")
    assert states(after) == {"l1": LaunchState.IDENTIFIED, "l2": LaunchState.ADMITTED}
    assert isinstance(after, Ledger)
    assert identify_launch(after, "l1", "nonce-l1", (process(9),), "group") is after


@pytest.mark.clause("I34")
def test_launch_leaves_on_its_supervisors_proof() -> None:
    """A proven end takes the record out; a doubt does not; a repeat finds nothing."""
    there = ledger(HELD, launch("l2"))
    assert code(drain_launch(there, "l1", "nonce-l1", UNKNOWN)) == "RESOURCE_BUSY"
    after = drain_launch(there, "l1", "nonce-l1", GONE)
    assert states(after) == {"l2": LaunchState.ADMITTED}
    assert isinstance(after, Ledger)
    assert drain_launch(after, "l1", "nonce-l1", GONE) is after


def test_launch_that_started_nothing_is_dropped() -> None:
    """A failed spawn leaves no record; a published start is no failed spawn."""
    there = ledger(HELD)
    after = drop_launch(there, "l1", "nonce-l1")
    assert states(after) == {}
    assert isinstance(after, Ledger)
    assert drop_launch(after, "l1", "nonce-l1") is after
    running_one = ledger(launch("l1", state=LaunchState.IDENTIFIED))
    assert code(drop_launch(running_one, "l1", "nonce-l1")) == "RESOURCE_BUSY"


def test_operator_takes_a_launch_out() -> None:
    """What an operator answers for leaves the ledger in any state."""
    for one in (LaunchState.ADMITTED, LaunchState.IDENTIFIED, LaunchState.BLOCKER):
        assert states(answer_for_launch(ledger(launch("l1", state=one)), "l1")) == {}
    empty = Ledger()
    assert answer_for_launch(empty, "l1") is empty


@pytest.mark.clause("I34", "I36")
def test_sweep_takes_out_what_is_proven_gone_over_the_quarantine() -> None:
    """A look takes out what it proves, after a second look, once no document names it as holder."""
    there = ledger(launch("l1", A, processes=(process(7),), state=LaunchState.IDENTIFIED), launch("l2"))
    known = facts(probes={"l1": GONE, "l2": GONE})
    once = sweep(there, known, at(100), NOBODY)
    assert states(once).keys() == {"l1", "l2"}
    assert states(sweep(once, known, at(600), frozenset({"l1"}))).keys() == {"l1", "l2"}
    assert states(sweep(once, facts(), at(600), NOBODY)).keys() == {"l1", "l2"}
    assert states(sweep(once, facts(probes={"l1": ALIVE}), at(600), NOBODY)).keys() == {"l1", "l2"}
    assert states(sweep(once, known, at(600), NOBODY)).keys() == {"l2"}  # nobody published l2
    assert sweep(there, facts(), at(0), NOBODY) is there


def test_sweep_after_another_boot_takes_everything_out() -> None:
    """No command survives its boot."""
    assert states(sweep(ledger(HELD, launch("l2")), facts(boot="boot-2"), at(0), NOBODY)) == {}
    kept = sweep(ledger(HELD, launch("l2")), facts(boot="boot-2"), at(0), frozenset({"l1"}))
    assert states(kept).keys() == {"l1"}


@pytest.mark.clause("native-195", "I32")
def test_launch_without_its_supervisor_becomes_a_blocker_and_stays() -> None:
    """A crash between admission and publication leaves a record that only an operator clears."""
    lost = ledger(launch("l1", supervisor=process(8)))
    known = facts(processes={process(8): "gone"}, probes={"l1": GONE})
    for ms in (0, 600, 3_600_000):
        lost = sweep(lost, known, at(ms), NOBODY)
        assert states(lost) == {"l1": LaunchState.BLOCKER}
    unknown = ledger(launch("l1", supervisor=process(8)))
    assert sweep(unknown, facts(), at(0), NOBODY) is unknown
