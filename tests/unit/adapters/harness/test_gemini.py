"""Gemini CLI: its hooks start nothing without mail, and never end as a refusal."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tieline.adapters.harness.base import Document, Place, Whole
from tieline.adapters.harness.gemini import HARNESS

Make = Callable[..., Place]


def commands(place: Place) -> dict[str, str]:
    """Return the line of each event."""
    file = HARNESS.files(place)[1]
    assert isinstance(file, Whole)
    groups = json.loads(file.text)["hooks"]
    return {event: group[0]["hooks"][0]["command"] for event, group in groups.items()}


def run(command: str, home: Path) -> tuple[int, str]:
    """Run a line as the harness does."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "GEMINI_SESSION_ID": "s1"}
    done = subprocess.run(["sh", "-c", command], env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_hook_between_tools_starts_nothing_without_mail(place: Make, home: Path) -> None:
    """The flag of this session decides."""
    (home / "tieline").write_text("#!/bin/sh\necho started\nexit 2\n")
    (home / "tieline").chmod(0o755)
    command = commands(place()._replace(command=(str(home / "tieline"),)))["AfterTool"]
    assert run(command, home) == (0, "")
    (home / ".tieline" / "mail").mkdir(parents=True)
    (home / ".tieline" / "mail" / "s1").touch()
    assert run(command, home) == (0, "started\n")


def test_files_of_a_person_are_an_extension(place: Make, home: Path) -> None:
    """Trust is the only entry in a file of theirs, and needs consent."""
    manifest, _, settings = HARNESS.files(place())
    assert manifest.path == f"{home}/.gemini/extensions/tieline/gemini-extension.json"
    assert isinstance(settings, Document)
    assert [entry.extra for entry in settings.entries] == ["permission"]
    assert HARNESS.folder(place(GEMINI_CLI_HOME="/g")) == "/g/.gemini"


def test_files_of_a_project_are_its_settings(place: Make) -> None:
    """The same hooks, in one file."""
    (settings,) = HARNESS.files(place(project="/p"))
    assert isinstance(settings, Document)
    assert settings.path == "/p/.gemini/settings.json"
    assert len(settings.entries) == 1 + len(commands(place()))
