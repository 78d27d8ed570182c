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
