"""Who waits for whom: while the block lasts, of one or of anybody, and as often as it was said."""

import contextlib

from tieline.model.identity import Peer
from tieline.runtime.waits import Waits

A, B, C = Peer("a"), Peer("b"), Peer("c")


def test_wait_lasts_as_long_as_the_last_block() -> None:
    """Two waits of one pair are two; the end of one is not the end of both."""
    waits = Waits()
    with waits.waiting(A, B):
        with waits.waiting(A, B):
            assert waits.is_waiting(A, B)
        assert waits.is_waiting(A, B)
        assert not waits.is_waiting(A, C)
        assert not waits.is_waiting(B, A)
    assert not waits.is_waiting(A, B)
    assert not waits._counts


def test_wait_of_nobody_yet_may_be_of_anybody() -> None:
    """Until the target is known each could be it; a failure in between ends it, too."""
    waits = Waits()
    with contextlib.suppress(KeyError), waits.waiting(A, None):
        assert waits.is_waiting(A, B)
        assert waits.is_waiting(A, C)
        {}["no such target"]
    assert not waits.is_waiting(A, B)
