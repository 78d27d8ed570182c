"""Receipts: which states are whose."""

from tieline.model.receipt import FINAL, THEIRS, State


def test_states_are_ours_or_theirs_and_finals_are_theirs() -> None:
    """Pending and unknown are ours to say; nothing final is."""
    assert set(State) - THEIRS == {State.PENDING, State.UNKNOWN}
    assert FINAL < THEIRS
    assert State.CONSUMED not in FINAL
