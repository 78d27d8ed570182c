"""Each thing that can be wrong with a machine is named, with what to do."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.test_glance import record
from tests.unit.runtime.test_locate import life
from tieline.runtime import checkup as module
from tieline.runtime.checkup import Check, checkup


@pytest.fixture
def home(private_home: Path) -> Path:
    """A sound home."""
    for name in ("active-agents", "peer-runtime", "peer-messages"):
        (private_home / name).mkdir(mode=0o700)
    return private_home


def found(home: Path, **environment: str) -> dict[str, Check]:
    """Return the checks by name."""
    return {check.name: check for check in checkup({"TIELINE_HOME": str(home), **environment}).checks}


def test_checkup_of_a_sound_home_is_well_and_makes_nothing(home: Path) -> None:
    """A sound home is well; one that does not exist yet is well, too, and is not made."""
    assert all(check.ok for check in found(home).values())
    absent = home / "none"
    assert all(check.ok for check in found(absent).values())
    assert not absent.exists()


@pytest.mark.clause("S1")
def test_checkup_of_a_shared_home_says_chmod(home: Path) -> None:
    """A home that others may enter is named with the command that closes it."""
    home.chmod(0o755)
    check = found(home)["home"]
    assert not check.ok
    assert check.action == f"chmod 700 {home}"
    home.chmod(0o700)


def test_checkup_of_a_wrong_setting_names_it(home: Path) -> None:
    """A wrong value in config.toml is shown with its place."""
    (home / "config.toml").write_text("[communication]\nidle_behavior = 'loud'\n")
    check = found(home)["configuration"]
    assert not check.ok
    assert "idle_behavior" in check.text
    assert not found(home, TIELINE_SCOPE="galaxy")["configuration"].ok


@pytest.mark.clause("native-208")
def test_checkup_of_disabled_communication_says_enable(home: Path) -> None:
    """Communication that is switched off is named with the setting."""
    (home / "config.toml").write_text("[communication]\nenabled = false\n")
    assert "enabled = true" in found(home)["configuration"].action


def test_checkup_counts_presence_and_its_faults(home: Path) -> None:
    """Broken presence records are counted and named."""
    path = home / "active-agents" / "a.json"
    path.write_text(json.dumps(record()))
    path.chmod(0o600)
    (home / "active-agents" / "b.json").write_text("{")
    result = checkup({"TIELINE_HOME": str(home)})
    assert (result.counters["presenceFresh"], result.counters["presenceFaults"]) == (1, 1)
    assert not {check.name: check.ok for check in result.checks}["presence"]


def own(home: Path, owner: dict[str, Any]) -> None:
    """Write the owner file of a root that does not answer."""
    control = str(home / "peer-runtime" / "i-1.control")
    shape = {"version": 1, "instance": "i-1", "owner": owner, "host": None, "sockets": {".control": control}}
    path = home / "peer-runtime" / "i-1.owner"
    path.write_text(json.dumps(shape))
    path.chmod(0o600)


def test_checkup_of_a_silent_root_names_it(home: Path) -> None:
    """A root that lives and does not answer is not well; one that ended is only counted."""
    own(home, life())
    result = checkup({"TIELINE_HOME": str(home)})
    assert result.roots[0]["answers"] is False
    assert not {check.name: check.ok for check in result.checks}["root i-1"]
    own(home, life(start_ticks=1))
    result = checkup({"TIELINE_HOME": str(home)})
    assert (result.roots, result.counters["rootsEnded"]) == ([], 1)


@pytest.mark.clause("K12")
def test_checkup_in_another_container_or_sandbox_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root of another container and a forbidden socket call are named, with the MCP tool as a way."""
    own(home, life(pid_namespace=1))
    assert "another container" in found(home)["root i-1"].action

    def forbidden(*words: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(module._socket, "socket", forbidden)
    check = module._sockets()
    assert not check.ok
    assert "MCP tool" in check.action
