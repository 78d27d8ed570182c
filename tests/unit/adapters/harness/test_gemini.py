"""Gemini CLI: its hooks start nothing without mail, and never end as a refusal."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tieline.adapters.harness.base import Document, Place, Whole, is_our_group
from tieline.adapters.harness.facts import HOOK_CLIENT
from tieline.adapters.harness.gemini import HARNESS

Make = Callable[..., Place]


def commands(place: Place) -> dict[str, str]:
    """Return the line of each event."""
    file = HARNESS.files(place)[1]
    assert isinstance(file, Whole)
    groups = json.loads(file.text)["hooks"]
    return {event: group[0]["hooks"][0]["command"] for event, group in groups.items()}


def groups_of(place: Place, event: str) -> list[dict[str, Any]]:
    """Return the groups of one event."""
    file = HARNESS.files(place)[1]
    assert isinstance(file, Whole)
    found: list[dict[str, Any]] = json.loads(file.text)["hooks"][event]
    return found


def with_client(place: Place, home: Path, code: str) -> Place:
    """Return the place with a client that does this."""
    (home / "tieline" / "shims").mkdir(parents=True, exist_ok=True)
    (home / "tieline" / HOOK_CLIENT).write_text(f"import sys\n{code}\n")
    return place._replace(package=str(home / "tieline"))


def run(command: str, home: Path) -> tuple[int, str]:
    """Run a line as the harness does."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "GEMINI_SESSION_ID": "s1"}
    done = subprocess.run(
        ["sh", "-c", command], env=variables, input="{}", capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_hook_between_tools_starts_nothing_without_mail(place: Make, home: Path) -> None:
    """The flag of this session decides."""
    command = commands(with_client(place(), home, "print('started', *sys.argv[2:]); sys.exit(2)"))[
        "AfterTool"
    ]
    assert run(command, home) == (0, "")
    (home / ".tieline" / "mail").mkdir(parents=True)
    (home / ".tieline" / "mail" / "s1").touch()
    assert run(command, home) == (0, "started gemini AfterTool\n")


def test_begin_and_end_of_a_subagent_are_told_and_waited_for(place: Make, home: Path) -> None:
    """One hook of each tool's end fires, and one of a subagent's begin alone."""
    client = with_client(place(), home, "print('started', *sys.argv[2:])")
    before, (other, own) = groups_of(client, "BeforeTool"), groups_of(client, "AfterTool")
    for group, event in ((before[0], "BeforeTool"), (own, "AfterTool")):
        assert run(group["hooks"][0]["command"], home) == (0, f"started gemini {event}\n")
        assert re.search(group["matcher"], "invoke_agent")
        assert not re.search(group["matcher"], "mcp_invoke_agent_x")
    assert [bool(re.search(other["matcher"], name)) for name in ("invoke_agent", "invoke_agent_2", "x")] == [
        False,
        True,
        True,
    ]
    assert len(before) == 1


def test_hook_at_a_turn_tells_the_root_behind_the_harness_where_no_mail_waits(
    place: Make, home: Path
) -> None:
    """Without a door, or with mail, its answer is waited for; else it gets its input all the same."""
    client = with_client(
        place(), home, f"text = sys.stdin.read(); open({str(home / 'told')!r}, 'a').write(text)"
    )
    client_file = Path(client.package) / HOOK_CLIENT
    client_file.write_text(client_file.read_text() + "print('answer')\n")
    command = commands(client)["AfterAgent"]
    assert run(command, home) == (0, "answer\n")
    (home / ".tieline" / "mail").mkdir(parents=True)
    (home / ".tieline" / "mail" / "s1.door").touch()
    assert run(command, home) == (0, "")
    give_up = time.monotonic() + 10
    while (home / "told").read_text() != "{}{}":
        assert time.monotonic() < give_up
        time.sleep(0.01)
    (home / ".tieline" / "mail" / "s1").touch()
    assert run(command, home) == (0, "answer\n")


def test_hook_gets_the_variables_that_the_server_was_set_up_with(place: Make, home: Path) -> None:
    """The harness hands them to the server alone."""
    made = with_client(place(TIELINE_HOME="/x y"), home, "import os; print(os.environ['TIELINE_HOME'])")
    assert run(commands(made)["BeforeAgent"], home) == (0, "/x y\n")
    assert "/x y" in commands(made)["AfterTool"]


def test_hook_of_a_project_names_no_place_of_this_machine(place: Make) -> None:
    """Its file may be shared."""
    (settings,) = HARNESS.files(place(project="/p"))
    assert isinstance(settings, Document)
    lines = [e.value["hooks"][0]["command"] for e in settings.entries if e.keys[0] == "hooks"]
    assert all("tieline hook gemini" in line and sys.executable not in line for line in lines)
    assert all(is_our_group(e.value) for e in settings.entries if e.keys[0] == "hooks")


def test_hook_of_a_project_runs_the_line_that_the_root_left(place: Make, home: Path) -> None:
    """It starts in the time of a bare interpreter; without that line the whole command is started."""
    (settings,) = HARNESS.files(place(project="/p")._replace(command=("tieline",)))
    assert isinstance(settings, Document)
    line = next(e.value["hooks"][0]["command"] for e in settings.entries if e.keys == ("hooks", "AfterTool"))
    (home / "bin").mkdir(exist_ok=True)
    (home / "bin" / "tieline").write_text('#!/bin/sh\necho whole "$@"\n')
    (home / "bin" / "tieline").chmod(0o755)
    mail = home / ".tieline" / "mail"
    mail.mkdir(parents=True)
    (mail / "s-1").touch()
    environment = {"PATH": f"{home}/bin:{os.environ['PATH']}", "HOME": str(home), "GEMINI_SESSION_ID": "s-1"}

    def said() -> str:
        words = ["sh", "-c", line]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout

    assert said() == "whole hook gemini AfterTool\n"
    (mail / "s-1.client").write_text('echo client "$f.door" "$@"\n')
    assert said() == f"client {mail}/s-1.door gemini AfterTool\n"


def test_files_of_a_person_are_an_extension(place: Make, home: Path) -> None:
    """That the model may use our tools unasked is all that stands in a file of theirs, and needs consent."""
    manifest, _, settings = HARNESS.files(place())
    assert manifest.path == f"{home}/.gemini/extensions/tieline/gemini-extension.json"
    assert isinstance(settings, Document)
    assert [entry.extra for entry in settings.entries] == ["permission"] * 4
    assert HARNESS.folder(place(GEMINI_CLI_HOME="/g")) == "/g/.gemini"


def test_files_of_a_project_are_its_settings(place: Make) -> None:
    """The same hooks, in one file."""
    (settings,) = HARNESS.files(place(project="/p"))
    assert isinstance(settings, Document)
    assert settings.path == "/p/.gemini/settings.json"
    groups = [group for event in commands(place()) for group in groups_of(place(), event)]
    assert len([one for one in settings.entries if not one.extra]) == 1 + len(groups)
