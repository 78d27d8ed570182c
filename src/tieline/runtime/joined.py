"""A root of another process, seen as the doors of this one see their own.

A host that cannot serve its agent's tools itself starts a server for them below the agent; what that server
is asked goes to the host's root, so that the session stays one peer. And a host that starts a server for each
subagent starts it beside that of the session: it joins the session's root as one run of it.

Rule 1: one link for each call, to the control endpoint that the host named; a call that is cut off hangs up,
and the root ends its wait.
Rule 2: mail that a result carried is consumed when this process says that its own reader took it; a link that
died before gives it back.
Rule 3: the root's life is its host's affair: nothing here opens, publishes or closes it.
Rule 4: a run acts by the token that its beginning returned, which proves that one run alone and dies with it.

Source: DESIGN.md 2; reference/reliability.md K33; wire/control/protocol.py.
"""

import asyncio
import json
import os
from typing import Any, Final

from tieline import __version__
from tieline.engine.contract import Act
from tieline.errors import OutcomeUnknown, Refused, TielineError
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.client import CHANGING, VERSION, result_of
from tieline.runtime.locate import places, survey
from tieline.shell.process import identify

__all__ = ["JOIN_VARIABLE", "JoinedRoot", "join", "root_beside"]

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

    def __init__(self, path: str, run: str = "") -> None:
        self._path = path
        self._run = run
        self._run_token = ""
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
        if self._run and not self._run_token and not method.startswith(("host.", "local.")):
            await self.call(_actor, "host.run_begin", {"run": self._run})
        fields: dict[str, Any] = dict(params) if isinstance(params, dict) else {}
        fields |= {"isSettledLater": True} if call_id is None else {"isSettledLater": True, "callId": call_id}
        if self._run_token and not method.startswith("host."):
            fields["run"] = self._run_token
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
            if self._run and method in ("host.run_begin", "host.run_end"):
                self._run_token = str(result.get("token", ""))
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
        try:
            # What a boundary showed is not bound to the link that asked for it.
            link = link or await self._linked()
            result = result_of(await link.ask(method, {"token": token}))
        except (OSError, ValueError, TielineError):
            return 0  # the root is gone: its store knows what was consumed
        finally:
            if link is not None:
                link.close()
        return int(result.get("consumed", result.get("freed", 0)))

    async def end_run(self) -> None:
        """End the run, where it has begun."""
        if self._run_token:
            try:
                await self.call(self.root_actor, "host.run_end", {"run": self._run})
            except TielineError:
                return  # its root has ended before it

    async def _linked(self) -> _Link:
        try:
            async with asyncio.timeout(CONNECT_S):
                return _Link(*await asyncio.open_unix_connection(self._path, limit=LINE_BYTES_MAX))
        except (OSError, TimeoutError):
            raise Refused("NO_ROOT", "the root of this session has ended") from None


class JoinedRoot:
    """A root of another process; what a door needs of one."""

    def __init__(self, path: str, run: str = "") -> None:
        self._operations = _Operations(path, run)
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
        """End the run that joined; the root itself is closed by its host."""
        await self._operations.end_run()


def root_beside(session: str, own: str) -> str | None:
    """Return the control endpoint of the session's root that the host of this process has, or None.

    Args:
        session: The session's id, as the host told both servers.
        own: The instance that is not meant: this process's own.
    """
    host = identify(os.getppid())
    try:
        roots = survey(places(os.environ).coordination).roots
    except TielineError:
        return None
    found = [
        root.control
        for root in roots
        if host is not None
        and root.life == "alive"
        and root.session == session
        and root.instance != own
        and root.host is not None
        and (root.host.pid, root.host.start_ticks) == (host.pid, host.start_ticks)
    ]
    return found[0] if len(found) == 1 else None


async def join(path: str, run: str = "") -> JoinedRoot:
    """Return the root behind a control endpoint; with `run`, as that run of it has it.

    Raises:
        Refused: `NO_ROOT`, nobody listens there.
    """
    root = JoinedRoot(path, run)
    await root.operations.call(root.operations.root_actor, "local.who", {})
    return root
