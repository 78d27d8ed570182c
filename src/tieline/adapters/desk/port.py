"""What the screen asks and is told: one port, so that a test may be at its other end.

Rule 1: a person acts here: each call is a person's, by the root's own door.
Rule 2: what blocks runs in a thread; the screen never waits for a disk or a lock.
Rule 3: what is told from below is put in a list; it draws nothing.

Source: reference/native.md 1N (126); DESIGN.md 3.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from tieline.errors import TielineError
from tieline.model.identity import Peer
from tieline.runtime import keeping
from tieline.runtime.calls import Actor
from tieline.runtime.operations import Act
from tieline.runtime.resources.claims import full_key
from tieline.runtime.resources.coordinator import Coordinator
from tieline.runtime.resources.viewing import evidence, local_viewer, recover
from tieline.runtime.resources.watching import Glance
from tieline.runtime.root import Root
from tieline.runtime.timeline import Timeline, TimelinePage, TimelineQuery
from tieline.runtime.waits_of_all import waits_of_all

__all__ = ["Port", "RootPort", "Told"]

Told = Callable[[str, dict[str, Any]], None]


class Port(Protocol):
    """The root below a desk."""

    def who(self) -> dict[str, Any]:
        """Return who the person is here."""
        ...

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        """Return what an operation of the root answers; raises what it raises."""
        ...

    def subscribe(self, told: Told) -> Callable[[], None]:
        """Tell of events from now on; returns how to end that."""
        ...

    def changes(self) -> frozenset[str]:
        """Return which of "agents" and "resources" changed on disk since the last call."""
        ...

    async def timeline(self, query: TimelineQuery) -> TimelinePage:
        """Return what happened, read anew."""
        ...

    async def waits(self) -> dict[str, Any]:
        """Return who waits for whom, and the rings, of all roots."""
        ...

    async def evidence(self, key: str, launch: str) -> list[str]:
        """Return what is known of a launch that holds or blocks a resource."""
        ...

    async def recover(self, key: str, launch: str, said: str) -> None:
        """End a holder or blocker on the person's word."""
        ...

    async def export(self, name: str, text: str) -> str:
        """Write a private file; return its path, "" where that failed."""
        ...

    def kept(self) -> dict[str, Any]:
        """Return what the last desk of this name kept."""
        ...

    def keep(self, shape: dict[str, Any]) -> None:
        """Keep it for the next one."""
        ...

    def now_ms(self) -> int:
        """Return wall milliseconds."""
        ...

    def clock(self, at_ms: int) -> str:
        """Return a moment as the person's day shows it: hours, minutes, seconds."""
        ...

    def day_ms(self) -> int:
        """Return when this day of the person's began, wall milliseconds."""
        ...


class RootPort:
    """The port of a real root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        node = root.node
        self._actor = Actor(Peer(node.instance), Act.PERSON, "python", is_host=True)
        self._home, self._coordination = node.places.home, node.places.coordination
        self._glances = {
            "agents": Glance(node.places.active_agents),
            "resources": Glance(f"{self._coordination}/peer-resources"),
        }
        self._timeline = Timeline(self._home, self._coordination)
        self._reading = asyncio.Lock()

    def who(self) -> dict[str, Any]:
        """Return who the person is here."""
        return self._root.who()

    async def call(self, method: str, **params: object) -> dict[str, Any]:
        """Return what an operation of the root answers; what it prepared counts as taken once it is here."""
        given = {name: value for name, value in params.items() if value is not None}
        reply = await self._root.operations.call(self._actor, method, given)
        if reply.taken is not None:
            await self._root.operations.flushed(reply.taken)
        return reply.result

    def subscribe(self, told: Told) -> Callable[[], None]:
        """Tell of events from now on."""
        return self._root.operations.subscribe(told)

    def changes(self) -> frozenset[str]:
        """Return what changed on disk; costs two calls of the system."""
        return frozenset(name for name, glance in self._glances.items() if glance.is_changed())

    async def timeline(self, query: TimelineQuery) -> TimelinePage:
        """Return what happened; one reading at a time."""
        async with self._reading:
            await asyncio.to_thread(self._timeline.refresh, query.since_ms)
            return await asyncio.to_thread(self._timeline.page, query)

    async def waits(self) -> dict[str, Any]:
        """Return who waits for whom, as every root knows it."""
        return await asyncio.to_thread(waits_of_all, self._coordination)

    async def evidence(self, key: str, launch: str) -> list[str]:
        """Return what is known of a launch."""
        return await asyncio.to_thread(
            self._with_coordinator, lambda one: evidence(one, full_key(key, ""), launch)
        )

    async def recover(self, key: str, launch: str, said: str) -> None:
        """End a holder or blocker on the person's word; an event of the resource records it."""
        await asyncio.to_thread(
            self._with_coordinator, lambda one: recover(one, full_key(key, ""), launch, said, local_viewer())
        )

    def _with_coordinator(self, work: Callable[[Any], Any]) -> Any:
        coordinator = Coordinator(self._coordination)
        try:
            return work(coordinator)
        finally:
            coordinator.close()

    async def export(self, name: str, text: str) -> str:
        """Write a private file below the home."""
        try:
            return await asyncio.to_thread(keeping.export, self._home, name, text)
        except (TielineError, OSError):
            return ""

    def kept(self) -> dict[str, Any]:
        """Return what the last desk of this name kept."""
        return keeping.kept(self._home, self._root.node.alias)

    def keep(self, shape: dict[str, Any]) -> None:
        """Keep it for the next one."""
        keeping.keep(self._home, self._root.node.alias, shape)

    def now_ms(self) -> int:
        """Return wall milliseconds."""
        return self._root.node.now().wall_ms

    def clock(self, at_ms: int) -> str:
        """Return local hours, minutes and seconds, with the date on another day."""
        local = time.localtime(at_ms // 1_000)
        is_today = local[:3] == time.localtime(self.now_ms() // 1_000)[:3]
        return time.strftime("%H:%M:%S" if is_today else "%m-%d %H:%M", local)

    def day_ms(self) -> int:
        """Return this day's first moment."""
        local = time.localtime(self.now_ms() // 1_000)
        return int(time.mktime((*local[:3], 0, 0, 0, 0, 0, -1))) * 1_000
