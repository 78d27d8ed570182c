"""Completion scripts: they know every command and option, and shells accept them."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.adapters.cli.fake import Result
from tieline.adapters.cli.arguments import actions_of
from tieline.adapters.cli.completion import SHELLS, script
from tieline.adapters.cli.main import commands_here
from tieline.adapters.cli.reference import parsers

Run = Callable[..., Result]


@pytest.mark.parametrize("shell", SHELLS)
def test_script_of_each_shell_knows_all_commands_and_options(shell: str) -> None:
    """A new command or option is completed without anybody thinking of it."""
    text = script(shell)
    for name in commands_here():
        assert name in text
    for made, _, _ in parsers().values():
        for action in actions_of(made):
            for word in action.option_strings:
                assert (word if shell != "fish" else word.lstrip("-")) in text


def test_script_for_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """Bash accepts the script, and it completes a command and an option."""
    (tmp_path / "tieline").write_text(f"{script('bash')}\n")
    text = (
        f"source {tmp_path}/tieline;"
        " COMP_WORDS=(tieline pee); COMP_CWORD=1; _tieline; echo ${COMPREPLY[*]};"
        " COMP_WORDS=(tieline send --del); COMP_CWORD=2; _tieline; echo ${COMPREPLY[*]}"
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["peers", "--delivery"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("send a", "api"),
        ("send :", "api web"),
        ("send --delivery ''", "steer queue passive"),
        ("peers --scope re", "repository"),
        ("forget ''", "i-1 i-2"),
        ("recover i-2", "i-2"),
        ("resource gr", "grant"),
        ("completion f", "fish"),
        ("send --attach pla", "plan.md"),
        ("log pla", ""),
    ],
)
def test_script_for_bash_completes_what_stands_there(tmp_path: Path, words: str, offered: str) -> None:
    """Closed sets, aliases and ended instances are offered where they stand, and files nowhere else."""
    (tmp_path / "tieline").write_text(f"{script('bash')}\n")
    (tmp_path / "plan.md").touch()
    text = f"""
        source {tmp_path}/tieline; cd {tmp_path}
        told() {{
            if [ "$*" = "peers --aliases" ]; then printf 'api\nweb\n'; fi
            if [ "$*" = "recover --all" ]; then printf 'i-1  0 unread\ni-2  2 unread\n'; fi
        }}
        COMP_WORDS=(told {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tieline; echo ${{COMPREPLY[*]}}
    """
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_script_is_accepted_where_the_shell_is_there(tmp_path: Path, shell: str) -> None:
    """Where the shell is installed it parses its script; elsewhere its quotes are at least in pairs."""
    (tmp_path / "script").write_text(script(shell) + "\n")
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
    for row in script(shell).splitlines():
        assert row.count("'") % 2 == 0, row


def test_completion_of_other_shell_is_wrong_usage(run: Run) -> None:
    """Only the three shells are known."""
    assert run("completion", "tcsh").code == 2
    assert run("completion", "fish", "--json").json["shell"] == "fish"
