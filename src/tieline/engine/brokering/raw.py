"""Sockets that have not registered: none of them holds the broker, and none keeps a place for ever.

Rule 1: a socket has `RAW_MS` to register; then it is cut.
Rule 2: of more than `RAW_MAX`, the oldest gives way; but one that has just come is read first, so that many
    who come at once all register.

Source: reference/intercom.md 1.5 "Limits", 6.3; 30, 127.
"""

from typing import Final, NamedTuple

__all__ = ["RAW_ABSOLUTE_MAX", "RAW_GRACE_MS", "RAW_MAX", "RAW_MS", "RawSockets"]

RAW_MS: Final = 1_000
RAW_MAX: Final = 32
RAW_GRACE_MS: Final = 250
"""How long a socket is read before it gives way. 1,000 sessions that reconnect at once are no attack."""
RAW_ABSOLUTE_MAX: Final = 2_048


class _Socket(NamedTuple):
    opened_ms: int
    process_id: int


class RawSockets:
    """The sockets that have not registered, the oldest first; all times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._open: dict[int, _Socket] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def due_ms(self) -> int | None:
        """When the oldest one is cut; None where there is none."""
        oldest = next(iter(self._open.values()), None)
        if oldest is None:
            return None
        return oldest.opened_ms + (RAW_GRACE_MS if len(self._open) > RAW_MAX else RAW_MS)

    def opened(self, link: int, process_id: int, now_ms: int) -> list[int]:
        """Take a socket in; return the links that give way to it."""
        self._open[link] = _Socket(now_ms, process_id)
        return self.expire(now_ms)

    def ended(self, link: int) -> int:
        """Let a socket go that registered or is gone; return the process behind it, 0 where unknown."""
        socket = self._open.pop(link, None)
        return 0 if socket is None else socket.process_id

    def expire(self, now_ms: int) -> list[int]:
        """Let go of the sockets whose time is over, and return their links."""
        cut: list[int] = []
        for link, socket in list(self._open.items()):
            age_ms = now_ms - socket.opened_ms
            is_over = len(self._open) > RAW_MAX and age_ms >= RAW_GRACE_MS
            if age_ms < RAW_MS and not is_over and len(self._open) <= RAW_ABSOLUTE_MAX:
                break
            del self._open[link]
            cut.append(link)
        return cut
