"""What is ours is known by what it does, and a project's file names no place of this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.harness import base
from tieline.adapters.harness.base import Place
from tieline.adapters.harness.facts import CLAUDE_HOOKS

Make = Callable[..., Place]


@pytest.mark.parametrize(
    ("server", "is_ours"),
    [
        ({"command": "tieline", "args": ["mcp"]}, True),
        ({"command": "/a b/tieline", "args": ["mcp", "--alias", "x"]}, True),
        ({"command": ["/x/tieline", "mcp"]}, True),
        ({"command": "python3", "args": ["-m", "tieline.adapters.cli.main", "mcp"]}, True),
        ({"command": "other", "args": ["mcp"]}, False),
        ({"command": "tieline", "args": "mcp"}, False),
        ({"url": "x"}, False),
        ([], False),
    ],
)
def test_server_is_ours_by_the_words_that_start_it(server: Any, is_ours: bool) -> None:
    """Wherever it is installed, and in every harness's form."""
    assert base.is_our_server(server) == is_ours


def test_group_is_ours_when_all_its_hooks_are(place: Make) -> None:
    """A hook of a person's in the same group keeps the group."""
    ours = base.tool_hook_entries(CLAUDE_HOOKS)[0].value
    gate = base.gate_entry(place()._replace(command=("/a b/tieline",)), "claude").value
    assert base.is_our_group(ours)
    assert base.is_our_group(gate)
    assert gate["hooks"][0]["command"] == "'/a b/tieline' hook claude pre-tool"
    assert not base.is_our_group({"hooks": [*ours["hooks"], {"type": "command", "command": "mine"}]})
    assert not base.is_our_group({"hooks": [{"type": "mcp_tool", "server": "other", "tool": "tieline_host"}]})
    assert not any(map(base.is_our_group, ({"hooks": []}, {}, 1, {"hooks": [1]}, {"hooks": [{}]})))


def test_server_entry_of_a_project_has_no_variables(place: Make) -> None:
    """It may be shared with others."""
    mine = place(TIELINE_HOME="/t")
    assert base.server_entry(mine, x=1) == {
        "command": "/opt/tieline",
        "args": ["mcp"],
        "x": 1,
        "env": {"TIELINE_HOME": "/t"},
    }
    assert "env" not in base.server_entry(mine._replace(project="/p"))


def test_shim_names_the_command_and_is_none_where_it_is_not_shipped(place: Make) -> None:
    """The copy finds the same installation."""
    assert base.shim("pi", place()) is None
    assert base.shim("pi", place(shims=("pi",))) == '// ours\nconst TIELINE = ["/opt/tieline"];\n'


def test_places_of_a_pattern_are_all_that_fit() -> None:
    """A star is any key and any number."""
    held = {"hooks": {"A": [1, 2], "B": [3], "C": 4}}
    found = dict(base.places_of(held, ("hooks", "*", "*")))
    assert found == {("hooks", "A", 0): 1, ("hooks", "A", 1): 2, ("hooks", "B", 0): 3}


def test_folder_of_a_variable_goes_before_the_home(place: Make, home: Path) -> None:
    """As the harness itself does."""
    assert base.folder_of(place(X="/elsewhere"), "X", ".x") == "/elsewhere"
    assert base.folder_of(place(), "X", ".x", "y") == str(home / ".x" / "y")


def test_command_of_a_hook_looks_where_the_server_was_set_up(place: Make) -> None:
    """A harness hands down its own variables alone: a gate that looked elsewhere would stop nothing."""
    made = place(TIELINE_HOME="/a b")
    assert (
        base.hook_command(made, "claude", "pre-tool")
        == "TIELINE_HOME='/a b' /opt/tieline hook claude pre-tool"
    )
    assert base.is_our_group(base.gate_entry(made, "claude").value)
    shared = made._replace(project="/p", command=("tieline",))
    assert base.hook_command(shared, "claude", "pre-tool") == "tieline hook claude pre-tool"
