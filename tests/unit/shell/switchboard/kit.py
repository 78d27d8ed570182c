"""A switchboard over fake lines: a world with its clock by hand, and far ends of the real protocol."""

from collections.abc import Callable
from typing import Any

from tieline.config import Limits
from tieline.engine.contract import (
    AskStatus,
    Command,
    Send,
    Settle,
    Standing,
    Transmit,
)
from tieline.errors import Refusal
from tieline.keys import PrivateKey
from tieline.model.identity import Peer
from tieline.model.message import Delivery, Envelope
from tieline.model.moment import Moment
from tieline.model.receipt import Durability, Receipt, State
from tieline.shell.switchboard import Far, Line, Switchboard
from tieline.wire.native import mapping
from tieline.wire.native.protocol import (
    Advertised,
    Authenticated,
    Closed,
    Connection,
    LookupWanted,
    NativeLimits,
    NonceMemory,
    RequestReceived,
    ResponseReceived,
)

__all__ = ["ABLE", "FakeLine", "FarEnd", "World", "ask_status", "receipt", "transmit"]

ABLE = ("message.receive", "message.send")
SELF = "self-1"


class FakeLine:
    """One end of a pair of lines; what is written is kept until the world carries it."""

    def __init__(self, pid: int | None) -> None:
        self.pid, self.number = pid, None
        self.written = bytearray()
        self.is_closed = self.is_paused = False

    pid: int | None
    number: int | None

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def pause(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        data, self.written = bytes(self.written), bytearray()
        return data


class FarEnd:
    """A root of another maker: the native protocol, answered by a table of the test."""

    def __init__(self, world: "World", instance: str, pid: int) -> None:
        self.world, self.instance, self.pid = world, instance, pid
        self.key = PrivateKey.generate(None)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, dict[str, Any] | Refusal | None] = {}
        """Method to its answer; None leaves it unanswered, an absent method is METHOD_NOT_FOUND."""
        self.told: list[ResponseReceived] = []
        self.closed: Closed | None = None
        self.nonces = NonceMemory()
        self.is_tieline = False

    @property
    def advertised(self) -> Advertised:
        return Advertised(self.instance, self.key.public, ABLE)

    def connection(self, role: str) -> Connection:
        return Connection(
            role,  # type: ignore[arg-type]
            instance=self.instance,
            key=self.key,
            capabilities=ABLE,
            nonce=self.world.nonce(),
            nonces=self.nonces,
            limits=NativeLimits(),
            now_ms=self.world.mono_ms,
            expected=Advertised(SELF, self.world.key.public) if role == "client" else None,
        )

    def run(self, connection: Connection) -> None:
        """Do what the events of a link ask for."""
        for event in connection.events_received():
            match event:
                case LookupWanted():
                    connection.advertised(Advertised(SELF, self.world.key.public), self.world.mono_ms)
                    self.run(connection)
                case RequestReceived():
                    self.asked.append((event.method, event.params))
                    self.answer(connection, event)
                case ResponseReceived():
                    self.told.append(event)
                case Closed():
                    self.closed = event
                case Authenticated():
                    pass

    def answer(self, connection: Connection, event: RequestReceived) -> None:
        if event.method == mapping.HELLO and self.is_tieline:
            body: dict[str, Any] | Refusal | None = mapping.hello()
        else:
            body = self.answers.get(event.method, Refusal("METHOD_NOT_FOUND", "no"))
        if isinstance(body, Refusal):
            connection.refuse(event.id, body)
        elif body is not None:
            connection.respond(event.id, body)


class Joint:
    """A line of the switchboard and the far end's protocol behind it."""

    def __init__(self, world: "World", line: FakeLine, end: FarEnd, connection: Connection) -> None:
        self.world, self.line, self.end, self.connection = world, line, end, connection

    def carry(self) -> bool:
        """Move bytes both ways once; return whether any moved."""
        there = self.line.taken()
        if there and not self.connection.is_closed:
            self.connection.receive_data(there, self.world.mono_ms)
        self.end.run(self.connection)
        back = self.connection.data_to_send()
        if back and self.line.number is not None and not self.line.is_closed:
            self.world.board.received(self.line.number, back)
        if self.connection.is_closed and self.line.number is not None and not self.line.is_closed:
            self.world.board.lost(self.line.number)
        return bool(there or back)

    def request(self, method: str, params: dict[str, Any]) -> str:
        """Ask the switchboard's root something; return the attempt."""
        attempt = self.connection.request(method, params, self.world.mono_ms, 60_000)
        assert isinstance(attempt, str)
        return attempt


class World:
    """The switchboard's world, and the switchboard in it."""

    def __init__(self, **limits: int) -> None:
        self.mono_ms = 1_000_000
        self.key = PrivateKey.generate(None)
        self.ends: dict[str, FarEnd] = {}
        self.gone: set[str] = set()
        self.refuses: dict[str, Refusal] = {}
        self.wrong_pid: dict[str, int] = {}
        self.out_of_scope: set[str] = set()
        self.submitted: list[Command] = []
        self.joints: list[Joint] = []
        self.dialled: list[str] = []
        self.rearmed = 0
        self._nonce = 0
        self._deferred: list[Callable[[], None]] = []
        self.board = Switchboard(
            instance=SELF, key=self.key, capabilities=ABLE, limits=Limits(**limits), world=self
        )

    # --- the ports

    def now(self) -> Moment:
        return Moment(1_700_000_000_000 + self.mono_ms, self.mono_ms)

    def nonce(self) -> bytes:
        self._nonce += 1
        return self._nonce.to_bytes(32, "big")

    def lookup(self, instance: str, *, is_fresh: bool) -> Far | None:
        end = self.ends.get(instance)
        if end is None:
            return None
        standing = Standing(frozenset(ABLE), instance not in self.out_of_scope, alias=instance)
        return Far(end.advertised, f"/run/{instance}.sock", end.pid, standing)

    def is_gone(self, instance: str) -> bool:
        return instance in self.gone

    def dial(self, far: Far, done: Callable[[Line | None, Refusal | None], None]) -> None:
        instance = far.advertised.instance
        self.dialled.append(instance)
        if instance in self.refuses:
            done(None, self.refuses[instance])
            return
        end = self.ends[instance]
        line = FakeLine(self.wrong_pid.get(instance, end.pid))
        self.joints.append(Joint(self, line, end, end.connection("server")))
        done(line, None)

    def defer(self, callback: Callable[[], None]) -> None:
        self._deferred.append(callback)

    def submit(self, command: Command) -> None:
        self.submitted.append(command)

    def own_peer(self, peer_id: str) -> Peer | None:
        return Peer(SELF) if peer_id == Peer(SELF).id else None

    def directory(self, far: Far) -> list[dict[str, Any]]:
        return []

    def last(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        return {"entry": None}

    def probed(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        return {}

    def rearm(self) -> None:
        self.rearmed += 1

    # --- for tests

    def end(self, instance: str, *, is_tieline: bool = False) -> FarEnd:
        """Advertise a far end."""
        end = self.ends[instance] = FarEnd(self, instance, 1_000 + len(self.ends))
        end.is_tieline = is_tieline
        return end

    def settle(self) -> None:
        """Carry everything until nothing moves."""
        for _ in range(200):
            deferred, self._deferred = self._deferred, []
            for callback in deferred:
                callback()
            moved = [joint.carry() for joint in self.joints]
            if not any(moved) and not self._deferred:
                return
        raise AssertionError("it never comes to rest")

    def connect(self, end: FarEnd, *, pid: int | None = None) -> Joint:
        """Let a far end connect to us; its line's number is None when it was turned away."""
        line = FakeLine(end.pid if pid is None else pid)
        line.number = self.board.accepted(line)
        joint = Joint(self, line, end, end.connection("client"))
        self.joints.append(joint)
        return joint

    def later(self, ms: int) -> None:
        """Let time pass."""
        self.mono_ms += ms
        self.board.tick()
        self.settle()

    def send(self, *sends: Send) -> None:
        """Order sends, and carry them."""
        for send in sends:
            self.board.send(send)
        self.settle()

    @property
    def settles(self) -> list[Settle]:
        """The ends of attempts so far."""
        return [command for command in self.submitted if isinstance(command, Settle)]


def transmit(
    attempt: int, instance: str, content: str = "x", *, delivery: Delivery = Delivery.STEER
) -> Transmit:
    """Return an order to send one message."""
    envelope = Envelope(
        message_id=f"m-{attempt}",
        sender=Peer(SELF),
        recipient=Peer(instance),
        content="x",
        delivery=delivery,
    )
    return Transmit(attempt, instance, envelope, envelope.needs_tieline)


def ask_status(attempt: int, instance: str) -> AskStatus:
    """Return an order to ask for a status."""
    return AskStatus(attempt, instance, f"m-{attempt}", Peer(instance).id, None)


def receipt(message_id: str, instance: str, state: State = State.ACCEPTED) -> Receipt:
    """Return a receipt of a message of ours."""
    return Receipt(
        message_id,
        Peer(SELF).id,
        Peer(instance).id,
        state,
        7,
        1_700_000_000_000,
        durability=Durability.SYNCED,
    )
