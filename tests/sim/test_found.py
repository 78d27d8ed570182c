"""What the simulator found in the product once, each as a short history of its own.

Source: reference/reliability.md 2.6 "a failing seed is committed as a regression with its history".
"""

import msgspec
import pytest

from tests.sim.checker import check
from tests.sim.disk import FakeDisk
from tests.sim.plan import Plan
from tests.sim.root import SimRoot
from tests.sim.world import SimWorld
from tieline.config import Limits
from tieline.model.identity import Peer
from tieline.model.receipt import State


def world(*limits: Limits) -> SimWorld:
    """Return a world of started roots in which nothing fails by itself."""
    plan = Plan(1, len(limits), limits, (False,) * len(limits), False, False, (), False, (), 0)
    made = SimWorld(plan)
    for slot in range(len(limits)):
        made.start(slot)
    return made


def pair(made: SimWorld) -> tuple[SimRoot, SimRoot]:
    """Return the first two roots."""
    one, two = made.living()[:2]
    return one, two


def state(root: SimRoot, message_id: str) -> State:
    """Return what a root knows of a message it sent."""
    return root.engine.sent(message_id, root.peer)[0].receipt.state


def later(made: SimWorld, ms: int) -> None:
    """Let time pass."""
    made.clock.run_until(made.clock.mono_ms + ms)


@pytest.mark.clause("K15", "I51")
def test_line_that_swallows_is_left_for_another_one() -> None:
    """An open line on which no answer comes is hung up on, and the message goes over a new one."""
    made = world(Limits(), Limits())
    one, two = pair(made)
    one.say(one.peer, two.peer, "m1", "first")
    later(made, 1_000)
    made.network.swallow(one.name, two.name)
    one.say(one.peer, two.peer, "m2", "second")
    later(made, 10_000)
    assert state(one, "m2") is State.ACCEPTED


@pytest.mark.clause("K15")
def test_line_whose_hello_is_never_answered_strands_nobody() -> None:
    """A far end that proves itself and then falls silent costs an attempt, not the line for ever."""
    made = world(Limits(), Limits())
    one, two = pair(made)
    one.say(one.peer, two.peer, "m1", "first")
    while not any(entry.data.get("frames", [{}])[0].get("authenticated") for entry in made.history.entries):
        later(made, 1)
    made.clock.stop(two.name)
    later(made, 5_000)
    made.clock.go_on(two.name)
    later(made, 60_000)
    assert state(one, "m1") is State.ACCEPTED


@pytest.mark.clause("I51")
def test_request_that_ran_out_of_time_lets_the_next_one_go() -> None:
    """With a window of one, what waits behind a request that was not answered in time is asked next."""
    made = world(Limits(), Limits(pending_requests=1, acknowledgement_ms=500))
    one, two = pair(made)
    for number in range(4):
        one.say(one.peer, two.peer, f"m{number}", "text", expiry_ms=5_000)
    later(made, 4_000)
    one.disk.slow_ms = 3_000
    later(made, 60_000)
    assert [state(one, f"m{number}") for number in range(4)] == [State.EXPIRED] * 4


@pytest.mark.clause("I4", "I18")
def test_refusal_of_a_later_attempt_does_not_deny_an_earlier_one() -> None:
    """A full window refuses an attempt; the one before it was never answered, and was taken."""
    made = world(Limits(acknowledgement_ms=50), Limits(pending_requests=1))
    one, two = pair(made)
    one.say(one.peer, two.peer, "m0", "opens the line")
    later(made, 1_000)
    two.disk.slow_ms = 3_000
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 60_000)
    assert state(one, "m1") is State.ACCEPTED
    made._end()
    assert check(made.history.entries, ["I4", "I18", "I51"]).violations == []


@pytest.mark.clause("I4", "I18")
def test_refusal_after_a_restore_does_not_deny_what_was_under_way_before() -> None:
    """An attempt from before the sender's store was reopened may have been taken."""
    made = world(Limits(), Limits(pending_requests=1))
    one, two = pair(made)
    one.say(one.peer, two.peer, "m0", "opens the line")
    later(made, 1_000)
    two.disk.slow_ms = 6_000
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 50)
    one.driver._doubt([])
    later(made, 60_000)
    assert state(one, "m1") is State.ACCEPTED


@pytest.mark.clause("K4", "I51")
def test_request_lost_in_doubt_is_answered_so_that_its_place_in_the_window_is_free() -> None:
    """Who waits for a commit that failed in doubt is told that the outcome is not known."""
    made = world(Limits(), Limits(pending_requests=1))
    one, two = pair(made)
    one.say(one.peer, two.peer, "m0", "opens the line")
    later(made, 1_000)
    two.disk.doubts = 1
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 60_000)
    said = [frame for entry in made.history.entries for frame in entry.data.get("frames", ())]
    assert any(frame.get("code") == "DELIVERY_UNKNOWN" for frame in said)
    assert state(one, "m1") is State.ACCEPTED


@pytest.mark.clause("I11", "I12")
def test_number_read_before_a_failed_commit_is_not_given_again() -> None:
    """A cursor that a reader saw names one event for ever, also when its commit was lost."""
    made = world(Limits(), Limits())
    one, two = pair(made)
    for number in range(40):  # half of the commits in doubt are lost
        one.disk.doubts = 1
        one.say(one.peer, two.peer, f"m{number}", "text")
        one.read_page(one.peer, 0, 1_000)
        later(made, 3_000)
    made._end()
    assert check(made.history.entries, ["I11", "I12"]).violations == []


@pytest.mark.clause("K9", "I29")
def test_budget_of_a_pair_outlives_a_restore_after_a_jump_of_the_wall_clock() -> None:
    """Sends without a person are counted by their true age."""
    from tieline.engine.contract import Act

    made = world(Limits(agent_sends_max=3), Limits())
    one, two = pair(made)
    for number in range(3):
        one.say(one.peer, two.peer, f"m{number}", "text", act=Act.AGENT)
        later(made, 1_000)
    made.clock.jump(10 * 31_557_600_000)
    one.engine.restore(one.disk.load(), made.clock.now())
    one.say(one.peer, two.peer, "m4", "text", act=Act.AGENT)
    later(made, 1_000)
    assert one.engine.sent("m4", one.peer) == ()


@pytest.mark.clause("I51")
def test_receipts_for_a_far_end_with_a_window_of_one_all_arrive() -> None:
    """Several receipts refused together are one failure: the rest does not wait half a minute each."""
    made = world(Limits(pending_requests=1), Limits())
    one, two = pair(made)
    for number in range(12):
        one.say(one.peer, two.peer, f"m{number}", "text", expiry_ms=5_000)
    later(made, 60_000)
    assert {state(one, f"m{number}") for number in range(12)} == {State.EXPIRED}


def test_clock_does_not_ring_in_vain_while_the_store_is_in_doubt() -> None:
    """What is due waits for the store without a timer that returns every millisecond."""
    made = world(Limits(expiry_ms=1_000), Limits(expiry_ms=1_000))
    one, two = pair(made)
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 500)
    assert isinstance(one.disk, FakeDisk)
    one.disk.doubts, one.disk.reopen_failures = 1, 20
    one.say(one.peer, two.peer, "m2", "text")
    before = made.clock.steps_count
    later(made, 30_000)
    assert made.clock.steps_count - before < 300


def test_plan_is_a_value() -> None:
    """A plan can be shown and made again from what was shown."""
    plan = world(Limits()).plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert Peer("a").id.startswith("peer-")
