"""What setup and unsetup share: the change is shown, nobody is surprised, twice is as once."""

import io
import os
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
