"""What can be set up: wires in config.toml, harnesses in their own files."""

from pathlib import Path

import pytest

from tieline.adapters.cli import targets
from tieline.errors import UsageError


def test_names_hold_the_wires_and_every_harness() -> None:
    """As a person types them."""
    assert list(targets.WIRES) == ["pi-peers", "intercom"]
    assert list(targets.NAMES) == [
        "claude-code",
        "codex",
        "pi",
        "omp",
        "opencode",
        "gemini",
        "acp",
        *targets.WIRES,
    ]
    assert set(targets.EXTRAS) == {"permission", "gate", "trust", "direct"}


@pytest.mark.parametrize("wire", targets.WIRES)
def test_planned_wire_changes_the_configuration(place: Path, wire: str) -> None:
    """And changes it back."""
    target = targets.planned(wire, "", [], is_on=True)
    assert [part.path for part in target.parts] == [str(place / "config.toml")]
    target.write()
    assert target.finish() == []
    assert targets.planned(wire, "", [], is_on=True).parts == []
    targets.planned(wire, "", [], is_on=False).write()
    assert not (place / "config.toml").exists()


def test_planned_harness_changes_its_own_files(place: Path, private_home: Path) -> None:
    """Where only its folder is there, too."""
    with pytest.raises(UsageError, match="not here"):
        targets.planned("claude-code", "", [], is_on=True)
    (private_home / ".claude").mkdir()
    target = targets.planned("claude-code", "", ["permission"], is_on=True)
    assert [part.was for part in target.parts] == [None, None]
    target.write()
    assert "tieline" in (private_home / ".claude.json").read_text()
    assert (place / "setup.json").exists()
    targets.planned("claude-code", "", [], is_on=False).write()
    assert not (private_home / ".claude.json").exists()
    assert list((private_home / ".claude").iterdir()) == []


def test_harnesses_here_are_those_on_the_path(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else counts where none is named."""
    monkeypatch.setenv("PATH", str(private_home))
    assert targets.harnesses_here() == []
    (private_home / "gemini").write_text("")
    (private_home / "gemini").chmod(0o755)
    assert targets.harnesses_here() == ["gemini"]
