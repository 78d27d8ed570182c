"""What is ours is known by what it does, and a project's file names no place of this machine."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.harness import base
from tieline.adapters.harness.base import Place
from tieline.adapters.harness.facts import CLAUDE_HOOKS

Make = Callable[..., Place]


@pytest.mark.parametrize(
    ("server", "is_ours"),
    [
        ({"command": "tieline", "args": ["mcp"]}, True),
        ({"command": "/a b/tieline", "args": ["mcp", "--alias", "x"]}, True),
        ({"command": ["/x/tieline", "mcp"]}, True),
        ({"command": "python3", "args": ["-m", "tieline.adapters.cli.main", "mcp"]}, True),
        ({"command": "other", "args": ["mcp"]}, False),
        ({"command": "tieline", "args": "mcp"}, False),
        ({"url": "x"}, False),
        ([], False),
    ],
)
def test_server_is_ours_by_the_words_that_start_it(server: Any, is_ours: bool) -> None:
    """Wherever it is installed, and in every harness's form."""
    assert base.is_our_server(server) == is_ours


def test_group_is_ours_when_all_its_hooks_are(place: Make) -> None:
    """A hook of a person's in the same group keeps the group."""
    ours = base.tool_hook_entries(CLAUDE_HOOKS)[0].value
    gate = base.gate_entry(place()._replace(command=("/a b/tieline",)), "claude").value
    assert base.is_our_group(ours)
    assert base.is_our_group(gate)
    assert "shims/hook.py" in gate["hooks"][0]["command"]
    assert not base.is_our_group({"hooks": [*ours["hooks"], {"type": "command", "command": "mine"}]})
    assert not base.is_our_group({"hooks": [{"type": "mcp_tool", "server": "other", "tool": "tieline_host"}]})
    assert not any(map(base.is_our_group, ({"hooks": []}, {}, 1, {"hooks": [1]}, {"hooks": [{}]})))


def test_server_entry_of_a_project_has_no_variables(place: Make) -> None:
    """It may be shared with others."""
    mine = place(TIELINE_HOME="/t")
    assert base.server_entry(mine, x=1) == {
        "command": "/opt/tieline",
        "args": ["mcp"],
        "x": 1,
        "env": {"TIELINE_HOME": "/t"},
    }
    assert "env" not in base.server_entry(mine._replace(project="/p"))


def test_shim_names_the_command_and_is_none_where_it_is_not_shipped(place: Make) -> None:
    """The copy finds the same installation."""
    assert base.shim("pi", place()) is None
    assert base.shim("pi", place(shims=("pi",))) == '// ours\nconst TIELINE = ["/opt/tieline"];\n'


def test_places_of_a_pattern_are_all_that_fit() -> None:
    """A star is any key and any number."""
    held = {"hooks": {"A": [1, 2], "B": [3], "C": 4}}
    found = dict(base.places_of(held, ("hooks", "*", "*")))
    assert found == {("hooks", "A", 0): 1, ("hooks", "A", 1): 2, ("hooks", "B", 0): 3}


def test_folder_of_a_variable_goes_before_the_home(place: Make, home: Path) -> None:
    """As the harness itself does."""
    assert base.folder_of(place(X="/elsewhere"), "X", ".x") == "/elsewhere"
    assert base.folder_of(place(), "X", ".x", "y") == str(home / ".x" / "y")


def test_command_of_a_hook_looks_where_the_server_was_set_up(place: Make) -> None:
    """A harness hands down its own variables alone: a gate that looked elsewhere would stop nothing."""
    made = place(TIELINE_HOME="/a b")
    assert (
        base.hook_command(made, "claude", "pre-tool")
        == "TIELINE_HOME='/a b' /opt/tieline hook claude pre-tool"
    )
    assert base.is_our_group(base.gate_entry(made, "claude").value)
    shared = made._replace(project="/p", command=("tieline",))
    assert base.hook_command(shared, "claude", "pre-tool") == "tieline hook claude pre-tool"


def gated(place: Place, call: str = "") -> tuple[int, str, str]:
    """Run the line of the gate as a harness's shell does; `call` stands for what it starts."""
    line = base.gate_entry(place, "claude").value["hooks"][0]["command"]
    if call:
        (script,) = shlex.split(line)[3:]
        end = script.rindex("; }; c=$?")
        begin = script.index("{ ", script.index('f="$h/mail'))
        script = f"{script[:begin]}{{ {call}{script[end:]}"
        line = f"exec sh -c {shlex.quote(script)}"
    environment = {"PATH": os.defpath, "HOME": place.home}
    done = subprocess.run(
        ["sh", "-c", line],
        capture_output=True,
        text=True,
        env=environment,
        input="{}",
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


RULES = '[resource]\nrule_sets = ["git"]\n'


@pytest.mark.parametrize(
    ("text", "is_started"),
    [
        (None, False),
        ("", False),
        ("[wires.intercom]\nenabled = true\n", False),
        (RULES, True),
        (RULES.replace("\n", "\r\n"), True),
        ('[communication]\ncoordination_directory = "/x"\n', True),
        ("folder", True),
    ],
)
def test_gate_starts_something_only_where_a_rule_may_hold(
    place: Make, home: Path, text: str | None, is_started: bool
) -> None:
    """A file that cannot be read may hold one."""
    folder = home / "a 'b"
    folder.mkdir()
    if text == "folder":
        (folder / "config.toml").mkdir()
    elif text is not None:
        (folder / "config.toml").write_text(text)
    made = place(TIELINE_HOME=str(folder))
    assert gated(made, "echo started") == (0, "started\n" if is_started else "", "")
    (folder / "peer-resources").mkdir()
    assert gated(made, "echo started")[1] == "started\n"
    (folder / "peer-resources").rmdir()
    folder.chmod(0)
    try:
        assert gated(made, "echo started")[1] == "started\n"
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("code", [1, 2, 126, 127, 137])
def test_gate_that_ends_badly_refuses_where_a_rule_may_hold(place: Make, home: Path, code: int) -> None:
    """A harness takes 2 alone for a refusal; where no rule is configured the command goes on, with a note."""
    made = place(TIELINE_HOME=str(home))
    (home / "peer-resources").mkdir()
    assert gated(made, f"(exit {code})")[0] == 0
    assert "not judged" in gated(made, f"(exit {code})")[2]
    (home / "config.toml").write_text(RULES)
    ended, _, said = gated(made, f"(exit {code})")
    assert (ended, "could not judge" in said) == (2, code != 2)


@pytest.mark.parametrize("project", ["", "/p"])
def test_gate_of_an_installation_that_is_gone_refuses(place: Make, home: Path, project: str) -> None:
    """The program was moved or removed: its rules still stand."""
    (home / ".tieline").mkdir()
    (home / ".tieline" / "config.toml").write_text(RULES)
    made = place(project=project)._replace(command=("/nowhere/tieline",))
    assert gated(made)[0] == 2


def test_gate_of_a_project_uses_what_the_root_left_there(place: Make, home: Path) -> None:
    """It names no place of this machine, and is as fast."""
    mail = home / ".tieline" / "mail"
    mail.mkdir(parents=True)
    (home / ".tieline" / "config.toml").write_text(RULES)
    (mail / f"host-{os.getpid()}.client").write_text('echo "$f.door" "$@"\n')
    made = place(project="/p")._replace(command=("tieline",))
    assert str(home) not in base.gate_entry(made, "claude").value["hooks"][0]["command"]
    assert gated(made)[:2] == (0, f"{mail}/host-{os.getpid()}.door claude pre-tool\n")


def test_gate_of_an_older_version_is_known_as_the_gate(place: Make) -> None:
    """Its consent holds on."""
    entry = base.gate_entry(place(), "claude")
    former = {"matcher": "Bash", "hooks": [{"type": "command", "command": "/x/tieline hook claude pre-tool"}]}
    assert entry.is_former(former)
    assert entry.is_former(entry.value)
    assert not entry.is_former(base.tool_hook_entries(CLAUDE_HOOKS)[0].value)
    assert not entry.is_former({"hooks": [{"type": "command", "command": "mine pre-tool"}]})
