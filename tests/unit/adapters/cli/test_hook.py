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


@pytest.mark.parametrize("stdin", [b"", b"no json", b"[]"])
def test_hook_that_cannot_judge_does_not_block(run: Callable[..., Result], rules: Path, stdin: bytes) -> None:
    """Exit code 1 with a word on stderr: no harness takes that for a refusal."""
    result = run("hook", "claude", "pre-tool", stdin=stdin)
    assert (result.code, result.out) == (1, "")
    assert "USAGE" in result.err


def test_wrong_configuration_does_not_block(run: Callable[..., Result], place: Path) -> None:
    """A mistake in config.toml is told, and the command goes on."""
    (place / "config.toml").write_text('[resource]\nrule_sets = ["nothing"]\n')
    result = run("hook", "claude", "pre-tool", stdin=hook_input("git commit"))
    assert (result.code, result.out, "rule set" in result.err) == (1, "", True)


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
