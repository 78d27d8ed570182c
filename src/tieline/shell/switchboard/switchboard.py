"""The links themselves: found or opened, used, told of what came, and hung up.

Theory. The driver orders sends to instances; this module finds or opens the link, says `tieline.hello`
once on it, and turns each answer into the `Settle` that the engine waits for. What peers ask becomes
commands. It decides nothing about messages.

Rule 1: at most `connections` outbound links are kept; the least recently used idle one gives way.
Rule 2: a send whose link never opened is UNREACHED; one that was written and not answered is LOST.
Rule 3: an end is believed only when the kernel's peer pid is the pid of its presence record (S11).
Rule 4: features travel only after `tieline.hello` was answered on that link.
Rule 5: this module knows no event loop and no socket; the simulator runs this very file.
Rule 6: one root has at most half of the inbound links, so that another always finds room (S18).

Source: reference/native.md 2.5, 2.6, 2.6b, 3.4; reference/reliability.md S11 to S13, S18; DESIGN.md 1.
"""

from collections import OrderedDict, deque
from typing import Any, assert_never

from tieline.config import IDLE_LINK_MS, Limits
from tieline.engine.contract import (
    Answer,
    AskDirectory,
    DirectoryTold,
    Outcome,
    PushReceipt,
    Send,
    Settle,
    Transmit,
)
from tieline.errors import Refusal
from tieline.keys import PrivateKey
from tieline.shell.switchboard.circuit import Circuit
from tieline.shell.switchboard.ports import Call, Line, Told, World
from tieline.shell.switchboard.serving import Serving
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

__all__ = ["Switchboard"]

OpenEvent = (
    LookupWanted | Authenticated | RequestReceived | NotificationReceived | ResponseReceived | RequestLost
)

UNPROVED_MAX = 16
"""Links whose far end has not proved who it is: reference/reliability.md S13."""
SOCKETS_MIN = 32
WAITING_SENDS_MAX = 4_096
FOREIGN_CODES = frozenset({"METHOD_NOT_FOUND", "UNSUPPORTED_PROTOCOL", "INVALID_RPC"})
"""Answers to `tieline.hello` that no Tieline end gives; the last stands for an answer without any code."""
HUNG_UP = Refusal("PEER_OFFLINE", "this end closed the link", is_retryable=True)


class Switchboard:
    """The links of one root."""

    def __init__(
        self, *, instance: str, key: PrivateKey, capabilities: tuple[str, ...], limits: Limits, world: World
    ) -> None:
        self._counts = {"links_refused": 0, "relays_refused": 0, "circuits_opened": 0, "links_crowded_out": 0}
        self._instance, self._key, self._capabilities, self._world = instance, key, capabilities, world
        self._limits = limits
        self._sockets_max = max(SOCKETS_MIN, 4 * limits.connections)
        self._serving = Serving(world, limits)
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
        self._number = 0
        self._dirty: list[Circuit] = []
        self.is_closed = False

    @property
    def counters(self) -> dict[str, int]:
        """What was opened, and what was refused."""
        return {**self._counts, "requests_limited": self._serving.limited_count}

    # ------------------------------------------------------------ what the root asks

    def send(self, send: Send) -> None:
        """Carry out one send that the engine ordered."""
        if isinstance(send, Answer):
            asking = self._circuits.get(send.asked.link)
            if asking is not None:
                self._serving.answer(asking, send)
                self._mark(asking)
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
        if self.is_closed or unproved >= UNPROVED_MAX or sockets >= self._sockets_max:
            self._counts["links_refused"] += 1
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

    # ------------------------------------------------------------ circuits

    def _new_circuit(self, instance: str, *, is_dialled: bool) -> Circuit:
        self._number += 1
        circuit = Circuit(self._number, instance, is_dialled=is_dialled, now_ms=self._world.now().mono_ms)
        self._circuits[circuit.number] = circuit
        self._counts["circuits_opened"] += 1
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
            self._counts["relays_refused"] += 1
            self._drop(circuit, Refusal("AUTHENTICATION_FAILED", "another process answers at this endpoint"))
            return
        circuit.connection = self._connection("client", far.advertised)
        self._mark(circuit)
        self._world.rearm()

    def _hang_up(self, circuit: Circuit) -> None:
        if circuit.connection is not None and not circuit.connection.is_closed:
            circuit.connection.close()
            self._drain(circuit)
        self._drop(circuit, circuit.given_up or HUNG_UP)

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
            refusal = Refusal("CAPABILITY_DENIED", "no Tieline end is there that could be told this")
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
            if not circuit.is_ready or silent_ms >= self._native.acknowledgement_ms:
                circuit.given_up = Refusal("PEER_OFFLINE", "nothing comes over the link", is_retryable=True)
        if callable(entry):
            entry(None, Refusal("DELIVERY_UNKNOWN", "no answer came", is_retryable=True))
        elif isinstance(entry, AskDirectory):
            self._world.submit(DirectoryTold(entry.attempt, None))
        else:
            self._world.submit(Settle(entry.attempt, Outcome.LOST))
        if event.reason == "timeout" and circuit.given_up is None:
            self._pass_on(circuit)  # its place in the window is free

    # ------------------------------------------------------------ events of a link

    def _drain(self, circuit: Circuit) -> None:
        connection = circuit.connection
        assert connection is not None, "bytes come only to a circuit with a protocol"
        closed: Closed | None = None
        while events := connection.events_received():
            for event in events:
                if isinstance(event, Closed):
                    closed = event
                else:
                    self._take(circuit, connection, event)
        self._flush(circuit)
        if closed is not None:
            why = Refusal(closed.code or "PEER_OFFLINE", closed.text or "the link closed", is_retryable=True)
            self._drop(circuit, circuit.given_up or why)
        elif circuit.given_up is not None:
            self._hang_up(circuit)
        elif circuit.line is not None:
            circuit.line.pause(is_paused=connection.paused)

    def _take(self, circuit: Circuit, connection: Connection, event: OpenEvent) -> None:
        """Do what one event of a link asks for."""
        match event:
            case LookupWanted():
                connection.advertised(self._look_up(circuit, event.instance), self._world.now().mono_ms)
            case Authenticated():
                self._authenticated(circuit, event)
            case RequestReceived():
                self._serving.asked_by(circuit, event)
            case ResponseReceived():
                self._answered(circuit, event)
            case RequestLost():
                self._lost(circuit, event)
            case NotificationReceived():
                pass  # establishes nothing: reference/native.md 81
            case _:
                assert_never(event)

    def _look_up(self, circuit: Circuit, instance: str) -> Advertised | None:
        far = self._world.lookup(instance, is_fresh=True)
        line = circuit.line
        if far is None or line is None:
            return None
        if line.pid is not None and line.pid != far.pid:
            self._counts["relays_refused"] += 1
            return None
        circuit.far, circuit.far_read_ms = far, self._world.now().mono_ms
        return far.advertised

    def _authenticated(self, circuit: Circuit, event: Authenticated) -> None:
        circuit.instance = event.instance
        if not circuit.is_dialled:
            circuit.is_ready = True
            self._crowd_out(circuit)
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

    def _crowd_out(self, circuit: Circuit) -> None:
        """Hang up on the least recently used link of a root that now has more than its share."""
        links = [item for item in self._circuits.values() if not item.is_dialled and item.is_ready]
        links = [item for item in links if item.instance == circuit.instance]
        if 2 * len(links) > self._sockets_max:
            self._counts["links_crowded_out"] += 1
            self._hang_up(min(links, key=lambda item: (item.used_ms, item.number)))

    def _hello_told(self, circuit: Circuit, result: dict[str, Any] | None, refusal: Refusal | None) -> None:
        if refusal is not None and refusal.code == "DELIVERY_UNKNOWN":
            return  # the link is closing, or hung up on: who waits is told by `_drop`
        if refusal is not None and refusal.is_retryable:
            # "Not now" says nothing of what the far end can do: the next link asks again.
            circuit.given_up = refusal
            return
        circuit.features = mapping.features_told(result)
        if refusal is None or refusal.code in FOREIGN_CODES:
            self._features[circuit.instance] = circuit.features
        circuit.is_ready = True
        self._pass_on(circuit)

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
