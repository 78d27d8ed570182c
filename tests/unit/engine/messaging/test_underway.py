"""Show what a courier and a flight are before anything happened to them."""

from tieline.engine.messaging.underway import Courier, Errand, Flight


def test_courier_begins_with_nothing_to_carry_and_no_failure() -> None:
    """A new courier may start at once."""
    courier = Courier()
    assert (len(courier.queue), len(courier.carried)) == (0, 0)
    assert (courier.failure_count, courier.retry_at_ms) == (0, None)


def test_flight_is_counted_until_a_restore() -> None:
    """An attempt belongs to the present life of the engine unless it says otherwise."""
    assert not Flight(Errand.TRANSMIT, 1, "b").is_earlier
