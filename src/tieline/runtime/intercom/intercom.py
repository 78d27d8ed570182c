"""One root as a session among sessions: join the brokers, say what we do, know who is there.

Theory. The root is one session under the id that its native session gives it, at every broker of this user
that it knows of: the one of the newest paths, started where none answers, and that of the agent directory
where the JavaScript extension runs one. What sessions send feeds the same engine as everything else.

Rule 1: only a published root is there, and only under one session at a time.
Rule 2: a session that our other wires show is shown by them; nobody is shown twice.
Rule 3: where the group or the place of the broker is stated wrongly, this wire stays away and says why; the
    root goes on without it.
Rule 4: presence is told when it changes, never as a beat.

Source: specification of the intercom; reference/intercom.md 2, 3, 6.1; DESIGN.md 1, 2.
"""

import asyncio
import contextlib
import hashlib
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tieline.engine.contract import Send
from tieline.errors import Refused, TielineError, UsageError
from tieline.model.identity import Peer
from tieline.model.receipt import Event, State
from tieline.runtime.intercom.asks import Ask, Asks
from tieline.runtime.intercom.context import Context
from tieline.runtime.intercom.failures import Failures, errors_path
from tieline.runtime.intercom.lineage import child_environment, lineage_of
from tieline.runtime.intercom.postal import AGENT, SHARED, Postal
from tieline.runtime.intercom.reads import Reads
from tieline.runtime.intercom.roster import Roster
from tieline.runtime.intercom.wakes import Wakes
from tieline.runtime.signals import Signal
from tieline.shell.hub import VARIABLE, Paths, Place, place_of
from tieline.shell.intercom import Post, Registration
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import MessageCame

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["NAME_VARIABLE", "Intercom"]

NAME_VARIABLE: Final = "PI_SUBAGENT_INTERCOM_SESSION_NAME"
AGENT_VARIABLE: Final = "PI_CODING_AGENT_DIR"
LABEL_CHARACTERS_MAX: Final = 128
PREVIEW_CHARACTERS_MAX: Final = 180
FAILED_MAX: Final = 256
GONE_MAX: Final = 4_096
AGENT_WARNING: Final = (
    "an intercom broker of an older revision serves this agent directory: its sessions and those of the "
    "shared broker do not see each other until they load the newer extension"
)
DRAIN_SECONDS: Final = 0.5


class Intercom:
    """A root's place on the intercom wire."""

    def __init__(self, node: "Node", environment: Mapping[str, str]) -> None:
        """Be nowhere yet; `fault` says why this stays so, where it does."""
        self.node, self.environment = node, environment
        self.fault = ""
        places: dict[str, Place] = {}
        lineage = lineage_of({})
        try:
            lineage = lineage_of(environment)
            places = _places(environment)
        except UsageError as error:
            self.fault = str(error)
            node.log.note("intercom not joined", reason=self.fault)
        self.context = Context(lineage, node.session, lambda: str(uuid.uuid4()))
        self.name = _label(environment.get(NAME_VARIABLE, "").strip() or node.alias)
        self.post = Post(Postal(self, places), tuple(places))
        self.asks, self.reads, self.wakes, self.roster = Asks(), Reads(self), Wakes(self), Roster(self)
        self.stirred = Signal()
        self.turn_began_ms = 0
        self._failed: OrderedDict[str, str] = OrderedDict()  # our questions whose child was not woken
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._asking: set[str] = set()
        self._said: dict[str, Any] = {}
        self._was_busy = False
        self.is_published = False
        self._failures = Failures(
            errors_path(environment, node.places.home), self._tell_failure, lambda: node.now().wall_ms
        )
        if self.fault:
            self._fail("start", self.fault)

    # ------------------------------------------------------------ ourselves

    def registration(self) -> Registration:
        """Return what a broker is told of us now."""
        node = self.node
        project = node.place.repository and "git:" + node.place.repository
        project = project or "cwd:" + node.place.workspace
        now_ms = node.now().wall_ms
        self._said = self._state()
        session = {
            "cwd": _label(node.place.workspace, "/", characters_max=4_096),
            "projectId": hashlib.sha256(os.fsencode(project)).hexdigest(),
            **self._said,
            **self.context.fields(),
            mapping.INSTANCE_FIELD: node.instance,
            # Readers of the ancestor's form leave a list in which one session lacks these.
            "pid": os.getpid(),
            "startedAt": node.started.wall_ms,
            "lastActivity": now_ms,
        }
        return Registration(session, mapping.peer_id_of(self.context.session))

    def _state(self) -> dict[str, Any]:
        host = self.node.host
        activity = _label(host.activity, "idle")
        is_idle = not host.is_busy
        return {
            "name": self.name,
            "model": _label(host.model or self.node.options.harness, "unknown"),
            "status": "idle" if is_idle else activity if activity != "idle" else "thinking",
            "acceptsAsks": is_idle,
            "pendingAsks": len(self.asks.waiting(self.node.now().mono_ms)),
        }

    def publish(self) -> None:
        """Be at the brokers, and say what changed of us."""
        is_another = self.context.session != self.node.session
        if is_another:
            self.context.replace(self.node.session)
        self._refuse_own_child()
        if is_another:
            self._tell_context()
            for member in self.post.members.values() if self.is_published else ():
                member.join_again()
        if not self.is_published and not self.node.is_closing:
            self.is_published = True
            for member in self.post.members.values():
                member.join()
        is_busy = self.node.host.is_busy
        if is_busy and not self._was_busy:
            self.turn_began_ms = self.node.now().wall_ms
        self._was_busy = is_busy
        self.tell_presence()

    def _refuse_own_child(self) -> None:
        """Leave the wire, and say why, where our session is the main that our environment names."""
        if self.fault:
            return
        try:
            self.context.lineage.require_other(self.context.session)
        except UsageError as error:
            self.fault = str(error)
            self.node.log.note("intercom not joined", reason=self.fault)
            self._fail("start", self.fault)
            self.post.close(is_parked=False)
            self.post.members.clear()

    def tell_presence(self) -> None:
        """Tell the brokers what changed of us since they were told."""
        state = self._state()
        changes = {name: value for name, value in state.items() if self._said.get(name) != value}
        self._said = state
        if changes:
            self.post.tell_presence(changes)

    def rename(self, name: str) -> None:
        """Bear another name from now on."""
        self.name = _label(name)
        self.tell_presence()

    def environment_of_run(self) -> dict[str, str]:
        """Return what the processes of a run of ours get: a child has no children of its own."""
        return {} if self.context.lineage.is_child or self.fault else child_environment(self.context.session)

    # ------------------------------------------------------------ companions

    @property
    def peer(self) -> str:
        """Our id at the first broker that has us; "" while none has."""
        return next((one.session_id for one in self.post.members.values() if one.session_id), "")

    def snapshot(self) -> dict[str, Any]:
        """Return what a companion is told of this context."""
        links = [one.link for one in self.post.members.values() if one.link is not None]
        is_guarded = bool(links) and "guardedDelivery" in links[0].capabilities
        return self.context.snapshot(self.peer, is_guarded=is_guarded and not self.context.lineage.is_child)

    def set_guard(self, target: dict[str, Any], revision: str | None) -> dict[str, Any]:
        """Set or withdraw the application guard; return `{}`, or `{error}`."""
        error = self.context.set_guard(target, revision, self.peer)
        if error is not None:
            return {"error": error}
        self.post.tell_presence({"applicationGuard": revision})
        self._tell_context()
        return {"revision": revision}

    def _tell_context(self) -> None:
        self.event("intercom_context", self.snapshot())

    def event(self, kind: str, facts: dict[str, Any]) -> None:
        """Tell the doors something that is no message."""
        cursor = str(self.node.engine.latest_cursor)
        own = Peer(self.node.instance).id
        shape = {**facts, "type": kind, "cursor": cursor, "wire": mapping.WIRE, "to": own}
        self.node.tell_window_event(shape)

    # ------------------------------------------------------------ what brokers tell

    def connection_changed(self, broker: str) -> None:
        """We joined a broker, or lost it."""
        member = self.post.members[broker]
        if member.link is not None:
            self._failures.recovered(broker)
            self.node.log.note("intercom joined", broker=broker)
            if broker == AGENT:
                self.node.log.note(AGENT_WARNING)
        self._tell_context()
        self.stirred.tell()

    def dial_failed(self, broker: str, error: Exception) -> None:
        """A broker could not be reached; that nobody runs one for the agent directory is no failure."""
        text = f"{getattr(error, 'code', type(error).__name__)}: {error}"
        if broker == SHARED and self._fail(broker, text):
            self.node.log.note("intercom broker not reached", reason=text)

    def _fail(self, operation: str, text: str) -> bool:
        """Tell of a failure in the background, once until it is over; return whether it was news."""
        return self._failures.failed(
            operation, text, has_host=self.node.has_host, is_ending=self.node.is_closing
        )

    def _tell_failure(self, operation: str, text: str) -> None:
        self.event("intercom_failure", {"operation": operation, "text": text})

    @property
    def faults(self) -> dict[str, str]:
        """Why brokers could not be reached, by broker."""
        return self._failures.known

    def session_left(self, session_id: str) -> None:
        """A session is gone: what it asked waits no more, and nobody waits for it."""
        self.asks.left(session_id)
        self._gone[session_id] = None
        while len(self._gone) > GONE_MAX:
            self._gone.popitem(last=False)
        self.tell_presence()
        self.stirred.tell()

    def arrived(self, came: MessageCame) -> None:
        """A message was taken: keep what is told of it, and that it asks."""
        self.reads.recorded(came)
        sender, message_id = Peer(mapping.instance_of(came.sender["id"])), came.message["id"]
        if came.message.get("expectsReply") is not True:
            return
        own = Peer(self.node.instance)
        for item in self.node.engine.held(
            own, from_peer=sender, message_id=message_id, unread_only=True, count_max=1
        ):
            preview = " ".join(item.envelope.content.split())[:PREVIEW_CHARACTERS_MAX]
            now_ms, thread = self.node.now().mono_ms, item.envelope.thread
            alias = item.envelope.sender_alias
            self.asks.add(Ask(message_id, came.sender["id"], sender.id, alias, preview, thread, now_ms))
        self.tell_presence()

    def noticed(self, event: Event) -> None:
        """A record of ours moved: a question that was answered, or is over, waits no more."""
        if event.state in (State.REPLIED, State.EXPIRED):
            for ask in self.asks.waiting(self.node.now().mono_ms):
                if (ask.sender, ask.message_id) == (event.sender, event.message_id):
                    self.asks.end(ask.session_id, ask.message_id)
                    self.tell_presence()

    def is_of_turn(self, ask: Ask) -> bool:
        """Return whether the model was shown a question since its turn began."""
        found = self.node.engine.held(
            Peer(self.node.instance),
            from_peer=ask.sender,
            message_id=ask.message_id,
            unread_only=False,
            count_max=1,
        )
        consumed_ms = found[0].receipt.consumed_ms if found else None
        return consumed_ms is not None and consumed_ms >= self.turn_began_ms

    def wake_failed(self, message_id: str, detail: str) -> None:
        """The child that a question of ours waits for could not be woken."""
        self._failed[message_id] = detail
        while len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)
        self.event("intercom_wake_failed", {"messageId": message_id, "detail": detail})
        self.stirred.tell()

    @contextlib.contextmanager
    def asking(self, peer: Peer) -> Iterator[None]:
        """Hold the one place in which a peer of ours waits for an answer.

        Raises:
            Refused: RESOURCE_BUSY, it waits for another one.
        """
        if peer.id in self._asking:
            raise Refused("RESOURCE_BUSY", "Already waiting for a reply", is_retryable=True)
        self._asking.add(peer.id)
        try:
            yield
        finally:
            self._asking.discard(peer.id)

    def awaits(self, asker: Peer, asked: Peer) -> bool:
        """Return whether a session waits for an answer of a peer of ours, as far as we were told."""
        if asked.run is not None:
            return False
        return any(ask.sender == asker.id for ask in self.asks.waiting(self.node.now().mono_ms))

    def has_left(self, session_id: str) -> bool:
        """Return whether a session was seen to go, and is on no broker of ours now."""
        return session_id in self._gone and self.roster.row_of(session_id) is None

    @property
    def has_older_broker(self) -> bool:
        """Whether a broker of an older revision serves our agent directory."""
        return AGENT in self.post.members and self.post.members[AGENT].link is not None

    @property
    def warnings(self) -> list[str]:
        """What a person should know of the brokers here."""
        found = [AGENT_WARNING] if self.has_older_broker else []
        return [*found, *(f"{broker}: {why}" for broker, why in self.faults.items())]

    def wake_fault(self, message_id: str) -> str | None:
        """Return why the child that was asked could not be woken, or None."""
        return self._failed.get(message_id)

    # ------------------------------------------------------------ who is there

    def require(self) -> None:
        """Refuse what needs a broker.

        Raises:
            Refused: UNSAFE_ENDPOINT or what else keeps this wire away; PEER_OFFLINE, no broker has us.
        """
        if self.fault:
            raise Refused("INVALID_PARAMS", f"Intercom not connected: {self.fault}")
        if not self.post.is_connected:
            reasons = "; ".join(self.faults.values()) or "connecting"
            raise Refused("PEER_OFFLINE", f"Intercom not connected: {reasons}", is_retryable=True)

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
        return min(
            (due for due in (self.post.deadline_ms, self.wakes.deadline_ms) if due is not None), default=None
        )

    def tick(self) -> None:
        """Time passed."""
        self.wakes.tick(self.node.now().mono_ms)
        self.post.tick()

    async def drain(self) -> None:
        """Let what was ordered last leave; for a short time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.post.is_sending:  # noqa: ASYNC110 - this ends within a turn or two of the loop
                    await asyncio.sleep(0.01)

    def close(self) -> None:
        """Leave every broker; a child whose host said that it comes back leaves parked."""
        self.is_published = False
        self.post.close(is_parked=self.node.host.is_parked and self.context.lineage.is_child)


def _places(environment: Mapping[str, str]) -> dict[str, Place]:
    """Return where brokers are looked for, the preferred one first.

    Raises:
        UsageError: the named directory is no place for a broker.
    """
    shared = place_of(environment, Paths.SHARED)
    places = {SHARED: shared}
    # A named directory is a deployment of its own: an agent directory belongs to it where that is named, too.
    if not environment.get(VARIABLE) or environment.get(AGENT_VARIABLE):
        try:
            agent = place_of(environment, Paths.AGENT)
        except TielineError:
            return places
        if agent.socket != shared.socket:
            places[AGENT] = agent
    return places


def _label(text: str, otherwise: str = "session", *, characters_max: int = LABEL_CHARACTERS_MAX) -> str:
    """Return `text` as a label: without control characters and half surrogates, and not empty."""
    kept = "".join(
        one
        for one in text
        if not (ord(one) < 0x20 or 0x7F <= ord(one) <= 0x9F or 0xD800 <= ord(one) <= 0xDFFF)
    )
    return kept[:characters_max] or otherwise
