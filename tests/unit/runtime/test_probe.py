"""A held native link, against a real root."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline.errors import Refused
from tieline.runtime.probe import Probe, is_accepted, offer_line, ping_line, root_peer, stored_counts

pytestmark = pytest.mark.asyncio


async def test_probe_offers_and_the_store_has_each_once(private_home: Path) -> None:
    """An offer is accepted on synced storage; the same offer again stores nothing more."""
    async with two(private_home) as (alice, bob):
        loop = asyncio.get_running_loop()
        instance = bob.node.instance
        probe = await asyncio.to_thread(Probe.open, alice, instance, loop)
        line = offer_line(1, "m-1", root_peer(instance), "hello")
        for _ in range(2):
            answer = json.loads(await asyncio.to_thread(probe.exchange, line))
            assert (answer["id"], answer["result"]["state"]) == (1, "accepted")
        assert await asyncio.to_thread(stored_counts, bob) == {"m-1": 1}
        assert await asyncio.to_thread(stored_counts, alice) == {}
        assert [message.content for message in await bob.inbox()] == ["hello"]
        probe.close()


async def test_probe_flood_answers_every_line(private_home: Path) -> None:
    """With several under way each request has its own answer."""
    async with two(private_home) as (alice, bob):
        probe = await asyncio.to_thread(Probe.open, alice, bob.node.instance, asyncio.get_running_loop())
        lines = iter([ping_line(number) for number in range(50)])
        answers = await asyncio.to_thread(probe.flood, lambda: next(lines, None), 8)
        assert sorted(json.loads(answer)["id"] for answer in answers) == list(range(50))
        probe.close()


async def test_probe_of_an_absent_root_is_refused(private_home: Path) -> None:
    """Only what presence shows can be dialled."""
    async with two(private_home) as (alice, _):
        with pytest.raises(Refused) as refused:
            await asyncio.to_thread(Probe.open, alice, "absent", asyncio.get_running_loop())
        assert refused.value.code == "PEER_OFFLINE"


@pytest.mark.parametrize(
    ("result", "is_so"),
    [
        ({"state": "accepted", "durability": "synced"}, True),
        ({"state": "accepted", "durability": "unstated"}, False),
        ({"state": "accepted"}, False),
        ({"state": "consumed", "durability": "synced"}, False),
        (None, False),
    ],
)
async def test_answer_other_than_synced_acceptance_does_not_count(result: object, is_so: bool) -> None:
    """Only acceptance on synced storage is counted as accepted."""
    assert is_accepted(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()) is is_so
