"""Whether the intercom's tool is shown: as the configuration says, and never because of a fault in it."""

import sys
from pathlib import Path

import pytest

from tieline.adapters.mcp.constants import INTERCOM_TOOL, TOOLS
from tieline.adapters.mcp.early import constant_result, tools_of
from tieline.adapters.mcp.wires import has_intercom


@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        ("[wires.intercom]\nenabled = true\n", True),
        ("[wires.intercom]\nenabled = false\n", False),
        ("[wires.pi_peers]\nenabled = true\n", False),
        ("# intercom\n", False),
        ("wires = 1 # intercom\n", False),
        ("[wires.intercom\n", False),
        ('[wires]\nintercom = "x"\n', False),
        ("\xff intercom", False),
    ],
)
def test_tool_is_shown_where_the_configuration_switches_it_on(
    private_home: Path, text: str, is_on: bool
) -> None:
    """What is off, absent or wrong shows no tool; what is wrong is the root's to say."""
    (private_home / "config.toml").write_bytes(text.encode("latin-1"))
    environment = {"TIELINE_HOME": str(private_home)}
    assert has_intercom(environment) is is_on
    assert tools_of(environment) == ((*TOOLS, INTERCOM_TOOL) if is_on else TOOLS)
    assert constant_result("tools/list", {}, environment) == {"tools": tools_of(environment)}


@pytest.mark.parametrize(
    ("given", "is_on"), [("true", True), ("1", True), ("false", False), ("maybe", False)]
)
def test_variable_goes_before_the_file(private_home: Path, given: str, is_on: bool) -> None:
    """As everywhere: the environment is the nearer word."""
    environment = {"TIELINE_HOME": str(private_home), "TIELINE_INTERCOM_ENABLED": given}
    assert has_intercom(environment) is is_on


def test_home_without_a_word_of_it_costs_no_parser(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody pays for a wire that they never heard of; nor where there is no file, or no file of text."""
    monkeypatch.setitem(sys.modules, "tomllib", None)
    assert not has_intercom({"TIELINE_HOME": str(private_home)})
    (private_home / "config.toml").write_text("[communication]\n")
    assert not has_intercom({"TIELINE_HOME": str(private_home)})
    (private_home / "config.toml").unlink()
    (private_home / "config.toml").mkdir()
    assert not has_intercom({"TIELINE_HOME": str(private_home)})
