"""Publishing, reading, and clearing away, with many records and bad ones."""

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tieline.errors import Refused, UsageError
from tieline.model.moment import to_iso
from tieline.store.presence import PresenceStore, Record

NOW_MS = 1_767_323_046_000
KEY = "MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w="
ALIVE, DEAD = 100, 200


def record_of(session: str, instance: str | None, *, pid: int = ALIVE, at_ms: int = NOW_MS) -> dict[str, Any]:
    """Return a record's members; None for the instance leaves the extension out."""
    members: dict[str, Any] = {
        "version": 1,
        "pid": pid,
        "sessionId": session,
        "workspaceRoot": "/w",
        "projectName": "w",
        "updatedAt": to_iso(at_ms),
    }
    if instance is not None:
        members["communication"] = {
            "protocol": 1,
            "instanceId": instance,
            "endpoint": f"/r/{instance}.sock",
            "publicKey": KEY,
            "capabilities": [],
        }
    return members


@pytest.fixture
def place(private_home: Path) -> Path:
    """Give the path of a private directory that exists."""
    path = private_home / "active-agents"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def store(place: Path) -> Iterator[PresenceStore]:
    """Give a reader for which only process 100 exists."""
    opened = PresenceStore(str(place), process_exists=lambda pid: pid == ALIVE)
    yield opened
    opened.close()


def put(place: Path, name: str, contents: dict[str, Any] | str, *, age_s: int = 0) -> Path:
    """Write a file as a foreign program does; its age counts from `NOW_MS`."""
    path = place / name
    path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    path.chmod(0o600)
    at = NOW_MS // 1000 - age_s
    os.utime(path, (at, at))
    return path


def sessions(records: list[Record]) -> list[str]:
    """Return whose records they are."""
    return [record.session for record in records]


@pytest.mark.clause("native-22", "native-25", "native-40")
def test_publish_makes_a_private_directory_and_file(private_home: Path) -> None:
    """The first publication makes directory and file, private, and a reader finds the record."""
    store = PresenceStore(str(private_home / "c" / "active-agents"))
    store.publish(record_of("s/1", "i-1", pid=os.getpid()), "s/1", "i-1")
    path = private_home / "c" / "active-agents" / "s_1.i-1.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    found = store.read_instance("i-1", NOW_MS)
    assert found is not None
    assert (found.session, found.freshness) == ("s/1", "fresh")
    store.close()


@pytest.mark.clause("native-23", "native-24")
def test_publish_and_withdraw_touch_only_the_own_record(place: Path) -> None:
    """Two instances of one session have a file each, and each removes only its own."""
    first, second = PresenceStore(str(place)), PresenceStore(str(place))
    first.publish(record_of("s", "i-1"), "s", "i-1")
    second.publish(record_of("s", "i-2"), "s", "i-2")
    assert sorted(os.listdir(place)) == ["s.i-1.json", "s.i-2.json"]
    assert first.withdraw() is True
    assert first.withdraw() is False
    assert os.listdir(place) == ["s.i-2.json"]
    first.close()
    second.close()


@pytest.mark.clause("native-24")
def test_withdraw_leaves_what_another_put_in_its_place(place: Path) -> None:
    """A file that is no longer the one we wrote is not ours to remove."""
    store = PresenceStore(str(place))
    store.publish(record_of("s", "i-1"), "s", "i-1")
    put(place, "new", record_of("s", "i-1")).rename(place / "s.i-1.json")
    assert store.withdraw() is False
    assert os.listdir(place) == ["s.i-1.json"]
    store.close()


def test_publish_under_another_session_removes_the_earlier_record(place: Path) -> None:
    """After a change of session one record is left, under the new name."""
    store = PresenceStore(str(place))
    store.publish(record_of("s1", "i-1"), "s1", "i-1")
    store.publish(record_of("s2", "i-1"), "s2", "i-1")
    assert os.listdir(place) == ["s2.i-1.json"]
    store.close()


@pytest.mark.clause("native-20")
@pytest.mark.parametrize("case", ["session", "instance", "extension", "base", "large"])
def test_publish_of_what_a_reader_would_refuse_is_a_usage_error(place: Path, case: str) -> None:
    """A record that others could not use is never written."""
    members = record_of("s", "i-1")
    if case == "extension":
        members["communication"]["publicKey"] = "x"
    elif case == "base":
        del members["updatedAt"]
    elif case == "large":
        members["projectName"] = "x" * 131_072
    store = PresenceStore(str(place))
    with pytest.raises(UsageError):
        store.publish(members, "other" if case == "session" else "s", "i-2" if case == "instance" else "i-1")
    assert os.listdir(place) == []


def test_scan_without_a_directory_is_empty_and_makes_none(private_home: Path) -> None:
    """A machine without agents has no records, and reading makes nothing."""
    store = PresenceStore(str(private_home / "none"))
    assert store.scan(NOW_MS) == []
    assert store.read_instance("i-1", NOW_MS) is None
    assert store.withdraw() is False
    assert not (private_home / "none").exists()


@pytest.mark.clause("S1", "K31")
def test_scan_of_an_unsafe_directory_is_refused(place: Path) -> None:
    """A directory open to others is refused, not read."""
    place.chmod(0o755)
    with pytest.raises(Refused):
        PresenceStore(str(place)).scan(NOW_MS)


@pytest.mark.clause("native-34", "native-35", "K9")
@pytest.mark.parametrize(
    ("pid", "age_ms", "freshness"),
    [
        (ALIVE, 0, "fresh"),
        (ALIVE, 15_000, "fresh"),
        (ALIVE, 15_001, "stale"),
        (ALIVE, -15_000, "fresh"),
        (ALIVE, -15_001, "stale"),
        (DEAD, 0, "ended"),
        (DEAD, 99_000, "ended"),
    ],
)
def test_scan_tells_fresh_stale_and_ended(
    place: Path, store: PresenceStore, pid: int, age_ms: int, freshness: str
) -> None:
    """Fresh is at most 15 s old with a process; a missing process is `ended`; all stay listed."""
    put(place, "s.i-1.json", record_of("s", "i-1", pid=pid, at_ms=NOW_MS - age_ms))
    for _ in range(2):
        assert [record.freshness for record in store.scan(NOW_MS)] == [freshness]
    assert os.listdir(place) == ["s.i-1.json"]


@pytest.mark.clause("native-34")
def test_scan_from_memory_grows_stale_with_time(place: Path, store: PresenceStore) -> None:
    """A record that is not read again still ages."""
    put(place, "s.i-1.json", record_of("s", "i-1"), age_s=10)
    seen = [store.scan(NOW_MS + later)[0].freshness for later in (0, 15_000, 15_001, 0)]
    assert seen == ["fresh", "fresh", "stale", "fresh"]


@pytest.mark.clause("native-21", "K31")
def test_scan_passes_over_bad_files_and_reports_old_ones(place: Path, store: PresenceStore) -> None:
    """One bad file costs no other; unreadable ones are reported once old, unsafe ones at once."""
    put(place, "good.i-1.json", record_of("good", "i-1"), age_s=60)
    put(place, "half.json", '{"version":1,', age_s=60)
    put(place, "young.json", '{"version":1,', age_s=3)
    put(place, "broad.json", record_of("broad", None)).chmod(0o644)
    (place / "link.json").symlink_to(place / "good.i-1.json")
    os.mkfifo(place / "pipe.json", 0o600)
    put(place, "large.json", '"' + "x" * 140_000 + '"', age_s=60)
    put(place, "notes.txt", "x")
    before = sorted(os.listdir(place))
    for _ in range(2):
        assert sessions(store.scan(NOW_MS)) == ["good"]
        faults = {fault.file_name for fault in store.faults}
        assert faults == {"half.json", "broad.json", "link.json", "pipe.json", "large.json"}
    assert sorted(os.listdir(place)) == before


def test_scan_keeps_the_newest_of_one_instance(place: Path, store: PresenceStore) -> None:
    """A copy of a record, or one of the session before, does not make a second peer."""
    put(place, "a.i-1.json", record_of("a", "i-1", at_ms=NOW_MS - 5_000))
    put(place, "b.i-1.json", record_of("b", "i-1", at_ms=NOW_MS))
    put(place, "c (copy).json", record_of("b", "i-1", at_ms=NOW_MS))
    put(place, "legacy.json", record_of("b", None))
    found = store.scan(NOW_MS)
    assert [record.file_name for record in found] == ["b.i-1.json", "legacy.json"]


@pytest.mark.clause("K31")
def test_scan_reads_only_what_changed(place: Path, store: PresenceStore) -> None:
    """A settled file is not opened again until it changes; a change and a removal are seen."""
    for number in range(20):
        put(place, f"s{number}.i-{number}.json", record_of(f"s{number}", f"i-{number}"), age_s=60)
    store.scan(NOW_MS)
    directory = store._directory
    assert directory is not None
    opened: list[str] = []
    real = directory.read_with_status

    class Spy:
        """The held directory, with a list of what is read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(directory, name)

        def read_with_status(self, name: str, bytes_max: int) -> Any:
            opened.append(name)
            return real(name, bytes_max)

    store._directory = Spy()  # type: ignore[assignment]
    assert len(store.scan(NOW_MS)) == 20
    assert opened == []
    put(place, "new", record_of("s3", "i-3", at_ms=NOW_MS - 1), age_s=60).rename(place / "s3.i-3.json")
    (place / "s4.i-4.json").unlink()
    found = store.scan(NOW_MS)
    assert opened == ["s3.i-3.json"]
    assert len(found) == 19
    assert [record.updated_ms for record in found if record.session == "s3"] == [NOW_MS - 1]


def test_scan_reads_again_what_was_young_when_read(place: Path, store: PresenceStore) -> None:
    """A file rewritten in place within the clock's grain is not taken for unchanged."""
    path = put(place, "s.i-1.json", record_of("s", "i-1"))
    assert sessions(store.scan(NOW_MS)) == ["s"]
    path.write_text(json.dumps(record_of("t", "i-1")))
    os.utime(path, (NOW_MS // 1000, NOW_MS // 1000))
    assert sessions(store.scan(NOW_MS)) == ["t"]


@pytest.mark.clause("native-27", "native-29")
def test_read_instance_reads_its_file_anew(place: Path, store: PresenceStore) -> None:
    """An exact instance is read fresh, from the file that held it before or from a new one."""
    put(place, "s.i-1.json", record_of("s", "i-1"), age_s=60)
    put(place, "s.i-11.json", record_of("s", "i-11"), age_s=60)
    store.scan(NOW_MS)
    put(place, "s.i-1.json", record_of("s", "i-1", at_ms=NOW_MS - 1), age_s=60)
    found = store.read_instance("i-1", NOW_MS)
    assert found is not None
    assert found.updated_ms == NOW_MS - 1
    (place / "s.i-1.json").rename(place / "moved.i-1.json")
    put(place, "moved.i-1.json", record_of("moved", "i-1"), age_s=60)
    found = store.read_instance("i-1", NOW_MS)
    assert found is not None
    assert found.session == "moved"
    (place / "moved.i-1.json").unlink()
    assert store.read_instance("i-1", NOW_MS) is None


@pytest.mark.clause("native-57", "native-16")
def test_read_instance_never_gives_another_instance(place: Path, store: PresenceStore) -> None:
    """A file under the name of one instance that states another gives nothing."""
    put(place, "s.i-1.json", record_of("s", "i-2"), age_s=60)
    put(place, "t.i-3.json", record_of("t", None), age_s=60)
    assert store.read_instance("i-1", NOW_MS) is None
    assert store.read_instance("i-3", NOW_MS) is None


@pytest.mark.clause("O29")
def test_directory_exchanged_meanwhile_is_found_again(place: Path, store: PresenceStore) -> None:
    """A reader that holds a removed directory reads the one that took its place."""
    put(place, "s.i-1.json", record_of("s", "i-1"))
    assert sessions(store.scan(NOW_MS)) == ["s"]
    place.rename(place.with_name("old"))
    assert store.scan(NOW_MS) == []
    place.mkdir(mode=0o700)
    put(place, "t.i-2.json", record_of("t", "i-2"))
    assert sessions(store.scan(NOW_MS)) == ["t"]


@pytest.mark.clause("K31", "native-35", "mutant-15")
def test_prune_removes_only_what_is_proven_dead(place: Path, store: PresenceStore) -> None:
    """A record goes when its owner is proven gone; age and a missing process prove nothing."""
    for name in ("gone", "unknown", "alive"):
        put(place, f"s.{name}.json", record_of(name, name, pid=DEAD, at_ms=0), age_s=60)
    put(place, "fresh.json", record_of("fresh", "gone-but-fresh"), age_s=60)
    put(place, "legacy.json", record_of("legacy", None, pid=DEAD, at_ms=0), age_s=60)
    put(place, "half.json", "{", age_s=9_999)
    states = {"gone": "gone", "alive": "alive", "gone-but-fresh": "gone"}
    removed = store.prune(lambda instance: states.get(instance, "unknown"), NOW_MS)
    assert removed == ["s.gone.json"]
    assert sorted(os.listdir(place)) == [
        "fresh.json",
        "half.json",
        "legacy.json",
        "s.alive.json",
        "s.unknown.json",
    ]


@pytest.mark.clause("O35", "K31")
def test_prune_leaves_a_record_exchanged_after_it_was_judged(place: Path, store: PresenceStore) -> None:
    """A record that a live instance put in place of the judged one stays."""
    put(place, "s.i-1.json", record_of("s", "i-1", pid=DEAD), age_s=60)

    def judge(instance: str) -> str:
        put(place, "new", record_of("s", "i-1")).rename(place / "s.i-1.json")
        return "gone"

    assert store.prune(judge, NOW_MS) == []
    assert os.listdir(place) == ["s.i-1.json"]


@pytest.mark.clause("K31")
def test_scan_is_bounded(place: Path, store: PresenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than the bound are not read, and the doctor is told."""
    monkeypatch.setattr("tieline.store.presence.store.RECORDS_MAX", 3)
    for number in range(5):
        put(place, f"s{number}.json", record_of(f"s{number}", None))
    assert len(store.scan(NOW_MS)) == 3
    assert "only the first 3" in store.faults[0].text


@pytest.mark.clause("K31")
def test_scan_of_ten_thousand_records_is_whole_and_cheap_once_they_are_known(
    place: Path, store: PresenceStore
) -> None:
    """Ten thousand stale records are read once; a look after that takes 200 ms at most and deletes none."""
    for number in range(10_000):
        put(
            place, f"s{number}.i-{number}.json", record_of(f"s{number}", f"i-{number}", pid=DEAD), age_s=3_600
        )
    put(place, "mine.i-x.json", record_of("mine", "i-x"), age_s=60)
    assert len(store.scan(NOW_MS)) == 10_001
    spent = []
    for _ in range(5):
        begun = time.process_time()
        found = store.scan(NOW_MS)
        spent.append(time.process_time() - begun)
    assert [record.session for record in found if record.freshness == "fresh"] == ["mine"]
    assert min(spent) <= 0.2
    assert len(os.listdir(place)) == 10_001


def test_process_exists_says_yes_where_it_may_not_signal() -> None:
    """A process of another user exists; a number that nobody has does not."""
    from tieline.store.presence.store import _process_exists

    assert os.geteuid() != 0
    assert _process_exists(1)
    assert _process_exists(os.getpid())
    assert not _process_exists(2**31 - 1)


@pytest.mark.clause("K29")
def test_child_does_not_withdraw_its_parents_record(place: Path) -> None:
    """A forked child that closes down leaves the record of its parent."""
    store = PresenceStore(str(place))
    store.publish(record_of("s", "i-1"), "s", "i-1")
    child = os.fork()
    if child == 0:
        os._exit(int(store.withdraw()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.listdir(place) == ["s.i-1.json"]
    store.close()


def test_file_young_when_it_was_read_is_not_taken_for_unchanged(place: Path) -> None:
    """Equal status proves nothing within the clock's grain, everything after it."""
    from tieline.store.presence.store import _Known

    status = put(place, "s.json", record_of("s", None)).stat()
    numbers = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    assert _Known(*numbers, is_settled=True, record=None, fault="").is_of(status)
    assert not _Known(*numbers, is_settled=False, record=None, fault="").is_of(status)
    for position in range(4):
        other = tuple(number + (at == position) for at, number in enumerate(numbers))
        assert not _Known(*other, is_settled=True, record=None, fault="").is_of(status)
