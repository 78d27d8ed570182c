"""What setup and unsetup share: the change is shown, nobody is surprised, twice is as once."""

import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.adapters.cli.fake import Result
from tieline import config

Run = Callable[..., Result]


class Person(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_setup_shows_the_change_and_asks(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines come first; only a yes writes them."""
    path = place / "config.toml"
    for word, is_written in (("\n", False), ("n\n", False), ("y\n", True)):
        monkeypatch.setattr("io.TextIOWrapper", lambda _, word=word: Person(word))
        result = run("setup", "pi-peers")
        assert "+enabled = true" in result.out
        assert "[y/N]" in result.err
        assert (result.code, path.exists()) == (int(not is_written), is_written)
    assert config.load(path.read_text(), "c", {}).wires.pi_peers.enabled
    assert path.stat().st_mode & 0o777 == 0o600


def test_setup_without_a_person_needs_the_word(place: Path, run: Run) -> None:
    """A program is never asked: it says --yes, or nothing is written."""
    result = run("setup", "pi-peers")
    assert (result.code, "--yes" in result.err) == (2, True)
    assert not (place / "config.toml").exists()


def test_setup_dry_run_writes_nothing(place: Path, run: Run) -> None:
    """What would be done is shown."""
    result = run("setup", "pi-peers", "--dry-run")
    assert (result.code, "+[wires.pi_peers]" in result.out) == (0, True)
    assert not (place / "config.toml").exists()


def test_setup_twice_and_unsetup_leave_the_file_as_it_was(place: Path, run: Run) -> None:
    """The person's bytes and mode are there again."""
    path = place / "config.toml"
    path.write_bytes(b'# mine\n[communication]\nalias = "x"')
    path.chmod(0o640)
    assert run("setup", "pi-peers", "--yes").code == 0
    again = run("setup", "pi-peers", "--yes", "--json").json
    assert (again["changed"], again["written"], again["enabled"]) == (False, False, True)
    taken = run("unsetup", "pi-peers", "--yes", "--json").json
    assert (taken["changed"], taken["written"], taken["enabled"]) == (True, True, False)
    assert path.read_bytes() == b'# mine\n[communication]\nalias = "x"'
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(place)) == ["active-agents", "config.toml", "peer-runtime"]


def test_setup_of_a_wrong_configuration_changes_nothing(place: Path, run: Run) -> None:
    """What is wrong already is said with its line, and stays."""
    path = place / "config.toml"
    path.write_text("[communication]\nnope = 1\n")
    result = run("setup", "pi-peers", "--yes")
    assert (result.code, "line 2" in result.err) == (2, True)
    assert path.read_text() == "[communication]\nnope = 1\n"


def test_setup_of_what_nobody_knows_names_what_there_is(run: Run) -> None:
    """A wrong name is wrong usage."""
    result = run("setup", "smoke")
    assert (result.code, "pi-peers" in result.err) == (2, True)


def program(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a harness's program on an otherwise empty PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text("#!/bin/sh\n")
    (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"))


def test_setup_without_a_name_takes_what_is_installed(
    place: Path, private_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is shown, made, and taken out again with every folder."""
    monkeypatch.setenv("PATH", str(private_home))
    assert run("setup", "--yes").code == 2
    program(private_home, "claude", monkeypatch)
    result = run("setup", "--yes")
    assert (result.code, '+    "tieline": {' in result.out, "claude-code is on" in result.err) == (
        0,
        True,
        True,
    )
    again = run("setup", "--yes", "--json").json["targets"]
    assert [(one["name"], one["changed"]) for one in again] == [("claude-code", False)]
    assert "nothing to change" in run("setup").err
    taken = run("unsetup", "--yes", "--json").json["targets"]
    assert [one["name"] for one in taken if one["written"]] == ["claude-code"]
    assert not (private_home / ".claude.json").exists()
    assert not (private_home / ".claude").exists()
    assert not (place / "setup.json").exists()


def test_unsetup_clears_away_what_a_command_that_was_killed_left(
    place: Path, private_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a question, since nothing of the harness changes; a look alone leaves it."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    program(private_home, "claude", monkeypatch)
    run("setup", "--yes")
    (private_home / ".claude.json").unlink()
    (private_home / ".claude" / "settings.json").unlink()
    left = [private_home / f".claude.json.{gone.pid}.tieline", place / f"setup.json.{gone.pid}.tieline"]
    for one in left:
        one.write_text("")
    assert run("unsetup", "claude-code", "--dry-run").code == 0
    assert all(one.exists() for one in left)
    assert run("unsetup", "claude-code").code == 0
    assert [one for one in (*left, private_home / ".claude", place / "setup.json") if one.exists()] == []


def test_setup_asks_separately_for_what_gives_away_more(
    private_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """A no to that is no no to the rest."""
    program(private_home, "claude", monkeypatch)
    monkeypatch.setattr("io.TextIOWrapper", lambda _: Person("n\ny\ny\n"))
    result = run("setup", "claude-code")
    assert result.err.count("[y/N]") == 3
    settings = (private_home / ".claude" / "settings.json").read_text()
    assert ("hook claude pre-tool" in settings, "permissions" in settings) == (True, False)
    assert place.exists()


def test_setup_where_one_refuses_sets_the_others_up(
    private_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken file is named with its line, and the exit code says that something is left."""
    program(private_home, "claude", monkeypatch)
    program(private_home, "opencode", monkeypatch)
    (private_home / ".claude").mkdir()
    (private_home / ".claude" / "settings.json").write_text("{\n")
    result = run("setup", "--yes", "--json")
    broken, whole = sorted(result.json["targets"], key=lambda one: bool(one["written"]))
    assert (result.code, broken["name"], whole["name"]) == (1, "claude-code", "opencode")
    assert "line 2" in broken["error"]["text"]
    assert "line 2" in result.err


def test_setup_of_a_project_writes_into_this_folder(
    private_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command alone, since others may share the file."""
    program(private_home, "claude", monkeypatch)
    assert run("setup", "claude-code", "--project", "--yes").code == 0
    assert '"command": "tieline"' in (private_home / "w" / ".mcp.json").read_text()
    assert run("setup", "pi-peers", "--project", "--yes").code == 2
    assert run("unsetup", "claude-code", "--project", "--yes").code == 0
    assert list((private_home / "w").iterdir()) == []


def test_setup_of_an_editor_prints_its_line(run: Run) -> None:
    """Nobody but the person writes an editor's configuration."""
    result = run("setup", "acp")
    assert (result.code, '"acp", "--", "AGENT"' in result.err) == (0, True)
