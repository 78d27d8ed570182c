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
