"""Waiting for a change: none is missed, a timeout says so."""

import asyncio

import pytest

from tieline.runtime.signals import Signal, Watch

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("O06", "O07")
async def test_watch_of_a_change_before_the_wait_returns_at_once() -> None:
    """What changes between looking and waiting is not lost."""
    signal = Signal()
    watch = Watch(signal)
    signal.tell()
    assert await watch.wait(60)


async def test_watch_without_a_change_ends_after_its_time() -> None:
    """A timeout is False, and leaves nobody behind in the signal."""
    signal = Signal()
    assert not await Watch(signal).wait(0.01)
    assert not signal.waiters


async def test_watch_is_woken_by_any_of_its_signals() -> None:
    """Joined watches keep the age of each part."""
    one, two = Signal(), Signal()
    watch = Watch(one).joined(Watch(two))
    waiting = asyncio.get_running_loop().create_task(watch.wait(60))
    await asyncio.sleep(0)
    two.tell()
    assert await waiting
    assert watch.has_changed
