"""A root of another process, seen as the doors of this one see their own.

A host that cannot serve its agent's tools itself starts a server for them below the agent; what that server
is asked goes to the host's root, so that the session stays one peer.

Rule 1: one link for each call, to the control endpoint that the host named; a call that is cut off hangs up,
and the root ends its wait.
Rule 2: mail that a result carried is consumed when this process says that its own reader took it; a link that
died before gives it back.
Rule 3: the root's life is its host's affair: nothing here opens, publishes or closes it.

Source: DESIGN.md 2; reference/reliability.md K33; wire/control/protocol.py.
"""

import asyncio
import json
from typing import Any, Final

from tieline import __version__
from tieline.engine.contract import Act
from tieline.errors import OutcomeUnknown, Refused
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.client import CHANGING, VERSION, result_of

__all__ = ["JOIN_VARIABLE", "JoinedRoot", "join"]

JOIN_VARIABLE: Final = "TIELINE_JOIN"
"""Names the control endpoint of the root that a server of tools belongs to."""
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
CONNECT_S: Final = 2.0
_HELLO: Final = "hello"


class _Link:
    """One connection and the one request on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._last_id = 0

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer's frame."""
        hello = {"version": VERSION, "product": f"tieline {__version__}"}
        opening = b"" if self._last_id else _line(_HELLO, "control.hello", hello)
        self._last_id += 1
        self._writer.write(opening + _line(self._last_id, method, params))
        await self._writer.drain()
        while True:
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                raise ConnectionResetError
            frame: dict[str, Any] = json.loads(line)
            if "method" not in frame and (frame.get("id") in (self._last_id, None) or "error" in frame):
                return frame

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def _line(request_id: int | str, method: str, params: dict[str, Any]) -> bytes:
    frame = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


class _Operations:
    """The operations of a joined root."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._unsettled: dict[str, _Link] = {}

    @property
    def root_actor(self) -> Actor:
        """Who the calls come from; the root itself looks who is at the other end of a link."""
        return Actor(Peer(""), Act.AGENT, "mcp")

    async def call(self, _actor: Actor, method: str, params: object, *, call_id: str | None = None) -> Reply:
        """Carry out one operation at the root.

        Raises:
            Refused: the root's own refusal, or no root is there (`NO_ROOT`).
            OutcomeUnknown: a request that changes something was sent, and no answer came.
        """
        fields: dict[str, Any] = dict(params) if isinstance(params, dict) else {}
        fields |= {"isSettledLater": True} if call_id is None else {"isSettledLater": True, "callId": call_id}
        link = await self._linked()
        try:
            frame = await link.ask(method, fields)
        except (OSError, ValueError):
            link.close()
            if method in CHANGING:
                raise OutcomeUnknown("the root ended before it answered") from None
            raise Refused("NO_ROOT", "the root ended before it answered") from None
        except BaseException:
            link.close()
            raise
        token = None
        try:
            result = result_of(frame)
            token = result.pop("settle", None)
        finally:
            if token is None:
                link.close()
        if token is not None:
            self._unsettled[token] = link
        return Reply(result, token)

    async def flushed(self, token: str) -> int:
        """The bytes reached the reader of this process."""
        return await self._settle(token, "host.taken")

    async def unflushed(self, token: str) -> int:
        """They did not."""
        return await self._settle(token, "host.refused")

    async def _settle(self, token: str, method: str) -> int:
        link = self._unsettled.pop(token, None)
        if link is None:
            return 0
        try:
            result = result_of(await link.ask(method, {"token": token}))
        except (OSError, ValueError):
            return 0  # the root is gone: its store knows what was consumed
        finally:
            link.close()
        return int(result.get("consumed", result.get("freed", 0)))

    async def _linked(self) -> _Link:
        try:
            async with asyncio.timeout(CONNECT_S):
                return _Link(*await asyncio.open_unix_connection(self._path, limit=LINE_BYTES_MAX))
        except (OSError, TimeoutError):
            raise Refused("NO_ROOT", "the root of this session has ended") from None


class JoinedRoot:
    """A root of another process; what a door needs of one."""

    def __init__(self, path: str) -> None:
        self._operations = _Operations(path)
        self._shutdown = asyncio.Event()

    @property
    def operations(self) -> _Operations:
        """Its operations."""
        return self._operations

    @property
    def shutdown(self) -> asyncio.Event:
        """Never set: the host ends this process by its pipes."""
        return self._shutdown

    async def publish(self, session: str | None = None) -> None:
        """Do nothing: the host publishes it."""

    def push_by(self, door: object, *, wakes_only: bool = False) -> None:
        """Do nothing: the host shows its own mail."""

    @property
    def is_automatic(self) -> bool:
        """Never: the host wakes its own session."""
        return False

    def hook_by(self, door: object) -> None:
        """Do nothing: the host has no hooks of ours."""

    def who(self) -> dict[str, Any]:
        """Return nothing: the host is who it is."""
        return {}

    async def close(self) -> None:
        """Do nothing: the host closes it."""


async def join(path: str) -> JoinedRoot:
    """Return the root behind a control endpoint.

    Raises:
        Refused: `NO_ROOT`, nobody listens there.
    """
    root = JoinedRoot(path)
    await root.operations.call(root.operations.root_actor, "local.who", {})
    return root
