"""Show that resources are changed under locks, kept whole, and never forgotten."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tieline.errors import RecoveryRequired, Refused
from tieline.model.process import ProcessIdentity
from tieline.model.resource import (
    Claimant,
    Document,
    Launch,
    Ledger,
    ResourceKey,
    key_digest,
)
from tieline.store.files import Lock
from tieline.store.resources import Damage, ResourceStore
from tieline.store.resources import store as store_module

KEY = ResourceKey("machine/tests")
OTHER = ResourceKey("machine/web")
OWNER = ProcessIdentity("b", 1, 2, 3, None, "linux")
LAUNCH = Launch("l", "n", "d", "sh", "w", Claimant("p", "i", "a", OWNER), 1, "b")


@pytest.fixture
def home(private_home: Path) -> Path:
    return private_home / "h"


@pytest.fixture
def store(home: Path) -> Iterator[ResourceStore]:
    one = ResourceStore(str(home))
    yield one
    one.close()


def files(home: Path) -> dict[str, bytes]:
    """Return every record there, without the locks."""
    folder = home / "peer-resources"
    return {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".json", ".mark")
    }


def raised(document: Document, **fields: object) -> Document:
    return msgspec.structs.replace(document, **{"fence": document.fence + 1, **fields})  # type: ignore[arg-type]


def raise_fence(store: ResourceStore, key: ResourceKey = KEY) -> Document:
    """Store the resource with the next fence, and return it."""
    with store.transaction([key]) as held:
        held.commit({key: raised(held.documents[key])})
        return held.documents[key]


def path_of(home: Path, key: ResourceKey = KEY, suffix: str = "json") -> Path:
    return home / "peer-resources" / f"{key_digest(key)}.{suffix}"


# Reading and writing


def test_reading_creates_nothing(home: Path, store: ResourceStore) -> None:
    """Whoever only looks leaves no file behind."""
    assert store.read(KEY) == Document(KEY)
    assert store.read_ledger() == Ledger()
    assert store.keys() == ()
    assert not home.exists()


@pytest.mark.clause("native-177", "native-178", "native-179")
def test_commit_stores_documents_marks_index_and_ledger_privately(home: Path, store: ResourceStore) -> None:
    """One document per resource, the ledger and the index are private files of one directory."""
    with store.transaction([KEY, OTHER], ledger=True) as held:
        assert held.ledger == Ledger()
        documents = {key: raised(document) for key, document in held.documents.items()}
        held.commit(documents, Ledger(launches=(LAUNCH,)))
        assert held.documents[KEY].revision == 1
        assert held.ledger == Ledger(1, (LAUNCH,))
    again = ResourceStore(str(home))
    assert again.read(KEY) == Document(KEY, revision=1, fence=1)
    assert again.read_ledger() == Ledger(1, (LAUNCH,))
    assert again.keys() == (KEY, OTHER)
    assert {path_of(home).name, "launches.json", "index.json"} <= files(home).keys()
    for path in (home / "peer-resources").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    again.close()


def test_commit_of_what_did_not_change_writes_nothing(home: Path, store: ResourceStore) -> None:
    """A turn without a change costs no write."""
    raise_fence(store)
    before = {name: path_of(home).stat().st_ino for name in files(home)}
    with store.transaction([KEY], ledger=True) as held:
        held.commit(held.documents, held.ledger)
        held.commit({})
    assert {name: path_of(home).stat().st_ino for name in files(home)} == before
    assert store.read(KEY).revision == 1


def test_commit_twice_in_one_transaction_counts_twice(store: ResourceStore) -> None:
    """A transaction may store, look, and store again."""
    with store.transaction([KEY]) as held:
        held.commit({KEY: raised(held.documents[KEY])})
        held.commit({KEY: raised(held.documents[KEY])})
    assert (store.read(KEY).revision, store.read(KEY).fence) == (2, 2)


def test_commit_after_the_locks_are_freed_is_a_defect(store: ResourceStore) -> None:
    """Nothing is stored by whoever holds no lock any more."""
    with store.transaction([KEY]) as held:
        pass
    with pytest.raises(AssertionError):
        held.commit({KEY: raised(held.documents[KEY])})
    assert store.read(KEY) == Document(KEY)


@pytest.mark.clause("mutant-29", "O39")
def test_decision_on_an_older_reading_is_not_stored(store: ResourceStore) -> None:
    """A grant decided before the lock was taken is refused, and the stored one stands."""
    raise_fence(store)
    early = store.read(KEY)
    raise_fence(store)
    with store.transaction([KEY]) as held, pytest.raises(Refused) as caught:
        held.commit({KEY: raised(early)})
    assert (caught.value.code, caught.value.is_retryable) == ("RESOURCE_BUSY", True)
    assert store.read(KEY).fence == 2
    with store.transaction([KEY], ledger=True) as held:
        held.commit({}, Ledger(launches=(LAUNCH,)))
        with pytest.raises(Refused, match="older reading"):
            held.commit({}, Ledger())


def test_file_changed_by_a_writer_without_locks_is_not_overwritten(home: Path, store: ResourceStore) -> None:
    """What appeared under the lock is noticed before anything is stored over it."""
    raise_fence(store)
    with store.transaction([KEY]) as held:
        document = held.documents[KEY]
        path_of(home).write_bytes(
            store_module.encode(msgspec.structs.replace(document, revision=9, enrolment=("x",)))
        )
        with pytest.raises(Refused, match="outside its lock"):
            held.commit({KEY: raised(document)})
    assert store.read(KEY).revision == 9


@pytest.mark.clause("I38", "mutant-19")
def test_number_that_would_shrink_is_a_defect(store: ResourceStore) -> None:
    """No decision takes an epoch or a fence back."""
    with store.transaction([KEY]) as held:
        held.commit({KEY: raised(held.documents[KEY], epoch=3)})
    with store.transaction([KEY]) as held, pytest.raises(AssertionError):
        held.commit({KEY: msgspec.structs.replace(held.documents[KEY], epoch=2)})
    assert store.read(KEY).epoch == 3


# Locks


def test_lock_held_by_another_is_busy_after_the_wait(home: Path, store: ResourceStore) -> None:
    """Two transactions on one resource do not overlap; the later one is told to try again."""
    raise_fence(store)
    raise_fence(store, OTHER)
    quick = ResourceStore(str(home), lock_wait_ms=20)
    with store.transaction([KEY]):
        with pytest.raises(Refused) as caught, quick.transaction([KEY]):
            raise AssertionError("two hold one lock")
        assert (caught.value.code, caught.value.is_retryable) == ("RESOURCE_BUSY", True)
        with quick.transaction([OTHER]):  # another resource waits for nobody
            assert quick.read(KEY).fence == 1  # and a look needs no lock
    with quick.transaction([KEY]):
        assert quick.read(KEY).fence == 1
    quick.close()


def test_locks_are_taken_in_one_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The namespace comes first, then the resources by their keys, however they were named."""
    taken: list[str] = []
    one = ResourceStore(str(home))
    with one.transaction([KEY, OTHER], ledger=True):
        pass

    lock = store_module.Directory.lock

    def watched(self: store_module.Directory, name: str, wait_ms: int) -> Lock:
        taken.append(name)
        return lock(self, name, wait_ms)

    monkeypatch.setattr(store_module.Directory, "lock", watched)
    with one.transaction([OTHER, KEY, OTHER], ledger=True):
        pass
    assert taken == ["namespace.lock", f"{key_digest(KEY)}.lock", f"{key_digest(OTHER)}.lock"]
    one.close()


def test_lock_files_are_never_replaced(home: Path, store: ResourceStore) -> None:
    """The file of a lock is the same one for ever."""
    raise_fence(store)
    folder = home / "peer-resources"
    before = {path.name: path.stat().st_ino for path in folder.glob("*.lock")}
    for _ in range(3):
        raise_fence(store)
    assert {path.name: path.stat().st_ino for path in folder.glob("*.lock")} == before
    assert len(before) == 2


@pytest.mark.clause("native-187", "I38", "O39")
def test_threads_raising_one_fence_lose_no_number(home: Path) -> None:
    """Of many writers each gets a number of its own."""
    seen: list[int] = []

    def work() -> None:
        one = ResourceStore(str(home), lock_wait_ms=20_000)
        seen.extend(raise_fence(one).fence for _ in range(5))
        one.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 21))


# What is lost, damaged or older


@pytest.mark.clause("native-180", "native-181", "native-196", "native-216", "I34", "I37", "I38", "I50")
@pytest.mark.parametrize("suffix", ["json", "mark"])
def test_lost_file_is_recovery_required_and_nothing_starts_at_zero(home: Path, suffix: str) -> None:
    """A resource whose file was deleted is not free: it is unknown, for every process."""
    one = ResourceStore(str(home))
    raise_fence(one)
    path_of(home, suffix=suffix).unlink()
    before = files(home)
    for reader in (one, ResourceStore(str(home))):
        with pytest.raises(RecoveryRequired, match="missing"):
            reader.read(KEY)
        with pytest.raises(RecoveryRequired, match="missing"), reader.transaction([KEY]):
            raise AssertionError("a lost resource was opened")
        reader.close()
    assert files(home) == before


@pytest.mark.clause("native-180", "native-181", "I50")
def test_damaged_file_is_recovery_required_and_keeps_its_bytes(home: Path, store: ResourceStore) -> None:
    """No byte of a damaged record is touched, and other resources go on."""
    raise_fence(store)
    raise_fence(store, OTHER)
    path_of(home).write_bytes(b'{"marker":"tieline-resource"')
    before = files(home)
    with pytest.raises(RecoveryRequired), store.transaction([KEY]):
        raise AssertionError("a damaged resource was opened")
    assert files(home) == before
    assert raise_fence(store, OTHER).fence == 2


@pytest.mark.clause("I38", "mutant-19")
def test_older_copy_of_a_document_is_recovery_required(home: Path) -> None:
    """A restored backup is noticed, so no fence and no epoch is given twice."""
    one = ResourceStore(str(home))
    raise_fence(one)
    copy = path_of(home).read_bytes()
    raise_fence(one)
    path_of(home).write_bytes(copy)
    for reader in (one, ResourceStore(str(home))):
        with pytest.raises(RecoveryRequired, match="older"), reader.transaction([KEY]):
            raise AssertionError("an older copy was opened")
        reader.close()


@pytest.mark.clause("I38")
def test_older_copy_with_its_mark_is_noticed_by_who_saw_the_newer(home: Path) -> None:
    """A process that knew more does not go back with the files."""
    one = ResourceStore(str(home))
    raise_fence(one)
    copies = {path: path.read_bytes() for path in (path_of(home), path_of(home, suffix="mark"))}
    raise_fence(one)
    for path, data in copies.items():
        path.write_bytes(data)
    with pytest.raises(RecoveryRequired, match="older"):
        one.read(KEY)
    one.close()


@pytest.mark.clause("native-180", "I38")
def test_ledger_that_is_lost_or_older_is_recovery_required(home: Path) -> None:
    """A ledger that forgot commands is not believed."""
    one = ResourceStore(str(home))
    path = home / "peer-resources" / "launches.json"
    for launches in ((LAUNCH,), ()):
        with one.transaction([], ledger=True) as held:
            held.commit({}, msgspec.structs.replace(held.ledger, launches=launches))  # type: ignore[type-var]
        if launches:
            copy = path.read_bytes()
    path.write_bytes(copy)
    for reader in (one, ResourceStore(str(home))):
        with pytest.raises(RecoveryRequired, match="older"):
            reader.read_ledger()
    path.unlink()
    for reader in (one, ResourceStore(str(home))):
        with pytest.raises(RecoveryRequired, match="missing"):
            reader.read_ledger()
        reader.close()


@pytest.mark.clause("I38", "native-196")
def test_index_that_is_lost_or_older_is_recovery_required(home: Path) -> None:
    """Without the index nobody can tell what is missing, so nothing is begun anew."""
    one = ResourceStore(str(home))
    raise_fence(one)
    path = home / "peer-resources" / "index.json"
    copy = path.read_bytes()
    raise_fence(one, OTHER)
    path.write_bytes(copy)
    with pytest.raises(RecoveryRequired, match="older"):
        one.keys()
    path.unlink()
    for reader in (one, ResourceStore(str(home))):
        with pytest.raises(RecoveryRequired):
            reader.keys()
        reader.close()


def test_index_that_was_never_followed_by_a_resource_may_be_made_again(home: Path) -> None:
    """An empty directory of ours has nothing to lose."""
    one = ResourceStore(str(home))
    with one.transaction([]):
        pass
    (home / "peer-resources" / "index.json").unlink()
    assert one.keys() == ()
    one.close()


@pytest.mark.clause("native-196")
def test_directory_removed_while_in_use_is_recovery_required(home: Path) -> None:
    """Deleting everything frees nothing for whoever knew what was there."""
    one = ResourceStore(str(home))
    raise_fence(one)
    for path in (home / "peer-resources").iterdir():
        path.unlink()
    (home / "peer-resources").rmdir()
    with pytest.raises(RecoveryRequired, match="removed"):
        one.read(KEY)
    (home / "peer-resources").mkdir(mode=0o700)
    with pytest.raises(RecoveryRequired):
        one.read(KEY)
    one.close()


def test_directory_removed_before_the_commit_is_recovery_required(home: Path, store: ResourceStore) -> None:
    """A decision is not stored into nowhere."""
    with store.transaction([KEY]) as held:
        for path in (home / "peer-resources").iterdir():
            path.unlink()
        (home / "peer-resources").rmdir()
        with pytest.raises(RecoveryRequired, match="removed"):
            held.commit({KEY: raised(held.documents[KEY])})


def test_file_of_another_resource_is_recovery_required(home: Path, store: ResourceStore) -> None:
    """A record under another key's name is not that key's."""
    raise_fence(store)
    raise_fence(store, OTHER)
    path_of(home, OTHER).write_bytes(path_of(home).read_bytes())
    with pytest.raises(RecoveryRequired, match="another resource"):
        store.read(OTHER)


# Whose directory it is


@pytest.mark.parametrize("name", ["launches.json", "index.json", key_digest(KEY) + ".json"])
def test_directory_of_another_program_is_refused_and_not_written(home: Path, name: str) -> None:
    """Files without our marker are somebody else's: nothing is added to them."""
    folder = home / "peer-resources"
    folder.mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (folder / name).write_bytes(b'{"version":1,"tickets":[]}')
    (folder / name).chmod(0o600)
    one = ResourceStore(str(home))
    with pytest.raises(Refused, match="another program") as caught:
        one.read(KEY)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    with pytest.raises(Refused, match="another program"), one.transaction([KEY]):
        raise AssertionError("a foreign directory was opened")
    assert [path.name for path in folder.iterdir()] == [name]


@pytest.mark.clause("K20")
def test_directory_open_to_others_is_refused(home: Path, store: ResourceStore) -> None:
    """What others could write is not trusted."""
    (home / "peer-resources").mkdir(parents=True)
    home.chmod(0o700)
    (home / "peer-resources").chmod(0o755)
    with pytest.raises(Refused, match="open to others"):
        store.read(KEY)


def test_network_file_system_is_refused(
    home: Path, store: ResourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a lock does not reach everybody, nothing is coordinated."""
    monkeypatch.setattr("tieline.store.files.checks.file_system_kind", lambda path: "nfs4")
    with pytest.raises(Refused, match="nfs4"), store.transaction([KEY]):
        raise AssertionError("a lock was believed")


# Bounds


def test_document_past_its_size_is_refused_before_anything_is_written(
    home: Path, store: ResourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two documents, one too large, neither is stored."""
    raise_fence(store)
    raise_fence(store, OTHER)
    before = files(home)
    monkeypatch.setattr(store_module, "FILE_BYTES_MAX", 2_000)
    with store.transaction([KEY, OTHER]) as held:
        large = raised(held.documents[OTHER], enrolment=("x" * 2_000,))
        both = {KEY: raised(held.documents[KEY]), OTHER: large}
        with pytest.raises(Refused) as caught:
            held.commit(both)
    assert caught.value.code == "QUEUE_FULL"
    assert files(home) == before


def test_resource_past_their_number_is_refused(store: ResourceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next resource is refused; nothing is deleted to make room, and those there go on."""
    raise_fence(store)
    monkeypatch.setattr(store_module, "RESOURCES_MAX", 1)
    with pytest.raises(Refused) as caught:
        raise_fence(store, OTHER)
    assert caught.value.code == "QUEUE_FULL"
    assert raise_fence(store).fence == 2


# Damage, and what ends it


def unchanged(_damage: Damage, ledger: Ledger) -> Ledger:
    return ledger


@pytest.mark.clause("native-180", "native-181", "native-196", "I38")
def test_mended_record_goes_on_above_and_keeps_the_damaged_bytes(home: Path, store: ResourceStore) -> None:
    """What stood there is beside, whole; no fence comes again; every other process goes on."""
    for _ in range(3):
        raise_fence(store)
    path_of(home).write_bytes(b"garbled")
    damage = store.damage(KEY)
    assert damage is not None
    assert store.damages() == (damage,)
    document = store.mend(KEY, damage.record_id, "you: looked", 5, unchanged)
    assert (document.fence, document.events[-1].note) == (3, "you: looked")
    kept = list((home / "peer-resources").glob(f"{key_digest(KEY)}.json.*.kept"))
    assert [path.read_bytes() for path in kept] == [b"garbled"]
    fresh = ResourceStore(str(home))
    assert raise_fence(fresh).fence == 4
    assert fresh.damages() == ()
    fresh.close()


@pytest.mark.clause("I38")
def test_mended_record_whose_every_number_is_lost_goes_on_above_the_clock(home: Path) -> None:
    """Record, mark and witness gone: the next fence is one that no count of grants has reached."""
    one = ResourceStore(str(home))
    raise_fence(one)
    one.close()
    path_of(home).write_bytes(b"{")
    path_of(home, suffix="mark").write_bytes(b"{")
    (home / "resource-witness" / f"{key_digest(KEY)}.json").unlink()
    fresh = ResourceStore(str(home))
    damage = fresh.damage(KEY)
    assert damage is not None
    assert fresh.mend(KEY, damage.record_id, "n", 1_700_000_000_000, unchanged).fence == 1_700_000_000_000
    assert raise_fence(fresh).fence == 1_700_000_000_001
    fresh.close()


def test_mend_of_a_whole_or_another_record_is_refused(home: Path, store: ResourceStore) -> None:
    """Who answered for one damage has answered for that one only; a whole record is never replaced."""
    raise_fence(store)
    with pytest.raises(Refused, match="whole"):
        store.mend(KEY, "x", "n", 5, unchanged)
    path_of(home).write_bytes(b"garbled")
    damage = store.damage(KEY)
    assert damage is not None
    path_of(home).write_bytes(b"garbled otherwise")
    before = files(home)
    with pytest.raises(Refused, match="not the one that was looked at"):
        store.mend(KEY, damage.record_id, "n", 5, unchanged)
    assert files(home) == before


def test_mend_refused_by_who_looked_at_the_commands_changes_nothing(home: Path, store: ResourceStore) -> None:
    """A command that is seen alive under the locks keeps the damaged record as it is."""

    def refusing(_damage: Damage, _ledger: Ledger) -> Ledger:
        raise Refused("RESOURCE_BUSY", "it lives")

    raise_fence(store)
    path_of(home).write_bytes(b"garbled")
    damage = store.damage(KEY)
    assert damage is not None
    with pytest.raises(Refused, match="it lives"):
        store.mend(KEY, damage.record_id, "n", 5, refusing)
    assert path_of(home).read_bytes() == b"garbled"


@pytest.mark.clause("native-180")
def test_index_is_rebuilt_from_records_and_witnesses(home: Path, store: ResourceStore) -> None:
    """A garbled index is made again, its bytes kept, and nothing else is changed."""
    raise_fence(store)
    raise_fence(store, OTHER)
    path_of(home, OTHER).unlink()
    path = home / "peer-resources" / "index.json"
    path.write_bytes(b"garbled")
    assert store.rebuild_index().resources == (KEY, OTHER)
    assert [one.read_bytes() for one in path.parent.glob("index.json.*.kept")] == [b"garbled"]
    assert store.read(KEY).fence == 1
    with pytest.raises(RecoveryRequired, match="missing"):
        store.read(OTHER)
    with pytest.raises(Refused, match="whole"):
        store.rebuild_index()


@pytest.mark.clause("native-180", "native-189")
def test_ledger_is_rebuilt_from_all_that_names_a_command(home: Path, store: ResourceStore) -> None:
    """A garbled ledger is made again with what its witnesses know, and goes on above its revision."""
    launch = msgspec.structs.replace(LAUNCH, resources=((KEY, 1),))
    with store.transaction([KEY], ledger=True) as held:
        held.commit({KEY: raised(held.documents[KEY])}, Ledger(launches=(launch,)))
    path = home / "peer-resources" / "launches.json"
    path.write_bytes(b"garbled")
    store.rebuild_ledger()
    assert store.read_ledger() == Ledger(2, (launch,))
    assert [one.read_bytes() for one in path.parent.glob("launches.json.*.kept")] == [b"garbled"]
    with pytest.raises(Refused, match="whole"):
        store.rebuild_ledger()


def test_process_that_knew_a_removed_directory_goes_on_once_it_is_rebuilt(home: Path) -> None:
    """The advice that the one who saw it gets is what ends it."""
    one = ResourceStore(str(home))
    raise_fence(one)
    for path in (home / "peer-resources").iterdir():
        path.unlink()
    (home / "peer-resources").rmdir()
    with pytest.raises(RecoveryRequired) as caught:
        one.keys()
    assert "recover index" in caught.value.action
    other = ResourceStore(str(home))
    other.rebuild_index()
    damage = other.damage(KEY)
    assert damage is not None
    other.mend(KEY, damage.record_id, "n", 5, unchanged)
    other.close()
    assert raise_fence(one).fence == 2
    one.close()


# A crash at any instant


class _Crash(BaseException):
    """The process ends here."""


def crash_after(effect_count: int) -> Callable[[str], None]:
    """Return a seam that ends the process after so many effects; taking a lock leaves nothing behind."""
    left = effect_count

    def seam(name: str) -> None:
        nonlocal left
        if name in ("files.locked", "files.lock_opened", "files.unlocked"):
            return
        if left == 0:
            raise _Crash
        left -= 1

    return seam


@pytest.mark.clause("I32", "I38", "I50", "O44")
def test_crash_at_every_seam_leaves_what_can_be_opened_and_gives_no_number_twice(home: Path) -> None:
    """Wherever a process ends, the next one finds old or new, and no fence that was told is given again."""
    told = 0
    for index in range(200):
        dying = ResourceStore(str(home), seam=crash_after(index))
        is_dead = False
        try:
            told = raise_fence(dying).fence
        except _Crash:
            is_dead = True
        dying.close()
        fresh = ResourceStore(str(home))
        after = raise_fence(fresh).fence
        assert after > told
        told = after
        fresh.close()
        if not is_dead:
            return
    raise AssertionError("the last seam was never reached")


@pytest.mark.clause("native-190", "I32", "O43")
def test_crash_between_document_and_ledger_leaves_the_document_first(home: Path) -> None:
    """The ledger is written last: without its record no command was started."""
    outcomes: set[tuple[int, int]] = set()
    for index in range(100):
        folder = Path(f"{home}-{index}")
        dying = ResourceStore(str(folder), seam=crash_after(index))
        is_dead = False
        try:
            with dying.transaction([KEY], ledger=True) as held:
                held.commit({KEY: raised(held.documents[KEY])}, Ledger(launches=(LAUNCH,)))
        except _Crash:
            is_dead = True
        dying.close()
        fresh = ResourceStore(str(folder))
        outcomes.add((fresh.read(KEY).fence, len(fresh.read_ledger().launches)))
        fresh.close()
        if not is_dead:
            break
    assert outcomes == {(0, 0), (1, 0), (1, 1)}


@pytest.mark.clause("I32", "I38", "I50")
def test_crash_at_every_seam_of_a_repair_can_be_repaired_again(home: Path) -> None:
    """Wherever a repair ends, its damaged bytes are there or kept, and the next one ends it."""
    for index in range(200):
        folder = Path(f"{home}-{index}")
        first = ResourceStore(str(folder))
        raise_fence(first)
        first.close()
        path_of(folder).write_bytes(b"garbled")
        (folder / "peer-resources" / "index.json").write_bytes(b"lost")
        dying = ResourceStore(str(folder), seam=crash_after(index))
        is_dead = False
        try:
            repair(dying)
        except _Crash:
            is_dead = True
        dying.close()
        fresh = ResourceStore(str(folder))
        repair(fresh)
        assert raise_fence(fresh).fence == 2
        fresh.close()
        left = {path.read_bytes() for path in (folder / "peer-resources").iterdir()}
        assert left >= {b"garbled", b"lost"}
        if not is_dead:
            return
    raise AssertionError("the last seam was never reached")


def repair(store: ResourceStore) -> None:
    """Do what is advised until nothing is damaged."""
    try:
        store.keys()
    except RecoveryRequired:
        store.rebuild_index()
    for damage in store.damages():
        store.mend(damage.resource, damage.record_id, "n", 5, unchanged)


@pytest.mark.clause("I32", "I38", "I50", "O44")
def test_kill_at_every_seam_with_what_was_unsynced_torn_leaves_what_can_be_opened(home: Path) -> None:
    """A process killed with -9 at any write seam, its unfinished files cut in half, loses no number."""
    told = 0
    for index in range(200):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            left = [index]

            def seam(name: str, left: list[int] = left) -> None:
                if not name.startswith("files.lock") and name != "files.unlocked":
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1

            store = ResourceStore(str(home), seam=seam)
            with store.transaction([KEY], ledger=True) as held:
                assert held.ledger is not None
                after = raised(held.documents[KEY])
                held.commit({KEY: after}, Ledger(held.ledger.revision, (LAUNCH,)))
            os.write(writing, str(after.fence).encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(pid, 0)
        said = os.read(reading, 20)
        os.close(reading)
        for unfinished in home.glob("*/.tieline-*.tmp"):
            os.truncate(unfinished, unfinished.stat().st_size // 2)
        fresh = ResourceStore(str(home))
        assert fresh.damages() == ()
        fresh.read_ledger()
        fence = raise_fence(fresh).fence
        fresh.close()
        assert fence > max(told, int(said or 0))
        told = fence
        if said:
            assert index > 20, "fewer seams than a commit has writes"
            return
    raise AssertionError("the last seam was never reached")


def test_failure_after_the_first_file_is_in_doubt(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was stored in part is not told as refused."""
    one = ResourceStore(str(home))
    raise_fence(one)
    directory = one._directory
    assert directory is not None
    written: list[str] = []
    write = type(directory).write_atomic
    failing_at = 1

    def failing(self: store_module.Directory, name: str, data: bytes, *, sync: bool) -> int:
        written.append(name)
        if len(written) == failing_at:
            raise Refused("QUEUE_FULL", "no space", is_retryable=True)
        return write(self, name, data, sync=sync)

    monkeypatch.setattr(type(directory), "write_atomic", failing)
    with pytest.raises(Refused):
        raise_fence(one)
    written.clear()
    failing_at = 2
    with pytest.raises(RecoveryRequired, match="in part"):
        raise_fence(one)
    assert len(written) == 2
    one.close()


@pytest.mark.clause("O37")
def test_lock_of_a_killed_process_is_free_at_once(home: Path, store: ResourceStore) -> None:
    """No age and no process id decides: the kernel frees what a dead process held."""
    raise_fence(store)
    code = (
        "import sys\nfrom tieline.store.resources import ResourceStore\n"
        f"store = ResourceStore({str(home)!r})\n"
        f"with store.transaction([{KEY!r}], ledger=True):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        quick = ResourceStore(str(home), lock_wait_ms=20)
        with pytest.raises(Refused), quick.transaction([KEY]):
            raise AssertionError("two hold one lock")
        child.kill()
        child.wait()
        with quick.transaction([KEY], ledger=True):
            pass
        quick.close()
