"""The control endpoint of a root: short-lived local processes of the same user, authority `local`.

Rule 1: the kernel names the user and the process before the first byte is read; another user is hung up on.
Rule 2: a process below the root's host acts as the host's agent; any other local process is a person's act.
Rule 3: mail that a result carried is consumed only after its bytes left this process; a link that died
    before gives it back.

Source: DESIGN.md 2, 3; reference/native.md 75, 76; reference/reliability.md S7, K33.
"""

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, cast

from tieline import __version__
from tieline.engine.contract import Act
from tieline.errors import OutcomeUnknown, Refusal, Refused, TielineError
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor
from tieline.shell.link import Listener
from tieline.shell.process import ancestors, peer_credentials
from tieline.wire.control.protocol import Closed, ControlConnection, RequestReceived

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["ControlServer"]

LINKS_MAX = 128
"""Local processes at once; each waiting command holds one."""


class ControlServer:
    """Serves the control endpoint of one root."""

    def __init__(self, node: "Node", sock: socket.socket) -> None:
        self.node = node
        self.links: set[ControlLink] = set()
        self.listen(sock)

    def listen(self, sock: socket.socket) -> None:
        """Serve on a listening socket from now on."""
        self._listener = Listener(sock, lambda: ControlLink(self), self.node.accept_failed)

    def stop(self) -> None:
        """Accept no more for now; the links stay."""
        self._listener.stop()

    def close(self) -> None:
        """Stop listening and hang up."""
        self._listener.close()
        for link in list(self.links):
            link.hang_up()

    def actor(self, pid: int) -> Actor:
        """Return who a local process acts as."""
        host = self.node.host_identity
        is_below = host is not None and host.pid > 1 and any(item == host for item in ancestors(pid))
        act = Act.AGENT if is_below else Act.PERSON
        return Actor(Peer(self.node.instance), act, "control", is_host=True, is_in_tree=is_below)


class ControlLink(asyncio.Protocol):
    """One local process."""

    def __init__(self, server: ControlServer) -> None:
        self._server, self._node = server, server.node
        self._transport: asyncio.Transport | None = None
        self._connection: ControlConnection | None = None
        self._actor: Actor | None = None
        self._work: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._tokens: set[str] = set()  # previews to be settled by this very process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check who it is."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # "writable" means: all is with the kernel
        try:
            credentials = peer_credentials(transport.get_extra_info("socket"))
        except OSError:
            self._transport.abort()
            return
        if credentials.uid != os.geteuid() or len(self._server.links) >= LINKS_MAX:
            self._transport.abort()
            return
        self._server.links.add(self)
        self._actor = self._server.actor(credentials.pid)
        now_ms = self._node.now().mono_ms
        self._connection = ControlConnection("server", product=f"tieline/{__version__}", now_ms=now_ms)
        self._watch_opening()

    def _watch_opening(self) -> None:
        connection = self._connection
        if connection is not None and connection.deadline_ms is not None:
            delay = max(0, connection.deadline_ms - self._node.now().mono_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay + 0.001, self._expire)

    def _expire(self) -> None:
        if self._connection is not None:
            self._connection.expire(self._node.now().mono_ms)
            self._drain()

    def data_received(self, data: bytes) -> None:
        """Feed the protocol."""
        if self._connection is not None:
            self._connection.receive_data(data, self._node.now().mono_ms)
            self._drain()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - no reason is needed
        """Abort what this process waited for."""
        self._server.links.discard(self)
        self._transport = self._connection = None
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._work):
            task.cancel()
        for token in self._tokens:  # its reader died before it showed the mail
            self._node.tasks.start(self._node.operations.unflushed(token))

    def hang_up(self) -> None:
        """Close this link."""
        if self._transport is not None:
            self._transport.close()

    def _drain(self) -> None:
        connection = self._connection
        if connection is None:
            return
        is_over = False
        for event in connection.events_received():
            if isinstance(event, RequestReceived):
                task = self._node.tasks.start(self._serve(event))
                self._work.add(task)
                task.add_done_callback(self._work.discard)
            elif isinstance(event, Closed):
                is_over = True
        self._flush()
        if is_over and self._transport is not None:
            self._transport.close()

    def _flush(self) -> bool:
        """Hand all output to the kernel; return whether this link still has a socket."""
        if self._connection is None or self._transport is None or self._transport.is_closing():
            return False
        data = self._connection.data_to_send()
        if data:
            self._transport.write(data)
        return True

    async def _serve(self, request: RequestReceived) -> None:
        operations = self._node.operations
        assert self._actor is not None, "requests come after the credentials"
        token: str | None = None
        # A process that passes the result on says itself when its own reader took it.
        is_settled_later = request.params.pop("isSettledLater", False) is True
        named = request.params.pop("callId", None)
        call_id = named if isinstance(named, str) else None
        try:
            reply = await operations.call(self._actor, request.method, request.params, call_id=call_id)
            token = reply.taken
            if is_settled_later and token is not None:
                reply.result["settle"] = token
                self._tokens.add(token)
                token = None
            self._note_token(request, reply.result)
            refused = (
                self._connection.respond(request.id, reply.result) if self._connection is not None else None
            )
            is_told = refused is None and self._flush() and await self._is_drained()
        except TielineError as error:
            self._refuse(request, error)
            return
        except asyncio.CancelledError:
            if token is not None:
                await operations.unflushed(token)
            raise
        if token is not None:
            await (operations.flushed(token) if is_told else operations.unflushed(token))

    def _note_token(self, request: RequestReceived, result: dict[str, Any]) -> None:
        """Remember a token that the reading command must settle before it ends."""
        if request.method in ("local.inbox", "local.ask", "host.hook") and result.get("token"):
            self._tokens.add(result["token"])
        elif request.method in ("host.taken", "host.refused", "host.carried"):
            self._tokens.discard(str(request.params.get("token")))

    async def _is_drained(self) -> bool:
        """Return whether everything written so far is with the kernel."""
        await self._writable.wait()
        return self._transport is not None

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The kernel has taken everything."""
        self._writable.set()

    def _refuse(self, request: RequestReceived, error: TielineError) -> None:
        if self._connection is None:
            return
        details: dict[str, Any] = {"action": error.action, "retryable": getattr(error, "is_retryable", False)}
        if isinstance(error, OutcomeUnknown):
            details["messageId"] = error.message_id
        if isinstance(error, Refused) and error.candidates:
            details["candidates"] = error.candidates
        self._connection.refuse(request.id, Refusal(error.code, str(error)), details)
        self._flush()
