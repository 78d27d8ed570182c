"""Each thing that can be wrong with a machine is named, with what to do."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.test_glance import record
from tests.unit.runtime.test_locate import life
from tieline import __version__
from tieline.errors import Refused
from tieline.model.resource import Document, Ledger, ResourceKey, key_digest
from tieline.runtime import checkup as module
from tieline.runtime.checkup import Check, checkup
from tieline.runtime.client import Client
from tieline.store.files import Directory
from tieline.store.resources import ResourceStore


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
def test_checkup_of_what_others_may_enter_names_it(home: Path) -> None:
    """The home may be looked at by others, as a root allows; what is private below it may not."""
    home.chmod(0o755)
    assert found(home)["home"].ok
    (home / "active-agents").chmod(0o755)
    check = found(home)["coordination directory"]
    assert not check.ok
    assert "chmod 700" in check.text
    (home / "active-agents").chmod(0o700)
    home.chmod(0o777)
    assert "that others may write" in found(home)["home"].text
    home.chmod(0o700)


def test_checkup_of_a_place_that_takes_nothing_names_it(private_home: Path) -> None:
    """Where a root could store nothing, nothing is well: closed, below a file, or below a closed folder."""
    home = private_home / "h"
    home.mkdir(mode=0o500)
    assert not found(home)["home"].ok
    home.chmod(0o700)
    for name in ("peer-messages", "logs", "active-agents", "peer-runtime"):
        (home / name).mkdir(mode=0o700)
    assert all(check.ok for check in found(home).values())
    (home / "peer-messages").chmod(0o500)
    check = found(home)["home"]
    assert (check.ok, "peer-messages" in check.text) == (False, True)
    (home / "peer-messages").chmod(0o700)
    (home / "peer-runtime").chmod(0o500)
    assert not found(home)["coordination directory"].ok
    (home / "peer-runtime").chmod(0o700)
    (private_home / "file").touch()
    assert not found(private_home / "file" / "h")["configuration"].ok
    (private_home / "closed").mkdir(mode=0o500)
    check = found(private_home / "closed" / "h")["home"]
    assert (check.ok, "cannot be made" in check.text) == (False, True)
    elsewhere = found(home, TIELINE_COORDINATION_DIRECTORY=str(private_home / "closed" / "c"))
    assert elsewhere["home"].ok
    assert not elsewhere["coordination directory"].ok


def test_checkup_on_a_full_disk_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes no byte, and one with too little left for an agent's store, are not well."""

    def full(self: object, name: str, data: bytes, *, sync: bool) -> int:
        assert (len(data) > 0, sync) == (True, True)
        raise Refused("QUEUE_FULL", f"no space for {name}")

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "write_atomic", full)
        for name in ("home", "coordination directory"):
            check = found(home)[name]
            assert (check.ok, check.action) == (False, "free some space")
    monkeypatch.setattr(module, "_free_bytes", lambda path: module.SPACE_BYTES_MIN - 1)
    assert "are free" in found(home)["home"].text


def test_checkup_leaves_nothing_behind(home: Path) -> None:
    """What was made to try a place is removed again, also where the trial failed."""
    before = sorted(str(path) for path in home.rglob("*"))
    found(home)
    (home / "logs").mkdir(mode=0o700)
    found(home)
    (home / "logs").rmdir()
    assert sorted(str(path) for path in home.rglob("*")) == before


def test_checkup_of_a_wrong_setting_names_it(home: Path) -> None:
    """A wrong value in config.toml is shown with its place."""
    (home / "config.toml").write_text("[communication]\nidle_behavior = 'loud'\n")
    check = found(home)["configuration"]
    assert not check.ok
    assert "idle_behavior" in check.text
    assert not found(home, TIELINE_SCOPE="galaxy")["configuration"].ok


@pytest.mark.timeout(10)
def test_checkup_of_a_configuration_that_is_no_file_names_it(home: Path) -> None:
    """A pipe at its name does not hold the doctor; bytes that are no text and a broken file are named."""
    path = home / "config.toml"
    os.mkfifo(path, 0o600)
    assert "not a regular file" in found(home)["configuration"].text
    path.unlink()
    for data, word in ((b"\xff\xfe", "UTF-8"), (b"[x", "TOML"), (b"[communication]\nnew = 1\n", "unknown")):
        path.write_bytes(data)
        assert word in found(home)["configuration"].text


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
    check = {check.name: check for check in result.checks}["presence"]
    assert not check.ok
    assert "b.json: it is open to others (mode 0644)" in check.text


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


def test_checkup_names_the_wires_that_a_sound_root_is_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connected intercom has its words in the line of its root; what is always so has not."""
    checks = [
        {"name": "room", "ok": True, "text": "1 of 2"},
        {"name": "intercom", "ok": True, "text": "api, known there as pi-1"},
    ]

    class Answering(Client):
        def call(self, *_: object) -> dict[str, Any]:
            return {"version": __version__, "checks": checks}

    own(home, life())
    monkeypatch.setattr(module, "Client", Answering)
    (line,) = (
        check.text for check in checkup({"TIELINE_HOME": str(home)}).checks if check.name[:5] == "root "
    )
    assert line.endswith("; intercom: api, known there as pi-1")
    assert "1 of 2" not in line


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


def test_checkup_names_each_damaged_resource_with_what_ends_it(home: Path) -> None:
    """One damaged record is one finding; index and ledger have theirs; the whole ones are counted."""
    store = ResourceStore(str(home))
    for name in ("machine/a", "machine/b"):
        key = ResourceKey(name)
        with store.transaction([key], ledger=True) as held:
            held.commit({key: Document(key, fence=1)}, Ledger(held.index.ledger_revision))
    folder = home / "peer-resources"
    (folder / f"{key_digest(ResourceKey('machine/a'))}.json").write_bytes(b"garbled")
    result = checkup({"TIELINE_HOME": str(home)})
    assert (result.counters["resources"], result.counters["resourcesDamaged"]) == (2, 1)
    (check,) = [one for one in result.checks if one.name == "resource machine/a"]
    assert not check.ok
    assert "tieline resource recover machine/a" in check.action
    (folder / "launches.json").write_bytes(b"garbled")
    assert "recover ledger" in found(home)["launch ledger"].action
    (folder / "index.json").write_bytes(b"garbled")
    assert "recover index" in found(home)["resources"].action
    store.close()


def test_checkup_names_the_windows_that_cannot_be_used(home: Path) -> None:
    """Where the wire is on, each unusable file is named with what to do; where it is off nobody looks."""
    registry = home / "p"
    registry.mkdir(mode=0o700)
    (registry / "7.json").write_text("{")
    (registry / "7.json").chmod(0o600)
    assert "windows" not in found(home, PI_PEERS_DIR=str(registry))
    check = found(home, PI_PEERS_DIR=str(registry), TIELINE_PI_PEERS_ENABLED="1")["windows"]
    assert (check.ok, "7.json: it is not JSON" in check.text, bool(check.action)) == (False, True, True)
    (registry / "7.json").unlink()
    assert found(home, PI_PEERS_DIR=str(registry), TIELINE_PI_PEERS_ENABLED="1")["windows"].ok
    registry.chmod(0o755)
    check = found(home, PI_PEERS_DIR=str(registry), TIELINE_PI_PEERS_ENABLED="1")["windows"]
    assert not check.ok
    registry.chmod(0o700)
