"""The tasks of one root: kept, watched, and ended together.

Rule: a task that fails is told to the one place that logs; none is lost, none outlives its root.

Source: STYLE.md 6 "banned calls"; reference/reliability.md K28.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Tasks"]


class Tasks:
    """Background work of one root."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` until it ends or the root does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def stop(self) -> None:
        """Cancel what still runs and wait for its end."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
