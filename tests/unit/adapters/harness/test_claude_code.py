"""Claude Code: which file holds what, for a person and for a project."""

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tieline.adapters.harness.base import Document, Place, is_our_group
from tieline.adapters.harness.claude_code import HARNESS
from tieline.adapters.harness.facts import CLAUDE_HOOKS, WAIT_EVENTS

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
    """A hook of ours is no process, but for the one that waits; what decides over tools is asked for."""
    _, settings = documents(place()._replace(package="/opt/tieline"))
    plain = [entry for entry in settings.entries if not entry.extra]
    hooks, waits = plain[: len(CLAUDE_HOOKS)], plain[len(CLAUDE_HOOKS) :]
    assert [entry.keys for entry in hooks] == [("hooks", hook.event) for hook in CLAUDE_HOOKS]
    assert {one["type"] for entry in hooks for one in entry.value["hooks"]} == {"mcp_tool"}
    assert [entry.keys for entry in waits] == [("hooks", event) for event in WAIT_EVENTS]
    assert all(one["asyncRewake"] for entry in waits for one in entry.value["hooks"])
    assert all(is_our_group(entry.value) for entry in (*hooks, *waits)), "unsetup finds them"
    assert {entry.extra for entry in settings.entries} == {"", "gate", "permission"} == {"", *HARNESS.extras}


def waiting_line(place: Place) -> str:
    """Return the line of the command that waits, with a program in its place that tells its words."""
    _, settings = documents(place)
    line = str(settings.entries[len(CLAUDE_HOOKS)].value["hooks"][0]["command"])
    head, _, call = line.partition("exec ")
    return head + "exec printf '%s|' " + call


@pytest.mark.parametrize(
    ("entry", "has_socket", "is_begun"),
    [("cli", False, True), ("cli", True, False), ("sdk-cli", False, False), ("", False, False)],
)
def test_command_that_waits_begins_in_a_window_without_a_socket_alone(
    place: Make, home: Path, *, entry: str, has_socket: bool, is_begun: bool
) -> None:
    """Where there is no window the harness would wait for it; with a socket nothing needs it."""
    path = home / "s.sock"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CLAUDE_CODE_ENTRYPOINT": entry}
    with socket.socket(socket.AF_UNIX) as link:
        if has_socket:
            link.bind(str(path))
            environment["CLAUDE_CODE_MESSAGING_SOCKET"] = str(path)
        line = ["sh", "-c", waiting_line(place())]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout != "") is is_begun
    if is_begun:
        assert done.stdout.endswith(f"|{home}/.tieline/mail/host-{os.getpid()}.door|claude-code|Wait|")


def test_command_that_waits_looks_where_the_server_was_set_up(place: Make, home: Path) -> None:
    """The harness does not hand the variable down; a project's file names the command alone."""
    environment = {"PATH": os.environ["PATH"], "CLAUDE_CODE_ENTRYPOINT": "cli"}
    line = ["sh", "-c", waiting_line(place(TIELINE_HOME=f"{home}/a b"))]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert f"|{home}/a b/mail/host-{os.getpid()}.door|" in done.stdout
    _, settings = documents(place(project="/p")._replace(command=("tieline",)))
    line = settings.entries[len(CLAUDE_HOOKS)].value["hooks"][0]["command"]
    assert line.endswith("exec tieline hook claude-code Wait")
