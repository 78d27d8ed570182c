"""Show that what was there and is gone is never taken for new, and that damage stays where it is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tieline.errors import RecoveryRequired, Refused
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Claimant, Document, Launch, Ledger, ResourceKey, key_digest
from tieline.store.resources import ResourceStore
from tieline.store.resources.formats import encode
from tieline.store.resources.reading import LOCK_MARK, OWN_MARK

KEY = ResourceKey("machine/tests")
OTHER = ResourceKey("machine/web")
OWNER = ProcessIdentity("b", 1, 2, 3, None, "linux")
LAUNCH = Launch("l", "n", "d", "sh", "w", Claimant("p", "i", "a", OWNER), 1, "b", resources=((KEY, 1),))
RECORD_ACTION = f"tieline resource recover {KEY}"


@pytest.fixture
def home(private_home: Path) -> Path:
    return private_home / "h"


@pytest.fixture
def store(home: Path) -> Iterator[ResourceStore]:
    """Give a store that has seen nothing: what it knows it read."""
    one = ResourceStore(str(home))
    yield one
    one.close()


def raise_fence(home: Path, key: ResourceKey = KEY, launches: tuple[Launch, ...] | None = None) -> int:
    """Store the resource with the next fence, as a process of its own would, and return the fence."""
    one = ResourceStore(str(home))
    with one.transaction([key], ledger=launches is not None) as held:
        document = held.documents[key]
        ledger = None
        if launches is not None:
            assert held.ledger is not None
            ledger = msgspec.structs.replace(held.ledger, launches=launches)
        held.commit({key: msgspec.structs.replace(document, fence=document.fence + 1)}, ledger)
    one.close()
    return document.fence + 1


def remove(home: Path, *suffixes: str) -> None:
    for path in (home / "peer-resources").iterdir():
        if path.suffix in suffixes:
            path.unlink()


@pytest.mark.clause("I31", "I34", "I38", "native-196")
@pytest.mark.parametrize(
    "how", ["directory", "files", "all but locks", "emptied and made anew by another key"]
)
def test_records_removed_together_are_damage_and_never_fresh(
    home: Path, store: ResourceStore, how: str
) -> None:
    """Whatever of the shared directory goes, its resources are not free: their witnesses know them."""
    raise_fence(home, launches=(LAUNCH,))
    raise_fence(home)
    if how == "all but locks":
        remove(home, ".json", ".mark")
        with pytest.raises(RecoveryRequired, match=r"index\.json"):
            store.read(KEY)
        store.rebuild_index()
    else:
        shutil.rmtree(home / "peer-resources")
        if how == "files":
            (home / "peer-resources").mkdir(mode=0o700)
    if how.startswith("emptied"):
        assert raise_fence(home, OTHER) == 1
    with pytest.raises(RecoveryRequired) as caught:
        store.read(KEY)
    assert RECORD_ACTION in caught.value.action
    with pytest.raises(RecoveryRequired), store.transaction([KEY]):
        raise AssertionError("a lost resource was opened")
    assert frozenset(store.keys()) >= {KEY}
    assert raise_fence(home, OTHER) >= 1


@pytest.mark.clause("native-189", "I34")
def test_ledger_of_a_directory_made_anew_knows_the_commands_of_before(
    home: Path, store: ResourceStore
) -> None:
    """What ran when everything was removed is still in the ledger that takes the old one's place."""
    raise_fence(home, launches=(LAUNCH,))
    shutil.rmtree(home / "peer-resources")
    assert store.read_ledger().launches == (LAUNCH,)
    with store.transaction([OTHER], ledger=True) as held:
        assert held.ledger is not None
        assert held.ledger.launches == (LAUNCH,)


@pytest.mark.clause("I38")
def test_directory_restored_as_a_whole_from_an_older_copy_is_noticed(
    home: Path, store: ResourceStore, tmp_path: Path
) -> None:
    """Records that agree with each other and are older than their witness are not believed."""
    raise_fence(home, launches=())
    raise_fence(home, OTHER)
    shutil.copytree(home / "peer-resources", tmp_path / "copy")
    raise_fence(home, launches=(LAUNCH,))
    shutil.rmtree(home / "peer-resources")
    shutil.copytree(tmp_path / "copy", home / "peer-resources")
    with pytest.raises(RecoveryRequired, match="older") as caught:
        store.read(KEY)
    assert RECORD_ACTION in caught.value.action
    with pytest.raises(RecoveryRequired, match=r"launches\.json is older") as caught:
        store.read_ledger()
    assert "recover ledger" in caught.value.action
    assert store.read(OTHER).fence == 1


@pytest.mark.clause("native-180")
def test_lock_file_of_a_stored_record_outlives_every_other_trace(home: Path, store: ResourceStore) -> None:
    """Locks of ours without records and without witnesses are a loss, not a beginning."""
    raise_fence(home)
    remove(home, ".json", ".mark")
    shutil.rmtree(home / "resource-witness")
    with pytest.raises(RecoveryRequired, match=r"index\.json is missing"):
        store.read(KEY)
    store.rebuild_index()
    with pytest.raises(RecoveryRequired, match="missing"):
        store.read(KEY)
    assert store.read(OTHER) == Document(OTHER)


def test_lock_file_of_a_look_is_no_trace_of_a_record(home: Path, store: ResourceStore) -> None:
    """A resource that was only looked at was never stored."""
    with store.transaction([KEY], ledger=True):
        pass
    lock = home / "peer-resources" / f"{key_digest(KEY)}.lock"
    assert lock.read_bytes() == b""
    assert (home / "peer-resources" / "namespace.lock").read_bytes() == OWN_MARK
    assert store.read(KEY) == Document(KEY)
    raise_fence(home)
    assert lock.read_bytes() == LOCK_MARK


def test_lost_witness_harms_nobody_and_comes_back(home: Path, store: ResourceStore) -> None:
    """Without witnesses the records are believed as before, and the next commit remembers again."""
    raise_fence(home)
    shutil.rmtree(home / "resource-witness")
    assert store.read(KEY).fence == 1
    assert raise_fence(home) == 2
    shutil.rmtree(home / "peer-resources")
    with pytest.raises(RecoveryRequired):
        ResourceStore(str(home)).read(KEY)


@pytest.mark.clause("native-180", "native-181")
@pytest.mark.parametrize("has_record", [True, False])
def test_garbled_index_beside_a_mark_of_ours_is_damage_of_ours(
    home: Path, store: ResourceStore, *, has_record: bool
) -> None:
    """Our own index is never called another program's, and the repair is named."""
    if has_record:
        raise_fence(home)
    else:
        with store.transaction([]):
            pass
        store.close()
    (home / "peer-resources" / "index.json").write_bytes(b"\0garbled")
    with pytest.raises(RecoveryRequired) as caught:
        store.keys()
    assert "tieline resource recover index" in caught.value.action
    with pytest.raises(RecoveryRequired), store.transaction([KEY]):
        raise AssertionError("a garbled index was replaced unasked")
    assert (home / "peer-resources" / "index.json").read_bytes() == b"\0garbled"


def test_directory_without_a_mark_of_ours_names_the_setting(home: Path, store: ResourceStore) -> None:
    """Another program's directory is refused with what helps, and a repair is refused there as well."""
    home.mkdir(mode=0o700)
    folder = home / "peer-resources"
    folder.mkdir(mode=0o700)
    (folder / "index.json").write_bytes(b"{}")
    (folder / "index.json").chmod(0o600)
    for work in (store.keys, store.rebuild_index):
        with pytest.raises(Refused, match="another program") as caught:
            work()
        assert "coordination_directory" in caught.value.action
    assert [path.name for path in folder.iterdir()] == ["index.json"]


def test_damaged_ledger_names_its_repair(home: Path, store: ResourceStore) -> None:
    """A ledger that is garbled or missing says how it is made again."""
    raise_fence(home, launches=(LAUNCH,))
    path = home / "peer-resources" / "launches.json"
    for data in (b"{", encode(Ledger(0)), None):
        path.unlink() if data is None else path.write_bytes(data)
        with pytest.raises(RecoveryRequired) as caught:
            store.read_ledger()
        assert "tieline resource recover ledger" in caught.value.action


@pytest.mark.clause("I34", "I38")
def test_process_that_saw_the_removed_directory_goes_on_in_the_one_made_anew(home: Path) -> None:
    """A supervisor that holds one resource still ends another; what it saw is lost, and not the index."""
    one = ResourceStore(str(home))
    with one.transaction([KEY], ledger=True) as held:
        held.commit({KEY: msgspec.structs.replace(held.documents[KEY], fence=1)}, Ledger(launches=(LAUNCH,)))
    assert one.read_ledger().launches == (LAUNCH,)
    shutil.rmtree(home / "peer-resources")
    with ResourceStore(str(home)).transaction([OTHER], ledger=True):
        pass
    assert one.keys() == (KEY,)
    assert [damage.resource for damage in one.damages()] == [KEY]
    with one.transaction([OTHER], ledger=True) as held:
        assert held.ledger is not None
        assert held.ledger.launches == (LAUNCH,)
        held.commit({}, msgspec.structs.replace(held.ledger, launches=()))
    assert one.read_ledger().launches == ()
    assert one.read_ledger().revision > 1
    one.close()
