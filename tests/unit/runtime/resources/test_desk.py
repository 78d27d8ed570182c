"""A root's own side of shared resources."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.resources.kit import KEY, OTHER, claim
from tests.unit.runtime.roots import call, two
from tieline.errors import RecoveryRequired
from tieline.model.identity import Peer
from tieline.model.resource import key_digest
from tieline.runtime.resources.coordinator import Coordinator


async def settled(root: object) -> None:
    """Let a root's desk look until it has seen everything."""
    desk = root.node.desk  # type: ignore[attr-defined]
    desk.look()
    async with asyncio.timeout(5):
        while desk._looking is not None:  # noqa: ASYNC110 - nothing tells this but a look
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_desk_watches_only_what_names_its_root(private_home: Path) -> None:
    """Others' resources open no watch and set no timer; an own ticket does, until it is over."""
    async with two(private_home) as (alice, _bob):
        desk = alice.node.desk
        coordinator = Coordinator(alice.node.places.coordination)
        claim(coordinator, "stranger", OTHER)
        await settled(alice)
        assert (desk._watch, desk._timer, desk._documents) == (None, None, {})
        asked = {"operation": "request", "resource": KEY, "reason": "x", "requestId": "r-1"}
        await call(alice, "coordinate_resource", **asked)
        await settled(alice)
        assert desk._watch is not None
        assert set(desk._documents) == {KEY}
        await call(alice, "coordinate_resource", operation="release", requestId="r-1")
        await settled(alice)
        assert (desk._watch, desk._documents) == (None, {})
        coordinator.close()


@pytest.mark.asyncio
@pytest.mark.clause("native-3.6.11")
async def test_desk_is_not_woken_by_what_becomes_of_other_resources(private_home: Path) -> None:
    """Only the file of an own resource is watched; a new one is found by the heartbeat's look."""
    async with two(private_home) as (alice, _bob):
        desk = alice.node.desk
        asked = {"operation": "request", "resource": KEY, "reason": "x", "requestId": "r-1"}
        await call(alice, "coordinate_resource", **asked)
        await settled(alice)
        assert desk._watch is not None
        desk._watch.drain()
        looks: list[None] = []
        desk.look = lambda: looks.append(None)
        coordinator = Coordinator(alice.node.places.coordination)
        for number in range(5):
            claim(coordinator, f"stranger{number}", OTHER)
        await asyncio.sleep(1.2)
        assert looks == []
        desk.beat()
        assert looks == [None]
        claim(coordinator, "stranger", KEY)
        async with asyncio.timeout(5):
            while len(looks) < 2:  # noqa: ASYNC110 - nothing tells this but a look
                await asyncio.sleep(0.01)
        coordinator.close()


@pytest.mark.asyncio
async def test_desk_reads_only_documents_that_have_changed(private_home: Path) -> None:
    """A look after a change of one resource does not read the others."""
    async with two(private_home) as (alice, _bob):
        coordinator = Coordinator(alice.node.places.coordination)
        claim(coordinator, "a", KEY)
        claim(coordinator, "b", OTHER)
        first = await alice.node.desk.run(alice.node.desk._changed)
        assert {one.resource for one in first} == {KEY, OTHER}
        claim(coordinator, "c", OTHER)
        second = await alice.node.desk.run(alice.node.desk._changed)
        assert [one.resource for one in second] == [OTHER]
        coordinator.close()


@pytest.mark.asyncio
async def test_closed_desk_looks_no_more(private_home: Path) -> None:
    """After the end nothing is begun; a second close is none."""
    async with two(private_home) as (alice, _bob):
        await call(alice, "coordinate_resource", operation="status", resource=KEY)
        await alice.node.desk.close()
        await alice.node.desk.close()
        alice.node.desk.look()
        alice.node.desk.beat()
        assert alice.node.desk._looking is None


@pytest.mark.asyncio
async def test_desk_goes_on_past_a_damaged_record(private_home: Path) -> None:
    """Of two resources with a ticket of ours the whole one is still seen, granted and given back."""
    async with two(private_home) as (alice, _bob):
        desk = alice.node.desk
        for key in (KEY, OTHER):
            asked = {"operation": "request", "resource": key, "reason": "x", "requestId": f"r-{key}"}
            await call(alice, "coordinate_resource", **asked)
        await settled(alice)
        path = Path(alice.node.places.coordination) / "peer-resources" / f"{key_digest(KEY)}.json"
        path.write_bytes(b"garbled")
        await desk.observe([KEY, OTHER])
        assert set(desk._documents) == {OTHER}
        released = await call(alice, "coordinate_resource", operation="release", requestId=f"r-{OTHER}")
        assert released["ticket"]["state"] == "released"
        await desk.ended(Peer(alice.node.instance))


@pytest.mark.asyncio
async def test_desk_looks_at_everything_again_after_a_damaged_index(private_home: Path) -> None:
    """What changed while nothing could be read is not missed when the index is mended."""
    async with two(private_home) as (alice, _bob):
        desk = alice.node.desk
        coordinator = Coordinator(alice.node.places.coordination)
        claim(coordinator, "a", KEY)
        index = Path(coordinator.store.path) / "index.json"
        index.write_bytes(b"garbled")
        with pytest.raises(RecoveryRequired):
            await desk.run(desk._changed)
        coordinator.store.rebuild_index()
        assert [one.resource for one in await desk.run(desk._changed)] == [KEY]
        coordinator.close()
