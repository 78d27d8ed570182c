"""Show that a held message is consumed only after it was prepared, and that the first truth stands."""

from itertools import product

import pytest

from tieline.machine.inbox import BUSY, IGNORED, MOVES, STATES, Stage, Step, step
from tieline.model.receipt import State


@pytest.mark.clause("I15")
def test_pair_of_stage_and_step_is_in_exactly_one_table() -> None:
    """Every step in every stage has exactly one answer."""
    for pair in product(Stage, Step):
        assert sum(pair in table for table in (MOVES, BUSY, IGNORED)) == 1, pair


@pytest.mark.parametrize(("stage", "taken"), list(product(Stage, Step)))
def test_step_follows_the_table(stage: Stage, taken: Step) -> None:
    """A step leads where the table says, and nowhere when it is busy or late."""
    assert step(stage, taken) is MOVES.get((stage, taken))


@pytest.mark.clause("native-103", "mutant-23", "I16")
def test_consumed_is_reached_only_from_prepared() -> None:
    """Nothing is consumed that was not prepared."""
    assert [pair for pair, after in MOVES.items() if after is Stage.CONSUMED] == [
        (Stage.PREPARED, Step.CONSUME)
    ]


@pytest.mark.clause("I15", "native-102")
def test_final_stage_is_never_left() -> None:
    """Replied, expired and denied mail stays so."""
    assert not [pair for pair in MOVES if pair[0] in (Stage.REPLIED, Stage.EXPIRED, Stage.DENIED)]


def test_exposure_in_flight_does_not_expire() -> None:
    """What a model may be reading does not expire under it."""
    assert step(Stage.PREPARED, Step.EXPIRE) is None


@pytest.mark.clause("I9")
def test_second_exposure_is_busy() -> None:
    """A message in one exposure is not prepared for another."""
    assert {(Stage.PREPARED, Step.PREPARE)} == BUSY
    assert step(Stage.PREPARED, Step.PREPARE) is None


def test_stage_says_a_state_that_the_wire_has() -> None:
    """Every stage is told as a state of the recipient's."""
    assert set(STATES) == set(Stage)
    assert STATES[Stage.ENDED] is State.ACCEPTED


def test_held_mail_is_moved_only_by_word_time_or_end() -> None:
    """No reader moves what the person has not let in, and only their yes makes it accepted."""
    moved = {taken: after for (stage, taken), after in MOVES.items() if stage is Stage.HELD}
    assert moved == {
        Step.ACCEPT: Stage.ACCEPTED,
        Step.DENY: Stage.DENIED,
        Step.EXPIRE: Stage.EXPIRED,
        Step.END: Stage.DENIED,
    }
    assert STATES[Stage.HELD] is State.PENDING
