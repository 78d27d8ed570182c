"""Who waits for whom among all roots."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline.runtime import waits_of_all


@pytest.mark.asyncio
async def test_waits_of_every_root_are_seen_once(private_home: Path) -> None:
    """A question that one root waits for is seen by who asks all of them; it goes when it is answered."""
    async with two(private_home) as (alice, bob):
        asking = asyncio.get_running_loop().create_task(alice.ask("bob", "which?", timeout_s=20))
        for _ in range(100):
            found = await asyncio.to_thread(waits_of_all.waits_of_all, str(private_home / "h"))
            if found["waits"]:
                break
            await asyncio.sleep(0.02)
        (wait,) = found["waits"]
        assert (wait["waiter"], wait["awaited"]) == (alice.who()["peerId"], bob.who()["peerId"])
        assert (found["cycles"], found["leftOut"]) == ([], 0)
        (mail,) = await bob.inbox()
        await bob.reply(mail.message_id, "that")
        assert (await asking) is not None


def test_views_joined_have_each_ring_once_with_all_ways() -> None:
    """What two roots say of one ring is one ring, with the ways out of both."""
    ring = {"peers": [{"peerId": "a"}, {"peerId": "b"}], "text": "a ring"}
    wait = {"waiter": "a", "awaited": "b", "kind": "ask", "subject": "m"}
    one = {"waits": [wait], "cycles": [{**ring, "ways": [{"peer": "a"}]}]}
    other = {"waits": [dict(wait)], "cycles": [{**ring, "ways": [{"peer": "b"}, {"peer": "a"}]}]}
    found = waits_of_all.joined([one, other])
    assert found["waits"] == [wait]
    assert [found["cycles"][0]["ways"], len(found["cycles"])] == [[{"peer": "a"}, {"peer": "b"}], 1]


def test_nobody_there_waits_for_nobody(private_home: Path) -> None:
    """An empty directory is no error."""
    assert waits_of_all.waits_of_all(str(private_home))["waits"] == []
