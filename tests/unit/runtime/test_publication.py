"""What a root shows of itself, and that it stays there."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.unit.runtime.roots import two
from tieline.errors import Refused
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("O29")
async def test_publication_that_cannot_bind_again_serves_on(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something foreign in the name's place: the old socket serves on until the name is free."""
    async with two(private_home) as (alice, bob):
        old = bob.node.endpoint
        os.unlink(old.path)
        os.mkdir(old.path)
        with pytest.raises(Refused):
            bob.node.publication.rebind()
        assert bob.node.endpoint is old
        os.rmdir(old.path)
        bob.node.publication.rebind()
        assert not bob.node.endpoint.missing()
        assert (await alice.send("bob", "x"))["state"] == "accepted"


@pytest.mark.clause("K31")
async def test_publication_beats_while_it_tidies(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to look after what others left, this root stays in the listings."""
    monkeypatch.setattr("tieline.config.HEARTBEAT_MS", 20)
    root = await open_root(
        RootOptions(home=str(private_home / "h"), workspace=str(private_home), alias="alice", host_pid=1)
    )
    slow, beats = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    publish = root.node.publication.publish

    def tidying() -> None:
        loop.call_soon_threadsafe(slow.set)
        time.sleep(0.4)

    monkeypatch.setattr(root.node.publication, "_tidy", tidying)
    monkeypatch.setattr(root.node.publication, "publish", lambda: (beats.append(1), publish()))
    await slow.wait()
    beats.clear()
    await asyncio.sleep(0.3)
    assert len(beats) >= 3
    await root.close()
