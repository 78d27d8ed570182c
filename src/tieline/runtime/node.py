"""One root, wired to this process: engine, driver, journal, links, presence, host.

Theory. Everything that decides is below; this module owns the clock, chance, the loop's timers and the
order of opening and closing. Opening: directories, journal, endpoint, control endpoint, presence.
Closing: presence first (nobody is invited any more), then what was admitted ends, then links, then the
journal.

Rule 1: a root publishes only an endpoint that listens.
Rule 2: what the driver says is durable is what doors are told.
Rule 3: a failure in the background is logged without content or keys, and never ends the process.

Source: DESIGN.md 2, 3; reference/native.md 1A, 1C, 1Q, 2.10.
"""

import asyncio
import contextlib
import os
import secrets
import uuid
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tieline.config import Settings
from tieline.engine.contract import Act, Command, Held
from tieline.engine.directory import Place
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal, Refused, TielineError
from tieline.keys import PrivateKey
from tieline.model.identity import Capability, Peer, generated_alias, wire_of
from tieline.model.moment import Moment
from tieline.model.receipt import Event
from tieline.model.traits import INTERCOM, NATIVE
from tieline.runtime import inspect, neighbours, options, render, seams, world
from tieline.runtime.book import Book
from tieline.runtime.calls import Actor
from tieline.runtime.control import ControlServer
from tieline.runtime.custody import Custody
from tieline.runtime.host import Host
from tieline.runtime.ladder import Ladder
from tieline.runtime.logs import Log
from tieline.runtime.neighbours import Neighbours
from tieline.runtime.operations import Operations
from tieline.runtime.options import Places, RootOptions
from tieline.runtime.publication import Publication
from tieline.runtime.resources.desk import Desk
from tieline.runtime.signals import Signal, Watch
from tieline.runtime.tasks import Tasks
from tieline.runtime.waits import Waits
from tieline.runtime.windows import Windows
from tieline.runtime.world import World
from tieline.shell.driver import Driver
from tieline.shell.endpoint import CONTROL_SUFFIX, NATIVE_SUFFIX, Endpoint, bind_endpoint
from tieline.shell.process import identify, make_undumpable, require_supported_platform, self_identity
from tieline.shell.switchboard import Switchboard
from tieline.store.files import Seam, no_seam
from tieline.store.presence import PresenceStore
from tieline.text import Rendered

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom

__all__ = ["Node"]

CLOSE_SECONDS_MAX = 3.0
ROOT_CAPABILITIES = (Capability.SEND, Capability.RECEIVE, Capability.WAIT, Capability.REQUEST)


class Node:
    """A running root. Made by `open`; ended by `close`."""

    def __init__(
        self,
        held: RootOptions,
        settings: Settings,
        places: Places,
        seam: Seam = no_seam,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.seam = seam
        self._environment = environment or {}
        self.windows: Windows | None = None  # our place among the windows of another wire
        self.intercom: Intercom | None = None  # and among the sessions of the third
        self.settings, self.places, self.options = settings, places, held
        self.instance = str(uuid.uuid4())
        self.started = self.now()
        workspace = os.path.realpath(held.workspace or os.getcwd())
        self.project = os.path.basename(workspace)[:256] or "root"
        self.alias = settings.alias or generated_alias(self.project, self.instance)
        self.session = held.session or self.instance
        control = (Capability.CONTROL,) if settings.allow_resource_control else ()
        self.capabilities = tuple(item.value for item in (*ROOT_CAPABILITIES, *control))
        self.host = Host(is_automatic=settings.idle_behavior == "auto")
        self.host.model = held.model
        self.log = Log(places.logs, self.instance)
        self.tasks = Tasks(lambda error: self.log.failure("background", error))
        self.key = PrivateKey.generate(None)
        self.place = Place(workspace, "", settings.scope)
        self.engine = Messaging(
            self.instance,
            settings.limits,
            idle_behavior=settings.idle_behavior,
            alias=self.alias,
            project=self.project,
        )
        self.world = World(self)
        self.book = Book(self)
        self.driver = Driver(self.engine, self.world)
        self.switchboard = Switchboard(
            instance=self.instance,
            key=self.key,
            capabilities=self.capabilities,
            limits=settings.limits,
            world=self.world,
        )
        self.operations = Operations(self)
        self.desk = Desk(self)
        self.ladder = Ladder(self)
        self.is_published = False
        self.shutdown = asyncio.Event()
        self.waits = Waits(self)
        self._subscribers: list[Callable[[str, dict[str, Any]], None]] = []
        self._signals: weakref.WeakValueDictionary[str, Signal] = weakref.WeakValueDictionary()
        self.is_closing = False

    # ------------------------------------------------------------ opening and closing

    @classmethod
    async def open(cls, held: RootOptions, environment: Mapping[str, str] | None = None) -> "Node":
        """Open a root.

        Raises:
            UsageError: a setting is wrong.
            Refused: COMMUNICATION_DISABLED, UNSAFE_ENDPOINT, UNSUPPORTED_PLATFORM, PERMISSION_DENIED.
        """
        require_supported_platform()
        environment = os.environ if environment is None else environment
        settings = options.settings(held, environment)
        if not settings.enabled:
            raise Refused("COMMUNICATION_DISABLED", "communication is switched off in the configuration")
        places = options.places(held, settings, environment)
        node = cls(held, settings, places, seams.of_environment(environment), environment)
        await node._start()
        return node

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        make_undumpable()
        repository = loop.run_in_executor(None, neighbours.repository_of, self.place.workspace)
        host_pid = self.options.host_pid or os.getppid()
        self.host_identity = identify(host_pid)
        self.custody = Custody.open(
            self.places.stores, self.instance, self.session, loop, self.log, self.seam
        )
        self.endpoint, self.control_endpoint = self._bind(NATIVE_SUFFIX), self._bind(CONTROL_SUFFIX)
        self.place = Place(self.place.workspace, await repository, self.settings.scope)
        self.presence = PresenceStore(self.places.active_agents, seam=self.seam)
        self.neighbours = Neighbours(
            self.presence, instance=self.instance, place=self.place, settings=self.settings
        )
        self.windows = await Windows.of(self, self._environment)
        if self.settings.wires.intercom.enabled:
            from tieline.runtime.intercom.intercom import Intercom  # noqa: PLC0415 - paid for by who is on it

            self.intercom = Intercom(self, self._environment)
        self.publication = Publication(self)
        self.control = ControlServer(self, self.control_endpoint.sock)
        if self.options.is_published:
            self._publish()
        self.tasks.start(self.publication.beat())
        self.log.note("opened", alias=self.alias, scope=str(self.settings.scope))

    def _bind(self, suffix: str) -> Endpoint:
        host = self.host_identity
        return bind_endpoint(
            self.places.runtime, self.instance, suffix, owner=self_identity(), host=host, seam=self.seam
        )

    async def publish(self, session: str | None = None) -> None:
        """Let others see this root, under the session that the host named."""
        await self.state_changed(session, is_publishing=True)

    async def close(self) -> None:
        """End in order: no invitations, join what was admitted, hang up, close the store."""
        if self.is_closing:
            return
        self.is_closing = True
        if self.windows is not None:
            await self.windows.lapse()
        self.publication.withdraw()
        self.control.close()
        await self.desk.close()
        done = self._loop.create_future()
        self.driver.close(lambda: _put(done, None))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await done
                await asyncio.sleep(0)
        for foreign in (self.windows, self.intercom):
            if foreign is not None:
                await foreign.drain()
        for carrier in self.carriers:
            carrier.close()
        await asyncio.sleep(0)
        await self.tasks.stop()
        self.world.stop()
        for item in (self.endpoint, self.control_endpoint):
            with contextlib.suppress(TielineError, OSError):
                item.close()
        await self._loop.run_in_executor(None, self.custody.close)
        self.presence.close()
        self.log.note("closed")
        self.log.close()

    def request_shutdown(self) -> None:
        """Ask whoever runs this root to close it."""
        self.shutdown.set()

    # ------------------------------------------------------------ clock and chance

    def now(self) -> Moment:
        """Return the clocks."""
        return world.now()

    def new_token(self) -> str:
        """Return a fresh 128-bit token."""
        return secrets.token_hex(16)

    def new_message_id(self) -> str:
        """Return a fresh message id that sorts by time: a UUID of version 7, which every wire takes."""
        return world.new_id()

    # ------------------------------------------------------------ telling

    def announce(self, event: Event) -> None:
        """Wake who waits here and tell the doors."""
        self.seam("node.telling")
        if self.intercom is not None:
            self.intercom.noticed(event)
        self._signal("movement:" + event.message_id).tell()
        self._signal("arrival:" + event.owner).tell()
        if event.kind == "message" and not self.engine.is_muted(event.sender):
            if self._subscribers:  # the peer waits for its answer behind this: nothing is made for nobody
                self._tell_doors("peer_update", {"event": render.event(event) | self.event_names(event)})
            self._wake(event)
            self.ladder.look()
        elif event.kind == "receipt" and self._subscribers:
            self._tell_doors("peer_update", {"event": render.event(event)})

    def tell_resource(self, shape: dict[str, Any]) -> None:
        """Wake who waits for a resource's event, and tell the doors."""
        self._signal("arrival:" + shape["to"]).tell()
        self._tell_doors("resource_update", {"event": shape})

    def _tell_doors(self, kind: str, params: dict[str, Any]) -> None:
        for subscriber in list(self._subscribers):
            subscriber(kind, params)

    def _wake(self, event: Event) -> None:
        """Tell the host once that mail waits, when it may be woken."""
        owner = self.engine.own_peer(event.owner) or Peer(self.instance)
        found = self.engine.held(
            owner, from_peer=event.sender, message_id=event.message_id, unread_only=True, count_max=1
        )
        if not found or found[0].envelope.delivery == "passive":
            return
        envelope = found[0].envelope
        if envelope.automatic_depth >= self.settings.limits.automatic_replies:
            return
        if self.host.may_wake(is_steering=envelope.delivery == "steer", run=owner.run):
            self.host.note_wake(owner.run, is_out=True)
            self._tell_doors("wake", inspect.wake(self.engine, found[0]))

    def tell_window_event(self, shape: dict[str, Any]) -> None:
        """Tell the doors what a window said that is no message, and wake who waits for it."""
        self._signal("arrival:" + shape["to"]).tell()
        self._tell_doors("peer_update", {"event": shape})

    @property
    def has_host(self) -> bool:
        """Whether a door listens that could answer for the host."""
        return bool(self._subscribers)

    # ------------------------------------------------------------ asking

    def ask(self, command: Command) -> "asyncio.Future[Any]":
        """Return a future of a command's answer, true on disk when it comes."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.driver.submit(command, lambda answer: _put(future, answer))
        return future

    async def ask_count(self, command: Command) -> int:
        """Return the number that a command answers with.

        Raises:
            Refused: the command was refused.
        """
        answer = await self.ask(command)
        if isinstance(answer, Refusal):
            raise Refused.of(answer)
        return int(answer or 0)

    async def ask_peer(self, instance: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask another root something that is no message.

        Raises:
            Refused: as the far end said, or PEER_OFFLINE; METHOD_NOT_FOUND becomes CAPABILITY_DENIED.
        """
        future: asyncio.Future[tuple[dict[str, Any] | None, Refusal | None]] = self._loop.create_future()
        self.switchboard.ask(instance, method, params, lambda *told: _put(future, told))
        result, refusal = await future
        if refusal is not None and refusal.code == "METHOD_NOT_FOUND":
            raise Refused("CAPABILITY_DENIED", "the far end is no Tieline end and cannot tell this")
        if refusal is not None or result is None:
            raise Refused.of(refusal or Refusal("PEER_OFFLINE", "no answer"))
        return result

    async def is_tieline(self, instance: str, is_needed: bool) -> bool | None:  # noqa: FBT001
        """Return whether a far end announced Tieline's features; asked of it only when that is needed."""
        if instance == self.instance:
            return True
        if wire_of(instance) != NATIVE.name:
            return None  # what such a wire can say is its trait; nobody is asked
        features = self.switchboard.features(instance)
        if features is None and is_needed:
            with contextlib.suppress(Refused):
                await self.ask_peer(instance, "peer.directory", {"version": 1})
            features = self.switchboard.features(instance)
        return None if features is None else bool(features)

    def may_cross(self, asker: Peer, asked: Peer) -> bool:
        """Return whether whom we ask is known to wait for no answer of ours, on a wire that lets us know."""
        trackers = {} if self.intercom is None else {INTERCOM.name: self.intercom.awaits}
        is_awaited = trackers.get(asked.wire)
        return is_awaited is not None and not is_awaited(asked, asker)

    # ------------------------------------------------------------ who acts

    def acting_peer(self, actor: Actor, token: str | None) -> Peer:
        """Return whose mailbox a call is about.

        Raises:
            Refused: TARGET_ENDED for a run's token that proves nothing; AMBIGUOUS_TARGET when a process
                below a host with live runs names none.
        """
        if token is not None:
            run = self.host.run_of(token)
            if run is None:
                raise Refused("TARGET_ENDED", "this run's token is not valid: the run has ended")
            return Peer(self.instance, run)
        if actor.is_in_tree and self.host.has_runs and actor.peer.run is None:
            aliases = ", ".join(item.alias for item in self.engine.live_runs()[:8])
            raise Refused(
                "AMBIGUOUS_TARGET",
                f"runs are live here ({aliases}): pass --run TOKEN, or use the MCP tool",
            )
        return actor.peer

    def act_of(self, peer: Peer) -> Act:  # noqa: ARG002 - the engine knows the depth of each peer
        """Return why a tool call of this peer happens."""
        return Act.AGENT

    def require(self, peer: Peer, capability: Capability) -> None:
        """Refuse what the acting peer may not do."""
        names = self.capabilities
        if peer.run is not None:
            run = self.engine.run(peer.run)
            if run is None or not run.is_live:
                raise Refused("TARGET_ENDED", "this run has ended")
            names = run.capabilities
        if capability.value not in names:
            raise Refused("CAPABILITY_DENIED", f"{capability} is not among the capabilities of this peer")

    def acting(self, peer: Peer) -> dict[str, Any]:
        """Return a local peer as it acts: its names and what it may do."""
        run = None if peer.run is None else self.engine.run(peer.run)
        names = self.capabilities if run is None else run.capabilities
        shape: dict[str, Any] = {"peerId": peer.id, "capabilities": list(names)}
        if run is None:
            return {**shape, "alias": self.alias}
        return {**shape, "alias": run.alias, "runId": run.run}

    def owners(self) -> list[Peer]:
        """Return every local mailbox."""
        return [Peer(self.instance), *(Peer(self.instance, item.run) for item in self.engine.live_runs())]

    def run_alias(self, run: str) -> str:
        """Return a readable alias for a run that was given none."""
        return generated_alias(self.alias + "-run", run)[:64]

    # ------------------------------------------------------------ waiting and reading

    def _signal(self, name: str) -> Signal:
        signal = self._signals.get(name)
        if signal is None:
            signal = self._signals[name] = Signal()
        return signal

    def arrival(self, peer: Peer) -> Watch:
        """Return a watch over what happens in a mailbox."""
        return Watch(self._signal("arrival:" + peer.id))

    def movement(self, message_id: str) -> Watch:
        """Return a watch over one message's receipts."""
        return Watch(self._signal("movement:" + message_id))

    def subscribe(self, callback: Callable[[str, dict[str, Any]], None]) -> Callable[[], None]:
        """Tell `callback` of events from now on."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    async def with_content(self, held: Held) -> dict[str, Any]:
        """Return a message's shape with its text, read from the journal when memory let it go."""
        shape = render.message(held)
        if "content" not in shape:
            envelope = await self._loop.run_in_executor(None, self.custody.content, held.cursor)
            shape["content"] = envelope.content
        return shape

    def rendered(self, messages: Sequence[Held], bytes_max: int, count_max: int) -> Rendered:
        """Return mail as a model may read it, as much as fits."""
        return inspect.rendered(messages, self.new_token, bytes_max, count_max)

    def history(self, cursor: int) -> list[dict[str, Any]]:
        """Return the moves of one record, from the real store's events."""
        return inspect.history(self.engine, cursor)

    def events_after(self, after: int, owners: Sequence[Peer] | None = None) -> Sequence[Event]:
        """Return the events of these mailboxes, or of all, after a cursor."""
        return inspect.events_after(self.engine, self.owners() if owners is None else owners, after)

    def event_names(self, event: Event) -> dict[str, Any]:
        """Return what makes an event readable: aliases and a preview."""
        return inspect.event_names(self, event)

    @property
    def readers(self) -> dict[str, Callable[[Peer, str | None, int], Awaitable[dict[str, Any]]]]:
        """How the last answer of a peer is read, on the wires that have a way of their own."""
        return {} if self.intercom is None else {INTERCOM.name: self.intercom.roster.read_last}

    def who(self) -> dict[str, Any]:
        """Return who this root is."""
        return inspect.who(self)

    def checks(self) -> list[dict[str, Any]]:
        """Return this root's own health."""
        return inspect.checks(self)

    def counters(self) -> dict[str, int]:
        """Return what was counted."""
        counted = {**self.engine.counters, "groups": self.driver.groups_count}
        for carrier in self.carriers:
            counted |= carrier.counters
        return counted

    @property
    def carriers(self) -> "tuple[Switchboard | Windows | Intercom, ...]":
        """What carries messages to others, one for each wire that is on."""
        foreign = [carrier for carrier in (self.windows, self.intercom) if carrier is not None]
        return (self.switchboard, *foreign)

    # ------------------------------------------------------------ presence

    async def state_changed(self, session: str | None, *, is_publishing: bool = False) -> None:
        """Publish what the host said of itself."""
        if session and session != self.session:
            if self.is_published:
                self.neighbours.withdraw()
            self.session = session
            await self._loop.run_in_executor(None, self.custody.rename_session, session)
        if self.is_published or is_publishing:
            self._publish()

    def _publish(self) -> None:
        self.publication.publish()
        if self.windows is not None:
            self.windows.state_changed()
        if self.intercom is not None:
            self.intercom.publish()

    def accept_failed(self, error: BaseException) -> None:
        """Log why a connection could not be taken; links that are open go on."""
        self.log.failure("accept", error)


def _put(future: "asyncio.Future[Any]", answer: object) -> None:
    """Give a future its answer, unless nobody waits any more."""
    if not future.done():
        future.set_result(answer)
