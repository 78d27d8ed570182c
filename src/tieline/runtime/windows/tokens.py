"""What opens our window: the token of the key file, and the tokens that children get in their environment.

Rule 1: a child token is in memory and in one environment, never in a file, and dead with its run.
Rule 2: compared in constant time, all of them, whatever is presented.

Source: reference/pi-peers-and-harness-doors.md rules 6, 23, 25, 26, U9; reference/reliability.md S15.
"""

import hmac
from typing import Final

from tieline.wire.peers.protocol import Grade

__all__ = ["SOCKET_VARIABLE", "TOKEN_VARIABLE", "Tokens"]

SOCKET_VARIABLE: Final = "PI_PEERS_SOCKET"
TOKEN_VARIABLE: Final = "PI_PEERS_TOKEN"  # noqa: S105 - a variable's name


class Tokens:
    """The tokens of one window."""

    def __init__(self, peer: str, child: str) -> None:
        """Begin with the key file's token and the root's own child token."""
        self.peer = peer
        self._children: dict[str | None, str] = {None: child}

    def begin(self, run: str, token: str) -> None:
        """Bind a fresh token to a run."""
        self._children[run] = token

    def end(self, run: str) -> None:
        """Let a run's token die."""
        if run is not None:
            self._children.pop(run, None)

    def verify(self, token: str) -> Grade | None:
        """Return what a token proves, or None."""
        shown = token.encode("utf-8", "surrogatepass")
        found = Grade(is_child=False) if hmac.compare_digest(self.peer.encode(), shown) else None
        for run, known in self._children.items():
            if hmac.compare_digest(known.encode(), shown):
                found = Grade(is_child=True, run=run)
        return found

    def environment(self, address: str, run: str | None) -> dict[str, str]:
        """Return what the processes of a run (None: of the root) get in their environment."""
        return {SOCKET_VARIABLE: address, TOKEN_VARIABLE: self._children[run]}
