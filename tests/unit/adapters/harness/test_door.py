"""What the commands ask of the harnesses: who is here, the change, its writing, and the way back."""

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.harness import codex, door, ledger
from tieline.adapters.harness.base import Place
from tieline.adapters.harness.change import Change
from tieline.errors import Refused, UsageError

Make = Callable[..., Place]


class Killed(BaseException):
    """What no part of the product catches: it stands for SIGKILL."""


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int, call: Callable[[], None]) -> bool:
    """Return whether the call was killed at that step: before or after one change of the disk."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    steps = itertools.count()

    def step() -> None:
        if next(steps) == number:
            raise Killed

    def killing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def change(*words: Any, **more: Any) -> Any:
            if name == "open" and not words[1] & os.O_CREAT:
                return real(*words, **more)
            step()
            done = real(*words, **more)
            step()
            return done

        return change

    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: gone.pid)
        for name in ("open", "replace", "unlink", "mkdir", "rmdir", "fchmod"):
            patch.setattr(os, name, killing(name))
        try:
            call()
        except Killed:
            return True
        return False


@pytest.mark.parametrize("name", [name for name in door.NAMES if name != "acp"])
def test_killed_between_any_two_steps_leaves_nothing_that_stays(
    name: str, place: Make, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setting up, setting another version up, taking out: then once more, and the home is as it was."""
    made = place("claude", "codex", "pi", "omp", "opencode", "gemini", shims=("pi", "opencode"))
    consents = ("permission", "gate", "direct")

    def set_up(where: Place) -> None:
        door.apply(door.plan_in(name, where, consents), where.environment)

    def take_out() -> None:
        changes = door.plan_out(name, made)
        door.tidied(name, made)
        door.apply(changes, made.environment)
        door.tidied(name, made)

    folder = Path(door.paths(name, made)[-1]).parent
    folder.mkdir(parents=True)
    before = tree(home)
    older = made._replace(command=("/old/tieline",))
    for is_updated, call in ((False, lambda: set_up(made)), (True, lambda: set_up(made)), (True, take_out)):
        for number in itertools.count():
            if is_updated:
                set_up(older)
            is_killed = killed_at(monkeypatch, number, call)
            if number % 2:
                set_up(made)
                assert door.plan_in(name, made, ()) == []
            take_out()
            assert tree(home) == before, f"killed at step {number}"
            if not is_killed:
                break
        assert number > 7


def tree(home: Path) -> dict[str, bytes]:
    """Return every file and folder below the home, but for the programs."""
    paths = [path for path in home.rglob("*") if path.relative_to(home).parts[0] not in ("bin", "package")]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}


@pytest.mark.parametrize("name", [name for name in door.NAMES if name != "acp"])
def test_set_up_and_taken_out_leaves_the_home_as_it_was(name: str, place: Make, home: Path) -> None:
    """Every file, every folder, every byte: also where nothing was there."""
    made = place("claude", "codex", "pi", "omp", "opencode", "gemini", shims=("pi", "opencode"))
    for text in (None, '{\n  // mine\n  "mcp": {"x": {}},\n}\n'):
        if text is not None and name == "opencode":
            (home / ".config" / "opencode").mkdir(parents=True)
            (home / ".config" / "opencode" / "opencode.json").write_text(text)
        before = tree(home)
        changes = door.plan_in(name, made, ("permission", "gate", "direct"))
        door.apply(changes, made.environment)
        assert changes
        assert tree(home) != before
        assert door.plan_in(name, made, ()) == []
        door.apply(door.plan_out(name, made), made.environment)
        assert tree(home) == before
        assert door.plan_out(name, made) == []


def test_plan_in_needs_the_program_or_its_folder(place: Make, home: Path) -> None:
    """A harness that is named is set up also where only its folder is there."""
    with pytest.raises(
        UsageError, match=r"Claude Code is not here: neither claude on the PATH nor .*\.claude"
    ):
        door.plan_in("claude-code", place(), ())
    (home / ".claude").mkdir()
    assert len(door.plan_in("claude-code", place(), ())) == 2
    assert door.here(place()) == []
    assert door.here(place("omp", "codex")) == ["codex", "omp"]
    assert door.paths("claude-code", place()) == [f"{home}/.claude.json", f"{home}/.claude/settings.json"]


def test_plan_in_of_the_home_as_a_project_is_refused(place: Make, home: Path) -> None:
    """A project's files would be the person's own there."""
    (home / "link").symlink_to(home)
    for folder in (home, home / "link"):
        with pytest.raises(UsageError, match="without --project"):
            door.plan_in("claude-code", place("claude", project=str(folder)), ())


def test_plan_in_of_a_read_only_or_broken_file_writes_nothing(place: Make, home: Path) -> None:
    """Not even the other file of that harness."""
    made = place("claude")
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{\n")
    with pytest.raises(UsageError, match=r"settings\.json, line 2"):
        door.plan_in("claude-code", made, ())
    settings.write_text("{}")
    settings.chmod(0o444)
    with pytest.raises(Refused, match="read-only"):
        door.plan_in("claude-code", made, ())
    assert not (home / ".claude.json").exists()


def test_consents_are_known_words_and_trust_needs_codex(place: Make, home: Path) -> None:
    """Only Codex knows its digests."""
    (home / ".codex").mkdir()
    with pytest.raises(UsageError, match="there is no 'x'"):
        door.plan_in("codex", place(), ("x",))
    with pytest.raises(UsageError, match="digests"):
        door.plan_in("codex", place(), ("trust",))
    assert door.extras_of("codex") == ("trust", "gate", "direct")


def test_trusted_adds_to_what_was_set_up(place: Make, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is taken out with it."""
    made = place("codex")
    before = tree(home)
    door.apply(door.plan_in("codex", made, ()), made.environment)
    monkeypatch.setattr(codex, "hooks_of", lambda _: [{"key": "/h:stop:0:0", "currentHash": "sha256:1"}])
    door.apply(door.trusted(made, ()), made.environment)
    config = home / ".codex" / "config.toml"
    assert '[hooks.state."/h:stop:0:0"]\ntrusted_hash = "sha256:1"' in config.read_text()
    assert door.trusted(made, ()) == []
    config.write_text(config.read_text() + "\n[mine]\na = 1\n")
    door.apply(door.plan_out("codex", made), made.environment)
    assert config.read_text().strip() == "[mine]\na = 1"
    config.unlink()
    config.parent.rmdir()
    assert tree(home) == before


def test_place_names_this_installation_and_a_project_the_command_alone(home: Path) -> None:
    """A path that no other environment changes; in a shared file none."""
    assert door.place({"HOME": str(home), "PATH": ""}, "/p").command == ("tieline",)
    command = door.place({"HOME": str(home), "PATH": ""}, "").command
    assert os.path.isabs(command[0])
    assert door.hint("acp", door.place(os.environ, "")).endswith('"AGENT"]}')
    assert "anew" in door.hint("codex", door.place(os.environ, ""))


def test_checks_are_none_where_no_harness_is(home: Path) -> None:
    """The machine of somebody else."""
    assert door.checks({"HOME": str(home), "PATH": ""}) == []


def test_checks_are_of_the_person_and_of_this_folder(
    place: Make, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the home itself once."""
    made = place("claude")
    environment = dict(made.environment)
    folder = home / "w"
    folder.mkdir()
    monkeypatch.setattr("tieline.adapters.harness.examine.round_trip", lambda *_: "")
    where = door.place(environment, str(folder))
    door.apply(door.plan_in("claude-code", where, ()), environment)
    names = {}
    for at in (folder, home):
        monkeypatch.chdir(at)
        names[at] = [check.name for check in door.checks(environment)]
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    names[gone] = [check.name for check in door.checks(environment)]
    monkeypatch.chdir(home)
    assert names == {
        gone: ["harness claude-code"],
        folder: ["harness claude-code", "harness claude-code in this folder"],
        home: ["harness claude-code"],
    }


def test_two_that_write_at_once_keep_the_records_of_both(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them put in is taken out to the byte all the same."""
    load = ledger.load

    def slow(where: str) -> dict[str, ledger.Record]:
        held = load(where)
        time.sleep(0.05)
        return held

    monkeypatch.setattr(ledger, "load", slow)
    environment = {"HOME": str(home), "TIELINE_HOME": str(home / "t")}
    paths = [str(home / name) for name in "abcd"]
    threads = [
        threading.Thread(target=door.apply, args=([Change(path, None, "x", ledger.Record("d"))], environment))
        for path in paths
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(load(str(home / "t"))) == paths
