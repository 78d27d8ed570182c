"""One root as a window among windows: publish, keep, rename and withdraw it; tell and be told.

Theory. The window is the root itself under another roof: its socket feeds the same engine, its record says
what presence says. Frames that are no messages end here: who wants to know when our host is idle, who asks
it to end, who has another name.

Rule 1: bind, listen, key, record; and back in the other order.
Rule 2: the record is looked at with every beat and put back; a socket whose name was taken is bound anew.
Rule 3: nobody ends this root but its host: a request is offered to it, and denied where nobody answers.
Rule 4: where the registry cannot be used, the root goes on without a window, and says so in its log.

Source: reference/pi-peers-and-harness-doors.md rules 2 to 16, 25, 26, 34 to 39, consequences 2 and 3.
"""

import asyncio
import contextlib
import os
import secrets
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tieline import __version__
from tieline.engine.contract import Asked, Lapse, Offer, Send, Standing
from tieline.engine.directory import Root
from tieline.errors import Refusal, Refused, TielineError
from tieline.model.identity import Peer
from tieline.model.message import Delivery, Envelope
from tieline.model.process import Life
from tieline.runtime.windows.leaving import ANSWER_MS, Request, Requests
from tieline.runtime.windows.postal import Postal
from tieline.runtime.windows.project import project_of
from tieline.runtime.windows.subscriptions import Awaited, Subscriptions
from tieline.runtime.windows.surroundings import CAPABILITIES, Surroundings
from tieline.runtime.windows.tokens import SOCKET_VARIABLE, TOKEN_VARIABLE, Tokens
from tieline.shell import link
from tieline.shell.endpoint import WindowEndpoint, bind_window, connect, verify_window
from tieline.shell.peers import FIRST_LINK, Post, Target
from tieline.shell.process_start import life_of, pid_domain, process_start_text
from tieline.store.registry import Listed, Registry, Window
from tieline.wire.peers.frames import (
    Frame,
    IdleNotice,
    NotifyWhenIdle,
    Rename,
    Shutdown,
    ShutdownResponse,
    plain_address,
)
from tieline.wire.peers.mapping import WIRE
from tieline.wire.peers.protocol import Grade

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Windows"]

DEFAULT_DIRECTORY: Final = "~/.pi-peers"
FEATURES: Final = frozenset({"notify_idle"})
RENAMED_MAX: Final = 256
"""Windows that are told of our new name; more on one machine read it in the record."""
TEXT_CHARACTERS_MAX: Final = 1_000
DRAIN_SECONDS: Final = 0.5
NOTICE_TOPIC: Final = "idle"
"""Of the mail that an idle notice becomes."""


class Windows:
    """A root's place on the pi-peers wire."""

    def __init__(self, node: "Node", directory: Path, project: str, parent: tuple[str, str] | None) -> None:
        self.node, self.project = node, project
        self.registry = Registry(directory, life=life_of, seam=node.seam)
        self.tokens = Tokens(secrets.token_hex(16), secrets.token_hex(16))
        self.name = node.settings.wires.pi_peers.name or node.alias
        self.surroundings = Surroundings(self.registry, project=project, parent=parent, now=node.now)
        self.post = Post(Postal(self), Peer(node.instance))
        self._subscriptions, self._requests = Subscriptions(), Requests()
        self._endpoint: WindowEndpoint | None = None
        self._listener: link.Listener | None = None
        self.known_as = ""
        """Our address, also after it was withdrawn: what is told last is still told by whom."""
        self._was_busy = node.host.is_busy
        self._flipped_ms = node.started.wall_ms

    @classmethod
    async def of(cls, node: "Node", environment: Mapping[str, str]) -> "Windows | None":
        """Return the root's place on this wire, or None where it is switched off."""
        settings = node.settings.wires.pi_peers
        if not settings.enabled:
            return None
        directory = Path(settings.directory or DEFAULT_DIRECTORY).expanduser()  # noqa: ASYNC240 - no file is looked at
        project = await asyncio.get_running_loop().run_in_executor(None, project_of, node.place.workspace)
        address, token = environment.get(SOCKET_VARIABLE, ""), environment.get(TOKEN_VARIABLE, "")
        parent = (plain_address(address), token) if address and token else None
        return cls(node, directory, project, parent)

    @property
    def address(self) -> str:
        """Where our window listens; "" while it does not."""
        return self._endpoint.path if self._endpoint is not None else ""

    @property
    def ref(self) -> str:
        """The short mark that tells our window from others of its name; "" while it is not shown."""
        own = self.registry.own
        return own.ref if own is not None else ""

    def look(self) -> None:
        """Read the registry anew: an exact route does not trust a list that is half a second old."""
        with contextlib.suppress(TielineError, OSError):
            self.registry.scan(self.node.now().mono_ms, fresh=True)

    def roots(self, native: list[Root], pids: dict[str, int]) -> list[Root]:
        """Return native roots and windows as one list; without windows where the registry cannot be read."""
        try:
            return self.surroundings.roots(native, pids)
        except (TielineError, OSError) as error:
            self.node.log.failure("windows", error)
            return native

    # ------------------------------------------------------------ our own window

    def publish(self) -> None:
        """Show our window, or write what changed of it; where that fails the root goes on without."""
        try:
            self._publish()
        except (TielineError, OSError) as error:
            self.node.log.failure("window", error)

    def _publish(self) -> None:
        if self._endpoint is None:
            path = self.registry.socket_directory / f"tieline-{secrets.token_hex(16)}.sock"
            self._listen(str(path))
            try:
                self.registry.publish(self._window(), self.tokens.peer)
            except BaseException:
                self._hang_up()
                raise
            self.node.log.note("window published", name=self.name)
        else:
            self.registry.update(self._window())

    def _listen(self, path: str) -> None:
        self._endpoint = bind_window(path, seam=self.node.seam)
        self.known_as = path
        self._listener = link.serve(self.post, self._endpoint.sock, self.node.accept_failed)

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._listener.stop()
        if self._endpoint is not None:
            self._endpoint.close()
        self._listener = self._endpoint = None

    def _window(self) -> Window:
        host, pid = self.node.host, os.getpid()
        own = self.registry.own
        return Window(
            pid=pid,
            session=self.node.session,
            cwd=self.node.place.workspace,
            project_root=self.project,
            name=self.name,
            name_source="user" if self.node.settings.wires.pi_peers.name else "derived",
            former_names=own.former_names if own is not None else (),
            kind="interactive" if self.node.options.mode == "interactive" else self.node.options.mode,
            status="busy" if host.is_busy else "idle",
            status_updated_ms=self._flipped_ms,
            started_ms=self.node.started.wall_ms,
            process_start=process_start_text(pid),
            pid_domain=pid_domain(),
            socket_path=self.address,
            protocol=1,
            features=FEATURES,
            context_percent=host.context_percent,
            version=__version__,
        )

    def state_changed(self) -> None:
        """The host said something of itself: publish it, and tell who waited for it to be idle."""
        is_busy = self.node.host.is_busy
        if is_busy != self._was_busy:
            self._was_busy, self._flipped_ms = is_busy, self.node.now().wall_ms
        self.publish()
        if not is_busy:
            self.post.idle()
            for one in self._subscriptions.idle(self.node.now().mono_ms):
                self._tell_idle(one.address, one.nonce)

    def rename(self, name: str) -> None:
        """Bear another name from now on; the former one keeps resolving, and other windows are told."""
        if name == self.name:
            return
        self.name = name
        self.publish()
        own = self.registry.own
        frame = Rename(self._new_id(), self.address, name, own.former_names if own is not None else ())
        for instance in list(self.surroundings.known())[:RENAMED_MAX]:
            target = self.surroundings.target(instance)
            if isinstance(target, Target):
                self.post.tell_window(target, frame)

    def beat(self) -> None:
        """Put back what was taken away, and let a connection decide who cannot be compared."""
        if self._endpoint is None:
            return
        if self._endpoint.missing():
            path = self._endpoint.path
            if self._listener is not None:
                self._listener.stop()
            self._endpoint.close()
            self._listen(path)
            self.registry.publish(self._window(), self.tokens.peer)
            self.node.log.note("window bound again")
        elif not self.registry.confirm():
            self.node.log.note("window published again")
        for listed in self.registry.scan(self.node.now().mono_ms):
            if listed.life is Life.UNPROVED and _is_refusing(listed):
                self.registry.sweep(listed)

    def withdraw(self) -> None:
        """Withdraw the window; nobody is invited any more."""
        with contextlib.suppress(TielineError, OSError):
            self.registry.withdraw()
        self._hang_up()

    async def lapse(self) -> None:
        """Tell who still waits for our person's word that it will not come."""
        if self._endpoint is not None:
            with contextlib.suppress(TimeoutError, TielineError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self.node.ask(Lapse())

    async def drain(self) -> None:
        """Let what was ordered last leave, such as the answer to who asked us to end; for a short time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.post.is_writing:  # noqa: ASYNC110 - this ends within a turn or two of the loop
                    await asyncio.sleep(0.01)

    def close(self) -> None:
        """Hang up everywhere."""
        self.post.close()
        self.registry.close()

    # ------------------------------------------------------------ children

    def begin(self, run: str) -> dict[str, str]:
        """Return what the processes of a run get in their environment."""
        self.tokens.begin(run, secrets.token_hex(16))
        return self.tokens.environment(self.address, run) if self.address else {}

    def environment(self) -> dict[str, str]:
        """Return what the root's own processes get in their environment."""
        return self.tokens.environment(self.address, None) if self.address else {}

    # ------------------------------------------------------------ idle notices

    def await_idle(self, envelope: Envelope, target: Target) -> None:
        """Ask a window to tell us once it is idle, where it knows that question."""
        if target.can_tell_idle:
            nonce = self._new_id()
            now_ms = self.node.now().mono_ms
            self._subscriptions.wait(nonce, envelope.sender, envelope.recipient, target.address, now_ms)
            self.post.tell_window(target, NotifyWhenIdle(nonce, self.address, self.address, nonce))

    def _tell_idle(self, address: str, nonce: str) -> None:
        self.post.tell(address, IdleNotice(self._new_id(), self.address, nonce))

    def _deliver_notice(self, awaited: Awaited) -> None:
        """Put a notice into the mailbox of who waited for it: it wakes and is read like mail."""
        listed = self.surroundings.known().get(awaited.window.instance)
        name = listed.window.name if listed is not None else "the window"
        message_id, owner = self._new_id(), awaited.owner
        envelope = Envelope(
            message_id,
            awaited.window,
            owner,
            f"{name} is idle now. (You asked to be told once.)",
            topic=NOTICE_TOPIC,
            sender_alias=name,
            delivery=Delivery.QUEUE,
        )
        asked = Asked(FIRST_LINK, message_id)  # of no link: nobody waits for what became of it
        standing = Standing(frozenset(CAPABILITIES), is_in_scope=True, alias=name)
        self.node.driver.submit(Offer(asked, awaited.window.instance, standing, envelope, wire=WIRE))

    # ------------------------------------------------------------ frames that are no messages

    def taken(self, frame: Frame, grade: Grade) -> None:
        """Take a frame that is neither a message nor a receipt."""
        now_ms = self.node.now().mono_ms
        match frame:
            case NotifyWhenIdle():
                if self.node.host.is_busy:
                    self._subscriptions.subscribe(frame.reply_to, frame.nonce, now_ms)
                else:
                    self._tell_idle(frame.reply_to, frame.nonce)
            case IdleNotice():
                awaited = self._subscriptions.told(frame.nonce, frame.sender, now_ms)
                if awaited is not None:
                    self._deliver_notice(awaited)
            case Shutdown():
                self._asked_to_end(frame, grade, now_ms)
            case Rename():
                self.registry.scan(now_ms, fresh=True)  # the record says it; the frame only that it changed
            case ShutdownResponse():
                asked = {"request": frame.in_reply_to, "outcome": frame.outcome}
                self._event("shutdown_response", Peer(self.node.instance).id, asked)
            case _:
                return

    def _asked_to_end(self, frame: Shutdown, grade: Grade, now_ms: int) -> None:
        number = self._new_id()
        request = Request(
            number,
            frame.message_id,
            frame.reply_to or frame.sender,
            frame.text[:TEXT_CHARACTERS_MAX],
            now_ms + ANSWER_MS,
        )
        is_refused = self.node.settings.wires.pi_peers.accept == "off" and not grade.is_child
        if is_refused or not self.node.has_host or not self._requests.add(request):
            self._answer(request, is_accepted=False)
            return
        sender = Peer(self.surroundings.instance_at(frame.sender)[0]).id if frame.sender else ""
        facts = {"request": number, "from": sender, "text": request.text, "child": grade.is_child}
        self._event("shutdown", Peer(self.node.instance).id, facts)
        self.node.world.rearm()

    def answer_shutdown(self, number: str, *, is_accepted: bool) -> None:
        """The host's word on a request to end.

        Raises:
            Refused: UNKNOWN_TARGET, no such request waits.
        """
        request = self._requests.take(number)
        if request is None:
            raise Refused(
                "UNKNOWN_TARGET", "no such request waits: it was answered, or denied after 30 seconds"
            )
        self._answer(request, is_accepted=is_accepted)

    def _answer(self, request: Request, *, is_accepted: bool) -> None:
        outcome: Any = "accepted" if is_accepted else "denied"
        if request.address:
            self.post.tell(
                request.address, ShutdownResponse(self._new_id(), self.address, request.asked, outcome)
            )

    def ask_to_end(self, instance: str, text: str) -> str:
        """Ask a window to end; return the id that its answer will bear.

        Raises:
            Refused: it cannot be written to.
        """
        target = self.surroundings.target(instance)
        if isinstance(target, Refusal):
            raise Refused.of(target)
        message_id = self._new_id()
        self.post.tell_window(target, Shutdown(message_id, self.address, self.address, text))
        return message_id

    def _event(self, kind: str, owner: str, facts: dict[str, Any]) -> None:
        cursor = str(self.node.engine.latest_cursor)
        self.node.tell_window_event({"type": kind, "cursor": cursor, "wire": WIRE, "to": owner, **facts})

    def _new_id(self) -> str:
        return str(uuid.uuid4())

    # ------------------------------------------------------------ as a carrier of messages

    def send(self, send: Send) -> None:
        """Carry out one send that the engine ordered."""
        self.post.send(send)

    @property
    def counters(self) -> dict[str, int]:
        """What was refused or dropped."""
        return self.post.counters

    @property
    def deadline_ms(self) -> int | None:
        """The next monotonic moment at which something here is due."""
        dues = [due for due in (self.post.deadline_ms, self._requests.deadline_ms) if due is not None]
        return min(dues, default=None)

    def tick(self) -> None:
        """Time passed: deny what no host answered, end what has no time left."""
        for request in self._requests.overdue(self.node.now().mono_ms):
            self._answer(request, is_accepted=False)
        self.post.tick()


def _is_refusing(listed: Listed) -> bool:
    """Return whether nobody listens at a window's address: no socket is there, or it refuses."""
    try:
        verify_window(listed.window.socket_path)
        connect(listed.window.socket_path).close()
    except Refused as error:
        return error.code == "PEER_OFFLINE"
    return False
