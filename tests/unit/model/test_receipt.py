"""Receipts: which states are whose."""

from tieline.model.receipt import FINAL, HELD, NOTES, THEIRS, Receipt, State


def test_states_are_ours_or_theirs_and_finals_are_theirs() -> None:
    """Pending and unknown are ours to say; nothing final is."""
    assert set(State) - THEIRS == {State.PENDING, State.UNKNOWN}
    assert FINAL < THEIRS
    assert State.CONSUMED not in FINAL


def test_receipt_is_held_only_while_pending_with_that_outcome() -> None:
    """No other state, and no other reason to wait, says that a person is asked."""
    held = [
        state
        for state in State
        for outcome in (HELD,)
        if Receipt("m", "a", "b", state, 1, outcome=outcome).is_held
    ]
    assert held == [State.PENDING]
    assert not Receipt("m", "a", "b", State.PENDING, 1).is_held


def test_receipt_is_a_note_only_beside_unknown() -> None:
    """How far a message came is no state, and no custody."""
    noted = [one for one in State for word in NOTES if Receipt("m", "a", "b", one, 1, outcome=word).is_note]
    assert set(noted) == {State.UNKNOWN}
    assert not Receipt("m", "a", "b", State.UNKNOWN, 1, outcome=HELD).is_note
