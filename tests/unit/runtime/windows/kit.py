"""A window of another maker in this process, and roots that share a registry with it.

The window's record names another domain: this process may publish one window only, and it is the root's.
"""

import asyncio
import hashlib
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tieline.runtime.node import Node
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root

__all__ = ["FarWindow", "root_with_window", "until"]

DOMAIN = "linux:elsewhere:pid:[1]"


class FarWindow:
    """A socket, a key, a record; what came in, and what is said."""

    def __init__(self, registry: Path, project: Path, name: str = "far", pid: int = 77_777) -> None:
        self.registry, self.pid, self.name = registry, pid, name
        self.path = str(registry / "socks" / f"far-{pid}.sock")
        self.frames: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {
            "version": "0.1.0", "pid": pid, "sessionId": f"session-{pid}", "cwd": str(project),
            "projectRoot": str(project), "name": name, "nameSource": "user", "formerNames": ["was-far"],
            "kind": "interactive", "status": "idle", "statusUpdatedAt": 1, "startedAt": 1, "procStart": "1",
            "pidDomain": DOMAIN, "socketPath": self.path, "peerProtocol": 1, "features": ["notify_idle"],
        }  # fmt: skip

    async def open(self, **fields: Any) -> "FarWindow":
        """Listen, and show it: the key, then the record."""
        (self.registry / "socks").mkdir(mode=0o700, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=1 << 21)
        os.chmod(self.path, 0o600)
        self.write(**fields)
        return self

    def write(self, **fields: Any) -> None:
        """Write key and record as they are now."""
        self.fields |= fields
        key = hashlib.sha256(self.path.encode()).hexdigest()
        for name, document in (
            (f"{self.pid}.{key}.key", {"peerToken": "far-token", "procStart": "1", "pidDomain": DOMAIN}),
            (f"{self.pid}.json", self.fields),
        ):
            unfinished = self.registry / f".{name}.new"
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(document))
            unfinished.rename(self.registry / name)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = json.loads(await reader.readline())
        assert first == {"type": "auth", "token": "far-token"}
        while line := await reader.readline():
            self.frames.append(json.loads(line))
        writer.close()

    def record(self) -> dict[str, Any]:
        """Return the root's record."""
        found: dict[str, Any] = json.loads((self.registry / f"{os.getpid()}.json").read_text())
        return found

    def key(self) -> str:
        """Return the token of the root's key file."""
        record = self.record()
        name = f"{record['pid']}.{hashlib.sha256(record['socketPath'].encode()).hexdigest()}.key"
        token: str = json.loads((self.registry / name).read_text())["peerToken"]
        return token

    async def say(self, *frames: dict[str, Any], token: str = "") -> None:
        """Say frames to the root over one connection, and wait until it closes."""
        lines = [{"type": "auth", "token": token or self.key()}, *frames]
        reader, writer = await asyncio.open_unix_connection(self.record()["socketPath"])
        writer.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        writer.write_eof()
        await reader.read()
        writer.close()

    def user(self, body: str, **more: Any) -> dict[str, Any]:
        """Return a message."""
        return {
            "msgV": 1, "msg_id": str(uuid.uuid4()), "type": "user", "from": self.path, "fromName": self.name,
            "hopChain": [self.path], "priority": "next",
            "content": f'<cross-session-message from="{self.path}">{body}</cross-session-message>', **more,
        }  # fmt: skip

    def control(self, action: str, **more: Any) -> dict[str, Any]:
        """Return a control frame."""
        shared = {"msgV": 1, "msg_id": str(uuid.uuid4()), "type": "control", "from": self.path}
        return {**shared, "action": action, **more}

    def told(self, action: str) -> list[dict[str, Any]]:
        """Return the control frames of one kind that came."""
        return [frame for frame in self.frames if frame.get("action") == action]

    def statuses(self, message_id: str) -> list[str]:
        """Return the receipts that came for a message of ours."""
        return [
            item["status"] for item in self.told("peer_message_status") if item["orig_msg_id"] == message_id
        ]

    async def close(self) -> None:
        """Listen no more."""
        self._server.close()
        await self._server.wait_closed()


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Return what `condition()` gives once it holds."""
    async with asyncio.timeout(seconds):
        while not (found := condition()):  # noqa: ASYNC110 - nothing but a look tells it
            await asyncio.sleep(0.005)
    return found


@asynccontextmanager
async def root_with_window(
    home: Path, *, settings: str = "", environment: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[Root, FarWindow]]:
    """Give the root `bob`, whose window is shown, and a window of another maker in the same project."""
    (home / "w").mkdir(exist_ok=True)
    (home / "h").mkdir(mode=0o700, exist_ok=True)
    registry = home / "p"
    registry.mkdir(mode=0o700, exist_ok=True)
    (home / "h" / "config.toml").write_text(
        f'[wires.pi_peers]\nenabled = true\ndirectory = "{registry}"\n{settings}'
    )
    far = await FarWindow(registry, home / "w").open()
    chosen = RootOptions(home=str(home / "h"), workspace=str(home / "w"), alias="bob", host_pid=1, **options)
    root = Root(await Node.open(chosen, {**os.environ, **(environment or {})}))
    try:
        yield root, far
    finally:
        await root.close()
        await far.close()
