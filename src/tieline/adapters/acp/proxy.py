"""The proxy between an editor and its agent: two streams of lines, and what is added to them.

Rule 1: a line goes on as it came, byte for byte, in order, unless it makes a session, answers `initialize` of
a client that takes peer events, or is ours alone.
Rule 2: what cannot be done for our sake (a root that does not open) leaves the agent as it is without us.
Rule 3: the agent's end is the end; the client's end is the agent's end of input.

Source: reference/harnesses.md 9; reference/native.md 4.1, 4.3; docs/harnesses/acp.md.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from tieline.adapters.acp import frames
from tieline.adapters.acp.session import Session
from tieline.adapters.stdio.calls import Root
from tieline.adapters.stdio.pipes import Outlet
from tieline.errors import TielineError
from tieline.runtime.joined import JOIN_VARIABLE
from tieline.runtime.options import RootOptions

__all__ = ["Proxy"]

CHUNK_BYTES: Final = 65_536
END_S: Final = 5.0
CANNOT_EXECUTE, NOT_FOUND = 126, 127
MAKES_SESSION: Final = ("session/new", "session/load", "session/resume", "session/fork")
MISSED_EVENTS: Final = f"_{frames.VENDOR}/peer_events"
PASSED_ON: Final = ("TIELINE_HOME", "TIELINE_COORDINATION_DIRECTORY")

Opener = Callable[[RootOptions], Awaitable[Root]]


class Proxy:
    """One editor and one agent."""

    def __init__(
        self, source: int, sink: int, agent: list[str], alias: str, scope: str, opener: Opener
    ) -> None:
        """Read the client from `source`, write to it at `sink`; start the words of `agent`."""
        self._source = source
        self._outlet = Outlet(sink)
        self._words, self._alias, self._scope, self._opener = agent, alias, scope, opener
        self._client_lock, self._agent_lock = asyncio.Lock(), asyncio.Lock()
        self._sessions: dict[str, Session] = {}
        self._opening: dict[str, Session] = {}
        self._permissions: dict[str, Session] = {}
        self._initialize = ""
        self._takes_events = False
        self._is_over = False
        self._group = asyncio.TaskGroup()
        self._agent: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Serve until the agent has ended; return its exit code, 126 or 127 where it does not start."""
        pipe = asyncio.subprocess.PIPE
        try:
            agent = await asyncio.create_subprocess_exec(*self._words, stdin=pipe, stdout=pipe)
        except OSError as error:
            print(f"tieline acp: {self._words[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a door's log
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
        self._agent = agent
        async with self._group as group:
            client = group.create_task(self._read_client())
            await self._read_agent(agent)
            self._is_over = True
            client.cancel()
            code = await self._ended(agent)
            for session in {*self._sessions.values(), *self._opening.values()}:
                await session.close()
        return code

    async def _ended(self, agent: asyncio.subprocess.Process) -> int:
        try:
            async with asyncio.timeout(END_S):
                return await agent.wait()
        except TimeoutError:
            agent.terminate()
            return await agent.wait()

    # --- streams ------------------------------------------------------------------------------

    async def _read_client(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._source, "rb")
        )
        async for data in _lines(reader):
            await self._from_client(data)
        assert self._agent is not None, "the client is read behind the agent's start"
        assert self._agent.stdin is not None, "it was started with a pipe"
        self._agent.stdin.close()

    async def _read_agent(self, agent: asyncio.subprocess.Process) -> None:
        assert agent.stdout is not None, "it was started with a pipe"
        async for data in _lines(agent.stdout):
            await self._from_agent(data)

    async def _to_agent(self, data: bytes) -> None:
        assert self._agent is not None, "nothing is written before it was started"
        assert self._agent.stdin is not None, "it was started with a pipe"
        async with self._agent_lock:
            try:
                self._agent.stdin.write(data)
                await self._agent.stdin.drain()
            except (BrokenPipeError, ConnectionResetError):
                return  # it ends: its output says so

    async def _to_client(self, data: bytes) -> None:
        async with self._client_lock:
            await asyncio.to_thread(self._outlet.write, data)

    def _start(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        if not self._is_over:
            self._group.create_task(run())

    # --- lines of the client ------------------------------------------------------------------

    async def _from_client(self, data: bytes) -> None:
        frame = frames.read(data)
        method = None if frame is None else frame.get("method")
        if frame is None or not isinstance(method, str):
            if frame is not None:
                self._permitted(frame)
            await self._to_agent(data)
            return
        params = frames.object_of(frame, "params")
        session = self._sessions.get(str(params.get("sessionId", "")))
        if method == "initialize":
            self._initialize = frames.key(frame.get("id"))
            self._takes_events = frames.wants_events(frame)
            await self._to_agent(data)
        elif method in MAKES_SESSION and frames.list_of(params, "mcpServers") is not None:
            await self._to_agent(await self._made(frame, params, data))
        elif session is not None and method == "session/prompt" and "id" in frame:
            await session.prompted(frame["id"], data)
        elif session is not None and method == "session/cancel":
            await session.cancel(data)
        elif session is not None and self._takes_events and method == MISSED_EVENTS and "id" in frame:
            await self._to_client(await session.events_after(frame["id"], str(params.get("after", "0"))))
        else:
            await self._to_agent(data)

    async def _made(self, frame: dict[str, Any], params: dict[str, Any], data: bytes) -> bytes:
        """Open the root of a session that is asked for; return the request with our tools in it."""
        folder = params.get("cwd")
        options = RootOptions(
            workspace=folder if isinstance(folder, str) else "",
            alias=self._alias,
            scope=self._scope,
            mode="acp",
            harness=os.path.basename(self._words[0]),
            host_pid=os.getpid(),
            is_published=False,
        )
        try:
            root = await self._opener(options)
        except (TielineError, OSError) as error:
            print(f"tieline acp: this session is no peer: {error}", file=sys.stderr)  # noqa: T201 - a door's log
            return data
        session = Session(root, self._to_agent, self._to_client, self._start)
        session.takes_events = self._takes_events
        session.id = (
            "" if frame["method"] in ("session/new", "session/fork") else str(params.get("sessionId", ""))
        )
        self._opening[frames.key(frame.get("id"))] = session
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables[JOIN_VARIABLE] = root.who()["control"]
        return frames.with_server(frame, (sys.executable, "-m", "tieline.adapters.cli.main"), variables)

    def _permitted(self, frame: dict[str, Any]) -> None:
        session = self._permissions.pop(frames.key(frame.get("id")), None)
        if session is not None:
            self._start(session.state(resumed=True))

    # --- lines of the agent -------------------------------------------------------------------

    async def _from_agent(self, data: bytes) -> None:
        frame = frames.read(data)
        if frame is None:
            await self._to_client(data)
        elif "method" in frame:
            await self._to_client(data)
            await self._said(frame)
        else:
            await self._replied(frame, data)

    async def _said(self, frame: dict[str, Any]) -> None:
        params = frames.object_of(frame, "params")
        session = self._sessions.get(str(params.get("sessionId", "")))
        if session is None:
            return
        if frame["method"] == "session/update":
            await session.updated(frames.object_of(params, "update"))
        elif frame["method"] == "session/request_permission" and "id" in frame:
            self._permissions[frames.key(frame["id"])] = session
            self._start(session.state(paused="permission"))

    async def _replied(self, frame: dict[str, Any], data: bytes) -> None:
        request_id = frame.get("id")
        for session in self._sessions.values():
            if session.owns(request_id):
                self._start(session.answered(frame))
                return
        if self._takes_events and frames.key(request_id) == self._initialize and "result" in frame:
            data, self._initialize = frames.advertised(frame), ""
        opened = self._opening.pop(frames.key(request_id), None)
        former = None if opened is None else self._placed(opened, frame)
        await self._to_client(data)
        if opened is not None and opened.id:
            await opened.announce(opened.id)
        for over in former or ():
            await over.close()
        for session in self._sessions.values():
            if session.has(request_id):
                self._start(session.answered(frame))

    def _placed(self, session: Session, frame: dict[str, Any]) -> list[Session]:
        """Give a session its id before the client has it, and may prompt; return what is over with that."""
        name = frames.object_of(frame, "result").get("sessionId", session.id)
        if "result" not in frame or not isinstance(name, str) or not name:
            session.id = ""
            return [session]
        session.id = name
        former = self._sessions.get(name)
        self._sessions[name] = session
        # Loaded a second time, its tools are those of the new server.
        return [] if former is None else [former]


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream with their ends, as they came; the last may have none."""
    rest = bytearray()
    while data := await reader.read(CHUNK_BYTES):
        pieces = data.split(b"\n")
        for piece in pieces[:-1]:
            rest += piece + b"\n"
            yield bytes(rest)
            rest.clear()
        rest += pieces[-1]
    if rest:
        yield bytes(rest)
