"""What doctor sees of the windows' registry: each record judged, each fault named, nothing touched."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tieline.config import PiPeersSettings
from tieline.errors import Refused
from tieline.runtime.windows_check import look_at_windows
from tieline.shell.process_start import pid_domain, process_start_text


@pytest.fixture
def registry(private_home: Path) -> Path:
    """An empty registry."""
    made = private_home / "p"
    made.mkdir(mode=0o700)
    return made


def put(registry: Path, *, has_key: bool = True, **more: Any) -> dict[str, Any]:
    """Write a record, by default of this very process, and its key."""
    pid = os.getpid()
    record = {
        "pid": pid, "sessionId": "s", "name": "w", "procStart": process_start_text(pid),
        "pidDomain": pid_domain(), "socketPath": str(registry / "socks" / f"{len(os.listdir(registry))}"),
        "peerProtocol": 1, **more,
    }  # fmt: skip
    files = {f"{record['pid']}.json": record}
    if has_key:
        digest = hashlib.sha256(str(record["socketPath"]).encode()).hexdigest()
        files[f"{record['pid']}.{digest}.key"] = {"peerToken": "0" * 32}
    for name, document in files.items():
        (registry / name).write_text(json.dumps(document))
        (registry / name).chmod(0o600)
    return record


def contents(registry: Path) -> dict[str, bytes]:
    """Return every file with its bytes."""
    return {path.name: path.read_bytes() for path in registry.iterdir() if path.is_file()}


def look(registry: Path) -> Any:
    """Look into a registry."""
    return look_at_windows(PiPeersSettings(enabled=True, directory=str(registry)))


def test_windows_are_counted_and_nothing_is_swept(registry: Path) -> None:
    """Live, dead and foreign are told apart; the look leaves every byte where it was."""
    put(registry)
    put(registry, pid=2_147_483_000)
    put(registry, pid=2_147_483_001, pidDomain="linux:elsewhere:pid:[1]", has_key=False)
    before = contents(registry)
    for _ in range(3):
        found = look(registry)
    assert found.faults == ()
    assert found.counts == {"windows": 1, "windowsDead": 1, "windowsUnjudged": 1, "windowFaults": 0}
    assert contents(registry) == before


def test_window_that_cannot_be_used_is_named_with_its_reason(registry: Path) -> None:
    """A damaged file, a missing key: each with its file, and left alone."""
    put(registry, has_key=False)
    (registry / "7.json").write_text("{")
    (registry / "7.json").chmod(0o600)
    before = contents(registry)
    found = look(registry)
    assert sorted(found.faults) == sorted(
        ["7.json: it is not JSON", f"{os.getpid()}.json: its key file is missing"]
    )
    assert contents(registry) == before


def test_registry_that_is_not_there_is_not_made(private_home: Path) -> None:
    """Nobody has published anything yet: that is well, and stays so."""
    found = look(private_home / "none")
    assert (found.faults, found.counts["windows"]) == ((), 0)
    assert not (private_home / "none").exists()


def test_registry_that_others_may_enter_is_refused(registry: Path) -> None:
    """What is not private is named as that."""
    registry.chmod(0o755)
    with pytest.raises(Refused):
        look(registry)
    registry.chmod(0o700)
