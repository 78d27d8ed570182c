"""`tieline run`: what it passes through, what it refuses, and with which code."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import INSTANCE, Result, own_life, write_owner
from tests.unit.runtime.resources.kit import KEY, begin, claim
from tieline.adapters.cli.run import Teller, described
from tieline.errors import Refused
from tieline.model.resource import HolderView, Snapshot, TicketState, key_digest
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.running import Standing

Command = Callable[..., Result]


def error_of(result: Result) -> dict[str, Any]:
    """Return the error's shape."""
    shape: dict[str, Any] = json.loads(result.out)["error"]
    return shape


@pytest.mark.parametrize("code", [0, 1, 7, 124, 125])
def test_exit_code_of_the_command_is_passed_through(run: Command, place: Path, code: int) -> None:
    """Also one that we use ourselves: stderr tells whose it is."""
    result = run("run", "--resource", KEY, "--", "sh", "-c", f"exit {code}")
    assert (result.code, result.err) == (code, "")


def test_command_gets_its_fence_launch_and_resource(run: Command, place: Path) -> None:
    """What cooperates can refuse a stale holder."""
    shown = place / "shown"
    script = f'echo "$TIELINE_FENCE $TIELINE_RESOURCE $TIELINE_LAUNCH_ID" > {shown}'
    for fence in ("1", "2"):
        assert run("run", "--resource", KEY, "--", "sh", "-c", script).code == 0
        words = shown.read_text().split()
        assert words[:2] == [fence, KEY]
        assert len(words) == 3


@pytest.mark.parametrize(("program", "code"), [("./nobody", 127), ("./plain", 126)])
def test_program_that_cannot_start_gives_the_resource_back(
    run: Command, place: Path, program: str, code: int
) -> None:
    """126 and 127 as in sh; nothing stays held."""
    Path("plain").write_text("no program\n")
    result = run("run", "--resource", KEY, "--", program)
    assert result.code == code
    assert program in result.err
    assert "RECOVERY_REQUIRED" not in result.err
    assert run("resource", "status", KEY, "--json").json["resources"][0]["state"] == "unconfigured"


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--", "true"],
        ["run", "--resource", KEY],
        ["run", "--resource", KEY, "--timeout", "x", "--", "a"],
        ["run", "--resource", "nothing", "--", "touch", "never"],
    ],
)
def test_wrong_words_start_nothing(run: Command, place: Path, words: list[str]) -> None:
    """Wrong usage, before anything runs, is 2 as for every command."""
    assert run(*words).code == 2
    assert not Path("never").exists()


def test_wrong_configuration_is_wrong_usage(run: Command, place: Path) -> None:
    """A rule that cannot be read starts nothing."""
    (place / "config.toml").write_text('[resource]\nrule_sets = ["nothing"]\n')
    assert run("run", "--gate", "--", "touch", "never").code == 2
    assert not Path("never").exists()


@pytest.mark.clause("native-189")
def test_command_that_needs_nothing_is_in_the_ledger_while_it_runs(run: Command, place: Path) -> None:
    """A policy that comes later finds it; its record leaves with it."""
    assert run("run", "--gate", "--", "cp", "-r", str(place / "peer-resources"), "seen").code == 0
    shown = "".join(path.read_text() for path in Path("seen").glob("*.json"))
    assert '"executable":"cp"' in shown
    coordinator = Coordinator(str(place))
    assert coordinator.store.read_ledger().launches == ()
    coordinator.close()


def standing(**fields: Any) -> Standing:
    """Return where one stands who waits for `KEY` under a policy."""
    seen = {"resource": KEY, "state": "available", "is_configured": True, "is_enrolled": True, **fields}
    return Standing(Snapshot(**seen), 2, 61_000, is_new=True)


def test_line_of_who_waits_names_place_holder_and_time() -> None:
    """One line says all that who waits wants to know."""
    view = HolderView("r", "p", "api", TicketState.RUNNING, 1, 0, "ref", executable="make")
    text = described(standing(holder=view))
    assert text.startswith(f"waiting for {KEY}; held by :api (make) for ")
    assert text.endswith("; place 2 of 2; waited 61 s")


def test_line_of_who_waits_tells_an_ended_controller_from_one_that_is_not_known() -> None:
    """Proven death is told with the command that helps, and doubt as doubt."""
    ended = described(standing(controller="c", controller_alias="lead", controller_life="gone"))
    assert "CONTROLLER_UNAVAILABLE: its controller :lead has ended" in ended
    assert f"`tieline resource policy {KEY} --controller me --auto-grant`" in ended
    doubt = described(standing(controller="c", controller_alias="lead", controller_life="unknown"))
    assert ":lead (whether it lives is not known) has to grant it" in doubt
    alive = described(standing(controller="c", controller_alias="lead", controller_life="alive"))
    assert "its controller :lead has to grant it" in alive


@pytest.mark.clause("native-195")
def test_line_of_who_waits_for_an_unproven_holder_names_the_way_out() -> None:
    """Nothing will free it by itself: the line says how a person looks and answers for it."""
    view = HolderView("r", "p", "api", TicketState.RUNNING, 1, 0, "ref", executable="make")
    text = described(standing(holder=view)._replace(unproven="launch-1"))
    assert f"`tieline resource recover {KEY} --launch launch-1`" in text
    assert "recover" not in described(standing(holder=view))


def test_roots_of_another_container_refuse_nothing_here(
    run: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them can be above this command: what they do not hold is free, unless one was named."""
    write_owner(place, INSTANCE, owner={**own_life(), "pid_namespace": 1})
    assert run("run", "--resource", KEY, "--", "true").code == 0
    assert run("resource", "status", KEY, "--json").code == 0
    monkeypatch.setenv("TIELINE_INSTANCE", "cd" * 16)
    assert run("run", "--resource", KEY, "--", "true").code == 125


def test_same_standing_is_told_again_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log gets one line for each change; a terminal's line is written over in its place."""
    later = standing()._replace(is_new=False)
    plain = Teller()
    plain(standing())
    plain(later)
    assert capsys.readouterr().err.count("waiting for") == 1
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = Teller()
    shown(standing())
    shown(later)
    written = capsys.readouterr().err
    assert written.count("waiting for") == 2
    assert written.count("\x1b[1A\r\x1b[K") == 1


@pytest.mark.clause("native-198", "native-214")
def test_timeout_starts_nothing_and_names_the_next_action(run: Command, place: Path) -> None:
    """124; the ticket is gone, so that nobody is granted what nobody waits for."""
    coordinator = Coordinator(str(place))
    claim(coordinator, "other", KEY)
    begin(coordinator, "other", 1)
    result = run("run", "--resource", KEY, "--timeout", "0.2", "--json", "--", "touch", "never")
    assert (result.code, error_of(result)["code"]) == (124, "RESOURCE_WAIT_TIMEOUT")
    assert "tieline resource status" in error_of(result)["action"]
    assert "held by :other (make) for 0 s; place 1 of 1; waited 0 s" in result.err
    assert not Path("never").exists()
    assert coordinator.store.read(KEY).queue == ()
    coordinator.close()


@pytest.mark.clause("native-216", "I38")
def test_lost_record_is_recovery_required_and_starts_nothing(run: Command, place: Path) -> None:
    """A resource never starts at 0 again; every byte that is left stays."""
    assert run("run", "--resource", KEY, "--", "true").code == 0
    lost = place / "peer-resources" / f"{key_digest(KEY)}.json"
    lost.unlink()
    before = sorted(path.name for path in lost.parent.iterdir())
    result = run("run", "--resource", KEY, "--json", "--", "touch", "never")
    assert (result.code, error_of(result)["code"]) == (125, "RECOVERY_REQUIRED")
    assert error_of(result)["action"]
    assert not Path("never").exists()
    assert sorted(path.name for path in lost.parent.iterdir()) == before


def test_full_disk_is_told_with_what_helps_a_command(
    run: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no message to send again and no recipient to wait for."""

    def refuse(*_: object) -> None:
        raise Refused("QUEUE_FULL", "no space for messages.db")

    monkeypatch.setattr("tieline.adapters.cli.run.reach_or_none", refuse)
    result = run("run", "--resource", KEY, "--json", "--", "true")
    assert (result.code, error_of(result)["code"]) == (125, "QUEUE_FULL")
    assert "free some space" in error_of(result)["action"]
    assert "message" not in error_of(result)["action"]


def test_directory_of_another_program_is_refused(run: Command, place: Path) -> None:
    """Resources that we did not make are not ours to write."""
    folder = place / "peer-resources"
    folder.mkdir(mode=0o700)
    (folder / "theirs.json").write_text("{}")
    result = run("run", "--resource", KEY, "--json", "--", "true")
    assert (result.code, error_of(result)["code"]) == (125, "UNSAFE_ENDPOINT")
    assert [path.name for path in folder.iterdir()] == ["theirs.json"]


def test_gate_runs_what_needs_nothing_at_once(run: Command, place: Path) -> None:
    """Without a rule there is no record and no wait."""
    (place / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
    assert run("run", "--gate", "--", "true").code == 0
    assert run("resource", "list", "--json").json["resources"] == []
    assert run("run", "--gate", "--", "git", "init", "-q").code == 0
    assert run("run", "--gate", "--", "git", "add", ".").code == 0
    (shape,) = run("resource", "list", "--json").json["resources"]
    assert shape["resource"].endswith("/git-index")


def test_several_resources_are_held_together(run: Command, place: Path) -> None:
    """All or nothing, named in order."""
    script = 'test "$TIELINE_RESOURCE" = "machine/a machine/b" && test "$TIELINE_FENCE" = "1 1"'
    assert (
        run("run", "--resource", "machine/b", "--resource", "machine/a", "--", "sh", "-c", script).code == 0
    )


@pytest.mark.clause("native-3.6.10")
def test_command_inside_a_holder_inherits_what_that_holds(run: Command, place: Path) -> None:
    """A gated command in a gated command does not wait for itself."""
    import sys

    inner = f"{sys.executable} -m tieline.adapters.cli.main run --resource {KEY} --timeout 5 -- true"
    assert run("run", "--resource", KEY, "--", "sh", "-c", inner).code == 0
    program = f"{sys.executable} -m tieline.adapters.cli.main run --timeout 5 --resource"
    between = f"{program} machine/between -- {program} {KEY} -- true"
    assert run("run", "--resource", KEY, "--", *between.split()).code == 0
