"""Events on their way to a host that may not read."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tieline.adapters.attach.push import PUSHED_MAX, Push


class Pipe:
    """Takes lines when the test says so."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.waiting: list[asyncio.Future[bool]] = []

    def put(self, method: str, params: dict[str, Any]) -> "asyncio.Future[bool]":
        self.lines.append((method, params))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    async def takes(self, count: int) -> None:
        for _ in range(count):
            self.waiting.pop(0).set_result(True)
        await asyncio.sleep(0)


def run(story: Callable[[Push, Pipe], Any]) -> None:
    """Tell `story` to a pipe that takes lines when told."""

    async def main() -> None:
        pipe = Pipe()
        await story(Push(pipe.put), pipe)

    asyncio.run(main())


def event(cursor: int) -> dict[str, Any]:
    """Return the params of an event."""
    return {"event": {"cursor": str(cursor)}}


@pytest.mark.clause("I49", "I12")
def test_push_host_that_does_not_read_gets_one_hint_where_to_read_on() -> None:
    """What does not fit is not kept; one hint names the last cursor that was told."""

    async def story(push: Push, pipe: Pipe) -> None:
        for cursor in range(1, 1_001):
            push.tell("peer_update", event(cursor))
        assert len(pipe.lines) == PUSHED_MAX
        await pipe.takes(PUSHED_MAX - 1)
        assert pipe.lines[PUSHED_MAX:] == [("peer_update", {"gap": True, "after": str(PUSHED_MAX)})]
        push.tell("peer_update", event(1_001))
        assert pipe.lines[-1] == ("peer_update", event(1_001))

    run(story)


def test_push_events_stay_in_order_and_none_passes_a_gap() -> None:
    """While a gap is open no later event is told before its hint."""

    async def story(push: Push, pipe: Pipe) -> None:
        for cursor in range(1, PUSHED_MAX + 2):
            push.tell("peer_update", event(cursor))
        await pipe.takes(1)
        push.tell("peer_update", event(PUSHED_MAX + 2))
        assert len(pipe.lines) == PUSHED_MAX
        await pipe.takes(PUSHED_MAX - 1)
        told = [params.get("event", params).get("cursor", "gap") for _method, params in pipe.lines]
        assert told == [*map(str, range(1, PUSHED_MAX + 1)), "gap"]

    run(story)


def test_push_kinds_have_gaps_of_their_own() -> None:
    """A hint names the cursor of its own kind; of a kind never told, the beginning."""

    async def story(push: Push, pipe: Pipe) -> None:
        for cursor in range(1, PUSHED_MAX + 1):
            push.tell("peer_update", event(cursor))
        push.tell("resource_update", event(7))
        await pipe.takes(PUSHED_MAX)
        assert pipe.lines[-1] == ("resource_update", {"gap": True, "after": "0"})

    run(story)


def test_push_wake_that_waits_is_replaced_by_the_newest() -> None:
    """One wake says all."""

    async def story(push: Push, pipe: Pipe) -> None:
        for cursor in range(1, PUSHED_MAX + 1):
            push.tell("peer_update", event(cursor))
        push.tell("wake", {"count": 1})
        push.tell("wake", {"count": 2})
        assert len(pipe.lines) == PUSHED_MAX
        await pipe.takes(2)
        assert pipe.lines[PUSHED_MAX:] == [("wake", {"count": 2})]

    run(story)
