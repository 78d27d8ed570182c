"""Roots as hosts have them: `tieline attach` in a process of its own, spoken to over its pipes.

Source: DESIGN.md 3; docs/attach.md.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tieline.store import recovery

__all__ = ["Attached", "ended_stores", "left_files", "refusal_code"]

STARTED_S = 20.0
ANSWERED_S = 20.0


class Attached:
    """One running `tieline attach`."""

    def __init__(self, process: asyncio.subprocess.Process, who: dict[str, Any]) -> None:
        self.process, self.who = process, who
        self.events: list[dict[str, Any]] = []
        self._number = 0

    @classmethod
    async def start(
        cls, home: Path, alias: str, *words: str, descriptors: int = 1_024, **environment: str
    ) -> "Attached":
        """Start a root of scope machine; it is listed when this returns."""
        command = shutil.which("tieline")
        assert command is not None, "the tests' environment has the command"
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh",
            command, "attach", "--alias", alias, "--scope", "machine", *words,
            cwd=home,
            env={**os.environ, "TIELINE_HOME": str(home), **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )  # fmt: skip
        made = cls(process, {})
        first = await made._line(STARTED_S)
        if first is not None:
            assert first["method"] == "attached", first
            made.who = first["params"]
        return made

    async def _line(self, seconds: float) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self.process.stdout.readline()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    async def say(self, method: str, **params: Any) -> str:
        """Send a request; return its id."""
        assert self.process.stdin is not None
        self._number += 1
        name = f"h{self._number}"
        frame = {"jsonrpc": "2.0", "id": name, "method": method, "params": params}
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        await self.process.stdin.drain()
        return name

    async def answer(self, name: str) -> dict[str, Any]:
        """Return the answer to a request; events met on the way are kept.

        Raises:
            EOFError: the process ended before.
        """
        while (told := await self._line(ANSWERED_S)) is not None:
            if told.get("id") == name and "method" not in told:
                return told
            self.events.append(told)
        raise EOFError

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request, or its error."""
        told = await self.answer(await self.say(method, **params))
        found: dict[str, Any] = told["result"] if "result" in told else told["error"]
        return found

    async def leave(self) -> float:
        """End the input; return the seconds until the process ended, in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self._ended(0)

    async def end(self, number: signal.Signals) -> float:
        """Send a signal; return the seconds until the process ended."""
        self.process.send_signal(number)
        return await self._ended(-number if number == signal.SIGKILL else 0)

    async def _ended(self, code: int) -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(20):
            assert await self.process.wait() == code
        elapsed = loop.time() - begun
        self._let_go()
        return elapsed

    def _let_go(self) -> None:
        self.process._transport.close()  # type: ignore[attr-defined]

    async def discard(self) -> None:
        """End it whatever its state."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self._let_go()


def refusal_code(answer: dict[str, Any]) -> str:
    """Return the typed code of an answer that is an error."""
    code: str = answer["data"]["code"]
    return code


def left_files(home: Path) -> dict[str, list[str]]:
    """Return what stands in the shared directories, locks aside."""
    found = {}
    for name in ("active-agents", "peer-runtime"):
        names = os.listdir(home / name) if (home / name).exists() else []
        found[name] = sorted(item for item in names if not item.endswith(".lock"))
    return found


@contextmanager
def ended_stores(home: Path) -> Iterator[dict[str, recovery.Recovered]]:
    """Give what every ended instance left, by instance."""
    yield {item.instance: recovery.recover(str(home), item.instance) for item in recovery.ended(str(home))}
