"""The proxy between an editor and its agent: two streams of lines, and what is added to them.

Rule 1: a line goes on as it came, byte for byte, in order, unless it makes a session, answers `initialize` of
a client that takes peer events, or is ours alone.
Rule 2: what cannot be done for our sake (a root that does not open) leaves the agent as it is without us.
Rule 3: the agent's end is the end. The client's end is the agent's end of input, and soon its end: some
agents go on without input for ever.

Source: reference/harnesses.md 9; reference/native.md 4.1, 4.3; docs/harnesses/acp.md.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final

from tieline.adapters.acp import frames
from tieline.adapters.acp.agent import CANNOT_EXECUTE, KILLED, NOT_FOUND, Agent
from tieline.adapters.acp.session import Session
from tieline.adapters.stdio.calls import Root
from tieline.adapters.stdio.pipes import Outlet
from tieline.errors import TielineError
from tieline.runtime.joined import JOIN_VARIABLE
from tieline.runtime.options import RootOptions

__all__ = ["Proxy"]

CHUNK_BYTES: Final = 65_536
END_S: Final = 5.0
"""What an agent gets to end by itself once its client has left."""
LAST_LINES_S: Final = 1.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
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
        self._client_lock = asyncio.Lock()
        self._sessions: dict[str, Session] = {}
        self._opening: dict[str, Session] = {}
        self._permissions: dict[str, Session] = {}
        self._closing: dict[str, Session] = {}
        self._harness = os.path.basename(agent[0])
        self._initialize = ""
        self._takes_events = False
        self._is_over = False
        self._group = asyncio.TaskGroup()
        self._works: set[asyncio.Task[None]] = set()
        self._agent: Agent | None = None

    async def run(self) -> int:
        """Serve until the agent has ended; return its exit code, 126 or 127 where it does not start."""
        try:
            agent = await Agent.start(self._words)
        except OSError as error:
            print(f"tieline acp: {self._words[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a door's log
            return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
        self._agent = agent
        loop = asyncio.get_running_loop()
        leaving: asyncio.Future[int] = loop.create_future()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._leave, leaving, number)
        try:
            async with self._group as group:
                code = await self._serve(agent, group, leaving)
        finally:
            agent.release()
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        return leaving.result() if leaving.done() else code

    async def _serve(self, agent: Agent, group: asyncio.TaskGroup, leaving: "asyncio.Future[int]") -> int:
        client = group.create_task(self._read_client(agent))
        reading = group.create_task(self._read_agent(agent))
        ended = group.create_task(agent.wait())
        either: set[asyncio.Future[Any]] = {client, ended, leaving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await agent.end(0 if leaving.done() else END_S)
        code = await ended
        # Its last lines; a process that it left behind may hold the pipe.
        await asyncio.wait({reading}, timeout=LAST_LINES_S)
        self._is_over = True
        if self._works:
            await asyncio.wait(self._works, timeout=END_S)
        for task in (client, reading, *self._works):
            task.cancel()
        for session in {*self._sessions.values(), *self._opening.values()}:
            await session.close()
        return code

    @staticmethod
    def _leave(leaving: "asyncio.Future[int]", number: signal.Signals) -> None:
        if not leaving.done():
            leaving.set_result(KILLED + number)

    # --- streams ------------------------------------------------------------------------------

    async def _read_client(self, agent: Agent) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._source, "rb")
        )
        try:
            async for data in _lines(reader):
                await self._from_client(data)
        finally:
            transport.close()
        agent.close_input()

    async def _read_agent(self, agent: Agent) -> None:
        async for data in _lines(agent.output):
            await self._from_agent(data)

    async def _to_agent(self, data: bytes) -> None:
        assert self._agent is not None, "nothing is written before it was started"
        await self._agent.write(data)

    async def _to_client(self, data: bytes) -> None:
        async with self._client_lock:
            await asyncio.to_thread(self._outlet.write, data)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_over:
            work.close()
            return
        task = self._group.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)

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
        elif session is not None and method == "session/close" and "id" in frame:
            self._closing[frames.key(frame["id"])] = session
            await self._to_agent(data)
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
            harness=self._harness,
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
        if frames.key(request_id) == self._initialize and "result" in frame:
            self._initialize = ""
            self._harness = frames.agent_name(frame) or self._harness
            if self._takes_events:
                data = frames.advertised(frame)
        opened = self._opening.pop(frames.key(request_id), None)
        former = self._closed(frame) if opened is None else self._placed(opened, frame)
        await self._to_client(data)
        if opened is not None and opened.id:
            await opened.announce(opened.id)
        for over in former:
            await over.close()
        for session in self._sessions.values():
            if session.has(request_id):
                self._start(session.answered(frame))

    def _closed(self, frame: dict[str, Any]) -> list[Session]:
        """Return the session that this answer says is closed."""
        session = self._closing.pop(frames.key(frame.get("id")), None)
        if session is None or "result" not in frame or self._sessions.get(session.id) is not session:
            return []
        return [self._sessions.pop(session.id)]

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
