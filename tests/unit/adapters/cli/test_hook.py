"""`tieline hook`: what it answers to a harness before a shell command starts."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import Result

RULES = '[resource]\nrule_sets = ["git", "python"]\n'


def hook_input(command: Any, tool: str = "Bash", **more: Any) -> bytes:
    """Return what a harness gives its hook."""
    document = {
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": {"command": command, **more},
    }
    return json.dumps(document).encode()


@pytest.fixture
def rules(place: Path) -> Path:
    """Configure the gate."""
    (place / "config.toml").write_text(RULES)
    return place


@pytest.mark.parametrize("harness", ["claude", "codex"])
@pytest.mark.parametrize(
    "command", ["git commit -m x", ["bash", "-lc", "git commit -m x"], ["git", "commit", "-m", "x"]]
)
def test_command_that_needs_a_resource_is_denied_with_the_line_to_run(
    run: Callable[..., Result], rules: Path, harness: str, command: Any
) -> None:
    """The answer is the harness's own form of a refusal, and names the exact line."""
    result = run("hook", harness, "pre-tool", stdin=hook_input(command))
    answer = result.json["hookSpecificOutput"]
    assert (result.code, answer["hookEventName"], answer["permissionDecision"]) == (0, "PreToolUse", "deny")
    reason = answer["permissionDecisionReason"]
    assert "tieline run --resource repository/" in reason
    assert "/git-index -- git commit -m x" in reason


@pytest.mark.parametrize(
    "stdin",
    [
        hook_input("git log"),
        hook_input("tieline run --resource repository/git-index -- git commit -m x"),
        hook_input("git commit -m x", tool="Read"),
        hook_input(7),
        json.dumps({"tool_name": "Bash"}).encode(),
        b"{}",
    ],
)
def test_command_that_needs_nothing_is_allowed_without_a_word(
    run: Callable[..., Result], rules: Path, stdin: bytes
) -> None:
    """No output means: go on. What already holds the resource is not asked again."""
    assert run("hook", "claude", "pre-tool", stdin=stdin) == Result(0, "", "")


def test_shell_form_answers_by_its_exit_code_and_a_line(run: Callable[..., Result], rules: Path) -> None:
    """Any host can ask: 0 allows, 1 refuses and prints what to run instead."""
    allowed = run("hook", "shell", "pre-tool", "--", "git", "status")
    assert (allowed.code, allowed.out) == (0, "")
    refused = run("hook", "shell", "pre-tool", "--", "pytest -x")
    assert refused.code == 1
    assert refused.out.startswith("tieline run --resource repository/")
    assert refused.out.endswith("/tests -- pytest -x\n")
    shape = run("hook", "shell", "pre-tool", "--json", "--", "pytest").json
    assert (shape["decision"], shape["use"].endswith("-- pytest")) == ("deny", True)


def test_denial_names_who_holds_it_now(run: Callable[..., Result], rules: Path) -> None:
    """An agent learns for whom it would wait."""
    used = run("run", "--resource", "repository/tests", "--", "true")
    assert used.code == 0
    from tieline.engine.coordination import Claim
    from tieline.model.identity import Peer, Principal
    from tieline.model.resource import Claimant
    from tieline.runtime.resources.coordinator import Coordinator
    from tieline.shell.process import self_identity

    me = self_identity()
    peer = Peer("i-9")
    principal = Principal(peer, frozenset({"resource.request"}))
    coordinator = Coordinator(str(rules))
    keys = coordinator.known_keys()
    claimant = Claimant(peer.id, "i-9", "other", me, waiter=me)
    coordinator.decide(keys, Claim(principal, claimant, "l", "d", "pytest", "tests", "r"))
    coordinator.observe(keys, principal)
    coordinator.close()
    result = run("hook", "shell", "pre-tool", "--", "pytest")
    assert ":other (pytest)" in result.err


@pytest.mark.parametrize("harness", ["claude", "codex"])
@pytest.mark.parametrize("stdin", [b"", b"no json", b"[]"])
def test_hook_that_cannot_read_its_input_blocks(
    run: Callable[..., Result], rules: Path, harness: str, stdin: bytes
) -> None:
    """Exit code 2 is what a harness takes for a refusal; any other failure it takes for an allow."""
    result = run("hook", harness, "pre-tool", stdin=stdin)
    assert result.code == 2
    assert result.json["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "USAGE" in result.err


@pytest.mark.parametrize(
    "text",
    [
        '[resource]\nrule_sets = ["nothing"]\n',
        '[resource\nrule_sets = ["git"]\n',
        "[resource]\nrule_sets = 7\n",
    ],
)
def test_wrong_configuration_of_rules_blocks(run: Callable[..., Result], place: Path, text: str) -> None:
    """A rule that cannot be read might have held the command back."""
    (place / "config.toml").write_text(text)
    result = run("hook", "claude", "pre-tool", stdin=hook_input("ls"))
    assert result.code == 2
    assert "could not judge" in result.json["hookSpecificOutput"]["permissionDecisionReason"]
    assert "could not judge" in result.err
    shell = run("hook", "shell", "pre-tool", "--json", "--", "ls")
    assert (shell.code, shell.json["decision"]) == (2, "deny")


def test_configuration_that_cannot_be_read_blocks(run: Callable[..., Result], place: Path) -> None:
    """What cannot be opened may hold a rule."""
    (place / "config.toml").mkdir()
    assert run("hook", "claude", "pre-tool", stdin=hook_input("ls")).code == 2


def damage(place: Path) -> None:
    """Damage every record of the resources."""
    folder = place / "peer-resources"
    for path in folder.rglob("*.json"):
        path.write_bytes(b"{")


def test_damaged_record_blocks_where_rules_are_configured(run: Callable[..., Result], rules: Path) -> None:
    """What policies ask is not known, so nothing starts; the command that mends it does."""
    assert run("run", "--resource", "machine/a", "--", "true").code == 0
    damage(rules)
    assert run("hook", "claude", "pre-tool", stdin=hook_input("git commit")).code == 2
    mending = run("hook", "claude", "pre-tool", stdin=hook_input("tieline doctor"))
    assert (mending.code, mending.out, "mended" in mending.err) == (0, "", True)
    hidden = run("hook", "claude", "pre-tool", stdin=hook_input("tieline doctor; git commit"))
    assert hidden.code == 2


def test_lost_index_is_told_also_where_nothing_is_configured(run: Callable[..., Result], place: Path) -> None:
    """A policy may stand in the records that are left: it is no answer to say nothing."""
    assert run("run", "--resource", "machine/a", "--", "true").code == 0
    (place / "peer-resources" / "index.json").unlink()
    result = run("hook", "claude", "pre-tool", stdin=hook_input("ls"))
    assert "RECOVERY_REQUIRED" in result.err


def test_damaged_record_without_rules_is_told_and_does_not_block(
    run: Callable[..., Result], place: Path
) -> None:
    """Nobody asked for a gate: the command goes on, with a note."""
    assert run("run", "--resource", "machine/a", "--", "true").code == 0
    damage(place)
    result = run("hook", "claude", "pre-tool", stdin=hook_input("git commit"))
    assert (result.code, result.out) == (0, "")
    assert "no rule is configured" in result.err


def test_defect_of_the_judge_blocks(
    run: Callable[..., Result], rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody thought of is no allow either."""

    def broken(*_words: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tieline.runtime.resources.gating.judged_here", broken)
    result = run("hook", "claude", "pre-tool", stdin=hook_input("git commit"))
    assert result.code == 2
    assert "INTERNAL_ERROR" in result.err


def test_without_rules_nothing_is_loaded(place: Path) -> None:
    """The answer of a hook without rules costs the interpreter and little else."""
    code = (
        "import sys; from tieline.adapters.cli.main import main; code = main(['hook', 'claude', 'pre-tool']);"
        "heavy = {'msgspec', 'apsw', 'asyncio', 'tieline.store', 'tieline.engine'} & set(sys.modules);"
        "sys.exit(code or bool(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=hook_input("git commit"), timeout=30, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words", [["shell", "pre-tool"], ["claude", "pre-tool", "x"], ["nobody", "pre-tool"]]
)
def test_wrong_words_are_wrong_usage(run: Callable[..., Result], words: list[str]) -> None:
    """A harness that is not known, a command where none belongs, none where one does."""
    assert run("hook", *words).code == 2
