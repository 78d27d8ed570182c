"""Claude Code: which file holds what, for a person and for a project."""

from collections.abc import Callable
from pathlib import Path

from tieline.adapters.harness.base import Document, Place
from tieline.adapters.harness.claude_code import HARNESS
from tieline.adapters.harness.facts import CLAUDE_HOOKS

Make = Callable[..., Place]


def documents(place: Place) -> list[Document]:
    """Return its files; all of them are shared with others."""
    return [file for file in HARNESS.files(place) if isinstance(file, Document)]


def test_files_of_a_person_are_beside_and_in_the_folder(place: Make, home: Path) -> None:
    """A variable moves both."""
    servers, settings = documents(place())
    assert (servers.path, settings.path) == (f"{home}/.claude.json", f"{home}/.claude/settings.json")
    moved = documents(place(CLAUDE_CONFIG_DIR="/c"))
    assert [one.path for one in moved] == ["/c/.claude.json", "/c/settings.json"]
    assert servers.entries[0].value["alwaysLoad"] is True


def test_files_of_a_project_are_in_it_and_name_no_place(place: Make) -> None:
    """They may be shared."""
    servers, settings = documents(place(project="/p")._replace(command=("tieline",)))
    assert (servers.path, settings.path) == ("/p/.mcp.json", "/p/.claude/settings.json")
    assert servers.entries[0].value["command"] == "tieline"


def test_hooks_call_the_server_and_the_rest_needs_consent(place: Make) -> None:
    """A hook of ours is no process; what decides over tools is asked for."""
    _, settings = documents(place())
    plain = [entry for entry in settings.entries if not entry.extra]
    assert [entry.keys for entry in plain] == [("hooks", hook.event) for hook in CLAUDE_HOOKS]
    assert {one["type"] for entry in plain for one in entry.value["hooks"]} == {"mcp_tool"}
    assert {entry.extra for entry in settings.entries} == {"", "gate", "permission"} == {"", *HARNESS.extras}
