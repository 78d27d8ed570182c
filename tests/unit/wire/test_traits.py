"""What the wires can answer, as data."""

import msgspec
import pytest

from tieline.config import Limits
from tieline.wire.traits import NATIVE


def test_traits_of_native_wire_are_the_default_limits() -> None:
    """The native wire's numbers are the defaults of the settings, so that neither drifts."""
    limits = Limits()
    assert NATIVE.message_bytes_max == limits.message_bytes
    assert NATIVE.unconsumed_max == limits.inbox_messages
    assert NATIVE.expiry_ms == limits.expiry_ms


def test_traits_of_native_wire_promise_no_more_than_it_says() -> None:
    """The same id may ask again, the route waits for a receipt, and a foreign end states no durability."""
    assert (NATIVE.retry, NATIVE.route_advances_on, NATIVE.durability) == ("same_id", "receipt", "unstated")


def test_traits_once_stated_cannot_change() -> None:
    """Traits are frozen."""
    with pytest.raises(AttributeError):
        NATIVE.retry = "never"  # type: ignore[misc]
    assert msgspec.structs.asdict(NATIVE)["name"] == "native"
