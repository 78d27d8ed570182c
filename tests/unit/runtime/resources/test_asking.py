"""The hook before a shell command: what it asks, and how a refusal looks."""

from typing import Any

import pytest

from tieline.runtime.resources.asking import asked_in, denial, reason_for


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Bash", {"command": "ls"}, (None, "ls", "/c")),
        ("Bash", {"command": "ls", "workdir": "/w"}, (None, "ls", "/w")),
        ("Bash", {"command": "ls", "cwd": "w"}, (None, "ls", "")),
        ("exec_command", {"cmd": "ls"}, (None, "ls", "/c")),
        ("shell", {"command": ["bash", "-lc", "a && b"]}, (None, "a && b", "/c")),
        ("shell", {"command": ["git", "commit"]}, (("git", "commit"), "", "/c")),
        ("Read", {"command": "ls"}, None),
        ("Bash", {"command": 7}, None),
        ("Bash", {"command": [7]}, None),
        ("Bash", "ls", None),
        (None, {"command": "ls"}, None),
    ],
)
def test_command_is_read_in_the_forms_of_the_harnesses(tool: Any, given: Any, expected: Any) -> None:
    """What is no shell command is None; a folder that is not absolute is not said."""
    assert asked_in({"tool_name": tool, "tool_input": given, "cwd": "/c"}) == expected


def test_refusal_names_the_line_to_run_and_who_holds_it() -> None:
    """Foreign text is one safe line of bounded length."""
    reason = reason_for("a\x1b[1m\nb" + "x" * 500, "tieline run -- x", [("machine/a", ":other (make)")])
    assert "\x1b" not in reason
    assert "\n" not in reason
    assert reason.endswith("tieline run -- x  Now: machine/a is held by :other (make).")
    assert reason_for("a", "b", []) == "a. Run this instead, it waits for its turn: b"
    assert denial("no")["hookSpecificOutput"]["permissionDecision"] == "deny"
