"""What a command learns of its launch."""

import pytest

from tieline.shell.tree import MARKS_VARIABLE, LaunchSpec, child_environment


@pytest.mark.clause("I40")
def test_environment_of_a_command_names_its_launch() -> None:
    """A command learns its fences, its launch and its resources, and keeps the marks around it."""
    spec = LaunchSpec("l-1", "b" * 32, ("x",), ("machine/a", "machine/é"), (7, 12))
    given = {b"A": b"\xff", MARKS_VARIABLE.encode(): b"a" * 32}
    assert child_environment(spec, given) == {
        b"A": b"\xff",
        b"TIELINE_FENCE": b"7 12",
        b"TIELINE_LAUNCH_ID": b"l-1",
        b"TIELINE_RESOURCE": "machine/a machine/é".encode(),
        MARKS_VARIABLE.encode(): b"a" * 32 + b" " + b"b" * 32,
    }
    assert child_environment(spec, {})[MARKS_VARIABLE.encode()] == b"b" * 32
