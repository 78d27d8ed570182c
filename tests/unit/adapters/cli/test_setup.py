"""`tieline setup`: the word that turns a wire on."""

from collections.abc import Callable
from pathlib import Path

from tests.unit.adapters.cli.fake import Result

Run = Callable[..., Result]


def test_setup_turns_the_wire_on(place: Path, run: Run) -> None:
    """The answer says what holds for the agents that start now."""
    path = place / "config.toml"
    path.write_text("[wires.pi_peers]\nenabled = false\n")
    result = run("setup", "pi-peers", "--yes")
    assert (result.code, "pi-peers is on" in result.err) == (0, True)
    assert path.read_text() == "[wires.pi_peers]\nenabled = true\n"


def test_intercom_is_switched_on_in_its_own_table(place: Path, run: Run) -> None:
    """And taken out again to the byte, whatever else is on."""
    run("setup", "pi-peers", "--yes")
    path = place / "config.toml"
    before = path.read_bytes()
    assert run("setup", "intercom", "--yes").code == 0
    assert b"[wires.intercom]" in path.read_bytes()
    assert run("unsetup", "intercom", "--yes").code == 0
    assert path.read_bytes() == before
