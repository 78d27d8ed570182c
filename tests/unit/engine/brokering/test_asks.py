"""Which asks are open between two sessions."""

import pytest

from tests.unit.engine.brokering.kit import letter, turn
from tieline.engine.brokering.asks import ASK_MS, ASKS_PER_ASKER_MAX, Asks
from tieline.engine.brokering.contract import Drop, Put
from tieline.wire.intercom.saying import FrameCodec


def opened(asks: Asks, asker: str = "a", target: str = "b", identity: str = "q") -> list[Put | Drop]:
    made = turn()
    asks.open(asker, target, letter(identity, is_ask=True), made)
    return made.rows


@pytest.mark.clause("intercom-100")
def test_reply_answers_an_open_ask_of_the_right_pair_once() -> None:
    """Only the target's word to the asker that names the ask answers it, and only while it is open."""
    asks = Asks(FrameCodec())
    assert len(opened(asks)) == 1
    assert opened(asks) == []
    now = turn().now
    for sender, target, identity in (("a", "b", "q"), ("c", "a", "q"), ("b", "a", "p"), ("b", "c", "q")):
        assert asks.answered_by(sender, target, identity, now) is None
    ask = asks.answered_by("b", "a", "q", now)
    assert ask is not None
    made = turn()
    asks.close(ask, made)
    asks.close(ask, made)
    assert made.rows == [Drop("ask", "a\nq")]
    assert asks.answered_by("b", "a", "q", now) is None


@pytest.mark.clause("intercom-100")
def test_crossing_is_seen_but_for_the_ask_that_is_answered() -> None:
    """A pair crosses where the target waits for the asker in another ask."""
    asks = Asks(FrameCodec())
    opened(asks)
    now = turn().now
    assert asks.would_cross("b", "a", None, now)
    assert not asks.would_cross("b", "a", asks.answered_by("b", "a", "q", now), now)
    assert not asks.would_cross("a", "b", None, now)
    assert not asks.would_cross("b", "a", None, turn(1_000 + ASK_MS).now)


@pytest.mark.clause("intercom-102")
def test_ask_ends_by_cancellation_or_by_its_time() -> None:
    """Both drop its row; a restored ask counts as before; what is none is refused."""
    asks = Asks(FrameCodec())
    kept = opened(asks)[0]
    opened(asks, identity="p")
    made = turn()
    asks.cancel("a", "q", made)
    asks.cancel("a", "unknown", made)
    assert made.rows == [Drop("ask", "a\nq")]
    asks.sweep(turn(1_000 + ASK_MS - 1))
    assert len(asks) == 1
    late = turn(1_000 + ASK_MS)
    assert asks.answered_by("b", "a", "p", late.now) is None
    asks.sweep(late)
    assert (late.rows, len(asks)) == ([Drop("ask", "a\np")], 0)
    assert isinstance(kept, Put)
    asks.restore(FrameCodec().parse(kept.body))
    assert asks.answered_by("b", "a", "q", turn().now) is not None
    for wrong in ({}, 7, None, {"messageId": "m"}):
        with pytest.raises(ValueError, match="not an ask"):
            asks.restore(wrong)


def test_open_asks_of_one_asker_are_bounded() -> None:
    """There is room up to the bound, and content that is no object has no question."""
    asks = Asks(FrameCodec())
    for number in range(ASKS_PER_ASKER_MAX):
        assert asks.has_room("a")
        opened(asks, identity=str(number))
    assert not asks.has_room("a")
    assert asks.has_room("b")


def test_asker_that_is_not_refused_loses_its_oldest_edge() -> None:
    """What is kept of one session's asks is bounded, whatever it sends."""
    asks = Asks(FrameCodec())
    for number in range(ASKS_PER_ASKER_MAX):
        opened(asks, identity=str(number))
    rows = opened(asks, identity="more")
    assert [(type(row), row.key) for row in rows] == [(Drop, "a\n0"), (Put, "a\nmore")]
    assert len(asks) == ASKS_PER_ASKER_MAX
    assert opened(asks, identity="more") == []
