"""What a fresh circuit is."""

from tieline.shell.switchboard.circuit import Circuit


def test_circuit_when_made_is_not_ready_and_waits_for_nothing() -> None:
    """A link is used by nobody before its far end is proved."""
    circuit = Circuit(3, "far-1", is_dialled=True, now_ms=77)
    assert (circuit.number, circuit.instance, circuit.is_dialled) == (3, "far-1", True)
    assert not circuit.is_ready
    assert circuit.given_up is None
    assert circuit.features is None
    assert not circuit.waiting
    assert not circuit.attempts
    assert circuit.used_ms == circuit.heard_ms == circuit.far_read_ms == 77


def test_circuit_takes_no_name_that_it_does_not_have() -> None:
    """A misspelt member is an error, not a new one."""
    circuit = Circuit(1, "", is_dialled=False, now_ms=0)
    assert not hasattr(circuit, "__dict__")
