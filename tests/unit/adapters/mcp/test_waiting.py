"""The command that waits: one at a time, a door while it waits, and sent home where nothing wakes by it."""

import asyncio

import pytest

from tieline.adapters.mcp.waiting import Waiting

pytestmark = pytest.mark.asyncio


class Root:
    """A root that remembers by what it is pushed."""

    is_automatic = True

    def __init__(self) -> None:
        self.doors: list[tuple[Waiting | None, bool]] = []

    def push_by(self, door: Waiting | None, *, wakes_only: bool = False) -> None:
        self.doors.append((door, wakes_only))


async def begun(waiting: Waiting) -> "asyncio.Task[str]":
    """Return a wait that has begun."""
    task = asyncio.create_task(waiting.wait())
    await asyncio.sleep(0)
    return task


async def test_waiter_is_a_door_for_waking_until_it_was_used() -> None:
    """One text, one wake: what comes next finds no door."""
    root = Root()
    waiting = Waiting(root)
    task = await begun(waiting)
    assert root.doors == [(waiting, True)]
    assert waiting.is_busy() is None
    assert await waiting.push("mail", is_busy=False)
    assert await task == "mail"
    assert root.doors == [(waiting, True), (None, False)]
    assert not await waiting.push("more", is_busy=False)


async def test_newest_waiter_sends_the_older_one_home() -> None:
    """Two would wake a session twice."""
    waiting = Waiting(Root())
    older, newer = await begun(waiting), await begun(waiting)
    assert await older == ""
    assert await waiting.push("mail", is_busy=False)
    assert await newer == "mail"


async def test_waiter_whose_process_ended_is_no_door() -> None:
    """Nothing is handed to a process that is gone."""
    root = Root()
    waiting = Waiting(root)
    task = await begun(waiting)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert root.doors[-1] == (None, False)
    assert not await waiting.push("mail", is_busy=False)


async def test_waiter_of_a_session_that_is_never_woken_goes_home_at_once() -> None:
    """A process that waits for nothing costs memory."""
    root = Root()
    root.is_automatic = False
    assert await Waiting(root).wait() == ""
    assert root.doors == []
