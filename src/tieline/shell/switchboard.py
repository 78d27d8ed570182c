"""All native links of one root: who is connected, what is asked of whom, what they ask of us.

Theory. The driver orders sends to instances; this module finds or opens the link, says `tieline.hello`
once on it, and turns each answer into the `Settle` that the engine waits for. What peers ask becomes
commands. It decides nothing about messages.

Rule 1: at most `connections` outbound links are kept; the least recently used idle one gives way.
Rule 2: a send whose link never opened is UNREACHED; one that was written and not answered is LOST.
Rule 3: an end is believed only when the kernel's peer pid is the pid of its presence record (S11).
Rule 4: features travel only after `tieline.hello` was answered on that link.
Rule 5: this module knows no event loop and no socket; the simulator runs this very file.

Source: reference/native.md 2.5, 2.6, 2.6b, 3.4; reference/reliability.md S11 to S13, S18; DESIGN.md 1.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tieline.config import HEARTBEAT_MS, IDLE_LINK_MS, Limits
from tieline.engine.contract import (
    Answer,
    AskDirectory,
    Asked,
    AskStatus,
    Command,
    DirectoryTold,
    Outcome,
    PushReceipt,
    Send,
    Settle,
    Standing,
    Transmit,
)
from tieline.errors import Refusal
from tieline.keys import PrivateKey
from tieline.model.identity import Peer
from tieline.model.moment import Moment
from tieline.wire.native import mapping
from tieline.wire.native.protocol import (
    Advertised,
    Authenticated,
    Closed,
    Connection,
    LookupWanted,
    NativeLimits,
    NonceMemory,
    NotificationReceived,
    RequestLost,
    RequestReceived,
    ResponseReceived,
)

__all__ = ["Far", "Line", "Switchboard", "World"]

UNPROVED_MAX = 16
"""Links whose far end has not proved who it is: reference/reliability.md S13."""
SOCKETS_MIN = 32
WAITING_SENDS_MAX = 4_096
REQUESTS_PER_SECOND_MIN = 200
"""Requests of one root per second, whatever they ask; a flood costs the flooder (S18, O57)."""
REQUESTS_PER_MESSAGE = 20

Call = Transmit | AskStatus | PushReceipt | AskDirectory
Told = Callable[[dict[str, Any] | None, Refusal | None], None]


class Far(msgspec.Struct, frozen=True):
    """What presence says of a far end, and how it stands to us."""

    advertised: Advertised
    endpoint: str
    pid: int
    standing: Standing


class Line(Protocol):
    """One live socket, as thin as it can be."""

    pid: int | None
    number: int | None  # of the circuit it feeds

    def write(self, data: bytes) -> None:
        """Hand over bytes; they are sent in order."""

    def close(self) -> None:
        """Send what was handed over, then close."""

    def pause(self, *, is_paused: bool) -> None:
        """Stop or go on reading."""


class World(Protocol):
    """What a switchboard needs of its root."""

    def now(self) -> Moment:
        """Return the clocks."""

    def nonce(self) -> bytes:
        """Return 32 fresh random bytes."""

    def lookup(self, instance: str, *, is_fresh: bool) -> Far | None:
        """Return what presence says of a live instance; read anew when `is_fresh`."""

    def is_gone(self, instance: str) -> bool:
        """Return whether that incarnation is proven dead."""

    def dial(self, far: Far, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect; `done` gets the line, or why not."""

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back when what is being done now is done."""

    def submit(self, command: Command) -> None:
        """Give a command to the driver."""

    def own_peer(self, peer_id: str) -> Peer | None:
        """Return the local peer of that id."""

    def directory(self, far: Far) -> list[dict[str, Any]]:
        """Return our live runs as that far end may see them."""

    def last(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        """Return a page of a finished answer."""

    def rearm(self) -> None:
        """The next deadline may have changed."""


class Circuit:
    """One link, its protocol, and who waits on it."""

    __slots__ = (
        "attempts",
        "connection",
        "far",
        "far_read_ms",
        "features",
        "heard_ms",
        "instance",
        "is_dead",
        "is_dialled",
        "is_dirty",
        "is_ready",
        "line",
        "methods",
        "number",
        "used_ms",
        "waiting",
    )

    def __init__(self, number: int, instance: str, *, is_dialled: bool, now_ms: int) -> None:
        self.number, self.instance, self.is_dialled = number, instance, is_dialled
        self.line: Line | None = None
        self.connection: Connection | None = None
        self.far: Far | None = None
        self.far_read_ms = now_ms
        self.features: frozenset[str] | None = None  # None: not told yet; empty: a foreign end
        self.is_ready = False
        self.is_dead = False  # nothing came for as long as an answer may take
        self.is_dirty = False
        self.used_ms = now_ms
        self.heard_ms = now_ms
        self.waiting: deque[Call | tuple[str, dict[str, Any], Told, int]] = deque()
        self.attempts: dict[str, Call | Told] = {}
        self.methods: dict[str | int, str] = {}


class Switchboard:
    """The links of one root."""

    def __init__(
        self, *, instance: str, key: PrivateKey, capabilities: tuple[str, ...], limits: Limits, world: World
    ) -> None:
        self.counters = {"links_refused": 0, "relays_refused": 0, "requests_limited": 0, "circuits_opened": 0}
        self._instance, self._key, self._capabilities, self._world = instance, key, capabilities, world
        self._limits = limits
        self._native = NativeLimits(
            frame_bytes=limits.frame_bytes,
            pending_requests=limits.pending_requests,
            handshake_ms=limits.handshake_ms,
            acknowledgement_ms=limits.acknowledgement_ms,
        )
        self._nonces = NonceMemory()
        self._circuits: dict[int, Circuit] = {}
        self._outbound: OrderedDict[str, Circuit] = OrderedDict()
        self._features: dict[str, frozenset[str]] = {}
        self._budgets: dict[str, tuple[float, int]] = {}
        self._number = 0
        self._dirty: list[Circuit] = []
        self.is_closed = False

    # ------------------------------------------------------------ what the root asks

    def send(self, send: Send) -> None:
        """Carry out one send that the engine ordered."""
        if isinstance(send, Answer):
            self._answer(send)
            return
        circuit = self._circuit_to(send.instance)
        if circuit is None or len(circuit.waiting) >= WAITING_SENDS_MAX:
            self._unreached(
                send, Refusal("QUEUE_FULL", "all outbound links are busy", is_retryable=True), is_gone=False
            )
            return
        circuit.waiting.append(send)
        self._pass_on(circuit)

    def ask(
        self, instance: str, method: str, params: dict[str, Any], told: Told, timeout_ms: int | None = None
    ) -> None:
        """Ask a root something that is no message; `told` gets its result or why there is none."""
        circuit = self._circuit_to(instance)
        if circuit is None:
            told(None, Refusal("QUEUE_FULL", "all outbound links are busy", is_retryable=True))
            return
        circuit.waiting.append((method, params, told, timeout_ms or self._native.acknowledgement_ms))
        self._pass_on(circuit)

    def features(self, instance: str) -> frozenset[str] | None:
        """Return what a far end announced with `tieline.hello`; None when it was never asked."""
        return self._features.get(instance)

    # ------------------------------------------------------------ what sockets tell

    def accepted(self, line: Line) -> int | None:
        """A peer connected. Returns its circuit number, or None when it was turned away."""
        unproved = sum(1 for item in self._circuits.values() if not item.is_dialled and not item.is_ready)
        sockets = sum(1 for item in self._circuits.values() if not item.is_dialled)
        if (
            self.is_closed
            or unproved >= UNPROVED_MAX
            or sockets >= max(SOCKETS_MIN, 4 * self._limits.connections)
        ):
            self.counters["links_refused"] += 1
            line.close()
            return None
        circuit = self._new_circuit("", is_dialled=False)
        circuit.line = line
        circuit.connection = self._connection("server", None)
        self._world.rearm()
        return circuit.number

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in."""
        circuit = self._circuits.get(number)
        if circuit is None or circuit.connection is None:
            return
        circuit.used_ms = circuit.heard_ms = self._world.now().mono_ms
        circuit.connection.receive_data(data, circuit.used_ms)
        self._drain(circuit)

    def lost(self, number: int) -> None:
        """The socket is closed."""
        circuit = self._circuits.get(number)
        if circuit is None:
            return
        if circuit.connection is not None and not circuit.connection.is_closed:
            circuit.connection.receive_eof()
            self._drain(circuit)
        self._drop(circuit, Refusal("PEER_OFFLINE", "the link closed", is_retryable=True))

    # ------------------------------------------------------------ time

    @property
    def deadline_ms(self) -> int | None:
        """The next monotonic moment at which something here is due."""
        due: int | None = None
        for circuit in self._circuits.values():
            at = circuit.connection.deadline_ms if circuit.connection is not None else None
            if circuit.is_dialled and not circuit.attempts and not circuit.waiting:
                idle = circuit.used_ms + IDLE_LINK_MS
                at = idle if at is None or idle < at else at
            if at is not None and (due is None or at < due):
                due = at
        return due

    def tick(self) -> None:
        """Time passed: expire requests and handshakes, close idle links."""
        now_ms = self._world.now().mono_ms
        for circuit in list(self._circuits.values()):
            connection = circuit.connection
            if connection is None:
                continue
            due = connection.deadline_ms
            if due is not None and due <= now_ms:
                connection.expire(now_ms)
                self._drain(circuit)
            if self._is_idle(circuit) and circuit.used_ms + IDLE_LINK_MS <= now_ms:
                self._hang_up(circuit)

    def close(self) -> None:
        """Hang up everywhere."""
        self.is_closed = True
        for circuit in list(self._circuits.values()):
            self._hang_up(circuit)

    @property
    def is_quiet(self) -> bool:
        """Whether no request of ours is under way and nothing waits to be written."""
        return not any(item.attempts or item.waiting for item in self._circuits.values())

    # ------------------------------------------------------------ circuits

    def _new_circuit(self, instance: str, *, is_dialled: bool) -> Circuit:
        self._number += 1
        circuit = Circuit(self._number, instance, is_dialled=is_dialled, now_ms=self._world.now().mono_ms)
        self._circuits[circuit.number] = circuit
        self.counters["circuits_opened"] += 1
        return circuit

    def _connection(self, role: str, expected: Advertised | None) -> Connection:
        return Connection(
            role,  # type: ignore[arg-type]
            instance=self._instance,
            key=self._key,
            capabilities=self._capabilities,
            nonce=self._world.nonce(),
            nonces=self._nonces,
            limits=self._native,
            now_ms=self._world.now().mono_ms,
            expected=expected,
        )

    def _circuit_to(self, instance: str) -> Circuit | None:
        """Return the outbound circuit, dialling it when there is none; None when no room is left."""
        circuit = self._outbound.get(instance)
        if circuit is not None:
            self._outbound.move_to_end(instance)
            return circuit
        if self.is_closed or (len(self._outbound) >= self._limits.connections and not self._make_room()):
            return None
        circuit = self._new_circuit(instance, is_dialled=True)
        self._outbound[instance] = circuit
        self._world.defer(lambda: self._dial(circuit))
        return circuit

    def _make_room(self) -> bool:
        for circuit in self._outbound.values():
            if self._is_idle(circuit):
                self._hang_up(circuit)
                return True
        return False

    def _is_idle(self, circuit: Circuit) -> bool:
        return circuit.is_dialled and circuit.is_ready and not circuit.attempts and not circuit.waiting

    def _dial(self, circuit: Circuit) -> None:
        far = self._world.lookup(circuit.instance, is_fresh=True)
        if far is None:
            self._drop(circuit, Refusal("PEER_OFFLINE", "no live presence of this peer", is_retryable=True))
            return
        circuit.far = far
        self._world.dial(far, lambda line, refusal: self._dialled(circuit, line, refusal))

    def _dialled(self, circuit: Circuit, line: Line | None, refusal: Refusal | None) -> None:
        if line is None or circuit.number not in self._circuits:
            if line is not None:
                line.close()
            self._drop(circuit, refusal or Refusal("PEER_OFFLINE", "no connection", is_retryable=True))
            return
        far = circuit.far
        assert far is not None, "a dialled circuit knows whom it dials"
        circuit.line = line
        line.number = circuit.number
        if line.pid is not None and line.pid != far.pid:
            self.counters["relays_refused"] += 1
            self._drop(circuit, Refusal("AUTHENTICATION_FAILED", "another process answers at this endpoint"))
            return
        circuit.connection = self._connection("client", far.advertised)
        self._mark(circuit)
        self._world.rearm()

    def _hang_up(self, circuit: Circuit) -> None:
        if circuit.connection is not None and not circuit.connection.is_closed:
            circuit.connection.close()
            self._drain(circuit)
        self._drop(circuit, Refusal("PEER_OFFLINE", "this end closed the link", is_retryable=True))

    def _drop(self, circuit: Circuit, why: Refusal) -> None:
        """Forget a circuit; whoever waited for it learns that nothing of it left."""
        if self._circuits.pop(circuit.number, None) is None:
            return
        if self._outbound.get(circuit.instance) is circuit:
            del self._outbound[circuit.instance]
        self._flush(circuit)
        if circuit.line is not None:
            circuit.line.close()
        is_gone = bool(circuit.waiting) and self._world.is_gone(circuit.instance)
        waiting, circuit.waiting = circuit.waiting, deque()
        for item in waiting:
            if isinstance(item, tuple):
                item[2](None, why)
            else:
                self._unreached(item, why, is_gone=is_gone)
        self._world.rearm()

    def _unreached(self, send: Call, why: Refusal, *, is_gone: bool) -> None:
        if isinstance(send, AskDirectory):
            self._world.submit(DirectoryTold(send.attempt, None))
        else:
            self._world.submit(Settle(send.attempt, Outcome.UNREACHED, refusal=why, is_gone=is_gone))

    # ------------------------------------------------------------ requests of ours

    def _pass_on(self, circuit: Circuit) -> None:
        """Write what waits, as far as the link's window goes."""
        connection = circuit.connection
        if not circuit.is_ready or connection is None:
            return
        now_ms = self._world.now().mono_ms
        while circuit.waiting:
            item = circuit.waiting[0]
            entry: Call | Told
            if isinstance(item, tuple):
                method, params, entry, timeout = item
            else:
                entry, timeout = item, self._native.acknowledgement_ms
                spoken = self._speak(circuit, item)
                if spoken is None:
                    circuit.waiting.popleft()
                    continue
                method, params = spoken
            attempt = connection.request(method, params, now_ms, timeout)
            if isinstance(attempt, Refusal):
                if circuit.attempts:
                    break  # the window is full; the next answer opens it
                circuit.waiting.popleft()
                self._settle_refused(entry, attempt)
                continue
            circuit.waiting.popleft()
            circuit.attempts[attempt] = entry
            circuit.used_ms = now_ms
        self._mark(circuit)
        self._world.rearm()

    def _speak(self, circuit: Circuit, send: Call) -> tuple[str, Any] | None:
        """Return method and params; None when the far end cannot be told this (it was settled)."""
        is_tieline = bool(circuit.features)
        if isinstance(send, Transmit) and send.needs_tieline and not is_tieline:
            refusal = Refusal(
                "CAPABILITY_DENIED", "the recipient is not a Tieline end and cannot be told this"
            )
            self._world.submit(Settle(send.attempt, Outcome.REFUSED, refusal=refusal))
            return None
        return mapping.spoken(send, is_tieline=is_tieline)

    def _settle_refused(self, entry: Call | Told, refusal: Refusal) -> None:
        if callable(entry):
            entry(None, refusal)
        elif isinstance(entry, AskDirectory):
            self._world.submit(DirectoryTold(entry.attempt, None))
        else:
            self._world.submit(Settle(entry.attempt, Outcome.REFUSED, refusal=refusal))

    def _answered(self, circuit: Circuit, event: ResponseReceived) -> None:
        entry = circuit.attempts.pop(event.attempt, None)
        if entry is None:
            return
        if callable(entry):
            entry(event.result, event.refusal)
        elif isinstance(entry, AskDirectory):
            runs = None if event.result is None else mapping.runs_told(event.result, entry.instance)
            self._world.submit(DirectoryTold(entry.attempt, runs))
        elif event.refusal is not None:
            self._world.submit(Settle(entry.attempt, Outcome.REFUSED, refusal=event.refusal))
        elif isinstance(entry, PushReceipt):
            self._world.submit(Settle(entry.attempt, Outcome.ANSWERED))
        else:
            receipt = mapping.receipt_told(event.result)
            outcome = Outcome.LOST if receipt is None else Outcome.ANSWERED
            self._world.submit(Settle(entry.attempt, outcome, receipt=receipt))
        self._pass_on(circuit)

    def _lost(self, circuit: Circuit, event: RequestLost) -> None:
        entry = circuit.attempts.pop(event.attempt, None)
        if entry is None:
            return
        if event.reason == "timeout" and circuit.is_dialled:
            # A line may swallow everything without a word: the next attempt needs another one (K15).
            silent_ms = self._world.now().mono_ms - circuit.heard_ms
            circuit.is_dead = not circuit.is_ready or silent_ms >= self._native.acknowledgement_ms
        if callable(entry):
            entry(None, Refusal("DELIVERY_UNKNOWN", "no answer came", is_retryable=True))
        elif isinstance(entry, AskDirectory):
            self._world.submit(DirectoryTold(entry.attempt, None))
        else:
            self._world.submit(Settle(entry.attempt, Outcome.LOST))
        if event.reason == "timeout" and not circuit.is_dead:
            self._pass_on(circuit)  # its place in the window is free

    # ------------------------------------------------------------ events of a link

    def _drain(self, circuit: Circuit) -> None:
        connection = circuit.connection
        assert connection is not None, "bytes come only to a circuit with a protocol"
        closed: Closed | None = None
        while events := connection.events_received():
            for event in events:
                match event:
                    case LookupWanted():
                        connection.advertised(
                            self._look_up(circuit, event.instance), self._world.now().mono_ms
                        )
                    case Authenticated():
                        self._authenticated(circuit, event)
                    case RequestReceived():
                        self._asked_by(circuit, event)
                    case ResponseReceived():
                        self._answered(circuit, event)
                    case RequestLost():
                        self._lost(circuit, event)
                    case NotificationReceived():
                        pass  # establishes nothing: reference/native.md 81
                    case Closed():
                        closed = event
                    case _:
                        raise AssertionError(event)
        self._flush(circuit)
        if closed is not None:
            code = closed.code or "PEER_OFFLINE"
            self._drop(circuit, Refusal(code, closed.text or "the link closed", is_retryable=True))
        elif circuit.is_dead:
            self._hang_up(circuit)
        elif circuit.line is not None:
            circuit.line.pause(is_paused=connection.paused)

    def _look_up(self, circuit: Circuit, instance: str) -> Advertised | None:
        far = self._world.lookup(instance, is_fresh=True)
        line = circuit.line
        if far is None or line is None:
            return None
        if line.pid is not None and line.pid != far.pid:
            self.counters["relays_refused"] += 1
            return None
        circuit.far, circuit.far_read_ms = far, self._world.now().mono_ms
        return far.advertised

    def _authenticated(self, circuit: Circuit, event: Authenticated) -> None:
        circuit.instance = event.instance
        if not circuit.is_dialled:
            circuit.is_ready = True
            return
        known = self._features.get(event.instance)
        if known is not None and not known:  # a foreign end stays one for its whole life
            self._hello_told(circuit, None, None)
            return
        connection = circuit.connection
        assert connection is not None, "an authenticated circuit has a protocol"
        attempt = connection.request(mapping.HELLO, mapping.hello(), self._world.now().mono_ms)
        if isinstance(attempt, str):
            circuit.attempts[attempt] = lambda result, refusal: self._hello_told(circuit, result, refusal)

    def _hello_told(self, circuit: Circuit, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        if refusal is not None and refusal.code == "DELIVERY_UNKNOWN":
            return  # the link is closing, or hung up on: who waits is told by `_drop`
        circuit.features = mapping.features_told(result)
        self._features[circuit.instance] = circuit.features
        circuit.is_ready = True
        self._pass_on(circuit)

    # ------------------------------------------------------------ requests of theirs

    def _asked_by(self, circuit: Circuit, event: RequestReceived) -> None:
        far = self._far(circuit)
        connection = circuit.connection
        assert connection is not None, "a request comes over a protocol"
        if far is None:
            connection.refuse(
                event.id, Refusal("AUTHENTICATION_FAILED", "this instance is no longer advertised")
            )
            return
        if not self._is_within_budget(circuit.instance):
            self.counters["requests_limited"] += 1
            connection.refuse(event.id, Refusal("RATE_LIMITED", "too many requests", is_retryable=True))
            return
        if event.method == "peer.directory":
            self._respond_now(
                circuit, event, mapping.directory_asked(event.params, lambda: self._world.directory(far))
            )
        elif event.method == mapping.HELLO:
            self._respond_now(circuit, event, mapping.hello_asked(event.params))
        elif event.method == "tieline.last":
            self._respond_now(circuit, event, self._world.last(event.params, far))
        else:
            circuit.methods[event.id] = event.method
            command = mapping.command(
                event.method,
                event.params,
                asked=Asked(circuit.number, event.id),
                sender_instance=circuit.instance,
                standing=far.standing,
                own_peer=self._world.own_peer,
            )
            if isinstance(command, Refusal):
                circuit.methods.pop(event.id, None)
                connection.refuse(event.id, command)
            else:
                self._world.submit(command)

    def _respond_now(self, circuit: Circuit, event: RequestReceived, body: dict[str, Any] | Refusal) -> None:
        connection = circuit.connection
        assert connection is not None, "a request comes over a protocol"
        if isinstance(body, Refusal):
            connection.refuse(event.id, body)
        else:
            connection.respond(event.id, body)

    def _far(self, circuit: Circuit) -> Far | None:
        """Return what presence says of the far end, read again after one heartbeat."""
        now_ms = self._world.now().mono_ms
        if now_ms - circuit.far_read_ms > HEARTBEAT_MS:
            circuit.far = self._world.lookup(circuit.instance, is_fresh=False) or circuit.far
            circuit.far_read_ms = now_ms
        return circuit.far

    def _is_within_budget(self, instance: str) -> bool:
        """Charge one request to a root, whatever link it came over."""
        rate = max(REQUESTS_PER_SECOND_MIN, REQUESTS_PER_MESSAGE * self._limits.rate_per_second)
        now_ms = self._world.now().mono_ms
        tokens, at_ms = self._budgets.get(instance, (2.0 * rate, now_ms))
        tokens = min(2.0 * rate, tokens + (now_ms - at_ms) * rate / 1000)
        self._budgets[instance] = (tokens - 1 if tokens >= 1 else tokens, now_ms)
        if len(self._budgets) > WAITING_SENDS_MAX:
            self._budgets.pop(next(iter(self._budgets)))
        return tokens >= 1

    def _answer(self, answer: Answer) -> None:
        circuit = self._circuits.get(answer.asked.link)
        if circuit is None or circuit.connection is None:
            return
        method = circuit.methods.pop(answer.asked.request, "")
        if isinstance(answer.body, Refusal):
            circuit.connection.refuse(answer.asked.request, answer.body)
        else:
            circuit.connection.respond(answer.asked.request, mapping.answered(method, answer.body))
        self._mark(circuit)

    # ------------------------------------------------------------ writing

    def _mark(self, circuit: Circuit) -> None:
        """Let the bytes leave when what is being done now is done: one write a batch."""
        if not circuit.is_dirty:
            circuit.is_dirty = True
            self._dirty.append(circuit)
            if len(self._dirty) == 1:
                self._world.defer(self._flush_all)

    def _flush_all(self) -> None:
        dirty, self._dirty = self._dirty, []
        for circuit in dirty:
            circuit.is_dirty = False
            if circuit.connection is not None and circuit.number in self._circuits:
                self._drain(circuit)

    def _flush(self, circuit: Circuit) -> None:
        if circuit.connection is not None and circuit.line is not None:
            data = circuit.connection.data_to_send()
            if data:
                circuit.line.write(data)
