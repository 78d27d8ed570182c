"""A peer with a valid key and bad intentions: it speaks the protocol and says what is not true.

Rule 1: it may do all that a process of the same user can do over a socket; it cannot read others' memory,
and it cannot sign with others' keys.
Rule 2: what it says of itself proves nothing to the checker either.

Source: reference/reliability.md K19, S8 to S13, I17, I22, I24, I26, I45 to I47; reference/open-bugs.md C.
"""

import json
import random
from typing import TYPE_CHECKING, Any

from tests.sim.network import End
from tests.sim.root import CAPABILITIES, SimRoot, key_of
from tieline.errors import Refusal
from tieline.model.identity import Peer, peer_id
from tieline.model.moment import to_iso
from tieline.wire.native.protocol import (
    Advertised,
    Closed,
    Connection,
    LookupWanted,
    NativeLimits,
    NonceMemory,
    RequestReceived,
)

if TYPE_CHECKING:
    from tests.sim.world import SimWorld

__all__ = ["ACTS", "Hostile"]

ACTS = (
    "send",
    "repeat",
    "change",
    "forge_from",
    "forge_run",
    "forge_reply",
    "forge_depth",
    "steal_id",
    "large",
    "stale",
    "foreign_receipt",
    "own_receipt",
    "ask_status",
    "read_inbox",
    "resource",
    "unknown_method",
    "flood",
    "early_send",
    "replay",
    "endless_line",
    "wrong_key",
    "bad_json",
)
"""What it can do, by name."""


class Talk:
    """One line of the hostile peer."""

    def __init__(self, end: End, connection: Connection | None) -> None:
        self.end = end
        self.connection = connection
        self.waiting: list[tuple[str, dict[str, Any]]] = []
        self.is_raw = connection is None


class Hostile:
    """The peer; `act` does one bad thing to one root."""

    def __init__(
        self, world: "SimWorld", name: str, pid: int, chance: random.Random, *, is_tieline: bool
    ) -> None:
        self.world, self.name, self.pid, self.chance, self.is_tieline = world, name, pid, chance, is_tieline
        self._key = key_of(name)
        self._nonces = NonceMemory()
        self._nonce_count = 0
        self._talks: dict[int, Talk] = {}
        self._numbers: dict[End, int] = {}
        self._number = 0
        self._sent: list[dict[str, Any]] = []
        self._heard: dict[str, bytes] = {}  # instance -> what this end once said in a whole handshake

    @property
    def peer(self) -> Peer:
        """Who it is."""
        return Peer(self.name)

    # ------------------------------------------------------------ the network's host

    def connected(self, end: End) -> None:
        """A victim dialled."""
        self._join(end, Talk(end, self._connection("server", None)))

    def received(self, end: End, data: bytes) -> None:
        """Bytes came."""
        talk = self._talk(end)
        if talk is not None and talk.connection is not None:
            talk.connection.receive_data(data, self.world.clock.mono_ms)
            self._drain(talk)

    def lost(self, end: End) -> None:
        """The line closed."""
        number = self._numbers.pop(end, None)
        if number is not None:
            del self._talks[number]

    def _join(self, end: End, talk: Talk) -> None:
        self._number += 1
        self._numbers[end] = self._number
        self._talks[self._number] = talk

    def _talk(self, end: End) -> Talk | None:
        return self._talks.get(self._numbers.get(end, 0))

    def _connection(self, role: str, expected: Advertised | None) -> Connection:
        self._nonce_count += 1
        return Connection(
            role,  # type: ignore[arg-type]
            instance=self.name,
            key=self._key,
            capabilities=CAPABILITIES,
            nonce=self._nonce_count.to_bytes(32, "big"),
            nonces=self._nonces,
            limits=NativeLimits(),
            now_ms=self.world.clock.mono_ms,
            expected=expected,
        )

    def _drain(self, talk: Talk) -> None:
        connection = talk.connection
        assert connection is not None
        while events := connection.events_received():
            for event in events:
                if isinstance(event, LookupWanted):
                    connection.advertised(self.world.advertised(event.instance), self.world.clock.mono_ms)
                elif isinstance(event, RequestReceived):
                    self._answer(connection, event)
                elif isinstance(event, Closed):
                    talk.waiting.clear()
        if connection.is_open:
            for method, params in talk.waiting:
                connection.request(method, params, self.world.clock.mono_ms)
            talk.waiting.clear()
        data = connection.data_to_send()
        if data:
            far = talk.end.far.owner.name
            if connection.role == "client" and len(self._heard.get(far, b"")) < 4_096:
                self._heard[far] = self._heard.get(far, b"") + data
            talk.end.write(data)
        if connection.is_closed:
            talk.end.close()
            self.lost(talk.end)

    # ------------------------------------------------------------ answering victims

    def _answer(self, connection: Connection, event: RequestReceived) -> None:
        """Answer a victim's request: truly, falsely, with nonsense, or never."""
        if event.method == "tieline.hello" and not self.is_tieline:
            connection.refuse(event.id, Refusal("METHOD_NOT_FOUND", "no such method"))
        elif event.method == "tieline.hello":
            connection.respond(event.id, {"version": 1, "features": ["send", "receipt", "status", "last"]})
        elif event.method == "peer.directory":
            connection.respond(event.id, {"peers": []})
        elif event.method.endswith(("send", "status")):
            self._answer_custody(connection, event)
        elif event.method.endswith("receipt"):
            connection.respond(event.id, {"recorded": True})

    def _answer_custody(self, connection: Connection, event: RequestReceived) -> None:
        fate = self.chance.random()
        message = str(event.params.get("messageId", ""))
        receipt = {
            "messageId": message,
            "to": event.params.get("to"),
            "state": "accepted",
            "cursor": str(self.chance.randint(1, 99)),
            "acceptedAt": to_iso(self.world.clock.now().wall_ms),
        }
        if fate < 0.4:
            connection.respond(event.id, receipt)
        elif fate < 0.5:
            connection.respond(
                event.id, receipt | {"state": self.chance.choice(("consumed", "replied", "expired"))}
            )
        elif fate < 0.6:
            connection.respond(event.id, receipt | {"messageId": "another"})
        elif fate < 0.7:
            connection.respond(event.id, receipt | {"to": peer_id("nobody", None)})
        elif fate < 0.8:
            code = self.chance.choice(
                ("QUEUE_FULL", "SCOPE_DENIED", "PEER_OFFLINE", "NO_SUCH_CODE", "MESSAGE_ID_CONFLICT")
            )
            connection.refuse(event.id, Refusal(code, "no"))
        elif fate < 0.9:
            connection.respond(event.id, {"state": "pending", "cursor": "x"})

    # ------------------------------------------------------------ acting

    def act(self, what: str, victim: SimRoot) -> None:
        """Do one thing to a root, over a line of its own."""
        if what in ("early_send", "replay", "endless_line", "bad_json"):
            self._raw(what, victim)
            return
        expected = self.world.advertised(victim.name)
        if expected is None:
            return
        asked = self._requests(what, victim)

        def done(end: End | None, refusal: Refusal | None) -> None:
            if end is None:
                return
            connection = self._connection("client", expected)
            if what == "wrong_key":
                connection._key = key_of("nobody")
            talk = Talk(end, connection)
            talk.waiting = asked
            self._join(end, talk)
            self._drain(talk)

        self.world.network.dial(self, victim.name, done)

    def _requests(self, what: str, victim: SimRoot) -> list[tuple[str, dict[str, Any]]]:
        """Return what to ask for one act."""
        match what:
            case "repeat" | "change" if self._sent:
                params = dict(self.chance.choice(self._sent))
                if what == "change":
                    params["content"] = "something else entirely"
                return [("peer.send", params)]
            case "forge_from":
                return [("peer.send", self._send(victim) | {"from": victim.peer.id})]
            case "forge_run":
                return [("peer.send", self._send(victim) | {"senderRunId": "no-such-run"})]
            case "forge_reply":
                seen = self.world.any_message(self.chance)
                forged = {"replyTo": seen, "correlationId": self.chance.choice((seen, "made-up"))}
                return [("peer.send", self._send(victim) | forged)]
            case "forge_depth":
                depth = self.chance.choice((1, 7, 8, 9, 64))
                return [
                    ("peer.send", self._send(victim) | {"automaticDepth": depth, "correlationId": "chain-x"})
                ]
            case "steal_id":
                return [
                    ("peer.send", self._send(victim) | {"messageId": self.world.any_message(self.chance)})
                ]
            case "large":
                return [
                    ("peer.send", self._send(victim) | {"content": "x" * self.chance.choice((8_001, 60_000))})
                ]
            case "stale":
                past = to_iso(self.world.clock.now().wall_ms - 1_000)
                return [("peer.send", self._send(victim) | {"expiresAt": past})]
            case "flood":
                return [("peer.send", self._send(victim)) for _ in range(32)]
            case _:
                return self._other_requests(what, victim)

    def _other_requests(self, what: str, victim: SimRoot) -> list[tuple[str, dict[str, Any]]]:
        message = self.world.any_message(self.chance)
        match what:
            case "foreign_receipt" | "own_receipt":
                # "own" is about what the victim sent to this peer, "foreign" about what it sent to others.
                to = self.peer.id if what == "own_receipt" else self.world.any_peer(self.chance).id
                state = self.chance.choice(
                    ("accepted", "consumed", "replied", "expired", "rejected", "unknown")
                )
                receipt = {
                    "messageId": message,
                    "to": to,
                    "state": state,
                    "cursor": str(self.chance.randint(1, 500)),
                }
                if self.chance.random() < 0.5:
                    receipt["from"] = victim.peer.id
                return [(self.chance.choice(("peer.receipt", "tieline.receipt")), {"receipt": receipt})]
            case "ask_status":
                return [("peer.status", {"messageId": message, "to": victim.peer.id})]
            case "read_inbox":
                return [("peer.read", {"after": "0"})]
            case "resource":
                return [("resource.grant", {"resource": "x"})]
            case "unknown_method":
                return [("tieline.everything", {}), ("peer.directory", {"version": 1})]
            case _:
                return [("peer.send", self._send(victim))]

    def _send(self, victim: SimRoot) -> dict[str, Any]:
        number = self.world.next_call()
        target = self.chance.choice(victim.peers())
        params = {
            "version": 1,
            "messageId": f"{self.name}-{number}",
            "to": target.id,
            "content": f"from {number}",
        }
        self._sent.append(params)
        return params

    def _raw(self, what: str, victim: SimRoot) -> None:
        """Write bytes without being a protocol."""
        if what == "early_send":
            data = (
                json.dumps(
                    {"jsonrpc": "2.0", "id": 1, "method": "peer.send", "params": self._send(victim)}
                ).encode()
                + b"\n"
            )
        elif what == "replay":
            data = self._heard.get(victim.name, b"{}\n")
        elif what == "bad_json":
            data = self.chance.choice(
                (b'{"a":1,"a":2}\n', b"[1]\n", b'{"id":NaN}\n', b"\xff\xfe\n", b"[" * 2_000 + b"\n")
            )
        else:
            data = b"a" * 210_000

        def done(end: End | None, refusal: Refusal | None) -> None:
            if end is not None:
                self._join(end, Talk(end, None))
                end.write(data)

        self.world.network.dial(self, victim.name, done)
