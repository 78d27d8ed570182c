"""The proxy between an editor and its agent: two streams of lines, and what is added to them.

Rule 1: a line goes on as it came, byte for byte, in order, unless it makes a session, answers `initialize` of
a client that takes peer events, or is ours alone.
Rule 2: what cannot be done for our sake (a root that does not open) leaves the agent as it is without us.
Rule 3: the agent's end is the end, and what it wrote before reaches a client that reads. The client's end, of
either pipe, is the agent's, and soon its end: some agents go on without input for ever.

Source: reference/harnesses.md 9; reference/native.md 4.1, 4.3; docs/harnesses/acp.md.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from tieline.adapters.acp import frames
from tieline.adapters.acp.agent import CANNOT_EXECUTE, KILLED, NOT_FOUND, Agent
from tieline.adapters.acp.session import Session
from tieline.adapters.acp.streams import Sink, Source, lines
from tieline.adapters.stdio.calls import Root
from tieline.errors import TielineError
from tieline.runtime.joined import JOIN_VARIABLE
from tieline.runtime.options import RootOptions

__all__ = ["Proxy"]

END_S: Final = 5.0
"""What an agent gets to end by itself once its client has left."""
LAST_LINES_S: Final = 1.0
"""What an ended agent's pipe gets; where the client is waited for, that does not count."""
LOOK_S: Final = 0.1
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MAKES_SESSION: Final = ("session/new", "session/load", "session/resume", "session/fork")
ENDS_SESSION: Final = ("session/close", "session/delete")
MISSED_EVENTS: Final = f"_{frames.VENDOR}/peer_events"
PASSED_ON: Final = ("TIELINE_HOME", "TIELINE_COORDINATION_DIRECTORY")

Opener = Callable[[RootOptions], Awaitable[Root]]


class Proxy:
    """One editor and one agent."""

    def __init__(
        self, source: int, sink: int, agent: list[str], alias: str, scope: str, opener: Opener
    ) -> None:
        """Read the client from `source`, write to it at `sink`; start the words of `agent`."""
        self._source, self._sink = Source(source), Sink(sink)
        self._words, self._alias, self._scope, self._opener = agent, alias, scope, opener
        self._sessions: dict[str, Session] = {}
        self._opening: dict[str, Session] = {}
        self._permissions: dict[str, str] = {}
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
            for number in SIGNALS:
                loop.remove_signal_handler(number)
            self._source.close()
            self._sink.close()
            await agent.end(0)
            agent.release()
        return leaving.result() if leaving.done() else code

    async def _serve(self, agent: Agent, group: asyncio.TaskGroup, leaving: "asyncio.Future[int]") -> int:
        client = group.create_task(self._read_client(agent))
        reading = group.create_task(self._read_agent(agent))
        broken = group.create_task(self._sink.broken.wait())
        ended = group.create_task(agent.wait())
        either: set[asyncio.Future[Any]] = {client, broken, ended, leaving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            agent.close_output()
        if not ended.done():
            await agent.end(0 if leaving.done() else END_S)
        code = await ended
        await self._last_lines(client, reading, leaving)
        self._is_over = True
        self._sink.close()
        for task in (client, broken, reading):
            task.cancel()
        if self._works:
            await asyncio.wait(self._works, timeout=END_S)
        for work in self._works:
            work.cancel()
        for session in {*self._sessions.values(), *self._opening.values()}:
            await session.close()
        return code

    async def _last_lines(
        self,
        client: "asyncio.Task[None]",
        reading: "asyncio.Task[None]",
        leaving: "asyncio.Future[int]",
    ) -> None:
        """Let the client have what the agent wrote. A process that it left behind may hold the pipe open."""
        idle_s = left_s = 0.0
        either: set[asyncio.Future[Any]] = {reading, leaving}
        while not reading.done() and not leaving.done() and idle_s < LAST_LINES_S and left_s < END_S:
            moved_count = self._sink.moved_count
            await asyncio.wait(either, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._sink.is_waiting:
                idle_s += LOOK_S
            elif client.done():
                left_s = left_s + LOOK_S if self._sink.moved_count == moved_count else 0.0
        if leaving.done():
            await asyncio.wait({reading}, timeout=LAST_LINES_S)

    @staticmethod
    def _leave(leaving: "asyncio.Future[int]", number: signal.Signals) -> None:
        if not leaving.done():
            leaving.set_result(KILLED + number)

    # --- streams ------------------------------------------------------------------------------

    async def _read_client(self, agent: Agent) -> None:
        async for data in lines(self._source):
            await self._from_client(data)
        agent.close_input()

    async def _read_agent(self, agent: Agent) -> None:
        async for data in lines(agent.output):
            await self._from_agent(data)

    async def _to_agent(self, data: bytes) -> None:
        assert self._agent is not None, "nothing is written before it was started"
        await self._agent.write(data)

    async def _to_client(self, data: bytes) -> None:
        await self._sink.write(data)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_over:
            work.close()
            return
        task = self._group.create_task(_carried_out(work))
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    # --- lines of the client ------------------------------------------------------------------

    async def _from_client(self, data: bytes) -> None:
        frame = frames.read(data)
        method = None if frame is None else frame.get("method")
        if frame is None or not isinstance(method, str):
            await self._to_agent(data)
            if frame is not None:
                self._permitted(frame)
            return
        params = frames.object_of(frame, "params")
        session = self._sessions.get(str(params.get("sessionId", "")))
        if method == "initialize":
            self._initialize = frames.key(frame.get("id"))
            self._takes_events = frames.wants_events(frame)
            await self._to_agent(data)
        elif method in MAKES_SESSION and "id" in frame and isinstance(params.get("mcpServers", []), list):
            await self._to_agent(await self._made(frame, params, data))
        elif method == "$/cancel_request":
            await self._withdrawn(params.get("requestId"), data)
        elif session is None:
            await self._to_agent(data)
        elif method == "session/cancel":
            await session.cancel(data)
        elif "id" in frame:
            await self._asked(session, frame, params, data)
        else:
            await self._to_agent(data)

    async def _asked(
        self, session: Session, frame: dict[str, Any], params: dict[str, Any], data: bytes
    ) -> None:
        """Take what the client asks of a session that is made."""
        request_id, method = frame["id"], frame["method"]
        if method == "session/prompt":
            await session.prompted(request_id, data)
            return
        if method == MISSED_EVENTS and self._takes_events:
            self._start(session.events_after(request_id, str(params.get("after", "0"))))
            return
        if method in ENDS_SESSION:
            self._closing[frames.key(request_id)] = session
        await self._to_agent(data)

    async def _withdrawn(self, request_id: object, data: bytes) -> None:
        for session in self._sessions.values():
            if await session.withdraw(request_id):
                return
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
        except (TielineError, OSError, ValueError) as error:  # the last: a folder that no name can be of
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
        return frames.with_server(data, frame, (sys.executable, "-m", "tieline.adapters.cli.main"), variables)

    def _permitted(self, frame: dict[str, Any]) -> None:
        session = self._sessions.get(self._permissions.pop(frames.key(frame.get("id")), ""))
        if session is not None:
            self._start(session.permitted(frame.get("id")))

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
            session.updated(frames.object_of(params, "update"))
        elif frame["method"] == "session/request_permission" and "id" in frame:
            self._permissions[frames.key(frame["id"])] = session.id
            self._start(session.asks(frame["id"]))

    async def _replied(self, frame: dict[str, Any], data: bytes) -> None:
        request_id = frame.get("id")
        if frames.is_ours(request_id):  # also where its session is gone: the client knows nothing of it
            for session in self._sessions.values():
                if session.owns(request_id):
                    self._start(session.answered(frame))
            return
        if frames.key(request_id) == self._initialize and isinstance(frame.get("result"), dict):
            self._initialize = ""
            self._harness = frames.agent_name(frame) or self._harness
            if self._takes_events:
                data = frames.advertised(data)
        opened = self._opening.pop(frames.key(request_id), None)
        made, former = self._closed(frame) if opened is None else self._placed(opened, frame)
        # Before the client has it and prompts anew: what was said until here belongs to this turn.
        for session in self._sessions.values():
            if session.has(request_id):
                self._start(session.answered(frame))
        await self._to_client(data)
        if made is not None:
            self._start(made.announce())
        if former is not None:
            self._start(former.close())

    def _closed(self, frame: dict[str, Any]) -> tuple[Session | None, Session | None]:
        """Return no session that is made, and the one that this answer says is closed."""
        session = self._closing.pop(frames.key(frame.get("id")), None)
        if session is None or "result" not in frame or self._sessions.get(session.id) is not session:
            return None, None
        return None, self._sessions.pop(session.id)

    def _placed(self, opened: Session, frame: dict[str, Any]) -> tuple[Session | None, Session | None]:
        """Give a session its id before the client has it; return it, and what is over with that."""
        name = frames.object_of(frame, "result").get("sessionId", opened.id)
        if "result" not in frame or not isinstance(name, str) or not name:
            return None, opened
        known = self._sessions.get(name)
        if known is not None:  # its tools are those of the new server
            known.adopt(opened)
            return known, opened
        opened.id = name
        self._sessions[name] = opened
        return opened, None


async def _carried_out(work: Coroutine[Any, Any, None]) -> None:
    """Do what is done for our sake alone; where it fails, the agent goes on."""
    try:
        await work
    except (TielineError, OSError) as error:
        print(f"tieline acp: {error}", file=sys.stderr)  # noqa: T201 - a door's log
