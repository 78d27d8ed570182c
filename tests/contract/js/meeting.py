"""A registry in which roots and JavaScript windows meet, each in a process of its own.

Source: reference/pi-peers-and-harness-doors.md 1; docs/wire-pi-peers.md.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.contract.js.peer import JsWindow
from tests.system.kit.attached import Attached

__all__ = ["Meeting", "event", "mail", "meeting", "settled", "until"]

HAPPENED_S = 15.0


async def until(look: Callable[[], Awaitable[Any]], *, seconds: float = HAPPENED_S) -> Any:
    """Return the first answer of `look` that is no nothing.

    Raises:
        TimeoutError: there was none.
    """
    async with asyncio.timeout(seconds):
        while not (found := await look()):  # noqa: ASYNC110 - what happens is in another process
            await asyncio.sleep(0.05)
    return found


class Meeting:
    """Who is there, and where."""

    def __init__(self, home: Path) -> None:
        self.home, self.registry = home, home / "p"
        self._stack = AsyncExitStack()

    async def root(self, alias: str, **environment: str) -> Attached:
        """Start a root with its window."""
        made = await Attached.start(
            self.home,
            alias,
            **{"TIELINE_PI_PEERS_ENABLED": "true", "PI_PEERS_DIR": str(self.registry)} | environment,
        )
        self._stack.push_async_callback(made.discard)
        return made

    async def window(
        self, name: str = "js", *words: str, cwd: Path | None = None, **environment: str
    ) -> JsWindow:
        """Start a JavaScript window."""
        made = await JsWindow.start(
            cwd or self.home, name, *words, **{"PI_PEERS_DIR": str(self.registry)} | environment
        )
        self._stack.push_async_callback(made.discard)
        return made

    def record_path(self, pid: int) -> Path:
        """Where the record of a process is."""
        return self.registry / f"{pid}.json"

    def record(self, pid: int) -> dict[str, Any]:
        """Return the record of a process."""
        found: dict[str, Any] = json.loads(self.record_path(pid).read_text())
        return found

    def key_path(self, record: dict[str, Any]) -> Path:
        """Where the key of a record is: named after the hash of the literal address."""
        return (
            self.registry / f"{record['pid']}.{hashlib.sha256(record['socketPath'].encode()).hexdigest()}.key"
        )

    def put(self, record: dict[str, Any], token: str | None = "0" * 32) -> None:
        """Write a record, and its key where there is a token."""
        files = [(self.record_path(record["pid"]), record)]
        if token is not None:
            files.insert(0, (self.key_path(record), {"peerToken": token}))
        for path, document in files:
            path.write_text(json.dumps(document))
            path.chmod(0o600)

    async def close(self) -> None:
        """End everybody."""
        await self._stack.aclose()


@asynccontextmanager
async def meeting(home: Path) -> AsyncIterator[Meeting]:
    """Give a place where they meet; everybody who came is ended."""
    made = Meeting(home)
    try:
        yield made
    finally:
        await made.close()


async def settled(root: Attached, message_id: str, state: str, outcome: str | None = None) -> dict[str, Any]:
    """Return the receipt of a message that `root` sent once it is in `state` with `outcome`."""

    async def look() -> dict[str, Any] | None:
        told = await root.call("local.status", messageId=message_id)
        receipt: dict[str, Any] = told["sent"][0]["receipt"]
        return receipt if (receipt["state"], receipt.get("outcome")) == (state, outcome) else None

    try:
        return await until(look)  # type: ignore[no-any-return]
    except TimeoutError:
        told = await root.call("local.status", messageId=message_id)
        raise AssertionError(f"not {state} {outcome}: {told}") from None


async def mail(root: Attached, *, wait_ms: int = 10_000) -> list[dict[str, Any]]:
    """Return the unread mail of a root; it counts as read."""
    found: list[dict[str, Any]] = (await root.call("peer_messages", waitMs=wait_ms))["messages"]
    return found


async def event(root: Attached, kind: str) -> dict[str, Any]:
    """Return the newest event of this kind that the root told its host, once it did."""

    async def look() -> dict[str, Any] | None:
        await root.call("local.who")
        events = [told["params"].get("event") or {} for told in root.events]
        return next((one for one in reversed(events) if one.get("type") == kind), None)

    return await until(look)  # type: ignore[no-any-return]
