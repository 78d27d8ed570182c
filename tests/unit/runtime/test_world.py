"""Clock, timers and far ends, as a root's driver and switchboard have them."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline.engine.contract import UserPrompt
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.runtime.world import now

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("K9", "K10")
async def test_clock_has_a_wall_and_a_monotonic_side() -> None:
    """The wall is the system's; the other never goes back, and counts what was slept."""
    one = now()
    assert abs(one.wall_ms - time.time() * 1000) < 1_000
    await asyncio.sleep(0.02)
    two_ = now()
    assert 15 <= two_.mono_ms - one.mono_ms < 5_000
    boot_s = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    assert abs(boot_s * 1000 - two_.mono_ms) < 1_000


async def test_nonces_are_fresh_and_of_32_bytes(private_home: Path) -> None:
    """No two are alike."""
    async with two(private_home) as (alice, _bob):
        nonces = {alice.node.world.nonce() for _ in range(1_000)}
        assert len(nonces) == 1_000
        assert {len(nonce) for nonce in nonces} == {32}


async def test_timer_is_set_once_a_turn_and_rings_at_the_earliest_moment(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many wishes in one turn set one timer; the driver's and the switchboard's earlier moment rings both."""
    async with two(private_home) as (alice, _bob):
        world, rung = alice.node.world, []
        monkeypatch.setattr(alice.node.driver, "tick", lambda: (rung.append("driver"), world.arm(None)))
        monkeypatch.setattr(alice.node.switchboard, "tick", lambda: rung.append("links"))
        for delay_ms in (60_000, 500, 30):
            world.arm(now().mono_ms + delay_ms)
        begun = time.monotonic()
        async with asyncio.timeout(2):
            while not rung:  # noqa: ASYNC110 - nothing but a look tells it
                await asyncio.sleep(0.005)
        assert time.monotonic() - begun >= 0.025
        assert rung == ["links", "driver"]
        world.arm(None)
        world.stop()
        world.arm(now().mono_ms + 1)
        await asyncio.sleep(0.02)
        assert len(rung) == 2


@pytest.mark.clause("S17")
async def test_far_end_out_of_scope_sees_no_run_and_no_answer(private_home: Path) -> None:
    """Its directory is empty, and what it asks of an existing run is answered as for one that is none."""
    async with two(private_home) as (alice, bob):
        run = await call(bob, "host.run_begin", run="r-1", alias="kid")
        await call(bob, "host.answer", entry="e-1", text="secret", run="r-1")
        far = bob.node.world.lookup(alice.node.instance, is_fresh=True)
        assert far is not None
        assert [item["alias"] for item in bob.node.world.directory(far)] == ["kid"]
        page = bob.node.world.last({"to": run["peerId"]}, far)
        assert not isinstance(page, Refusal)
        assert page["text"] == "secret"
        outside = type(far)(
            far.advertised,
            far.endpoint,
            far.pid,
            type(far.standing)(far.standing.capabilities, is_in_scope=False),
        )
        assert bob.node.world.directory(outside) == []
        answers = [bob.node.world.last({"to": target}, outside) for target in (run["peerId"], Peer("x").id)]
        assert answers[0] == answers[1]
        assert isinstance(answers[0], Refusal)
        assert isinstance(bob.node.world.last({"to": 1}, far), Refusal)
        assert isinstance(bob.node.world.last({"to": run["peerId"], "entry": "none"}, far), Refusal | dict)


async def test_lookup_that_cannot_read_presence_finds_nobody(private_home: Path) -> None:
    """An unsafe directory is no far end; a living owner is not gone, an unknown one neither."""
    async with two(private_home) as (alice, bob):
        world = alice.node.world
        assert world.lookup(bob.node.instance, is_fresh=True) is not None
        assert not world.is_gone(bob.node.instance)
        assert not world.is_gone("absent-1")
        os.chmod(alice.node.places.active_agents, 0o777)
        alice.node.presence.close()
        alice.node.presence._directory = None
        assert world.lookup(bob.node.instance, is_fresh=True) is None
        os.chmod(alice.node.places.active_agents, 0o700)
        assert world.lookup(bob.node.instance, is_fresh=True) is not None


@pytest.mark.clause("I8", "K4")
async def test_store_that_opens_again_takes_commands_again(private_home: Path) -> None:
    """The rows of the reopened store come back on the loop, and what is asked then is answered."""
    async with two(private_home) as (alice, _bob):
        told: list[object] = []
        done = asyncio.Event()
        alice.node.world.reopen(lambda rows: (told.append(rows), done.set()))
        async with asyncio.timeout(5):
            await done.wait()
        assert told == [alice.node.world.load()]
        assert await alice.node.ask(UserPrompt(Peer(alice.node.instance))) is None
