"""What a post needs of the world, and what it is told: values and ports, no behaviour.

Rule 1: neither a clock nor a socket nor a file is known here; the runtime and a test each bring their own.
Rule 2: who somebody is and where a window can be reached is asked anew for every message; nothing is kept.

Source: STYLE.md 1 "shell/driver"; reference/pi-peers-and-harness-doors.md rules 17, 21, 23, 43, U24.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tieline.engine.contract import Command, Standing
from tieline.engine.intake import Policy
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.message import Envelope
from tieline.model.moment import Moment
from tieline.wire.peers.frames import Frame, UserFrame
from tieline.wire.peers.protocol import Grade

__all__ = ["Letterhead", "Line", "Sender", "Target", "World"]


class Target(msgspec.Struct, frozen=True):
    """A window as its record, its key file and its socket say now, all of them checked.

    `pid` is the process that the record names; 0 where no record does.
    """

    instance: str
    address: str
    token: str
    pid: int
    can_tell_idle: bool = False


class Sender(msgspec.Struct, frozen=True):
    """Who wrote a frame, as far as it can be known, and how that end stands to us."""

    peer: Peer
    standing: Standing


class Letterhead(msgspec.Struct, frozen=True):
    """What every frame of ours says of us."""

    address: str
    pid: int
    session: str
    name: str


class Line(Protocol):
    """One live socket, as thin as it can be."""

    pid: int | None
    number: int | None

    def write(self, data: bytes) -> None:
        """Hand over bytes; they are sent in order."""

    def finish(self) -> None:
        """Send what was handed over, then say that nothing more comes; the far end may still close."""

    def close(self) -> None:
        """Send what was handed over, then close."""


class World(Protocol):
    """What a post needs of its root."""

    @property
    def letterhead(self) -> Letterhead:
        """Who we are on this wire now."""

    @property
    def policy(self) -> Policy:
        """What happens to a stranger's message."""

    @property
    def is_busy(self) -> bool:
        """Whether the host is at work: what comes then waits, and is counted until the host is idle."""

    def now(self) -> Moment:
        """Return the clocks."""

    def new_id(self) -> str:
        """Return a fresh UUID."""

    def verify(self, token: str) -> Grade | None:
        """Return what a token proves, or None; compared in constant time."""

    def target(self, instance: str) -> Target | Refusal:
        """Return a window to send to, read anew; or why nothing may be sent there."""

    def is_listed(self, instance: str) -> bool:
        """Return whether a window of that identity shows that it is there, reachable or not."""

    def target_at(self, address: str) -> Target | Refusal:
        """Return the window that listens at an address; or why nothing may be sent there."""

    def dial(self, target: Target, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect; `done` gets the line, its far end checked, or why there is none."""

    def sender(self, frame: UserFrame, grade: Grade) -> Sender | None:
        """Return who wrote a message over a connection of that grade; None where nobody can look now."""

    def sent(self, message_id: str, address: str, pid: int | None) -> Envelope | None:
        """Return the message of ours that a receipt from `address` ("" where none is stated) is about.

        `pid` is the process at the other end as the kernel names it, None where it does not.
        """

    def transmitted(self, envelope: Envelope, target: Target) -> None:
        """A message of ours was written."""

    def taken(self, frame: Frame, grade: Grade) -> None:
        """A frame came that is neither a message nor a receipt."""

    def submit(self, command: Command) -> None:
        """Give a command to the driver."""

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back when what is being done now is done."""

    def rearm(self) -> None:
        """The next deadline may have changed."""
