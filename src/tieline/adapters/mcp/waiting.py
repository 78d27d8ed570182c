"""The one process of a harness that waits for mail, whose end wakes the session: where nothing else does.

Theory. Claude Code starts a command in the background as its session begins and as a turn ends, and begins a
turn with what that command wrote when it ends with code 2. The command asks here and waits for its answer.

Rule 1: at most one waits, the newest: an older one may belong to a session that is no more.
Rule 2: while one waits it is a door that wakes; a session at work gets its mail at its hooks.
Rule 3: it goes home at once where nothing will ever wake by it, and when its root or its harness ends: its
connection is all that it waits at.

Source: reference/harnesses.md 4, 3b; docs/delivery.md.
"""

import asyncio
from typing import Protocol

__all__ = ["Waiting"]


class Pushable(Protocol):
    """What of a root is needed here."""

    @property
    def is_automatic(self) -> bool:
        """Whether mail may wake an idle session."""

    def push_by(self, door: "Waiting | None", *, wakes_only: bool = False) -> None:
        """Push through this door, or through none."""


class Waiting:
    """The waiter of one session, as a door."""

    name = "waiter"

    def __init__(self, root: Pushable) -> None:
        self._root = root
        self._text: asyncio.Future[str] | None = None

    async def wait(self) -> str:
        """Return the text to wake the session with, "" when there is nothing more to wait for."""
        self._send_home()
        if not self._root.is_automatic:
            return ""
        text: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._text = text
        self._root.push_by(self, wakes_only=True)
        try:
            return await text
        finally:
            if self._text is text:  # its process ended
                self._leave()

    async def push(self, text: str, *, is_busy: bool) -> bool:  # noqa: ARG002 - wakes only
        """Wake the session; False when nobody waits."""
        waiting = self._leave()
        if waiting is None or waiting.done():
            return False
        waiting.set_result(text)
        return True

    def is_busy(self) -> bool | None:
        """Return None: its hooks tell."""
        return None

    def _send_home(self) -> None:
        waiting = self._leave()
        if waiting is not None and not waiting.done():
            waiting.set_result("")

    def _leave(self) -> "asyncio.Future[str] | None":
        waiting, self._text = self._text, None
        if waiting is not None:
            self._root.push_by(None)
        return waiting
