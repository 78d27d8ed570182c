"""What `doctor` says of a harness: here, set up, in need of something, or proven."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tieline.adapters.harness import claude_code, codex, examine, gemini
from tieline.adapters.harness.base import Harness, Place
from tieline.adapters.harness.change import put_in
from tieline.adapters.harness.files import read, replace
from tieline.adapters.harness.ledger import Record
from tieline.adapters.harness.opencode import HARNESS

Make = Callable[..., Place]


def set_up(place: Place, harness: Harness = HARNESS) -> None:
    """Set a harness up."""
    for file in harness.files(place):
        change = put_in(file, read(file.path), None, ())
        replace(file.path, change.now, change.was)


def test_checks_of_what_is_not_here_are_none(place: Make) -> None:
    """A person who has it not is not told of it."""
    assert examine.checks(HARNESS, place(), {}) == []
    (check,) = examine.checks(HARNESS, place("opencode"), {})
    assert (check.ok, check.action) == (True, "to set it up: tieline setup opencode")


def test_checks_of_a_project_speak_where_something_of_ours_is_in_it(
    place: Make, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder where nobody set it up is passed over, also with files that others broke."""
    folder = home / "w"
    folder.mkdir()
    made = place("claude", project=str(folder))._replace(command=("tieline",))
    answers = iter(["", "no such file"])
    monkeypatch.setattr(examine, "round_trip", lambda *_: next(answers))
    assert examine.checks(claude_code.HARNESS, made, {}) == []
    (folder / ".mcp.json").write_text("{\n")
    assert examine.checks(claude_code.HARNESS, made, {}) == []
    (broken,) = examine.checks(claude_code.HARNESS, made, {str(folder / ".mcp.json"): Record("d")})
    assert (broken.name, broken.ok) == ("harness claude-code in this folder", False)
    (folder / ".mcp.json").unlink()
    set_up(made, claude_code.HARNESS)
    (good,) = examine.checks(claude_code.HARNESS, made, {})
    assert (good.name, good.ok) == ("harness claude-code in this folder", True)
    (away,) = examine.checks(claude_code.HARNESS, made, {})
    assert (away.ok, away.action) == (False, "see that tieline is on the PATH")
    (folder / ".mcp.json").unlink()
    (half,) = examine.checks(claude_code.HARNESS, made, {})
    assert (half.ok, half.action) == (False, "run `tieline setup claude-code --project`")


def test_checks_say_what_would_keep_setup_from_writing(place: Make, home: Path) -> None:
    """A person who was refused reads why, and what comes after."""
    made = place("opencode")
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    (here,) = examine.checks(HARNESS, made, {})
    assert here.ok
    assert "nothing can be written into" in here.text
    assert here.action == "to set it up: then tieline setup opencode"
    folder.chmod(0o700)
    set_up(made)
    (folder / "opencode.json").chmod(0o400)
    (old,) = examine.checks(HARNESS, made._replace(command=("/new/tieline",)), {})
    assert "is read-only: make it writable" in old.text
    assert old.action == "then run `tieline setup opencode`"


def test_checks_of_what_is_set_up_try_its_own_words(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words come from the harness's file."""
    made = place("opencode", TIELINE_HOME="/t")
    set_up(made)
    asked = []
    answers = iter(["", "the server ended"])
    monkeypatch.setattr(examine, "round_trip", lambda *words: asked.append(words) or next(answers))
    (good,) = examine.checks(HARNESS, made, {})
    (bad,) = examine.checks(HARNESS, made, {})
    assert asked[0][:2] == (("/opt/tieline", "mcp"), (("TIELINE_HOME", "/t"),))
    assert (good.ok, bad.ok) == (True, False)
    assert "the server ended" in bad.text


def test_checks_name_what_is_old_broken_or_gone(place: Make, home: Path) -> None:
    """Each with what to do."""
    made = place("opencode")
    set_up(made)
    (old,) = examine.checks(HARNESS, made._replace(command=("/new/tieline",)), {})
    assert (old.ok, old.action) == (False, "run `tieline setup opencode`")
    (home / "bin" / "opencode").unlink()
    (gone,) = examine.checks(HARNESS, made, {})
    assert "not on the PATH" in gone.text
    assert gone.action == "install it, or run `tieline unsetup opencode`"
    (home / ".config" / "opencode" / "opencode.json").write_text("{\n")
    (broken,) = examine.checks(HARNESS, made, {})
    assert (broken.ok, "line 2" in broken.text) == (False, True)


def test_checks_of_gemini_say_how_far_mail_gets(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """That an idle window is not woken is no fault, and is said."""
    made = place("gemini")
    set_up(made, gemini.HARNESS)
    monkeypatch.setattr(examine, "round_trip", lambda *_: "")
    _, reach = examine.checks(gemini.HARNESS, made, {})
    assert (reach.ok, "not woken" in reach.text) == (True, True)


def test_checks_of_codex_name_hooks_that_it_skips(
    place: Make, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without trust mail waits."""
    made = place("codex")
    (home / ".codex").mkdir()
    for file in codex.HARNESS.files(made):
        change = put_in(file, read(file.path), None, ())
        replace(file.path, change.now, change.was)
    monkeypatch.setattr(examine, "round_trip", lambda *_: "")
    monkeypatch.setattr(
        codex, "hooks_of", lambda _: [{"trustStatus": "untrusted"}, {"trustStatus": "trusted"}]
    )
    _, hooks = examine.checks(codex.HARNESS, made, {})
    assert (hooks.ok, hooks.text[:6]) == (False, "1 of 2")
    monkeypatch.setattr(codex, "hooks_of", lambda _: [{"trustStatus": "trusted"}])
    assert examine.checks(codex.HARNESS, made, {})[1].ok
    for answer, word in (
        ([{"trustStatus": "modified", "command": "tieline hook codex pre-tool"}], "no command is judged"),
        ([{"trustStatus": "trusted", "enabled": False}], "1 of 1"),
        ([], "knows none"),
    ):
        monkeypatch.setattr(codex, "hooks_of", lambda _, answer=answer: answer)
        hooks = examine.checks(codex.HARNESS, made, {})[1]
        assert (hooks.ok, word in hooks.text, bool(hooks.action)) == (False, True, True)
