"""Events for the host, bounded: a host that does not read gets a hint instead of a heap.

Rule 1: at most `PUSHED_MAX` events wait for the host's pipe; what comes then is not kept here. The store
keeps it, and one notification with `gap` and the last told cursor says where to read on.
Rule 2: one wake, the newest: an older one that was not taken yet says nothing more.

Source: reference/reliability.md I12, I49; reference/native.md 2.16.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

__all__ = ["PUSHED_MAX", "Push"]

PUSHED_MAX: Final = 64
"""Notifications handed to the pipe and not taken by it yet."""


class Push:
    """Notifications on their way to the host."""

    def __init__(self, put: "Callable[[str, dict[str, Any]], asyncio.Future[bool]]") -> None:
        """Send by `put(method, params)`, whose future ends when the pipe took the line."""
        self._put = put
        self._waiting_count = 0
        self._told: dict[str, str] = {}
        self._gaps: dict[str, str] = {}
        self._wake: dict[str, Any] | None = None

    def tell(self, kind: str, params: dict[str, Any]) -> None:
        """Tell one event, or remember that there is something to read."""
        if kind == "wake":
            self._wake = params
        elif kind in self._gaps or self._waiting_count >= PUSHED_MAX:
            self._gaps.setdefault(kind, self._told.get(kind, "0"))
        else:
            event = params.get("event")
            self._told[kind] = str(event.get("cursor", "0")) if isinstance(event, dict) else "0"
            self._send(kind, params)
        self._catch_up()

    def _catch_up(self) -> None:
        if self._waiting_count <= PUSHED_MAX // 2:
            gaps, self._gaps = self._gaps, {}
            for kind, after in gaps.items():
                self._send(kind, {"gap": True, "after": after})
        if self._wake is not None and self._waiting_count < PUSHED_MAX:
            wake, self._wake = self._wake, None
            self._send("wake", wake)

    def _send(self, method: str, params: dict[str, Any]) -> None:
        self._waiting_count += 1
        self._put(method, params).add_done_callback(self._taken)

    def _taken(self, _written: "asyncio.Future[bool]") -> None:
        self._waiting_count -= 1
        self._catch_up()
