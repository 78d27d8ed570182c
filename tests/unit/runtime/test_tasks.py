"""Background work: failures are told, nothing outlives its root."""

import asyncio

import pytest

from tieline.runtime.tasks import Tasks

pytestmark = pytest.mark.asyncio


async def test_tasks_tell_a_failure_and_end_together() -> None:
    """A failing task is reported once; a waiting one is cancelled by `stop`."""
    told: list[BaseException] = []
    tasks = Tasks(told.append)

    async def fail() -> None:
        raise ValueError("broken")

    tasks.start(fail())
    waiting = tasks.start(asyncio.sleep(60))
    await asyncio.sleep(0.01)
    assert [type(error) for error in told] == [ValueError]
    await tasks.stop()
    assert waiting.cancelled()
