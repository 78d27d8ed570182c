"""How fast our own sends may follow each other."""

from tests.unit.engine.messaging.kit import A, B, envelope
from tieline.engine.messaging import pacing
from tieline.engine.messaging.pacing import Pacing, Wait
from tieline.model.identity import Peer, foreign_instance

WINDOW = Peer(foreign_instance("pi-peers", "s1"))
OTHER = Peer(foreign_instance("pi-peers", "s2"))


def burst(paced: Pacing, size: int, now_ms: int = 0) -> None:
    for number in range(size):
        paced.charge(envelope(f"b{number}", A, WINDOW), now_ms)


def test_pacing_of_native_recipient_never_waits() -> None:
    """The native recipient charges the rate itself; nothing is remembered here."""
    paced = Pacing()
    for _ in range(100):
        one = envelope("m", A, B)
        assert paced.wait(one, 0) == Wait()
        paced.charge(one, 0)
    assert len(paced) == 0


def test_pacing_after_burst_says_how_long_to_wait() -> None:
    """Thirty go at once, then one every two seconds, per recipient."""
    paced = Pacing()
    burst(paced, 30)
    assert paced.wait(envelope("m", A, WINDOW), 0) == Wait(2_000)
    assert paced.wait(envelope("m", A, WINDOW), 1_500) == Wait(500)
    assert paced.wait(envelope("m", A, WINDOW), 2_000) == Wait()
    assert paced.wait(envelope("m", A, OTHER), 0) == Wait()


def test_pacing_of_same_text_waits_for_the_window_to_pass() -> None:
    """A recipient drops identical words within half a minute, whoever of us says them."""
    paced = Pacing()
    paced.charge(envelope("m1", A, WINDOW, content="same"), 0)
    assert paced.wait(envelope("m2", A, WINDOW, content="same"), 10_000) == Wait(20_000, is_repeat=True)
    assert paced.wait(envelope("m2", A, OTHER, content="same"), 10_000) == Wait()
    assert paced.wait(envelope("m2", A, WINDOW, content="same"), 30_000) == Wait()


def test_pacing_of_same_message_id_is_one_send() -> None:
    """A command that is handed in again after a failed commit is no repeat, and is not charged twice."""
    paced = Pacing()
    one = envelope("b0", A, WINDOW)
    burst(paced, 30)
    for _ in range(5):
        paced.charge(one, 0)
    assert paced.wait(one, 0) == Wait()
    assert paced.wait(envelope("m", A, WINDOW), 0) == Wait(2_000)


def test_pacing_swept_forgets_what_has_no_bearing() -> None:
    """Silence empties it, and a sweep loses nothing that still counts."""
    paced = Pacing()
    burst(paced, 30)
    paced.sweep(1_999)
    assert paced.wait(envelope("m", A, WINDOW), 1_999) == Wait(1)
    paced.sweep(60_000)
    assert len(paced) == 0


def test_pacing_of_many_recipients_is_bounded() -> None:
    """However many windows come and go, the oldest go first."""
    paced = Pacing()
    for number in range(pacing.PACED_MAX + 10):
        paced.charge(envelope("m", A, Peer(foreign_instance("pi-peers", str(number)))), 0)
    assert len(paced) == 2 * pacing.PACED_MAX
