"""The loop's side of a host's pipes: lines in turn, results in turn, requests in progress.

Rule 1: at most `calls_max` requests are in progress; one more is refused at once, typed.
Rule 2: mail is consumed only when the bytes of its result were taken by the host's pipe and the host
had not withdrawn the request; otherwise custody stays as it was.
Rule 3: a request is answered once, or, where the protocol says so, not at all after it was withdrawn.
Rule 4: a host that does not read stops us reading, before anything grows.

Source: reference/native.md 80, 135, 4.4; reference/reliability.md K33; open-bugs.md O01, O33.
"""

import asyncio
import json
import sys
from _queue import SimpleQueue
from _thread import start_new_thread
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tieline.adapters.stdio.pipes import Inlet, Outlet
from tieline.errors import OutcomeUnknown, Refused, TielineError

__all__ = [
    "Call",
    "Calls",
    "Inbound",
    "Operations",
    "Outbound",
    "Root",
    "encode",
    "error_data",
    "report",
]

QUEUED_BYTES_MAX: Final = 1_048_576
"""Written and not yet taken by the host; with more, its next requests are not read."""

RequestId = str | int


class Reply(Protocol):
    """What an operation returns: see `runtime.calls.Reply`."""

    @property
    def result(self) -> dict[str, Any]:
        """The result's members."""

    @property
    def taken(self) -> str | None:
        """The token of the mail that it carries."""


class Operations(Protocol):
    """What a door needs of a root: see `runtime.operations.Operations`."""

    async def call(self, actor: Any, method: str, params: object, *, call_id: str | None = None) -> Reply:
        """Carry out one operation."""

    async def flushed(self, token: str) -> int:
        """The bytes reached the reader."""

    async def unflushed(self, token: str) -> int:
        """They did not."""


class Root(Protocol):
    """What a door needs of an open root: see `runtime.root`."""

    @property
    def operations(self) -> Any:
        """Its `Operations`, with `root_actor` and `subscribe`."""

    @property
    def shutdown(self) -> asyncio.Event:
        """Set when the host, or a command of its own, asked the root to end."""

    async def publish(self, session: str | None = None) -> None:
        """Let others find it."""

    def push_by(self, door: Any, *, wakes_only: bool = False) -> None:
        """Push mail into the host's session through a `runtime.ladder.PushDoor`, or no more by None."""

    @property
    def is_automatic(self) -> bool:
        """Whether mail may wake an idle session."""

    def hook_by(self, door: Any) -> Any:
        """Serve the host's hooks that are commands by a `runtime.hooked.HookDoor`; return its `Flags`."""

    def who(self) -> dict[str, Any]:
        """Return who it is, as `local.who` says it."""

    async def close(self) -> None:
        """Withdraw it and end its work."""


def encode(document: dict[str, Any]) -> bytes:
    """Return the line, with its end, in ASCII: some readers take U+2028 for the end of a line."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def error_data(error: TielineError) -> dict[str, Any]:
    """Return what a door says of a failure beside its sentence: code, next action, and what else is known."""
    data: dict[str, Any] = {"code": error.code, "action": error.action}
    if isinstance(error, Refused):
        data["retryable"] = error.is_retryable
        if error.candidates:
            data["candidates"] = error.candidates
    if isinstance(error, OutcomeUnknown) and error.message_id:
        data["messageId"] = error.message_id
    return data


class Inbound:
    """The lines of an `Inlet`, one after the other, until the input ends."""

    def __init__(self, inlet: Inlet) -> None:
        self._inlet = inlet
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(self._arrived.set)
            except RuntimeError:  # the loop has ended; nobody reads on
                return

        inlet.connect(wake)

    def __aiter__(self) -> "Inbound":
        return self

    async def __anext__(self) -> bytes:
        while True:
            self._arrived.clear()
            line = self._inlet.take()
            if line is not None:
                return line
            if self._inlet.is_ended:
                # The reader ends after its last line, so one more look is enough.
                line = self._inlet.take()
                if line is None:
                    raise StopAsyncIteration
                return line
            await self._arrived.wait()


class Outbound:
    """Lines out, written in order by one thread, so that a slow host never stops the loop."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[bool]]] = SimpleQueue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.broken = asyncio.Event()
        """Set once the host's pipe takes no more."""
        self.queued_bytes = 0
        self.queued_lines = 0
        start_new_thread(self._write_all, ())

    @property
    def is_unheard(self) -> bool:
        """Whether the output failed before it took a single line: nobody ever listened."""
        return self._outlet.is_broken and not self._outlet.has_spoken

    def put(self, line: bytes) -> "asyncio.Future[bool]":
        """Queue one line; the future says whether all of it was taken."""
        written: asyncio.Future[bool] = self._loop.create_future()
        self.queued_bytes += len(line)
        self.queued_lines += 1
        if self.queued_bytes > QUEUED_BYTES_MAX:
            self._has_room.clear()
        self._lines.put((line, written))
        return written

    async def has_room(self) -> None:
        """Wait until the host has taken enough of what it was told."""
        await self._has_room.wait()

    async def drained(self, seconds: float) -> None:
        """Wait until every line was taken, at most `seconds`."""
        last = self.put(b"")
        await asyncio.wait([last], timeout=seconds)

    def _write_all(self) -> None:
        while True:
            line, written = self._lines.get()
            is_taken = self._outlet.write(line)
            try:
                self._loop.call_soon_threadsafe(self._settle, len(line), written, is_taken)
            except RuntimeError:  # the loop has ended; nobody waits
                return

    def _settle(self, line_bytes: int, written: "asyncio.Future[bool]", is_taken: bool) -> None:  # noqa: FBT001 - called by the loop, which passes by position
        self.queued_bytes -= line_bytes
        self.queued_lines -= 1
        if self.queued_bytes <= QUEUED_BYTES_MAX:
            self._has_room.set()
        if not is_taken:
            self.broken.set()
            self._has_room.set()
        if not written.done():
            written.set_result(is_taken)


class Call:
    """One request in progress."""

    def __init__(
        self,
        request_id: RequestId | None,
        actor: Any,
        method: str,
        params: dict[str, Any],
        *,
        call_id: str | None = None,
    ) -> None:
        self.id = request_id
        self.actor = actor
        self.method = method
        self.params = params
        self.call_id = call_id
        self.is_withdrawn = False
        self.is_asking = True
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Cut its task off where it waits."""
        if self.task is not None:
            self.task.cancel()


class Calls:
    """The requests of one host that are in progress."""

    def __init__(
        self,
        outbound: Outbound,
        operations: Callable[[Call], Awaitable[Operations]],
        *,
        calls_max: int,
        waits: frozenset[str],
        result: Callable[[Call, dict[str, Any]], bytes],
        failure: Callable[[Call, TielineError], bytes | None],
        withdrawn: Callable[[Call], bytes | None],
    ) -> None:
        """Serve requests.

        Args:
            outbound: Where answers go.
            operations: Returns what serves the call, waiting for the root where it is not open yet.
            calls_max: Requests in progress at one time.
            waits: Methods that only wait or read: they may be cut off at any moment.
            result: Makes the answer's line.
            failure: Makes the line of a typed failure.
            withdrawn: Makes the line that a withdrawn request gets, or None for none.
        """
        self._outbound = outbound
        self._operations = operations
        self._calls_max = calls_max
        self._waits = waits
        self._result = result
        self._failure = failure
        self._withdrawn = withdrawn
        self._calls: dict[RequestId, Call] = {}
        self._is_closing = False

    @property
    def is_empty(self) -> bool:
        """Whether no request is in progress."""
        return not self._calls

    def admit(self, call: Call, group: asyncio.TaskGroup) -> None:
        """Begin one request with an id, or refuse it at once."""
        assert call.id is not None, "only a request is in progress"
        refusal: TielineError | None = None
        if call.id in self._calls:
            refusal = Refused("INVALID_RPC", "a request with this id is still in progress")
        elif len(self._calls) >= self._calls_max:
            refusal = Refused(
                "RESOURCE_BUSY", f"{self._calls_max} requests are in progress", is_retryable=True
            )
        elif self._is_closing:
            refusal = Refused("TARGET_ENDED", "this door is closing; nothing new is taken")
        if refusal is not None:
            self._put(self._failure(call, refusal))
            return
        self._calls[call.id] = call
        call.task = group.create_task(self._serve(call))

    def withdraw(self, request_id: RequestId, *, waits_only: bool = False) -> None:
        """The host no longer wants the answer of this request: a wait ends, mail stays unread.

        What changes something goes on to its end; its answer is dropped, or, with `waits_only`, told.
        """
        call = self._calls.get(request_id)
        if call is None or call.is_withdrawn or (waits_only and call.method not in self._waits):
            return
        call.is_withdrawn = True
        if call.is_asking and call.method in self._waits:
            call.cancel()

    async def close(self, seconds: float, *, is_reader_gone: bool) -> None:
        """Take nothing new; end waits at once, let the rest end within `seconds`.

        Args:
            seconds: After these, what still runs is cut off; nothing of it is consumed.
            is_reader_gone: Nobody looks at answers any more, so no mail counts as read from now on.
        """
        self._is_closing = True
        for call in list(self._calls.values()):
            call.is_withdrawn = call.is_withdrawn or is_reader_gone
            if call.is_asking and call.method in self._waits:
                call.cancel()
        for _turn in range(2):
            tasks = [call.task for call in self._calls.values() if call.task is not None]
            if not tasks:
                return
            await asyncio.wait(tasks, timeout=seconds)
            for call in list(self._calls.values()):
                call.is_withdrawn = True
                call.cancel()

    async def _serve(self, call: Call) -> None:
        try:
            operations = await self._operations(call)
            reply = await operations.call(call.actor, call.method, call.params, call_id=call.call_id)
            call.is_asking = False
            await self._tell(call, reply, operations)
        except asyncio.CancelledError:
            self._put(self._withdrawn(call) if call.is_asking else None)
        except TielineError as error:
            self._put(None if call.is_withdrawn else self._failure(call, error))
        except Exception as error:  # noqa: BLE001 - one defect must not end the custody of everything else
            report(call.method, error)
            self._put(self._failure(call, OutcomeUnknown("an internal error; the outcome is not known")))
        finally:
            if call.id is not None:
                self._calls.pop(call.id, None)

    async def _tell(self, call: Call, reply: Reply, operations: Operations) -> None:
        """Write the result; its mail is consumed when the host's pipe took all of it."""
        line = None if call.is_withdrawn else self._result(call, reply.result)
        is_taken = line is not None and await self._outbound.put(line)
        if reply.taken is None:
            return
        # The host may have withdrawn the request while the pipe took the bytes; then it does not look
        # at them, and the mail must be there for its next read.
        if is_taken and not call.is_withdrawn:
            await operations.flushed(reply.taken)
        else:
            await operations.unflushed(reply.taken)

    def _put(self, line: bytes | None) -> None:
        if line is not None:
            self._outbound.put(line)


def report(what: str, error: BaseException) -> None:
    """Write to the log stream that `what` met a defect: its class and place, no content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "?"
    if trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    print(f"tieline: {what}: {type(error).__name__} at {place}", file=sys.stderr)  # noqa: T201 - the log stream of a door
