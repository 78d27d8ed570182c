import json
import re
from pathlib import Path

import pytest

from tieline.adapters.harness.facts import COMMAND_LINE, HOST_TOOL
from tieline.adapters.mcp import constants
from tieline.shims import INTERCOM_CLIENT


def test_intercom_client_is_found_beside_the_package() -> None:
    """The path is absolute, and there is the module."""
    path = Path(INTERCOM_CLIENT)
    assert path.is_absolute()
    assert path.suffix == ".mjs"
    assert path.is_file()


def test_intercom_client_imports_nothing_but_node() -> None:
    """It needs no package: each import is one of Node's own."""
    text = Path(INTERCOM_CLIENT).read_text(encoding="utf-8")
    imported = re.findall(r'from "([^"]+)"', text)
    assert imported
    assert [name for name in imported if not name.startswith("node:")] == []
    assert "import(" not in text
    assert "require(" not in text


PROGRAMS = sorted(Path(INTERCOM_CLIENT).parent.glob("*/tieline.js"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.parent.name)
def test_program_in_a_harness_imports_nothing_but_node_and_offers_the_doors_own_tools(path: Path) -> None:
    """It needs no package; a model is told of each tool what the MCP door tells; `setup` finds its line."""
    text = path.read_text(encoding="utf-8")
    assert [name for name in re.findall(r'from "([^"]+)"', text) if not name.startswith("node:")] == []
    assert text.count(f"\n{COMMAND_LINE}\n") == 1
    listed = re.search(r"^const TOOLS = \[\n(.*?),\n\];$", text, re.DOTALL | re.MULTILINE)
    intercom = re.search(r"^const INTERCOM = (\{.*\});$", text, re.MULTILINE)
    assert listed is not None
    assert intercom is not None
    offered = json.loads(f"[{listed[1]},{intercom[1]}]")
    known = [
        {name: value for name, value in tool.items() if name != "_meta"}
        for tool in (*constants.TOOLS, constants.INTERCOM_TOOL)
        if tool["name"] != HOST_TOOL
    ]
    assert offered == json.loads(json.dumps(known))


def test_programs_in_harnesses_share_the_text_of_their_door() -> None:
    """Each is one file, so what they share stands in each, the same."""
    doors = {
        re.split(r"\n// --- (?:the door|end of the door)[^\n]*\n", path.read_text())[1] for path in PROGRAMS
    }
    assert len(doors) == 1
    assert "class Door" in doors.pop()
