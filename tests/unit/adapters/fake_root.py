"""A root that a door can be tried on: it records what it was asked, and answers what a test told it to."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tieline.adapters.stdio.pipes import Inlet, Outlet
from tieline.errors import Refused
from tieline.model.identity import Peer

INSTANCE = "instance-1"


class FakeActor(NamedTuple):
    """Has the fields of the real one."""

    peer: Peer
    act: str
    door: str
    is_host: bool = False


class FakeReply(NamedTuple):
    """Has the fields of the real one."""

    result: dict[str, Any]
    taken: str | None = None


class FakeOperations:
    """Answers by `answers[method]`, which may wait or raise; records all else."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str, Any, str | None]] = []
        self.was_flushed: list[str] = []
        self.was_unflushed: list[str] = []
        self.answers: dict[str, Callable[[Any], Awaitable[FakeReply]]] = {}
        self.callbacks: list[Callable[[str, dict[str, Any]], None]] = []
        self.root_actor = FakeActor(Peer(INSTANCE), "agent", "attach", is_host=True)

    async def call(self, actor: Any, method: str, params: Any, *, call_id: str | None = None) -> FakeReply:
        self.asked.append((actor, method, params, call_id))
        answer = self.answers.get(method)
        if answer is None:
            raise Refused("METHOD_NOT_FOUND", "no such operation")
        return await answer(params)

    async def flushed(self, token: str) -> int:
        self.was_flushed.append(token)
        return 1

    async def unflushed(self, token: str) -> int:
        self.was_unflushed.append(token)
        return 1

    def subscribe(self, callback: Callable[[str, dict[str, Any]], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def gives(self, method: str, result: dict[str, Any], taken: str | None = None) -> None:
        async def answer(_params: Any) -> FakeReply:
            return FakeReply(result, taken)

        self.answers[method] = answer

    def waits(self, method: str) -> asyncio.Event:
        """Let `method` wait until it is cut off; the event says that it waits."""
        begun = asyncio.Event()

        async def answer(_params: Any) -> FakeReply:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        self.answers[method] = answer
        return begun


class FakeRoot:
    """What `open_root` gives."""

    def __init__(self) -> None:
        self.operations = FakeOperations()
        self.published: list[str | None] = []
        self.is_closed = False
        self.shutdown = asyncio.Event()
        self.options: list[Any] = []
        self.doors: list[Any] = []
        self.hook_doors: list[Any] = []
        self.failures: list[BaseException] = []
        self.may_open = asyncio.Event()
        self.may_open.set()

    async def open(self, options: Any) -> "FakeRoot":
        self.options.append(options)
        await self.may_open.wait()
        if self.failures:
            raise self.failures.pop(0)
        return self

    is_automatic = False

    def push_by(self, door: Any, *, wakes_only: bool = False) -> None:
        self.doors.append(door)

    def hook_by(self, door: Any) -> None:
        self.hook_doors.append(door)

    async def publish(self, session: str | None = None) -> None:
        self.published.append(session)

    def who(self) -> dict[str, Any]:
        return {
            "instanceId": INSTANCE,
            "peerId": Peer(INSTANCE).id,
            "alias": "me",
            "sessionId": "s",
            "endpoint": "/e",
            "control": "/c",
            "home": "/h",
            "coordinationDirectory": "/d",
            "secret": "never told",
        }

    async def close(self) -> None:
        self.is_closed = True


class FakeHost:
    """The host's side of two pipes."""

    def __init__(self) -> None:
        self.source, self._write = os.pipe()
        self._read, self.sink = os.pipe()
        self._rest = b""
        self._open = {self._write, self._read}

    def send(self, *documents: Any) -> None:
        for document in documents:
            self.send_bytes(json.dumps(document).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        os.write(self._write, data)

    def ask(self, identity: int | str, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}})

    def note(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def line(self, seconds: float = 5.0) -> dict[str, Any]:
        """Return the next line that the door wrote."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            while b"\n" not in self._rest:
                data = await loop.run_in_executor(None, os.read, self._read, 65_536)
                assert data, "the door closed its output"
                self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        assert line.isascii()
        document: dict[str, Any] = json.loads(line)
        return document

    def leave(self) -> None:
        """End the door's input."""
        self._close(self._write)

    def break_output(self) -> None:
        """Read no more, for good."""
        self._close(self._read)

    def close(self) -> None:
        for number in (self._write, self._read):
            self._close(number)

    def _close(self, number: int) -> None:
        if number in self._open:
            self._open.remove(number)
            os.close(number)


@asynccontextmanager
async def serving(
    host: FakeHost,
    make: Callable[[Inlet, Outlet], Any],
    answer: Callable[[bytes], bool] = lambda _line: False,
) -> AsyncIterator["asyncio.Task[int]"]:
    """Run a door over the pipes of `host`; end it, and everything of it, afterwards."""
    inlet, outlet = Inlet(host.source, answer), Outlet(host.sink)
    async with asyncio.TaskGroup() as group:
        door = make(inlet, outlet)
        inlet.run()
        task = group.create_task(door.run())
        try:
            yield task
        finally:
            host.leave()
            async with asyncio.timeout(5):
                await task
            host.close()
