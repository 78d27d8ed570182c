"""Mail made ready for a model: chosen, bounded, claimed once."""

from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline.model.identity import Peer
from tieline.runtime.ladder.showing import Bounds, prepared

pytestmark = pytest.mark.asyncio

BOUNDS = Bounds("boundary", 8_000, 60_000)


async def test_prepared_mail_is_claimed_once(private_home: Path) -> None:
    """A second rung finds nothing while the first has it."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        own = Peer(bob.node.instance)
        first = await prepared(bob.node, own, BOUNDS, lambda _item: True)
        second = await prepared(bob.node, own, BOUNDS, lambda _item: True)
        assert "one" in first.text
        assert first.token is not None
        assert first.senders == ["alice"]
        assert (second.text, second.held, second.token, second.senders) == ("", (), None, [])


async def test_prepared_mail_is_what_was_wanted(private_home: Path) -> None:
    """What may not come is left unclaimed."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        await alice.send("bob", "two")
        own = Peer(bob.node.instance)
        shown = await prepared(bob.node, own, BOUNDS, lambda item: item.envelope.content == "two")
        assert "two" in shown.text
        assert '"one"' not in shown.text
        assert len(await bob.inbox()) == 2


@pytest.mark.clause("intercom-76")
async def test_passive_mail_is_shown_before_the_rest_in_its_order(private_home: Path) -> None:
    """Passives come first; a question goes before no plain message that came before it."""
    wanted = [
        ("plain", "queue"),
        ("note", "passive"),
        ("asked", "steer"),
        ("more", "passive"),
        ("last", "queue"),
    ]
    async with two(private_home) as (alice, bob):
        for text, delivery in wanted:
            await alice.send("bob", text, delivery=delivery)
        shown = await prepared(bob.node, Peer(bob.node.instance), BOUNDS, lambda _item: True)
        order = ["note", "more", "plain", "asked", "last"]
        assert [item.envelope.content for item in shown.held] == order
        places = [shown.text.index(f'"{text}"') for text in order]
        assert places == sorted(places)


async def test_passive_mail_keeps_no_work_out(private_home: Path) -> None:
    """Where not all fits the oldest is chosen, whatever its delivery."""
    async with two(private_home, limits={"boundary_messages": 2}) as (alice, bob):
        for text, delivery in (("first", "queue"), ("note", "passive"), ("more", "passive")):
            await alice.send("bob", text, delivery=delivery)
        shown = await prepared(bob.node, Peer(bob.node.instance), BOUNDS, lambda _item: True)
        assert [item.envelope.content for item in shown.held] == ["note", "first"]
