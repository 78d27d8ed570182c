"""Show that a launch is over by proof, and what is none."""

from itertools import product

import msgspec
import pytest

from tieline.machine.launch import IGNORED, MOVES, REFUSED, Step, identify, is_proven_gone, step
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Claimant, Launch, LaunchState, Probe

OWNER = ProcessIdentity("b", 1, 2, 3, None, "linux")
A, I, B, D = LaunchState.ADMITTED, LaunchState.IDENTIFIED, LaunchState.BLOCKER, LaunchState.DRAINED  # noqa: E741

TABLE = {
    A: {Step.IDENTIFY: I, Step.LOSE: B, Step.SPAWN_FAILED: D, Step.DRAIN: D, Step.RECOVER: D},
    I: {Step.LOSE: B, Step.DRAIN: D, Step.RECOVER: D},
    B: {Step.DRAIN: D, Step.RECOVER: D},
}


def launch(state: LaunchState) -> Launch:
    return Launch("l", "n", "d", "sh", "w", Claimant("p", "i", "a", OWNER), 1, "b", state=state)


def test_pair_of_state_and_step_is_in_exactly_one_table() -> None:
    """Every pair has exactly one answer."""
    for pair in product(LaunchState, Step):
        assert sum(pair in table for table in (MOVES, REFUSED, IGNORED)) == 1, pair


@pytest.mark.parametrize(("before", "taken"), list(product(LaunchState, Step)))
def test_step_in_every_state_moves_only_along_the_table(before: LaunchState, taken: Step) -> None:
    """A step changes the state where the reference says so, and nothing elsewhere."""
    if taken is Step.IDENTIFY:
        after = identify(launch(before), (OWNER,), "cgroup")
        assert step(launch(before), taken) is None
    else:
        after = step(launch(before), taken)
    assert (after.state if after is not None else None) == TABLE.get(before, {}).get(taken)


@pytest.mark.clause("native-191")
def test_identify_publishes_the_processes_and_the_strength_of_the_proof() -> None:
    """A launch is identified by what was started, and by nothing less."""
    after = identify(launch(A), (OWNER,), "supervised")
    assert after is not None
    assert (after.processes, after.ownership) == ((OWNER,), "supervised")
    assert identify(launch(A), (), "supervised") is None


@pytest.mark.clause("native-195", "I34", "I36", "mutant-16")
@pytest.mark.parametrize(
    ("probe", "then", "now", "has_evidence", "is_gone"),
    [
        (Probe("gone"), "b", "b", True, True),
        (Probe("gone"), "b", "b", False, False),  # nobody knows what to look for
        (Probe("gone"), "", "b", False, False),
        (Probe("gone"), "b", "", False, False),
        (Probe("unknown"), "b", "b", True, False),
        (Probe("alive"), "b", "b", True, False),
        (None, "b", "b", True, False),
        (None, "b", "other", False, True),  # no process survives a boot
        (Probe("unknown"), "b", "other", True, True),
        (None, "", "other", True, False),
        (None, "b", "", True, False),
    ],
)
def test_end_is_proven_by_published_processes_or_another_boot(
    probe: Probe | None, then: str, now: str, has_evidence: bool, is_gone: bool
) -> None:
    """Only what was published and is seen gone, or another boot, proves an end."""
    assert is_proven_gone(probe, then, now, has_evidence=has_evidence) is is_gone


@pytest.mark.clause("I36")
def test_identify_keeps_the_control_group_that_was_told() -> None:
    """Whoever looks later finds the group; a later word without one does not take it away."""
    first = identify(launch(A), (OWNER,), "cgroup", "/g/launch")
    assert first is not None
    assert first.cgroup == "/g/launch"
    assert msgspec.structs.replace(first, state=A).cgroup == "/g/launch"
    again = identify(msgspec.structs.replace(first, state=A), (OWNER,), "cgroup")
    assert again is not None
    assert again.cgroup == "/g/launch"


@pytest.mark.clause("native-192", "O42")
def test_identify_takes_what_the_same_first_process_tells_later() -> None:
    """Who left the session since is published as well; another first process, or the same again, is not."""
    first = identify(launch(A), (OWNER,), "supervised", limit_mark=7)
    assert first is not None
    other = msgspec.structs.replace(OWNER, pid=9)
    more = identify(first, (OWNER, other), "group")
    assert more is not None
    assert (more.processes, more.ownership, more.limit_mark) == ((OWNER, other), "supervised", 7)
    assert identify(more, (OWNER, other), "supervised") is None
    assert identify(more, (other,), "supervised") is None
