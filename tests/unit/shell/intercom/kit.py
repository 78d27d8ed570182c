"""An intercom post over fake lines: a world with its clock by hand, and brokers that are texts on a line."""

import json
import uuid
from collections.abc import Callable
from typing import Any

from tieline.engine.contract import Command, Transmit
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.message import Envelope
from tieline.model.moment import Moment
from tieline.shell.intercom import Line, Post, Registration
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import (
    CAPABILITIES,
    LastAsked,
    MessageCame,
    ReceiptAsked,
    WakeAsked,
    WakeFailed,
)

__all__ = ["FAR", "FAR_ROW", "OWN", "OWN_ROW", "FakeLine", "World", "frame", "transmit"]

OWN = Peer("self-1")
OWN_ROW = {"id": "pi-own", "cwd": "/w", "model": "m", "name": "own"}
FAR_ROW = {"id": "pi-far", "cwd": "/w", "model": "m", "name": "far", "rootSessionId": "far-root"}
FAR = Peer(mapping.instance_of("pi-far"))


def frame(**fields: Any) -> bytes:
    """Return a frame."""
    data = json.dumps(fields).encode()
    return len(data).to_bytes(4, "big") + data


def transmit(message_id: str = "m1", attempt: int = 1, to: Peer = FAR, **fields: Any) -> Transmit:
    """Return an order to send."""
    return Transmit(attempt, to.instance, Envelope(message_id, OWN, to, "text", **fields), False)


class FakeLine:
    """One end of a socket; what is written is kept."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def said(self) -> list[dict[str, Any]]:
        """Return the frames written since the last call."""
        data, found = bytes(self.written), []
        self.written.clear()
        while data:
            length = int.from_bytes(data[:4], "big")
            found.append(json.loads(data[4 : 4 + length]))
            data = data[4 + length :]
        return found


class World:
    """The world of one post at the brokers `one` and `two`."""

    def __init__(self) -> None:
        self.mono_ms = 1_000
        self.refusal: Refusal | None = None  # what dialling says
        self.dialled: list[tuple[str, FakeLine | None]] = []
        self.commands: list[Command] = []
        self.told: list[tuple[str, Any]] = []
        self.waiting: list[Callable[[], None]] = []
        self.is_admitting = True
        self.is_asking = False
        self.post = Post(self, ("one", "two"))

    def now(self) -> Moment:
        return Moment(1_700_000_000_000 + self.mono_ms, self.mono_ms)

    def new_id(self) -> str:
        return str(uuid.uuid4())

    def recipient(self, came: MessageCame) -> Peer:
        return OWN

    def registration(self) -> Registration:
        return Registration({"cwd": "/w", "model": "m", "name": "own"}, "pi-own")

    def dial(self, broker: str, done: Callable[[Line | None, Refusal | None], None]) -> None:
        line = None if self.refusal is not None else FakeLine()
        self.dialled.append((broker, line))
        done(line, self.refusal)

    def admits(self, broker: str, came: MessageCame) -> bool:
        return self.is_admitting

    def changed(self, broker: str) -> None:
        self.told.append(("changed", broker))

    def left(self, session_id: str) -> None:
        self.told.append(("left", session_id))

    def arrived(self, came: MessageCame) -> None:
        self.told.append(("arrived", came.message["id"]))

    def turned_away(self, broker: str, came: MessageCame, refusal: Refusal) -> None:
        self.told.append(("turned away", refusal.code))

    def asked_last(self, broker: str, asked: LastAsked) -> None:
        self.told.append(("last", asked.token))

    def asked_receipt(self, broker: str, asked: ReceiptAsked) -> None:
        self.told.append(("receipt", asked.token))

    def asked_wake(self, broker: str, asked: WakeAsked) -> None:
        self.told.append(("wake", asked.token))

    def wake_failed(self, told: WakeFailed) -> None:
        self.told.append(("wake failed", told.message_id))

    def is_waiting(self, asker: Peer, asked: Peer) -> bool:
        return self.is_asking

    def submit(self, command: Command) -> None:
        self.commands.append(command)

    def defer(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def rearm(self) -> None:
        pass

    def settle(self) -> list[Command]:
        """Do what was put off; return the commands since the last call."""
        while self.waiting:
            self.waiting.pop(0)()
        found, self.commands = self.commands, []
        return found

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.mono_ms += duration_ms
        self.post.tick()

    def join(
        self, broker: str = "one", *capabilities: str, rows: tuple[Any, ...] = (OWN_ROW, FAR_ROW)
    ) -> FakeLine:
        """Join a broker that has these rows; return its line, of which everything was read."""
        self.post.members[broker].join()
        line = next(line for name, line in reversed(self.dialled) if name == broker and line is not None)
        granted = dict.fromkeys(capabilities or CAPABILITIES, 1)
        self.hear(line, frame(type="registered", sessionId="pi-own", **granted))
        asked = next(one for one in line.said() if one["type"] == "list")
        self.hear(line, frame(type="sessions", requestId=asked["requestId"], sessions=list(rows)))
        self.told.clear()
        return line

    def hear(self, line: FakeLine, *frames: bytes) -> None:
        """Let a broker speak."""
        assert line.number is not None
        self.post.received(line.number, b"".join(frames))
