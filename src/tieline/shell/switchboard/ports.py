"""What a switchboard needs of the world, and what it is told: values and ports, no behaviour.

Rule: neither a clock nor a socket is known here; the runtime and the simulator each bring their own.

Source: STYLE.md 1 "shell/driver"; reference/reliability.md 2.1.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tieline.engine.contract import AskDirectory, AskStatus, Command, PushReceipt, Standing, Transmit
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.moment import Moment
from tieline.wire.native.protocol import Advertised

__all__ = ["Call", "Far", "Line", "Told", "World"]

Call = Transmit | AskStatus | PushReceipt | AskDirectory
"""What the engine orders over a link of ours."""
Told = Callable[[dict[str, Any] | None, Refusal | None], None]
"""Takes the result of a question that is no message, or why there is none."""


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

    def probed(self, params: dict[str, Any], far: Far) -> dict[str, Any] | Refusal:
        """Take a probe of who waits for whom; the answer tells nothing of what we know."""

    def rearm(self) -> None:
        """The next deadline may have changed."""
