"""The desk as a command."""

import subprocess
import sys

import pytest

from tieline import Refused
from tieline.adapters import desk


def test_missing_package_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the command refuses, and says what to install."""
    monkeypatch.setattr(desk, "find_spec", lambda _name: None)
    with pytest.raises(Refused) as caught:
        desk.main([])
    assert caught.value.code == "CAPABILITY_DENIED"
    assert "tieline[desk]" in caught.value.action


def test_missing_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is no terminal: what prints the same for a program is named."""
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(Refused) as caught:
        desk.main([])
    assert "terminal" in str(caught.value)
    assert "tieline peers" in caught.value.action


@pytest.mark.parametrize(
    ("user", "alias"),
    [
        ("ada", "ada"),
        ("ada.lovelace", "ada-lovelace"),
        ("1st", ""),
        ("", ""),
        ("\u00e9lan", "lan"),
        ("x" * 99, "x" * 64),
    ],
)
def test_alias_is_made_of_the_user_name(user: str, alias: str) -> None:
    """A user name becomes a readable alias, or none."""
    assert desk.person_alias(user) == alias


def test_command_loads_no_screen_before_it_is_shown() -> None:
    """Nothing but the desk's screen imports textual: not the command, not its help."""
    code = (
        "import sys; from tieline.adapters import desk; desk.parser().format_help(); "
        "import tieline.runtime.root, tieline.adapters.cli.main; print('textual' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_textual_is_imported_by_the_desk_alone() -> None:
    """No other room of the package names the screen's packages."""
    from pathlib import Path

    root = Path(desk.__file__).parents[2]
    wrong = [
        str(path)
        for path in root.rglob("*.py")
        if "desk" not in path.parent.parts
        and any(
            line.startswith(("import textual", "from textual", "from rich"))
            for line in path.read_text().splitlines()
        )
    ]
    assert wrong == []
