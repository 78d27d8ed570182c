"""Listing the windows of others, and what a sweep takes of them: proof only."""

import json
import os
import socket
from pathlib import Path

import pytest

from tests.unit.store.registry.conftest import (
    DOMAIN,
    OTHER,
    START,
    Lives,
    Seams,
    names,
    put,
    put_key,
    put_window,
)
from tieline.model.process import Life
from tieline.store.registry import Registry, key_name
from tieline.store.registry.others import KEYLESS_GRACE_MS


@pytest.mark.clause("pi-peers-2", "pi-peers-5", "pi-peers-11")
def test_windows_are_listed_in_order_with_life_and_key(place: Path, registry: Registry) -> None:
    """Every readable record is a window; one that is open to others in a private directory too."""
    put_window(place, 30)
    put_window(place, 4)
    listed = registry.scan(0)
    assert [(one.window.pid, one.life, one.has_key, one.fault) for one in listed] == [
        (4, Life.ALIVE, True, None),
        (30, Life.ALIVE, True, None),
    ]
    assert registry.faults == ()


@pytest.mark.clause("pi-peers-12", "pi-peers-16")
def test_window_of_dead_process_is_swept_with_its_key(place: Path, registry: Registry, lives: Lives) -> None:
    """What a crash left is taken away, and nothing else."""
    put_window(place)
    put_window(place, 4)
    lives.by_pid[OTHER] = Life.DEAD
    assert [one.window.pid for one in registry.scan(0)] == [4]
    assert names(place) == {"4.json", key_name(4, "/s/4.sock")}


@pytest.mark.clause("pi-peers-12", "pi-peers-16")
def test_window_of_dead_process_without_key_is_swept(place: Path, registry: Registry, lives: Lives) -> None:
    """A crash between the two files leaves the record alone."""
    put_window(place, key=False)
    lives.by_pid[OTHER] = Life.DEAD
    assert registry.scan(0) == ()
    assert names(place) == set()


@pytest.mark.clause("pi-peers-12")
def test_key_without_start_goes_with_the_record_that_names_its_address(
    place: Path, registry: Registry, lives: Lives
) -> None:
    """A key that says nothing of its process belongs to the record whose address it is named after."""
    path = put_window(place, key=False)
    put_key(place, OTHER, path)
    lives.by_pid[OTHER] = Life.DEAD
    registry.scan(0)
    assert names(place) == set()


@pytest.mark.clause("pi-peers-12", "pi-peers-U2")
def test_foreign_domain_is_listed_and_never_swept(place: Path, registry: Registry, lives: Lives) -> None:
    """Dead numbers, missing keys: of another container nothing is judged, and nothing goes."""
    put_window(place, pidDomain="linux:other:pid:[1]")
    put_window(place, 4, pidDomain="darwin", key=False)
    put(place, f"{OTHER}.aa.key", {"peerToken": "x"})
    lives.by_pid.update({OTHER: Life.DEAD, 4: Life.DEAD})
    before = names(place)
    for now_ms in range(0, 10 * KEYLESS_GRACE_MS, KEYLESS_GRACE_MS):
        listed = registry.scan(now_ms)
        assert [one.life for one in listed] == [Life.FOREIGN, Life.FOREIGN]
        assert not registry.sweep(listed[1])
    assert names(place) == before


@pytest.mark.clause("pi-peers-12")
def test_live_window_without_key_is_swept_at_a_later_look(place: Path, registry: Registry) -> None:
    """Nobody could ever speak to it; a writer that publishes its record first has a second for its key."""
    put_window(place, key=False)
    listed = registry.scan(0)
    assert [(one.has_key, one.fault) for one in listed] == [(False, "its key file is missing")]
    assert len(registry.scan(KEYLESS_GRACE_MS - 1)) == 1
    assert registry.scan(KEYLESS_GRACE_MS, fresh=True) == ()
    assert names(place) == set()


@pytest.mark.clause("pi-peers-8", "pi-peers-12")
def test_live_window_that_gets_its_key_or_is_written_anew_is_not_swept(
    place: Path, registry: Registry
) -> None:
    """A second look starts anew when the record did."""
    path = put_window(place, key=False)
    registry.scan(0)
    put_window(place, key=False, status="busy")
    assert len(registry.scan(KEYLESS_GRACE_MS)) == 1
    put_key(place, OTHER, path)
    assert registry.scan(3 * KEYLESS_GRACE_MS)[0].has_key


@pytest.mark.clause("pi-peers-12", "pi-peers-U1")
def test_window_of_unproved_process_is_never_swept_by_a_scan(
    place: Path, registry: Registry, lives: Lives
) -> None:
    """Another form of start is no proof, with or without a key."""
    put_window(place, procStart="Thu Jan  1 00:00:00 1970")
    put_window(place, 4, key=False, procStart="soon")
    lives.by_pid.update({OTHER: Life.UNPROVED, 4: Life.UNPROVED})
    before = names(place)
    for now_ms in range(0, 10 * KEYLESS_GRACE_MS, KEYLESS_GRACE_MS):
        assert {one.life for one in registry.scan(now_ms)} == {Life.UNPROVED}
    assert names(place) == before


@pytest.mark.clause("pi-peers-U1")
def test_window_that_refused_a_connection_is_swept_unless_it_is_known_to_live(
    place: Path, registry: Registry, lives: Lives
) -> None:
    """Whoever connected in vain has the proof that the record itself does not give."""
    put_window(place)
    listed = registry.scan(0)
    assert not registry.sweep(listed[0])
    lives.by_pid[OTHER] = Life.UNPROVED
    assert registry.sweep(registry.scan(0, fresh=True)[0])
    assert names(place) == set()
    assert registry.scan(0) == ()
    assert not registry.sweep(listed[0])


@pytest.mark.clause("pi-peers-U1")
def test_window_replaced_since_the_connection_was_refused_is_kept(
    place: Path, registry: Registry, lives: Lives
) -> None:
    """What was judged is what goes."""
    put_window(place)
    lives.by_pid[OTHER] = Life.UNPROVED
    listed = registry.scan(0)
    put_window(place, socketPath="/s/new.sock")
    assert not registry.sweep(listed[0])
    assert f"{OTHER}.json" in names(place)


@pytest.mark.clause("pi-peers-12")
def test_window_replaced_between_judgement_and_removal_survives(
    place: Path, registry: Registry, lives: Lives, seams: Seams
) -> None:
    """A process that got the dead one's number and published meanwhile is not cut off."""
    put_window(place)
    lives.by_start[START] = Life.DEAD
    seams.at["registry.sweep"] = lambda: put_window(place, procStart="900", socketPath="/s/new.sock")
    assert [one.window.process_start for one in registry.scan(0)] == [START]  # as it was when it was read
    assert {f"{OTHER}.json", key_name(OTHER, "/s/new.sock")} <= names(place)
    assert json.loads((place / f"{OTHER}.json").read_text())["procStart"] == "900"


@pytest.mark.clause("pi-peers-12")
def test_live_window_without_key_that_is_written_anew_at_the_last_moment_survives(
    place: Path, registry: Registry, seams: Seams
) -> None:
    """What is removed is what was judged, also while the same process still has no key."""
    put_window(place, key=False)
    registry.scan(0)
    seams.at["registry.sweep"] = lambda: put_window(place, key=False, status="busy")
    assert len(registry.scan(KEYLESS_GRACE_MS)) == 1
    assert json.loads((place / f"{OTHER}.json").read_text())["status"] == "busy"


@pytest.mark.clause("pi-peers-8", "pi-peers-12")
def test_key_of_the_next_process_survives_the_sweep_of_the_earlier_record(
    place: Path, registry: Registry, lives: Lives, seams: Seams
) -> None:
    """The new one's key lies there before its record does, under whatever address."""
    path = put_window(place)
    lives.by_start[START] = Life.DEAD

    def born() -> None:
        put_key(place, OTHER, path, procStart="900", pidDomain=DOMAIN)
        put_key(place, OTHER, "/s/new.sock", procStart="900", pidDomain=DOMAIN)

    seams.at["registry.sweep"] = born
    registry.scan(0)
    assert names(place) == {key_name(OTHER, path), key_name(OTHER, "/s/new.sock")}


@pytest.mark.clause("pi-peers-12")
def test_key_that_lies_alone_goes_when_its_own_process_is_dead(
    place: Path, registry: Registry, lives: Lives
) -> None:
    """A crash between key and record leaves a key; one that does not say whose it is stays."""
    put_key(place, OTHER, "/a", procStart=START, pidDomain=DOMAIN)
    put_key(place, OTHER, "/b", procStart="900", pidDomain=DOMAIN)
    put_key(place, OTHER, "/c", procStart=START, pidDomain="darwin")
    put_key(place, OTHER, "/d", procStart=START)
    put(place, f"{OTHER}.e.key", "{")
    lives.by_start[START] = Life.DEAD
    registry.scan(0)
    kept = {key_name(OTHER, path) for path in ("/b", "/c", "/d")}
    assert names(place) == kept | {f"{OTHER}.e.key"}


@pytest.mark.clause("pi-peers-12")
def test_sweep_that_is_killed_half_way_is_finished_by_the_next(
    place: Path, registry: Registry, lives: Lives, seams: Seams
) -> None:
    """Whatever a sweep leaves behind is what a later one takes."""
    put_window(place)
    lives.by_pid[OTHER] = Life.DEAD

    def killed() -> None:
        raise KeyboardInterrupt

    seams.at["files.removed"] = killed
    with pytest.raises(KeyboardInterrupt):
        registry.scan(0)
    assert len(names(place)) == 1
    registry.scan(0, fresh=True)
    assert names(place) == set()


@pytest.mark.clause("pi-peers-16")
def test_socket_of_dead_window_goes_only_under_a_name_that_does_not_recur(
    place: Path, registry: Registry, lives: Lives
) -> None:
    """A newborn may have bound the same plain name; nobody binds a random one a second time."""
    ours = registry.socket_directory / f"tieline-{'0' * 32}.sock"
    plain = registry.socket_directory / "5.sock"
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for one, path in zip(sockets, (ours, plain), strict=True):
        one.bind(str(path))
    put_window(place, 4, socketPath=str(ours))
    put_window(place, 5, socketPath=str(plain))
    lives.by_pid.update({4: Life.DEAD, 5: Life.DEAD})
    registry.scan(0)
    assert not ours.exists()
    assert plain.exists()
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ({"pid": 9, "socketPath": "/s"}, "pid"),
        ({"pid": OTHER}, "socketPath"),
        ("x" * 65_537, "larger"),
    ],
)
def test_bad_record_is_a_fault_and_stays(
    place: Path, registry: Registry, lives: Lives, contents: object, reason: str
) -> None:
    """The doctor shows it; whose it is cannot be proven, so it is nobody's to delete."""
    lives.by_pid[OTHER] = Life.DEAD
    put(place, f"{OTHER}.json", contents)
    put_window(place, 4)
    assert [one.window.pid for one in registry.scan(0)] == [4]
    assert [(one.file_name, reason in one.reason) for one in registry.faults] == [(f"{OTHER}.json", True)]
    assert registry.read_record(OTHER) is None
    assert f"{OTHER}.json" in names(place)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "second name"])
def test_record_that_is_no_plain_file_is_a_fault_and_holds_nobody(
    place: Path, registry: Registry, private_home: Path, kind: str
) -> None:
    """What stands there is neither followed nor waited for."""
    target = put(private_home, "elsewhere.json", {"pid": OTHER, "socketPath": "/s"})
    path = place / f"{OTHER}.json"
    if kind == "link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "directory":
        path.mkdir()
    else:
        path.hardlink_to(target)
    assert registry.scan(0) == ()
    assert [one.file_name for one in registry.faults] == [path.name]
    assert os.path.lexists(path)


@pytest.mark.clause("pi-peers-5")
def test_key_that_cannot_be_used_is_the_windows_fault_and_keeps_it_from_the_sweep(
    place: Path, registry: Registry
) -> None:
    """A key that is there is not missing: the window is listed as unusable, with the reason."""
    path = put_window(place)
    (place / key_name(OTHER, path)).chmod(0o644)
    for now_ms in (0, 2 * KEYLESS_GRACE_MS):
        (listed,) = registry.scan(now_ms)
        assert listed.has_key
        assert "open to others" in (listed.fault or "")
        assert [one.file_name for one in registry.faults] == [key_name(OTHER, path)]


def test_names_that_are_no_records_are_passed_over(place: Path, registry: Registry) -> None:
    """Unfinished files, other people's files and numbers that are none are not read."""
    for name in ("0.json", "01.json", "x.json", ".5.json", "5.json.tmp", "5.json~", "-5.json", "٥.json"):
        put(place, name, {"pid": 5, "socketPath": "/s"})
    before = names(place)
    assert registry.scan(0) == ()
    assert registry.faults == ()
    assert names(place) == before


def test_number_that_no_process_has_is_a_fault(place: Path, registry: Registry) -> None:
    """A number above every process id is told, and asked of nobody."""
    put(place, "9999999999.json", {"pid": 9_999_999_999, "socketPath": "/s"})
    assert registry.scan(0) == ()
    assert len(registry.faults) == 1
