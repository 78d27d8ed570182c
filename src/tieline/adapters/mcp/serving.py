"""The MCP door once its first answer is out: tool calls, one root behind them, and the way out.

Rule 1: no tool knows what it does here: a call is an operation of the root, framed.
Rule 2: the root is opened once, in the background; a call that comes earlier waits for it.
Rule 3: no presence before the session is known, or 2 s have passed, or a tool was called.
Rule 4: a bad line is one error and costs nothing else; the end of the input or of the host ends the
process within `EXIT_S`, and no mail counts as read from then on.
Rule 5: arguments are closed: what a tool's schema does not name never reaches an operation.
Rule 6: a server that its host started for a subagent joins the root of the session, as a run of it.

Source: DESIGN.md 2; reference/native.md 132 to 137; reference/harnesses.md 4, 5; reliability.md 3.3, K33.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from tieline.adapters.mcp import constants, early, hosts
from tieline.adapters.mcp.commands import CommandHooks
from tieline.adapters.mcp.doors import door_of, session_seen
from tieline.adapters.mcp.hooks import HookCall, HookOperations, Hooks
from tieline.adapters.mcp.waiting import Waiting
from tieline.adapters.stdio.calls import (
    Call,
    Calls,
    Inbound,
    Operations,
    Outbound,
    Root,
    encode,
    error_data,
    report,
)
from tieline.adapters.stdio.pipes import TOO_LONG, Inlet, Outlet, end_within
from tieline.errors import ProtocolError, RecoveryRequired, Refused, TielineError
from tieline.model.identity import Peer
from tieline.runtime import loops
from tieline.runtime.joined import JOIN_VARIABLE, join, root_beside
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root
from tieline.wire import jsonrpc

__all__ = ["Door", "Options", "serve"]

CALLS_MAX: Final = 32
EXIT_S: Final = 2.0
CLOSE_S: Final = 1.5
CALLS_END_S: Final = 0.4
PUBLISH_S: Final = 2.0
PARENT_LOOK_S: Final = 0.25
REOPEN_S: Final = 5.0
WAITS: Final = frozenset({"peer_messages", "list_peers", "intercom"})

Opener = Callable[[RootOptions], Awaitable[Root]]


class Options(NamedTuple):
    """What the command line gave; '' where it gave nothing."""

    alias: str = ""
    scope: str = ""
    session: str = ""
    harness: str = ""
    model: str = ""
    workspace: str = ""


def joining(path: str) -> Opener:
    """Return what opens no root but joins the one behind a control endpoint, which another door has."""

    async def opener(_options: RootOptions) -> Root:
        return await join(path)

    return opener


def serve(inlet: Inlet, outlet: Outlet, answers: early.EarlyAnswers, options: Options) -> int:
    """Serve the host until it leaves; return the exit code of the process."""
    joined = os.environ.get(JOIN_VARIABLE, "")

    async def main() -> int:
        return await Door(inlet, outlet, answers, options, joining(joined) if joined else open_root).run()

    return loops.run(main())


class Door:
    """One MCP host."""

    def __init__(
        self, inlet: Inlet, outlet: Outlet, answers: early.EarlyAnswers, options: Options, opener: Opener
    ) -> None:
        self._inlet = inlet
        self._opener = opener
        self._answers = answers
        self._options = options
        self._environment = dict(os.environ)
        self._parent = os.getppid()
        self._outbound = Outbound(outlet)
        self._calls = Calls(
            self._outbound,
            self._operations,
            calls_max=CALLS_MAX,
            waits=WAITS,
            result=_result,
            failure=_failure,
            withdrawn=lambda _call: None,
        )
        self._leaving = asyncio.Event()
        self._is_host_gone = False
        self._is_published = False
        self._session = ""
        self._hooks = Hooks()
        self._group = asyncio.TaskGroup()
        self._opened: asyncio.Future[Root] | None = None
        self._failed_at: float | None = None
        self._openings: list[asyncio.Task[None]] = []
        self._joining = asyncio.Lock()
        self._is_joined = False

    async def run(self) -> int:
        """Serve until the host left; withdraw presence; return 0, or 1 where not one line was taken."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._leaving.set)
        async with self._group as group:
            background = [
                group.create_task(self._read()),
                group.create_task(self._watch_parent()),
                group.create_task(self._watch_output()),
                group.create_task(self._publish_in_time()),
            ]
            self._open()
            await self._leaving.wait()
            end_within(EXIT_S - 0.1, 0)
            for task in background:
                task.cancel()
            await self._calls.close(CALLS_END_S, is_reader_gone=self._is_host_gone)
            await self._close_root()
            for task in self._openings:
                task.cancel()
        return 1 if self._outbound.is_unheard else 0

    # --- lines --------------------------------------------------------------------------------

    async def _read(self) -> None:
        async for line in Inbound(self._inlet):
            await self._outbound.has_room()
            self._take(line)
        self._gone()

    def _take(self, line: bytes) -> None:
        if line == TOO_LONG:
            text = "the line is longer than this door reads"
            self._outbound.put(_error(None, -32600, text, {"code": "FRAME_TOO_LARGE"}))
            return
        try:
            frame = jsonrpc.decode(line)
        except ProtocolError as error:
            number = -32700 if error.code == "PARSE_ERROR" else -32600
            self._outbound.put(_error(None, number, str(error), {"code": error.code}))
            return
        if isinstance(frame, jsonrpc.Notification):
            if frame.method == "notifications/cancelled":
                withdrawn = frame.params.get("requestId")
                if isinstance(withdrawn, str | int):
                    self._calls.withdraw(withdrawn)
        elif isinstance(frame, jsonrpc.Request):
            self._request(frame)
        # An answer is to nothing: this door asks its host nothing.

    def _request(self, frame: jsonrpc.Request) -> None:
        meta = frame.params.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        version = early.modern_version(frame.params)
        if version and version not in constants.MODERN_VERSIONS:
            data = {"supported": list(constants.MODERN_VERSIONS), "requested": version}
            self._outbound.put(
                _error(frame.id, early.UNSUPPORTED_VERSION, "unsupported protocol version", data)
            )
            return
        self._answers.client = hosts.client_name(frame.params) or self._answers.client
        self._answers.meta |= meta
        if frame.method in early.METHODS:
            answer = early.constant_result(frame.method, frame.params)
            self._outbound.put(encode({"jsonrpc": "2.0", "id": frame.id, "result": answer}))
        elif frame.method == "tools/call":
            self._tool(frame, meta, is_modern=version != "")
        else:
            self._outbound.put(
                _error(frame.id, -32601, "this door has no such method", {"code": "METHOD_NOT_FOUND"})
            )

    def _tool(self, frame: jsonrpc.Request, meta: dict[str, Any], *, is_modern: bool) -> None:
        name, arguments = frame.params.get("name"), frame.params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not self._has_tool(name):
            self._outbound.put(
                _error(frame.id, -32602, "this door has no such tool", {"code": "INVALID_PARAMS"})
            )
            return
        call = _ToolCall(frame.id, None, name, {}, call_id=hosts.call_id(meta))
        call.is_modern = is_modern
        call.has_texts_alone = hosts.drops_texts(self._answers.client)
        call.session = self._hooks.session or hosts.session(self._answers.client, self._environment, meta)
        try:
            _fill(call, name, arguments, is_model=hosts.is_model_call(meta))
        except Refused as error:
            self._outbound.put(_failure(call, error))
            return
        call.thread = hosts.thread({**meta, "sessionId": call.session} if call.hook is not None else meta)
        if call.hook is not None:
            if call.thread and call.hook.run is None:
                call.hook = call.hook._replace(run=call.thread)
            # From now on the hooks say which session it is: the environment's goes stale with a new one.
            self._hooks.session = call.session
            self._hooks.is_codex = "codex" in self._answers.client
        self._calls.admit(call, self._group)

    def _has_tool(self, name: str) -> bool:
        if name == "intercom":
            return early.tools_of(self._environment) is not constants.TOOLS
        return name in constants.TOOL_FIELDS

    # --- the root -----------------------------------------------------------------------------

    def _open(self) -> "asyncio.Future[Root]":
        """Return the opening of the root: begun once, and again where the last try failed some time ago."""
        loop = asyncio.get_running_loop()
        if self._opened is None or (self._failed_at is not None and loop.time() - self._failed_at > REOPEN_S):
            self._failed_at = None
            self._opened = loop.create_future()
            self._openings.append(self._group.create_task(self._open_root(self._opened)))
        return self._opened

    async def _open_root(self, opened: "asyncio.Future[Root]") -> None:
        client, options = self._answers.client, self._options
        # A thread may be a subagent's: the call that names it says whose session it is in.
        meta = {name: value for name, value in self._answers.meta.items() if name != "threadId"}
        self._session = options.session or hosts.session(client, self._environment, meta)
        self._is_published = self._session != ""
        root_options = RootOptions(
            workspace=options.workspace or hosts.workspace(client, self._environment),
            session=self._session,
            alias=options.alias,
            scope=options.scope,
            mode="interactive",
            harness=options.harness or hosts.harness(client),
            model=options.model,
            host_pid=self._parent,
            is_published=self._is_published,
        )
        try:
            root = await self._opener(root_options)
        except TielineError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the host gets a typed answer, and stays connected
            report("the root does not open", error)
            failure = RecoveryRequired("the root could not be opened; nothing was taken")
        else:
            door = door_of(client, self._environment, lambda: self._session)
            if door is not None:
                root.push_by(door, wakes_only=door.wakes_only)
            self._serve_commands(root, is_waiter_wanted=door is None)
            opened.set_result(root)
            await self._watch_root(root)
            return
        self._failed_at = asyncio.get_running_loop().time()
        opened.set_exception(failure)
        opened.exception()  # looked at here, so that nobody needs to

    def _serve_commands(self, root: Root, *, is_waiter_wanted: bool) -> None:
        """Take the hooks that the host has as commands, and the one that waits where nothing else wakes."""

        async def publish(session: str) -> None:
            await self._publish(root, session)

        served = CommandHooks(self._hooks, hosts.harness(self._answers.client), root.operations, publish)
        served.flags = root.hook_by(served)
        harness = hosts.harness(self._answers.client)
        if served.flags and harness in ("claude-code", "codex"):
            # The command that waits, and the one that has a command judged, know no session.
            served.flags.open_host(self._parent)
        if is_waiter_wanted and harness == "claude-code" and served.flags:
            served.waiting = Waiting(root)

    async def _operations(self, call: Call) -> Operations:
        """Return what serves a call: the root is open then, and those it writes to can find it."""
        assert isinstance(call, _ToolCall), "this door admits tool calls only"
        root = await asyncio.shield(self._open())
        if call.thread:
            root = await self._join(root, call)
        await self._publish(root, call.session)
        operations: Operations = root.operations
        actor = root.operations.root_actor._replace(door="mcp", is_host=call.is_of_host)
        run = self._hooks.run_of(call.call_id)
        call.actor = actor if run is None else actor._replace(peer=Peer(actor.peer.instance, run))
        if call.hook is not None:
            return HookOperations(self._hooks, call.hook, operations)
        answered = call.params.get("replyTo") if call.method == "send_peer_message" else None
        if isinstance(answered, str) and run is None:
            await operations.call(actor, "host.answered", {"messageId": answered})
        return operations

    async def _join(self, root: Root, call: "_ToolCall") -> Root:
        """Return the root of the session whose subagent this server is for, joined; without one, our own."""
        async with self._joining:
            if self._is_joined:
                return await asyncio.shield(self._open())
            own = str(root.who().get("instanceId", ""))
            path = await asyncio.get_running_loop().run_in_executor(None, root_beside, call.session, own)
            if path is None:
                return root
            try:
                joined = await join(path, call.thread)
            except TielineError:
                return root
            self._is_joined = self._is_published = True
            self._session = call.session
            self._opened = asyncio.get_running_loop().create_future()
            self._opened.set_result(joined)
            await root.close()
            return joined

    async def _publish(self, root: Root, session: str) -> None:
        is_news = session not in ("", self._session) and not self._options.session
        if self._is_published and not is_news:
            return
        self._is_published = True
        self._session = session if is_news else self._session
        await root.publish(session=self._session or None)

    async def _publish_in_time(self) -> None:
        await asyncio.sleep(PUBLISH_S)
        session = session_seen(self._answers.client, self._environment)
        if session is None:
            return  # the first hook or tool call tells whose server this is
        try:
            await self._publish(await asyncio.shield(self._open()), "" if self._is_published else session)
        except TielineError:
            return  # the next tool call says why

    async def _close_root(self) -> None:
        if self._opened is None or not self._opened.done() or self._opened.exception() is not None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._opened.result().close()
        except TimeoutError:
            return  # its presence goes stale by itself

    # --- the host's life ----------------------------------------------------------------------

    def _gone(self) -> None:
        """The host is gone: nobody looks at answers, so nothing counts as read from now on."""
        self._is_host_gone = True
        self._leaving.set()

    async def _watch_root(self, root: Root) -> None:
        await root.shutdown.wait()
        if not self._is_joined:
            self._leaving.set()

    async def _watch_parent(self) -> None:
        """End when the host died, also where another process holds the pipes open."""
        while os.getppid() == self._parent:  # noqa: ASYNC110 - nothing tells this but a look
            await asyncio.sleep(PARENT_LOOK_S)
        self._gone()

    async def _watch_output(self) -> None:
        await self._outbound.broken.wait()
        self._gone()


class _ToolCall(Call):
    """A tool call, and what its frame said beside its arguments."""

    is_modern = False
    has_texts_alone = False  # of a host that would show the model the members and drop the texts
    is_of_host = False
    hook: HookCall | None = None
    session = ""
    thread = ""  # of a subagent that this server is for


def _fill(call: _ToolCall, name: str, arguments: object, *, is_model: bool) -> None:
    """Make the operation that a tool call asks for.

    Raises:
        Refused: INVALID_PARAMS, or CAPABILITY_DENIED for a model that calls the hooks' tool.
    """
    if not isinstance(arguments, dict):
        raise Refused("INVALID_PARAMS", "arguments must be an object")
    unknown = sorted(set(arguments) - constants.TOOL_FIELDS[name])
    if unknown:
        allowed = ", ".join(sorted(constants.TOOL_FIELDS[name]))
        raise Refused("INVALID_PARAMS", f"{name} takes {allowed}, and no other field")
    if name != "tieline_host":
        call.params = arguments
        return
    if is_model:
        # What a hook says moves budgets and evidence, so the model itself must not say it.
        raise Refused("CAPABILITY_DENIED", "tieline_host is for hooks of the host, not for its model")
    event, payload, run = arguments.get("event"), arguments.get("payload", {}), arguments.get("run")
    events = (*constants.HOST_EVENTS, *constants.HOOK_EVENTS)
    if event not in events or not isinstance(payload, dict):
        raise Refused("INVALID_PARAMS", f"event is one of {', '.join(events)}; payload is an object")
    session = arguments.get("session", "")
    if not isinstance(session, str):
        raise Refused("INVALID_PARAMS", "session is a text")
    call.is_of_host = True
    call.method = "host." + event
    if event in constants.HOOK_EVENTS:
        call.hook = HookCall.of(event, run, payload)
    else:
        call.params = {**payload, **({} if run is None else {"run": run})}
    if session and not session.startswith("${"):
        call.session = session


def _result(call: Call, result: dict[str, Any]) -> bytes:
    """Return the line of a tool's result: text for the model, members for a program."""
    if isinstance(call, _ToolCall) and call.hook is not None:
        # A harness reads the text of a hook's answer as JSON.
        return _tool_result(call, [encode(result).decode().strip()], None, is_error=False)
    members = {
        name: value for name, value in result.items() if name != "text" or call.method.startswith("host.")
    }
    text = result.get("text")
    if not isinstance(text, str) or not text:
        return _tool_result(call, [encode(members).decode().strip()], members, is_error=False)
    # Many hosts show a model the texts alone: what is beside the mail or the sentence is a text of its own.
    beside = members
    if "messages" in members:
        beside = {name: members[name] for name in ("events", "remaining") if members.get(name)}
        beside |= {"cursor": members.get("cursor")} if beside else {}
    texts = [text, encode(beside).decode().strip()] if beside else [text]
    is_alone = isinstance(call, _ToolCall) and call.has_texts_alone
    return _tool_result(call, texts, None if is_alone else members, is_error=False)


def _failure(call: Call, error: TielineError) -> bytes:
    """Return the line of a typed failure: the model reads the code, the sentence and the next action."""
    data = error_data(error)
    return _tool_result(
        call, [f"{error.code}: {error}. Next: {data['action']}."], {**data, "text": str(error)}, is_error=True
    )


def _tool_result(call: Call, texts: list[str], members: dict[str, Any] | None, *, is_error: bool) -> bytes:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts]}
    if members is not None:
        result["structuredContent"] = members
    if is_error:
        result["isError"] = True
    if isinstance(call, _ToolCall) and call.is_modern:
        result |= {
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": constants.SERVER},
        }
    return encode({"jsonrpc": "2.0", "id": call.id, "result": result})


def _error(id: str | int | None, number: int, text: str, data: dict[str, Any]) -> bytes:  # noqa: A002
    return encode({"jsonrpc": "2.0", "id": id, "error": {"code": number, "message": text, "data": data}})
