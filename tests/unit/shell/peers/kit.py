"""A post over fake lines: a world with its clock by hand, and windows that are texts on a line."""

import json
import uuid
from collections.abc import Callable
from typing import Any

from tieline.engine.contract import Command, Standing
from tieline.engine.intake import Policy
from tieline.errors import Refusal
from tieline.model.identity import Peer, foreign_instance
from tieline.model.message import Envelope
from tieline.model.moment import Moment
from tieline.shell.peers import Line, Post, Target
from tieline.shell.peers.ports import Letterhead, Sender
from tieline.wire.peers.frames import Frame, UserFrame
from tieline.wire.peers.protocol import Grade
from tieline.wire.peers.wrapper import wrap

__all__ = ["FAR", "OWN", "FakeLine", "World", "auth", "user"]

OWN = Peer("self-1")
FAR = "/r/socks/far.sock"
FAR_INSTANCE = foreign_instance("pi-peers", "far-session")


class FakeLine:
    """One end of a socket; what is written is kept."""

    def __init__(self, pid: int | None = 7) -> None:
        self.pid, self.number = pid, None
        self.written = bytearray()
        self.is_finished = self.is_closed = False

    pid: int | None
    number: int | None

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def finish(self) -> None:
        self.is_finished = True

    def close(self) -> None:
        self.is_closed = True

    @property
    def frames(self) -> list[dict[str, Any]]:
        """What was written, one document a line."""
        return [json.loads(line) for line in bytes(self.written).splitlines()]


class World:
    """The world of one post."""

    def __init__(self) -> None:
        self.mono_ms = 1_000
        self.policy: Policy = "accept"
        self.is_busy = self.is_blind = False
        self.letterhead = Letterhead("/r/socks/own.sock", 42, "own-session", "own")
        self.targets: dict[str, Target | Refusal] = {FAR: Target(FAR_INSTANCE, FAR, "far-token", 7, True)}
        self.dialled: list[tuple[FakeLine, Target]] = []
        self.refusal: Refusal | None = None  # what dialling says
        self.far_pid: int | None = 7
        self.commands: list[Command] = []
        self.controls: list[tuple[Frame, Grade]] = []
        self.written: list[tuple[Envelope, Target]] = []
        self.sent_envelopes: dict[str, Envelope] = {}
        self.waiting: list[Callable[[], None]] = []
        self.post = Post(self, OWN)

    def now(self) -> Moment:
        return Moment(1_700_000_000_000 + self.mono_ms, self.mono_ms)

    def new_id(self) -> str:
        return str(uuid.uuid4())

    def verify(self, token: str) -> Grade | None:
        grades = {"own-token": Grade(False), "child-token": Grade(True, "r-1"), "root-child": Grade(True)}
        return grades.get(token)

    def target(self, instance: str) -> Target | Refusal:
        for target in self.targets.values():
            if isinstance(target, Refusal) or target.instance == instance:
                return target
        return Refusal("PEER_OFFLINE", "not here", is_retryable=True)

    def is_listed(self, instance: str) -> bool:
        return any(isinstance(one, Refusal) or one.instance == instance for one in self.targets.values())

    def target_at(self, address: str) -> Target | Refusal:
        return self.targets.get(address, Refusal("PEER_OFFLINE", "nobody is there"))

    def dial(self, target: Target, done: Callable[[Line | None, Refusal | None], None]) -> None:
        if self.refusal is not None:
            done(None, self.refusal)
            return
        line = FakeLine(self.far_pid)
        self.dialled.append((line, target))
        done(line, None)

    def sender(self, frame: UserFrame, grade: Grade) -> Sender | None:
        if self.is_blind:
            return None
        peer = Peer(OWN.instance, grade.run) if grade.run else Peer(FAR_INSTANCE)
        return Sender(peer, Standing(frozenset({"message.send"}), True, "far"))

    def sent(self, message_id: str, address: str, pid: int | None) -> Envelope | None:
        is_far = address == FAR or (not address and pid == self.far_pid)
        return self.sent_envelopes.get(message_id) if is_far else None

    def transmitted(self, envelope: Envelope, target: Target) -> None:
        self.written.append((envelope, target))

    def taken(self, frame: Frame, grade: Grade) -> None:
        self.controls.append((frame, grade))

    def submit(self, command: Command) -> None:
        self.commands.append(command)

    def defer(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def rearm(self) -> None:
        pass

    def settle(self) -> None:
        """Do what was put off, until nothing is."""
        while self.waiting:
            self.waiting.pop(0)()

    def visit(self, *lines: bytes, is_ended: bool = True) -> FakeLine:
        """Connect, say lines, hang up."""
        line = FakeLine()
        number = self.post.accepted(line)
        if number is not None:
            line.number = number
            self.post.received(number, b"".join(lines))
            if is_ended:
                self.post.lost(number)
        self.settle()
        return line

    def told(self) -> list[dict[str, Any]]:
        """Return the frames that were written so far, without their authentication."""
        return [frame for line, _ in self.dialled for frame in line.frames[1:]]


def auth(token: str = "own-token") -> bytes:
    """Return a first line."""
    return json.dumps({"type": "auth", "token": token}).encode() + b"\n"


def user(body: str = "hello", *, message_id: str = "", **more: Any) -> bytes:
    """Return a message's line, from FAR."""
    frame = {
        "msgV": 1,
        "msg_id": message_id or str(uuid.uuid4()),
        "type": "user",
        "from": FAR,
        "hopChain": [FAR],
        "priority": "next",
        "content": wrap(FAR, "far", body),
        **more,
    }
    return json.dumps(frame).encode() + b"\n"
