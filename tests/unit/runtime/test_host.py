"""The host's own words: wakes, pauses, tokens, answers."""

import pytest

from tieline.runtime.host import ANSWERS_MAX, Answers, Host


def host(*, is_automatic: bool = True) -> Host:
    return Host(is_automatic=is_automatic)


@pytest.mark.clause("native-114", "native-116", "native-147")
def test_wake_needs_auto_an_idle_host_and_no_pause() -> None:
    """Under notify nobody is woken; a pause of any kind holds wakes back; one is out at a time."""
    assert not host(is_automatic=False).may_wake(is_steering=True)
    one = host()
    assert one.may_wake(is_steering=False)
    for pause in ("permission", "cancelled", "shutdown"):
        one.state(is_busy=None, pause=pause, has_pause=True)
        assert not one.may_wake(is_steering=True)
    one.state(is_busy=None, pause=None, has_pause=True)
    one.is_wake_out = True
    assert not one.may_wake(is_steering=True)


@pytest.mark.clause("native-114")
def test_wake_of_a_busy_host_is_for_steering_only() -> None:
    """A queued message waits for the turn's end."""
    one = host(is_automatic=False)
    one.state(is_busy=True, pause=None, has_pause=False)
    assert one.may_wake(is_steering=True)
    assert not one.may_wake(is_steering=False)


def test_wake_of_a_run_is_out_until_its_boundary_a_new_turn_or_its_end() -> None:
    """It is another's than that of the session."""
    one = host()
    for end in (
        lambda: one.note_wake("r", is_out=False),
        lambda: one.state(is_busy=True, pause=None, has_pause=False),
        lambda: one.end("r"),
    ):
        one.state(is_busy=False, pause=None, has_pause=False)
        one.note_wake("r", is_out=True)
        assert not one.may_wake(is_steering=True, run="r")
        assert one.may_wake(is_steering=True)
        end()
        assert one.may_wake(is_steering=True, run="r")


@pytest.mark.clause("native-116")
def test_new_turn_clears_cancelled_and_the_wake() -> None:
    """A new turn clears `cancelled`, nothing else."""
    one = host()
    one.is_wake_out = True
    one.state(is_busy=None, pause="cancelled", has_pause=True)
    one.state(is_busy=True, pause=None, has_pause=False)
    assert one.pause is None
    assert not one.is_wake_out
    one.state(is_busy=None, pause="permission", has_pause=True)
    one.state(is_busy=True, pause=None, has_pause=False)
    assert one.pause == "permission"


@pytest.mark.clause("S15", "O18")
def test_token_proves_its_run_until_the_run_ends() -> None:
    """Another token proves nothing; a token dies with its run."""
    one = host()
    one.begin("r1", "a" * 32)
    one.begin("r2", "b" * 32)
    assert one.run_of("a" * 32) == "r1"
    assert one.run_of("c" * 32) is None
    assert one.run_of("") is None
    one.end("r1")
    assert one.run_of("a" * 32) is None
    assert one.has_runs


def test_answers_are_bounded_and_pinned_by_entry() -> None:
    """The last finished answer is the default; old ones go; an entry names one for good."""
    answers = Answers()
    assert answers.find(None) is None
    for number in range(ANSWERS_MAX + 3):
        answers.add(f"e{number}", f"text {number}", number)
    assert len(answers) == ANSWERS_MAX
    last = answers.find(None)
    assert last is not None
    assert last.text == f"text {ANSWERS_MAX + 2}"
    assert answers.find("e0") is None
    answers.add("e9", "changed", 1)
    found = answers.find("e9")
    assert found is not None
    assert found.text == "changed"
