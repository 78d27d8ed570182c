"""What a process without a root sees of windows."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.runtime.windows.sight import look_for_windows
from tieline.shell.process_start import pid_domain, process_start_text


def put(registry: Path, pid: int, project: str, session: str = "s", start: str = "") -> None:
    """Write a window's record and key."""
    path = str(registry / "socks" / f"{pid}.sock")
    fields = {
        "pid": pid, "sessionId": session, "cwd": project, "name": f"w{pid}", "socketPath": path,
        "procStart": start or process_start_text(pid), "pidDomain": pid_domain(), "peerProtocol": 1,
    }  # fmt: skip
    key = f"{pid}.{hashlib.sha256(path.encode()).hexdigest()}.key"
    for name, document in ((f"{pid}.json", fields), (key, {"peerToken": "0" * 32})):
        (registry / name).write_text(json.dumps(document))
        (registry / name).chmod(0o600)


@pytest.mark.clause("pi-peers-46", "pi-peers-47")
def test_windows_are_listed_as_a_root_would_and_nothing_is_touched(private_home: Path) -> None:
    """One's project, the others counted; the dead left out and left alone; a shown root not twice."""
    registry, work = private_home / "p", private_home / "w"
    registry.mkdir(mode=0o700)
    work.mkdir()
    environment = {
        "TIELINE_HOME": str(private_home), "TIELINE_PI_PEERS_ENABLED": "true", "PI_PEERS_DIR": str(registry),
    }  # fmt: skip
    put(registry, os.getpid(), str(work))
    put(registry, os.getppid(), "/elsewhere", "other")
    put(registry, 2_147_483_000, str(work), "dead", "1")
    (registry / "9.json").write_text("{")
    before = sorted(os.listdir(registry))
    for _ in range(2):
        sight = look_for_windows(environment, str(work), is_crossing=False)
        assert [peer["alias"] for peer in sight.peers] == [f"w{os.getpid()}"]
        assert (sight.others_count, sight.faults_count) == (1, 1)
    assert len(look_for_windows(environment, str(work), is_crossing=True).peers) == 2
    assert look_for_windows(environment, str(work), is_crossing=True, query="no such").peers == []
    shown = look_for_windows(environment, str(work), is_crossing=False, sessions=frozenset({"s"}))
    assert shown.peers == []
    assert sorted(os.listdir(registry)) == before
    registry.chmod(0o755)
    with pytest.raises(Refused):
        look_for_windows(environment, str(work), is_crossing=False)
    assert (
        look_for_windows({**environment, "TIELINE_PI_PEERS_ENABLED": "false"}, "/", is_crossing=True).peers
        == []
    )
