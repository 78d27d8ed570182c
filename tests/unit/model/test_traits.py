"""What the wires can answer, as data."""

import msgspec
import pytest

from tieline.model.identity import foreign_instance
from tieline.model.message import OPTIONS
from tieline.model.traits import INTERCOM, NATIVE, PI_PEERS, TRAITS, traits_of


def test_traits_of_native_wire_leave_every_number_to_the_configured_limits() -> None:
    """The native wire's numbers are the root's settings, so that the two cannot drift apart."""
    numbers = (NATIVE.message_bytes_max, NATIVE.unconsumed_max, NATIVE.expiry_ms)
    assert numbers == (None, None, None)
    assert not NATIVE.is_kept_until_consumed


def test_traits_of_native_wire_promise_no_more_than_it_says() -> None:
    """The same id may ask again, the route waits for a receipt, and a foreign end states no durability."""
    assert (NATIVE.retry, NATIVE.route_advances_on, NATIVE.durability) == ("same_id", "receipt", "unstated")
    assert not NATIVE.carries
    assert NATIVE.extends == OPTIONS


def test_traits_of_pi_peers_are_what_its_appendix_counts() -> None:
    """Size, queue, pace and window are the numbers of that wire, and nothing is ever sent twice."""
    assert (PI_PEERS.message_bytes_max, PI_PEERS.unconsumed_max) == (1 << 20, 50)
    assert (PI_PEERS.pace_burst, PI_PEERS.pace_per_second, PI_PEERS.repeat_window_ms) == (30, 0.5, 30_000)
    assert (PI_PEERS.retry, PI_PEERS.route_advances_on) == ("never", "frame_written")
    assert not PI_PEERS.has_status


@pytest.mark.parametrize("wire", ["pi-peers", "intercom"])
def test_traits_of_foreign_instance_are_those_of_its_wire(wire: str) -> None:
    """The instance alone tells the wire."""
    assert traits_of(foreign_instance(wire, "a session")) is TRAITS[wire]
    assert TRAITS[wire].name == wire


def test_traits_of_native_instance_are_native() -> None:
    """Whatever has no prefix of another wire is native, a colon or not."""
    assert traits_of("0f0e0d0c") is NATIVE
    assert traits_of("somebody:else") is NATIVE


def test_traits_carry_only_options_that_exist() -> None:
    """A wire that names an option nobody can ask for would deny it for ever."""
    for traits in (NATIVE, PI_PEERS, INTERCOM):
        assert traits.carries | traits.extends <= OPTIONS


def test_traits_once_stated_cannot_change() -> None:
    """Traits are frozen."""
    with pytest.raises(AttributeError):
        NATIVE.retry = "never"  # type: ignore[misc]
    assert msgspec.structs.asdict(NATIVE)["name"] == "native"
