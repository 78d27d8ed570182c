"""JavaScript ends of the intercom wire, each a process that a test commands over its pipes.

Source: tests/contract/js/intercom-*.mjs.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from tests.contract.js.peer import ANSWERED_S, NODE, Failed, JsWindow

__all__ = ["Failed", "JsBroker", "JsEnd", "Room", "room"]

HERE = Path(__file__).parent


class JsEnd(JsWindow):
    """One running session: of revision F, of revision N, or the client that is shipped."""

    @classmethod
    async def begin(cls, program: str, *words: str, **environment: str) -> Self:
        """Start a program of this folder; it is connected to nobody yet."""
        process = await asyncio.create_subprocess_exec(
            str(NODE), str(HERE / program), *words,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )  # fmt: skip
        made = cls(process)
        await made.event("ready")
        return made

    @property
    def id(self) -> str:
        """Its id at the broker."""
        return str(self.who["sessionId"])

    async def register(self, name: str | None = None, **params: Any) -> Self:
        """Register; `session` changes what it says of itself, None takes a field away."""
        facts = params.pop("session", {})
        self.who = await self.call("register", session={"name": name, **facts}, **params)
        return self

    async def got(self, text: str) -> dict[str, Any]:
        """Return the message with exactly this text, once it is here."""
        found = await self.event("message", lambda one: one["message"]["content"]["text"] == text)
        return {**found["message"], "from": found["from"]}

    def texts(self) -> list[str]:
        """Return the texts that have come so far, in order."""
        return [one["message"]["content"]["text"] for one in self.events if one["event"] == "message"]

    async def lost(self) -> str:
        """Return why its socket ended, once it did."""
        return str((await self.event("lost"))["reason"])


class JsBroker:
    """One running broker of revision F."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, socket: Path, *words: str) -> "JsBroker":
        """Start it; it listens when this returns."""
        process = await asyncio.create_subprocess_exec(
            str(NODE), str(HERE / "intercom-broker-f.mjs"), f"--socket={socket}", *words,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(ANSWERED_S):
            assert b"started" in await process.stdout.readline()
        return cls(process)

    async def ended(self, *, seconds: float = ANSWERED_S) -> int:
        """Return its exit code, once it ended."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def discard(self) -> None:
        """End it whatever its state."""
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()
        self.process._transport.close()  # type: ignore[attr-defined]


class Room:
    """A broker's socket, and who is there; everybody who came is ended with it."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.stack = AsyncExitStack()

    async def start_f(self, *words: str) -> JsEnd:
        """Return a session of revision F that is not registered."""
        return await self._start("intercom-client-f.mjs", *words)

    async def start_n(self) -> JsEnd:
        """Return a session of revision N that is not registered."""
        return await self._start("intercom-client-n.mjs")

    async def f(self, name: str | None = None, **params: Any) -> JsEnd:
        """Return a registered session of revision F."""
        return await (await self.start_f()).register(name, **params)

    async def n(self, name: str | None = None, **params: Any) -> JsEnd:
        """Return a registered session of revision N."""
        return await (await self.start_n()).register(name, **params)

    async def s(self, root: str, parent: str | None = None, *, name: str | None = None, **more: Any) -> JsEnd:
        """Return a registered session that announces every capability and its place in a group."""
        made = await self.start_f("--announce=guardedDelivery,receiptReads,lastReads,wakeOutcomes")
        facts: dict[str, Any] = {"rootSessionId": root, "incarnation": f"life-of-{root}"}
        if parent is not None:
            facts["parentSessionId"] = parent
        facts |= more.pop("session", {})
        return await made.register(name, session=facts, **more)

    async def _start(self, program: str, *words: str) -> JsEnd:
        made = await JsEnd.begin(program, f"--socket={self.socket}", *words)
        self.stack.push_async_callback(made.discard)
        return made


@asynccontextmanager
async def room(socket: Path) -> AsyncIterator[Room]:
    """Give a room at a broker's socket."""
    made = Room(socket)
    try:
        yield made
    finally:
        await made.stack.aclose()
