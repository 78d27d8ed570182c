"""Whether a peer lives, asked of that exact peer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call, two
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.resources import liveness


@pytest.mark.asyncio
async def test_peers_are_alive_by_their_answer_and_gone_by_proof(private_home: Path) -> None:
    """Ourselves, our runs, another root that answers; one that closed; one that nobody knows."""
    async with two(private_home) as (alice, bob):
        await call(alice, "host.run_begin", run="kid")
        await call(alice, "host.run_begin", run="late")
        await call(alice, "host.run_end", run="late")
        own, kid, other = Peer(alice.node.instance), Peer(alice.node.instance, "kid"), Peer(bob.node.instance)
        late, nobody = Peer(alice.node.instance, "late"), Peer("nobody")
        ids = [one.id for one in (own, kid, late, other, nobody)]
        found = await liveness.of_peers(alice.node, ids)
        assert [found[one] for one in ids] == ["alive", "alive", "gone", "alive", "gone"]


@pytest.mark.asyncio
async def test_peer_that_does_not_answer_is_unknown(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is no proof of either, whether it is refused or does not come."""
    monkeypatch.setattr(liveness, "ANSWER_S", 0.05)
    async with two(private_home) as (alice, bob):
        other = Peer(bob.node.instance).id

        async def refuse(*_words: Any) -> dict[str, Any]:
            raise Refused("PEER_OFFLINE", "no")

        async def hang(*_words: Any) -> dict[str, Any]:
            await asyncio.sleep(30)
            return {}

        for answer in (refuse, hang):
            monkeypatch.setattr(alice.node, "ask_peer", answer)
            assert await liveness.of_peers(alice.node, [other]) == {other: "unknown"}
