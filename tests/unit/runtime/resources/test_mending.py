"""A damaged record is begun anew on a person's word, and never while anything of it lives."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.resources.kit import KEY, OTHER, begin, claim, principal, start
from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import key_digest
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.mending import evidence_of_damage, mend, rebuild
from tieline.runtime.resources.viewing import local_viewer, status_of_all
from tieline.shell.process import identify
from tieline.store.resources import Damage


@pytest.fixture
def coordinator(private_home: Path) -> Iterator[Coordinator]:
    """Give a coordinator in a place of its own."""
    made = Coordinator(str(private_home))
    yield made
    made.close()


def garble(coordinator: Coordinator) -> Damage:
    """Damage the record, and return what is known of it."""
    (Path(coordinator.store.path) / f"{key_digest(KEY)}.json").write_bytes(b"garbled")
    damage = coordinator.store.damage(KEY)
    assert damage is not None
    return damage


@pytest.mark.clause("I31", "I34", "I37")
@pytest.mark.parametrize("is_all_removed", [False, True])
def test_record_of_a_living_command_is_not_begun_anew_until_its_end(
    coordinator: Coordinator, private_home: Path, *, is_all_removed: bool
) -> None:
    """Whatever became of the files, the command that runs still holds; after its end the numbers go on."""
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        process = identify(child.pid)
        assert process is not None
        claim(coordinator, "a", KEY)
        begin(coordinator, "a", 1, process)
        start(coordinator, "a", 1, process)
        if is_all_removed:
            shutil.rmtree(private_home / "peer-resources")
            coordinator = Coordinator(str(private_home))
            damage = coordinator.store.damage(KEY)
            assert damage is not None
        else:
            damage = garble(coordinator)
        lines, is_alive = evidence_of_damage(coordinator, damage)
        assert is_alive
        assert any("launch-a" in text and "alive" in text for text in lines)
        with pytest.raises(RecoveryRequired):
            claim(coordinator, "b", KEY)
        with pytest.raises(Refused, match="alive") as caught:
            mend(coordinator, KEY, damage.record_id, "looked", local_viewer())
        assert caught.value.code == "RESOURCE_BUSY"
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    lines, is_alive = evidence_of_damage(coordinator, damage)
    assert not is_alive
    shape = mend(coordinator, KEY, damage.record_id, "it has ended", local_viewer())
    assert shape["fence"] == 1
    document = coordinator.store.read(KEY)
    assert "it has ended" in document.events[-1].note
    assert local_viewer().peer.id in document.events[-1].note
    assert coordinator.store.read_ledger().launches == ()
    claim(coordinator, "c", KEY)
    holder = coordinator.store.read(KEY).holder
    assert holder is not None
    assert holder.reservation is not None
    assert holder.reservation.fence == 2
    coordinator.close()


def test_evidence_says_what_nothing_remembers(coordinator: Coordinator, private_home: Path) -> None:
    """Without mark and witness the person is told that policy and numbers are not known."""
    claim(coordinator, "a", KEY)
    garble(coordinator)
    (Path(coordinator.store.path) / f"{key_digest(KEY)}.mark").write_bytes(b"x")
    (private_home / "resource-witness" / f"{key_digest(KEY)}.json").unlink()
    fresh = Coordinator(str(private_home))
    damage = fresh.store.damage(KEY)
    assert damage is not None
    lines, _ = evidence_of_damage(fresh, damage)
    assert any("clock" in text for text in lines)
    assert any("whether it had a policy is not known" in text for text in lines)
    with pytest.raises(RecoveryRequired):
        fresh.gated_by(frozenset({principal("a").peer.id}), frozenset({"build"}))
    mend(fresh, KEY, damage.record_id, "looked", local_viewer())
    assert fresh.store.read(KEY).fence > 1_600_000_000_000
    fresh.close()


def test_lost_mark_of_a_held_resource_is_made_again_without_freeing_it(coordinator: Coordinator) -> None:
    """The record is whole: its holder stays, and nothing has to end first."""
    claim(coordinator, "a", KEY)
    (Path(coordinator.store.path) / f"{key_digest(KEY)}.mark").unlink()
    damage = coordinator.store.damage(KEY)
    assert damage is not None
    lines, is_alive = evidence_of_damage(coordinator, damage)
    assert not is_alive
    assert any("confirmed by its witness" in text for text in lines)
    shape = mend(coordinator, KEY, damage.record_id, "looked", local_viewer())
    assert shape["holder"]["alias"] == "a"


def test_mend_without_evidence_is_refused(coordinator: Coordinator) -> None:
    """Who answers says why, in a bounded text."""
    claim(coordinator, "a", KEY)
    damage = garble(coordinator)
    for text in ("", "x" * 1_025):
        with pytest.raises(Refused, match="evidence"):
            mend(coordinator, KEY, damage.record_id, text, local_viewer())


def test_index_and_ledger_are_rebuilt_by_name(coordinator: Coordinator) -> None:
    """Each says what it holds now; a whole one is left."""
    claim(coordinator, "a", KEY)
    claim(coordinator, "b", OTHER)
    begin(coordinator, "a", 1)
    (Path(coordinator.store.path) / "index.json").write_bytes(b"x")
    assert rebuild(coordinator, "index") == "the index names 2 resources"
    (Path(coordinator.store.path) / "launches.json").write_bytes(b"x")
    assert rebuild(coordinator, "ledger") == "the ledger has 1 commands"
    assert [one["state"] for one in status_of_all(coordinator, local_viewer())] == ["starting", "reserved"]
    for record in ("index", "ledger"):
        with pytest.raises(Refused, match="whole"):
            rebuild(coordinator, record)
