"""The door for hosts in other languages: requests, answers and events as lines of JSON-RPC.

Rule 1: the first line out is `attached`, or the error for which there is no root; nothing is read before it.
Rule 2: every request is answered once; a bad line is one error with the id null, and the next line is
read: the pipe is the host's own.
Rule 3: events are told after they are durable; a host that does not read gets a hint where to read on.
Rule 4: the end of the input is an orderly shutdown: admitted work ends, waits are cut, presence goes.
Rule 5: what an operation does is the root's affair; this file frames and flushes.

Source: DESIGN.md 3; reference/native.md 1M, 2.10, 4.4; reference/reliability.md K33; docs/attach.md.
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tieline import text
from tieline.adapters.attach.parent import METHODS, Parent
from tieline.adapters.attach.push import Push
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
from tieline.errors import (
    OutcomeUnknown,
    ProtocolError,
    RecoveryRequired,
    Refusal,
    Refused,
    TielineError,
    UsageError,
)
from tieline.runtime.options import RootOptions
from tieline.wire import jsonrpc

__all__ = ["VERSION", "Door", "Opener", "exit_code"]

VERSION: Final = 1
"""Of this door; a member may be added without a new one."""
ERROR_COLUMNS: Final = 2_000
EXIT_S: Final = 5.0
CALLS_END_S: Final = 1.5
DRAIN_S: Final = 0.5
CLOSE_S: Final = 1.0
PARENT_LOOK_S: Final = 0.25
WAITS: Final = frozenset({"peer_messages", "local.inbox", "list_peers", "resource.wait", "intercom"})
ATTACHED: Final = (
    "instanceId",
    "peerId",
    "alias",
    "sessionId",
    "endpoint",
    "control",
    "home",
    "coordinationDirectory",
)

Opener = Callable[[RootOptions], Awaitable[Root]]

_NUMBERS: Final = {
    "PARSE_ERROR": -32700,
    "INVALID_RPC": -32600,
    "FRAME_TOO_LARGE": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
}
_OTHER_NUMBER: Final = -32000


def exit_code(error: TielineError) -> int:
    """Return the exit code of a door whose root did not open: 1 refused, 2 wrong usage, 5 recovery."""
    if isinstance(error, RecoveryRequired):
        return 5
    return 2 if isinstance(error, UsageError) else 1


class Door:
    """One host on one pair of pipes."""

    def __init__(
        self, inlet: Inlet, outlet: Outlet, options: RootOptions, opener: Opener, *, is_parent: bool = False
    ) -> None:
        """Serve the host behind `inlet` and `outlet` with the root that `opener` makes of `options`."""
        self._inlet = inlet
        self._options = options
        self._opener = opener
        self._is_parent = is_parent
        self._host_pid = os.getppid()
        self._outbound = Outbound(outlet)
        self._calls = Calls(
            self._outbound,
            self._operations,
            calls_max=32,
            waits=WAITS,
            result=_result,
            failure=_failure,
            withdrawn=_withdrawn,
        )
        self._push = Push(self._notify)
        self._leaving = asyncio.Event()
        self._root: Root | None = None
        self._parent: Parent | None = None
        self._is_published = options.is_published

    async def run(self) -> int:
        """Serve until the host leaves; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._leaving.set)
        opened = await self._opened()
        if isinstance(opened, TielineError):
            self._outbound.put(_error(None, opened))
            await self._outbound.drained(DRAIN_S)
            said = text.printable(f"{opened.code}: {opened}. Next: {opened.action}.", ERROR_COLUMNS)
            print(f"tieline attach: {said}", file=sys.stderr)  # noqa: T201 - the log stream of a door
            return exit_code(opened)
        root = self._root = opened
        who = root.who()
        self._notify(
            "attached", {"version": VERSION, **{name: who[name] for name in ATTACHED if name in who}}
        )
        async with asyncio.TaskGroup() as group:
            if self._is_parent:
                self._parent = Parent(root, group, self._notify)
            unsubscribe = root.operations.subscribe(self._tell)
            background = [
                group.create_task(self._read(group)),
                group.create_task(self._watch_host()),
                group.create_task(self._watch_output()),
                group.create_task(self._watch_root(root)),
            ]
            await self._leaving.wait()
            end_within(EXIT_S - 0.2, 0)
            for task in background:
                task.cancel()
            await self._end(root, unsubscribe)
        if self._outbound.is_unheard:
            print("tieline attach: the output took nothing: no host heard of this root", file=sys.stderr)  # noqa: T201
            return 1
        return 0

    async def _opened(self) -> Root | TielineError:
        """Return the root, or why there is none: whatever went wrong, the host is told by a first line."""
        try:
            return await self._opener(self._options)
        except TielineError as error:
            return error
        except OSError as error:
            return _of_system(error)
        except Exception as error:  # noqa: BLE001 - the host waits for a line
            report("the root does not open", error)
            return RecoveryRequired("the root could not be opened; nothing was taken")

    async def _end(self, root: Root, unsubscribe: Callable[[], None]) -> None:
        is_reader_gone = self._outbound.broken.is_set()
        if self._parent is not None:
            await self._parent.close(CALLS_END_S / 2)
        await self._calls.close(CALLS_END_S / 2, is_reader_gone=is_reader_gone)
        unsubscribe()
        if not is_reader_gone:
            await self._outbound.drained(DRAIN_S)
        try:
            async with asyncio.timeout(CLOSE_S):
                await root.close()
        except TimeoutError:
            return  # its presence goes stale by itself

    # --- lines in -----------------------------------------------------------------------------

    async def _read(self, group: asyncio.TaskGroup) -> None:
        async for line in Inbound(self._inlet):
            await self._outbound.has_room()
            self._take(line, group)
        self._leaving.set()

    def _take(self, line: bytes, group: asyncio.TaskGroup) -> None:
        if line == TOO_LONG:
            self._outbound.put(
                _error(None, ProtocolError("FRAME_TOO_LARGE", "the line is longer than is read"))
            )
            return
        try:
            frame = jsonrpc.decode(line)
        except ProtocolError as error:
            self._outbound.put(_error(None, error))
            return
        if isinstance(frame, jsonrpc.Request):
            self._request(frame, group)
        elif isinstance(frame, jsonrpc.Notification):
            self._notified(frame)
        # An answer is to nothing: this door asks its host nothing.

    def _request(self, frame: jsonrpc.Request, group: asyncio.TaskGroup) -> None:
        assert self._root is not None, "lines are read after the root is open"
        if frame.method.startswith("team.") or frame.method == "cancel":
            self._outbound.put(_error(frame.id, Refused("INVALID_RPC", f"{frame.method} is a notification")))
            return
        call_id = frame.params.pop("callId", None)
        if call_id is not None and not (isinstance(call_id, str) and 0 < len(call_id) <= 256):
            refusal = Refused("INVALID_PARAMS", "callId is a text of 1 to 256 characters")
            self._outbound.put(_error(frame.id, refusal))
            return
        actor = self._root.operations.root_actor
        self._calls.admit(Call(frame.id, actor, frame.method, frame.params, call_id=call_id), group)

    def _notified(self, frame: jsonrpc.Notification) -> None:
        if frame.method == "cancel":
            withdrawn = frame.params.get("id")
            if isinstance(withdrawn, str | int):
                self._calls.withdraw(withdrawn, waits_only=True)
        elif self._parent is not None and frame.method in METHODS:
            refusal = self._parent.take(frame.method, frame.params)
            if isinstance(refusal, Refusal):
                self._outbound.put(_error(None, Refused.of(refusal)))

    # --- lines out ----------------------------------------------------------------------------

    async def _operations(self, call: Call) -> Operations:
        assert self._root is not None, "lines are read after the root is open"
        operations: Operations = self._root.operations
        if (
            call.method == "host.state"
            and not self._is_published
            and isinstance(call.params.get("session"), str)
        ):
            self._is_published = True
            await self._root.publish(session=call.params["session"])
        return operations

    def _notify(self, method: str, params: dict[str, Any]) -> "asyncio.Future[bool]":
        return self._outbound.put(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    def _tell(self, kind: str, params: dict[str, Any]) -> None:
        self._push.tell(kind, params)
        if self._parent is not None and kind in ("peer_update", "resource_update"):
            self._parent.tell(params)

    # --- the host's life ----------------------------------------------------------------------

    async def _watch_host(self) -> None:
        """End when the host died, also where another process holds the pipes open."""
        while os.getppid() == self._host_pid:  # noqa: ASYNC110 - nothing tells this but a look
            await asyncio.sleep(PARENT_LOOK_S)
        self._leaving.set()

    async def _watch_root(self, root: Root) -> None:
        await root.shutdown.wait()
        self._leaving.set()

    async def _watch_output(self) -> None:
        await self._outbound.broken.wait()
        self._leaving.set()


def _of_system(error: OSError) -> Refused:
    """Return what the system refused, as a host may be told it."""
    is_denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    where = f": {error.filename}" if isinstance(error.filename, str) else ""
    return Refused(
        "PERMISSION_DENIED" if is_denied else "UNSAFE_ENDPOINT", f"{error.strerror or error}{where}"
    )


def _error(request_id: str | int | None, error: TielineError) -> bytes:
    number = _NUMBERS.get(error.code, _OTHER_NUMBER)
    body = {"code": number, "message": str(error), "data": error_data(error)}
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def _result(call: Call, result: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": call.id, "result": result})


def _failure(call: Call, error: TielineError) -> bytes:
    return _error(call.id, error)


def _withdrawn(call: Call) -> bytes:
    if call.method in WAITS:
        return _error(call.id, Refused("WAIT_TIMEOUT", "the wait was ended; nothing counts as read"))
    return _error(call.id, OutcomeUnknown("the door closed before the outcome was known"))
