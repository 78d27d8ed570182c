"""Whose an endpoint is, and what a sweep takes away."""

import json
import os
import socket
from pathlib import Path

import msgspec
import pytest

from tieline.errors import Refused
from tieline.shell.endpoint import bind_endpoint, hosts, owner_state, owners, sweep
from tieline.shell.process import ProcessIdentity, self_identity

DEAD = "dead-0000"


@pytest.fixture
def runtime(private_home: Path) -> str:
    """Give the path of a private runtime directory."""
    path = private_home / "r"
    path.mkdir(mode=0o700)
    return str(path)


def identity(**changes: object) -> ProcessIdentity:
    """Return this process's identity with other parts."""
    return msgspec.structs.replace(self_identity(), **changes)


def gone() -> ProcessIdentity:
    """Return an identity that is proven gone."""
    return identity(boot_id="another")


def leave(
    runtime: str, instance: str, owner: ProcessIdentity | str, *, listens: bool = False
) -> socket.socket:
    """Make what a process leaves when it is killed: an owner file, a socket, and perhaps a listener."""
    path = f"{runtime}/{instance}.sock"
    text = owner
    if isinstance(owner, ProcessIdentity):
        text = msgspec.json.encode(owners.Owner(1, instance, owner, None, {".sock": path})).decode()
    before = os.umask(0o177)
    try:
        Path(runtime, f"{instance}.owner").write_text(str(text))
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(path)
    finally:
        os.umask(before)
    if listens:
        sock.listen()
    else:
        sock.close()
    return sock


@pytest.mark.clause("native-43", "K12", "native-3.6.18", "K3")
def test_sweep_removes_what_a_dead_owner_left(runtime: str) -> None:
    """The socket and the owner file of a proven-dead process go."""
    leave(runtime, DEAD, gone())
    assert sweep(runtime) == [DEAD]
    assert os.listdir(runtime) == ["tieline-endpoints.lock"]
    assert sweep(runtime) == []


@pytest.mark.clause("native-44", "K12", "mutant-16", "I36", "mutant-15")
@pytest.mark.parametrize(
    "case",
    [
        "alive",
        "unknown",
        "listening",
        "foreign",
        "garbage",
        "empty",
        "other instance",
        "newer",
        "broad",
        "file",
    ],
)
def test_sweep_leaves_what_is_not_proven_dead(runtime: str, case: str) -> None:
    """Silence, an unknown owner, a live listener, a damaged or missing owner file prove nothing."""
    sock = socket.socket(socket.AF_UNIX)
    if case == "alive":
        leave(runtime, DEAD, self_identity())
    elif case == "unknown":
        leave(runtime, DEAD, identity(pid_namespace=1))
    elif case == "listening":
        sock.close()
        sock = leave(runtime, DEAD, gone(), listens=True)
    elif case in ("garbage", "empty"):
        leave(runtime, DEAD, "[1" if case == "garbage" else "")
    else:
        leave(runtime, DEAD, gone())
        path = Path(runtime, f"{DEAD}.owner")
        members = json.loads(path.read_text())
        if case == "foreign":
            path.unlink()
        elif case == "other instance":
            path.write_text(json.dumps({**members, "instance": "other"}))
        elif case == "newer":
            path.write_text(json.dumps({**members, "version": 2}))
        elif case == "broad":
            path.chmod(0o644)
        else:
            Path(runtime, f"{DEAD}.sock").unlink()
            Path(runtime, f"{DEAD}.sock").write_text("not a socket")
    before = sorted(os.listdir(runtime))
    assert sweep(runtime) == []
    assert sorted([*before, "tieline-endpoints.lock"]) == sorted(os.listdir(runtime))
    sock.close()


@pytest.mark.clause("mutant-14", "K13")
def test_sweep_leaves_a_listener_with_a_full_backlog(runtime: str) -> None:
    """A listener that is stopped and full is not stale, whatever its owner file says."""
    path = f"{runtime}/{DEAD}.sock"
    with leave(runtime, DEAD, gone(), listens=True) as sock:
        sock.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            assert sweep(runtime) == []
            assert Path(path).exists()


@pytest.mark.clause("S6", "O35", "mutant-13")
def test_sweep_waits_for_the_lock(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process binds there, nothing is taken away."""
    leave(runtime, DEAD, gone())
    from tieline.store.files import open_directory

    with open_directory(runtime, create=False) as directory, directory.lock("tieline-endpoints.lock", 0):
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        clock = iter(range(1_000))
        monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
        with pytest.raises(Refused) as caught:
            sweep(runtime)
        assert caught.value.code == "RESOURCE_BUSY"
        assert Path(runtime, f"{DEAD}.sock").exists()


@pytest.mark.clause("K20", "S3")
def test_sweep_unlinks_nothing_that_an_owner_file_points_to_elsewhere(
    runtime: str, private_home: Path
) -> None:
    """A path in an owner file that does not follow from its instance is not believed."""
    elsewhere = private_home / "e"
    elsewhere.mkdir(mode=0o700)
    leave(str(elsewhere), DEAD, gone())
    members = json.loads((elsewhere / f"{DEAD}.owner").read_text())
    Path(runtime, f"{DEAD}.owner").write_text(json.dumps(members))
    Path(runtime, f"{DEAD}.owner").chmod(0o600)
    assert sweep(runtime) == []
    assert (elsewhere / f"{DEAD}.sock").exists()


@pytest.mark.clause("native-42")
def test_sweep_removes_an_empty_short_directory(private_home: Path) -> None:
    """What a dead owner left in the short directory goes, and the directory when it is empty."""
    runtime = str(private_home / ("d" * 90))
    endpoint = bind_endpoint(runtime, "aaaaaaaa-1111-4111-8111-111111111111", owner=gone())
    folder = Path(endpoint.path).parent
    endpoint.sock.close()
    assert sweep(runtime) == ["aaaaaaaa-1111-4111-8111-111111111111"]
    assert not folder.exists()


def test_hosts_pass_over_damaged_files(runtime: str) -> None:
    """Roots with readable owner files are listed, in order, live or not."""
    leave(runtime, "b-1", gone())
    leave(runtime, "a-1", self_identity())
    leave(runtime, "c-1", "garbage")
    found = hosts(runtime)
    assert [(host.instance, host.owner) for host in found] == [("a-1", self_identity()), ("b-1", gone())]
    assert hosts(runtime + "/none") == []


@pytest.mark.clause("I36", "K31")
def test_owner_state_is_unknown_without_a_readable_owner_file(runtime: str) -> None:
    """Alive and gone are told from the owner file; everything else is unknown."""
    leave(runtime, "a-1", self_identity())
    leave(runtime, "b-1", gone())
    leave(runtime, "c-1", "garbage")
    states = {name: owner_state(runtime, name) for name in ("a-1", "b-1", "c-1", "d-1", "../a-1")}
    assert states == {"a-1": "alive", "b-1": "gone", "c-1": "unknown", "d-1": "unknown", "../a-1": "unknown"}
    assert owner_state(runtime + "/none", "a-1") == "unknown"


@pytest.mark.clause("O34")
@pytest.mark.parametrize("pid", [0, -1, 2**31])
def test_owner_with_an_impossible_process_is_unknown(runtime: str, pid: int) -> None:
    """A record that names no possible process frees nothing and stops no other start."""
    leave(runtime, DEAD, identity(pid=pid))
    assert owner_state(runtime, DEAD) == "unknown"
    assert sweep(runtime) == []
    bind_endpoint(runtime, "other-1", owner=self_identity()).close()
