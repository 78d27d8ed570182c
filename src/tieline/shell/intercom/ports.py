"""What the intercom post needs of the world, and what it is told: values and ports, no behaviour.

Rule: neither a clock nor a socket nor a file is known here; the runtime and a test each bring their own.

Source: STYLE.md 1 "shell/driver"; reference/intercom.md 2, 4.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from tieline.engine.contract import Command
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.moment import Moment
from tieline.wire.intercom.client import LastAsked, MessageCame, ReceiptAsked, WakeAsked, WakeFailed

__all__ = ["Line", "Registration", "World"]


class Registration(msgspec.Struct, frozen=True):
    """What a broker is told of us, and the id that we would have there."""

    session: Mapping[str, Any]
    requested_id: str


class Line(Protocol):
    """One live socket, as thin as it can be."""

    number: int | None

    def write(self, data: bytes) -> None:
        """Hand over bytes; they are sent in order."""

    def close(self) -> None:
        """Send what was handed over, then close."""


class World(Protocol):
    """What a post needs of its root."""

    def recipient(self, came: MessageCame) -> Peer:
        """Return the peer of ours that a message is for: the root, or who asked what it answers."""

    def now(self) -> Moment:
        """Return the clocks."""

    def new_id(self) -> str:
        """Return a fresh UUID."""

    def registration(self) -> Registration:
        """Return what a broker is told of us now."""

    def dial(self, broker: str, done: Callable[[Line | None, Refusal | None], None]) -> None:
        """Connect to a broker, or start it; `done` gets the line, or why there is none."""

    def admits(self, broker: str, came: MessageCame) -> bool:
        """Return whether a message may be offered at all: a guard that does not hold keeps it out."""

    def changed(self, broker: str) -> None:
        """We joined a broker, or lost it."""

    def left(self, session_id: str) -> None:
        """A session that we could see is gone from a broker, and is on no other one of ours."""

    def arrived(self, came: MessageCame) -> None:
        """A message was taken into custody."""

    def turned_away(self, broker: str, came: MessageCame, refusal: Refusal) -> None:
        """A message was refused: its sender is to be told in words, where that helps."""

    def asked_last(self, broker: str, asked: LastAsked) -> None:
        """Somebody reads our last answer."""

    def asked_receipt(self, broker: str, asked: ReceiptAsked) -> None:
        """Somebody reads what became of a message to us."""

    def asked_wake(self, broker: str, asked: WakeAsked) -> None:
        """Mail waits for a parked child of ours."""

    def wake_failed(self, told: WakeFailed) -> None:
        """The child that a question of ours waits for could not be woken."""

    def is_waiting(self, asker: Peer, asked: Peer) -> bool:
        """Return whether a peer of ours waits for an answer of a session now."""

    def submit(self, command: Command) -> None:
        """Give a command to the driver."""

    def defer(self, callback: Callable[[], None]) -> None:
        """Call back when what is being done now is done."""

    def rearm(self) -> None:
        """The next deadline may have changed."""
