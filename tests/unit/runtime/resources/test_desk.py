"""A root's own side of shared resources."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.resources.kit import KEY, OTHER, claim
from tests.unit.runtime.roots import call, two
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
