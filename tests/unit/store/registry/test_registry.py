"""Our own window in the registry: shown, kept up, and taken away."""

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.store.registry.conftest import (
    DOMAIN,
    OTHER,
    START,
    TOKEN,
    Lives,
    Seams,
    names,
    own_window,
    put,
    put_key,
    put_window,
)
from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.model.process import Life
from tieline.store.registry import Registry, key_name
from tieline.store.registry.registry import CACHE_MS

PID = os.getpid


def record(place: Path) -> dict[str, Any]:
    """Return our record as a reader finds it."""
    fields: dict[str, Any] = json.loads((place / f"{PID()}.json").read_text())
    return fields


@pytest.mark.clause("pi-peers-1", "pi-peers-2", "pi-peers-5", "pi-peers-7")
def test_window_published_is_one_private_record_and_one_private_key(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """Others find the record under our number, and the key under the hash of our address."""
    registry.publish(own_window(own_socket), TOKEN)
    key = place / key_name(PID(), own_socket)
    assert names(place) == {f"{PID()}.json", key.name}
    assert record(place)["socketPath"] == own_socket
    assert json.loads(key.read_text()) == {"peerToken": TOKEN, "procStart": START, "pidDomain": DOMAIN}
    assert {path.stat().st_mode & 0o777 for path in (key, place / f"{PID()}.json")} == {0o600}
    assert TOKEN not in (place / f"{PID()}.json").read_text()
    assert registry.own == own_window(own_socket)


@pytest.mark.clause("pi-peers-8")
def test_key_is_there_before_the_record_and_temporary_names_are_nobodys(
    place: Path, registry: Registry, own_socket: str, seams: Seams
) -> None:
    """A scanner that looks at any moment of a publish finds nothing, or a window with its key."""
    seen: list[set[str]] = []

    def look() -> None:
        found = names(place)
        seen.append(found)
        assert all((place / name).stat().st_mode & 0o777 == 0o600 for name in found)
        if f"{PID()}.json" in found:
            assert key_name(PID(), own_socket) in found
        assert not [name for name in found if name.startswith(".") and name.endswith((".json", ".key"))]

    def looking(name: str) -> None:
        look()
        seams(name)

    registry._seam = looking
    registry.close()
    registry.publish(own_window(own_socket), TOKEN)
    assert {key_name(PID(), own_socket)} in seen
    assert len(seen) >= 6


@pytest.mark.clause("pi-peers-8")
def test_window_withdrawn_goes_record_first_then_key_then_socket(
    place: Path, registry: Registry, own_socket: str, seams: Seams
) -> None:
    """At no moment is a record there that cannot be reached."""
    registry.publish(own_window(own_socket), TOKEN)
    seen: list[tuple[bool, bool, bool]] = []

    def look(name: str) -> None:
        if "remove" in name:
            seen.append(
                (
                    (place / f"{PID()}.json").exists(),
                    (place / key_name(PID(), own_socket)).exists(),
                    Path(own_socket).exists(),
                )
            )

    registry._seam = look
    assert registry._directory is not None
    registry._directory._seam = look
    registry.withdraw()
    assert list(dict.fromkeys(seen)) == [(True, True, True), (False, True, True), (False, False, True)]
    assert not Path(own_socket).exists()
    assert names(place) == set()
    registry.withdraw()


@pytest.mark.clause("pi-peers-2")
def test_second_window_of_one_process_is_refused(
    place: Path, registry: Registry, own_socket: str, lives: Lives
) -> None:
    """One record per process: the second is told so, and the first stands; after it, there is room."""
    registry.publish(own_window(own_socket), TOKEN)
    second = Registry(place, life=lives)
    with pytest.raises(Refused) as caught:
        second.publish(own_window(own_socket, name="second"), TOKEN)
    assert caught.value.code == "RESOURCE_BUSY"
    assert record(place)["name"] == "own"
    registry.withdraw()
    second.publish(own_window(own_socket, name="second"), TOKEN)
    assert record(place)["name"] == "second"
    second.withdraw()
    second.close()


@pytest.mark.clause("pi-peers-U2")
def test_window_of_another_container_under_our_number_is_not_overwritten(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """Numbers recur between containers that share a directory; neither takes the other's name."""
    put_window(place, PID(), pidDomain="linux:other:pid:[1]")
    with pytest.raises(Refused) as caught:
        registry.publish(own_window(own_socket), TOKEN)
    assert caught.value.code == "RESOURCE_BUSY"
    assert record(place)["pidDomain"] == "linux:other:pid:[1]"
    assert registry.own is None


@pytest.mark.clause("pi-peers-16")
def test_window_of_an_earlier_process_under_our_number_is_replaced(
    place: Path, registry: Registry, own_socket: str, lives: Lives
) -> None:
    """Who has the number now is us; what was left there goes, with its key."""
    old = put_window(place, PID(), procStart="499")
    lives.by_start["499"] = Life.DEAD
    registry.publish(own_window(own_socket), TOKEN)
    assert record(place)["name"] == "own"
    registry.withdraw()
    registry.scan(0)
    assert key_name(PID(), old) not in names(place)


@pytest.mark.parametrize("token", ["", "a b", "a\n", "ä", "a" * 513])
def test_token_that_is_none_is_not_published(registry: Registry, own_socket: str, token: str) -> None:
    """What a sender could not present on one line is a wrong call."""
    with pytest.raises(UsageError):
        registry.publish(own_window(own_socket), token)


def test_window_that_is_not_ours_or_not_readable_is_not_published(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """Only this process's own window, and only one that others can read."""
    for window in (
        own_window(own_socket, pid=OTHER),
        own_window("relative"),
        own_window(own_socket, protocol=0),
    ):
        with pytest.raises(UsageError):
            registry.publish(window, TOKEN)
    with pytest.raises(UsageError, match="larger"):
        registry.publish(own_window(own_socket, cwd="/" + "x" * 70_000), TOKEN)
    assert names(place) == set()


@pytest.mark.clause("pi-peers-1")
def test_registry_that_is_not_private_or_a_link_is_refused(
    private_home: Path, lives: Lives, own_socket: str
) -> None:
    """Keys are neither written to nor read from where others may look."""
    opened = private_home / "open"
    opened.mkdir()
    opened.chmod(0o755)
    (private_home / "real").mkdir(mode=0o700)
    (private_home / "link").symlink_to(private_home / "real")
    for path in (opened, private_home / "link"):
        one = Registry(path, life=lives)
        with pytest.raises(Refused):
            one.publish(own_window(own_socket), TOKEN)
        with pytest.raises(Refused):
            one.scan(0)
        assert list(path.iterdir()) == []


@pytest.mark.clause("pi-peers-1")
def test_registry_that_is_missing_is_empty_and_made_private_by_the_first_window(
    private_home: Path, lives: Lives, own_socket: str
) -> None:
    """Looking creates nothing."""
    path = private_home / "none"
    one = Registry(path, life=lives)
    assert one.scan(0) == ()
    assert one.read_record(OTHER) is None
    assert one.peer_token(own_window("/s", pid=OTHER)) is None
    assert not path.exists()
    one.publish(own_window(own_socket), TOKEN)
    assert path.stat().st_mode & 0o777 == 0o700
    one.withdraw()
    one.close()


@pytest.mark.clause("pi-peers-14", "pi-peers-15")
def test_update_writes_only_what_others_act_on(place: Path, registry: Registry, own_socket: str) -> None:
    """A flip, a whole percent, a name: written and told. A busy window that only waits: nothing."""
    window = own_window(own_socket)
    registry.publish(window, TOKEN)
    steps: list[tuple[dict[str, Any], set[str]]] = [
        ({"status_updated_ms": 5_000}, set()),
        ({"status": "busy", "status_updated_ms": 6_000}, {"status"}),
        ({"status": "waiting", "status_updated_ms": 7_000}, set()),
        ({"context_percent": 41}, {"context"}),
        ({"context_percent": 41, "status_updated_ms": 8_000}, set()),
        ({"context_percent": 42, "status": "idle", "status_updated_ms": 9_000}, {"context", "status"}),
        ({"name": "new"}, {"name"}),
        ({"session": "s-2"}, {"session"}),
        ({"cwd": "/x"}, {"place"}),
        ({"project_root": "/x"}, {"place"}),
    ]
    for changes, told in steps:
        before = (place / f"{PID()}.json").stat().st_ino
        window = msgspec.structs.replace(window, **changes)
        assert registry.update(window) == told
        assert ((place / f"{PID()}.json").stat().st_ino != before) is bool(told)
    assert record(place)["contextUsage"] == 42
    assert record(place)["sessionId"] == "s-2"


@pytest.mark.clause("pi-peers-14")
def test_update_without_flip_keeps_the_instant_of_the_last_flip(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """A window busy for hours keeps its old stamp, whatever else is written."""
    registry.publish(own_window(own_socket, status="busy", status_updated_ms=1_000), TOKEN)
    registry.update(own_window(own_socket, status="busy", status_updated_ms=9_000, context_percent=3))
    assert record(place)["statusUpdatedAt"] == 1_000
    registry.update(own_window(own_socket, status="idle", status_updated_ms=9_500, context_percent=3))
    assert record(place)["statusUpdatedAt"] == 9_500


@pytest.mark.clause("pi-peers-39")
def test_update_of_the_name_keeps_the_former_ones(place: Path, registry: Registry, own_socket: str) -> None:
    """Every earlier name still finds the window, the present one is not among them, and they are bounded."""
    registry.publish(own_window(own_socket, name="a"), TOKEN)
    for name in ("b", "c", "a"):
        registry.update(own_window(own_socket, name=name))
    assert record(place)["formerNames"] == ["b", "c"]
    for number in range(40):
        registry.update(own_window(own_socket, name=f"n{number}"))
    assert record(place)["formerNames"] == [f"n{number}" for number in range(23, 39)]


def test_update_of_what_is_not_published_is_a_wrong_call(registry: Registry, own_socket: str) -> None:
    """A new address needs a new key, so it is published."""
    with pytest.raises(UsageError):
        registry.update(own_window(own_socket))
    registry.publish(own_window(own_socket), TOKEN)
    with pytest.raises(UsageError):
        registry.update(own_window("/other"))


def test_window_published_again_with_another_socket_replaces_the_first(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """The old key and the old socket go after the new record stands."""
    registry.publish(own_window(own_socket), TOKEN)
    path = str(registry.socket_directory / "again.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        registry.publish(own_window(path), "b" * 32)
        assert names(place) == {f"{PID()}.json", key_name(PID(), path)}
        assert record(place)["socketPath"] == path
        assert not Path(own_socket).exists()
        assert registry.confirm()


@pytest.mark.clause("pi-peers-16")
@pytest.mark.parametrize("lost", ["record", "key", "both", "record changed", "key opened", "directory"])
def test_window_cleaned_away_is_published_again(
    place: Path, registry: Registry, own_socket: str, private_home: Path, lost: str
) -> None:
    """Somebody cleans the directory under a live window: it is there again after the next look."""
    registry.publish(own_window(own_socket), TOKEN)
    assert registry.confirm()
    key, entry = place / key_name(PID(), own_socket), place / f"{PID()}.json"
    if lost in ("record", "both"):
        entry.unlink()
    if lost in ("key", "both"):
        key.unlink()
    if lost == "record changed":
        put(place, entry.name, {**record(place), "name": "forged"})
    if lost == "key opened":
        key.chmod(0o644)
    if lost == "directory":
        place.rename(private_home / "moved")
    assert not registry.confirm()
    assert record(place)["name"] == "own"
    assert key.stat().st_mode & 0o777 == 0o600
    assert registry.is_socket_missing is (lost == "directory")
    if lost != "directory":
        assert registry.confirm()


def test_socket_that_is_gone_or_another_is_told(registry: Registry, own_socket: str) -> None:
    """Only who bound it can bind it again."""
    registry.publish(own_window(own_socket), TOKEN)
    Path(own_socket).unlink()
    assert not registry.confirm()
    assert registry.is_socket_missing
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(own_socket)
        assert not registry.confirm()
        registry.withdraw()
        assert Path(own_socket).exists()


def test_nothing_published_is_nothing_missing(registry: Registry) -> None:
    """Before the first window and after the last there is nothing to put back."""
    assert registry.confirm()
    registry.withdraw()


def test_window_withdrawn_leaves_what_is_not_ours_any_more(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """A record of another container took our name, another key took our key's: both stay."""
    registry.publish(own_window(own_socket), TOKEN)
    put_window(place, PID(), key=False, pidDomain="linux:other:pid:[1]")
    put_key(place, PID(), own_socket, procStart="1", pidDomain="linux:other:pid:[1]")
    with pytest.raises(Refused):
        registry.confirm()
    registry.withdraw()
    assert names(place) == {f"{PID()}.json", key_name(PID(), own_socket)}


def test_window_withdrawn_after_its_directory_went_takes_its_socket(
    registry: Registry, own_socket: str, place: Path, private_home: Path
) -> None:
    """An orderly end does not fail for somebody else's cleaning."""
    moved = private_home / "s.sock"
    Path(own_socket).rename(moved)
    registry.publish(own_window(str(moved)), TOKEN)
    place.rename(private_home / "moved")
    registry.withdraw()
    assert not moved.exists()


@pytest.mark.clause("pi-peers-2")
def test_child_of_a_fork_owns_no_window(place: Path, registry: Registry, own_socket: str) -> None:
    """A forked process neither withdraws nor confirms what its parent published."""
    registry.publish(own_window(own_socket), TOKEN)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            registry.withdraw()
            code = 0 if registry.own is None and registry.confirm() else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert registry.confirm()
    assert Path(own_socket).exists()


@pytest.mark.clause("pi-peers-13")
def test_scan_answers_again_for_half_a_second_unless_fresh_or_changed_by_us(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """500 ms; what we change ourselves is seen at once."""
    assert registry.scan(1_000) == ()
    put_window(place, 4)
    assert registry.scan(1_000 + CACHE_MS - 1) == ()
    assert len(registry.scan(1_000, fresh=True)) == 1
    put_window(place, 5)
    assert len(registry.scan(1_000 + CACHE_MS - 1)) == 1
    assert len(registry.scan(1_000 + CACHE_MS)) == 2
    put_window(place, 6)
    registry.publish(own_window(own_socket), TOKEN)
    assert len(registry.scan(1_000 + CACHE_MS)) == 3
    put_window(place, 7)
    registry.update(own_window(own_socket, status="busy"))
    assert len(registry.scan(1_000 + CACHE_MS)) == 4
    put_window(place, 8)
    registry.withdraw()
    assert len(registry.scan(1_000 + CACHE_MS)) == 5


def test_own_window_is_not_among_the_others_and_is_never_swept(
    place: Path, registry: Registry, own_socket: str, lives: Lives
) -> None:
    """Whatever is said of our number, we do not take ourselves away; another reader does list us."""
    registry.publish(own_window(own_socket), TOKEN)
    reader = Registry(place, life=lives)
    (listed,) = reader.scan(0)
    assert listed.window == own_window(own_socket)
    lives.by_pid[PID()] = Life.DEAD
    assert registry.scan(0) == ()
    assert not registry.sweep(listed)
    assert registry.confirm()
    reader.close()


@pytest.mark.clause("pi-peers-13")
def test_one_record_is_read_from_its_one_file(
    place: Path, registry: Registry, lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polling one window costs the same in a crowd, is never stale, and sweeps nothing."""
    put_window(place)
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("the directory was listed"))
    listed = registry.read_record(OTHER)
    assert listed is not None
    assert listed.window.status == "idle"
    put_window(place, status="busy")
    lives.by_pid[OTHER] = Life.DEAD
    listed = registry.read_record(OTHER)
    assert listed is not None
    assert (listed.window.status, listed.life) == ("busy", Life.DEAD)
    assert registry.read_record(4) is None


@pytest.mark.clause("pi-peers-5", "pi-peers-23")
def test_token_is_read_from_the_key_of_that_very_address(place: Path, registry: Registry) -> None:
    """Of several keys under one number, the one that is named after the window's address."""
    path = put_window(place)
    put(place, key_name(OTHER, "/stale"), {"peerToken": "stale", "procStart": START, "pidDomain": DOMAIN})
    (listed,) = registry.scan(0)
    assert listed.window.socket_path == path
    assert registry.peer_token(listed.window) == TOKEN
    (place / key_name(OTHER, path)).unlink()
    assert registry.peer_token(listed.window) is None
    put_key(place, OTHER, path, procStart="499", pidDomain=DOMAIN)
    assert registry.peer_token(listed.window) is None


@pytest.mark.clause("pi-peers-7")
def test_unfinished_files_of_dead_writers_are_tidied(
    place: Path, registry: Registry, own_socket: str
) -> None:
    """Ours go when they are old; those of other programs are theirs."""
    old = put(place, f".tieline-{OTHER}-0.tmp", "x")
    foreign = put(place, f"{OTHER}.json.tmp", "x")
    for path in (old, foreign):
        os.utime(path, (1, 1))
    registry.publish(own_window(own_socket), TOKEN)
    assert not old.exists()
    assert foreign.exists()


def test_disk_that_fails_is_told_and_tried_again_at_the_next_look(
    place: Path, registry: Registry, own_socket: str, seams: Seams
) -> None:
    """A record is a hint: one failed write does not end the window for good."""
    registry.publish(own_window(own_socket), TOKEN)

    def failing() -> None:
        raise OSError(5, "Input/output error")

    seams.at["files.tmp_written"] = failing
    with pytest.raises(RecoveryRequired):
        registry.update(own_window(own_socket, status="busy"))
    assert record(place)["status"] == "idle"
    assert registry.update(own_window(own_socket, status="busy")) == {"status"}
    assert record(place)["status"] == "busy"


@pytest.mark.clause("pi-peers-7", "pi-peers-8")
def test_reader_beside_a_writer_always_finds_a_whole_window(
    place: Path, registry: Registry, own_socket: str, lives: Lives
) -> None:
    """However often a record is replaced, who looks meanwhile finds the old one or the new one."""
    registry.publish(own_window(own_socket), TOKEN)
    reader = Registry(place, life=lives)
    bad: list[object] = []

    def reading() -> None:
        for now_ms in range(300):
            listed = reader.scan(now_ms, fresh=True)
            if len(listed) != 1 or listed[0].fault is not None or reader.faults:
                bad.append((listed, reader.faults))

    thread = threading.Thread(target=reading)
    thread.start()
    number = 0
    while thread.is_alive():
        number += 1
        registry.update(own_window(own_socket, name=f"n{number}"))
    thread.join()
    assert bad == []
    reader.close()
