"""Claude Code's inbox: the socket of the session that started this server.

Theory. A session writes `sessions/<pid>.json` into its configuration folder: process number, start, session,
socket, busy or idle. It names the socket to its children in the environment. What its own child writes there
is delivered: an idle session begins a turn with it, a busy one gets it between two tool calls.

Rule 1: only the session that started this server is written to: its entry names our socket, its process is an
ancestor of ours with the start that the entry tells, and the kernel says that it is the one who listens.
Rule 2: nothing comes back on the socket. That the text was taken shows in the prompt hook.
Rule 3: an entry that cannot be read, or that is of another protocol, closes this door and breaks nothing.

Source: reference/harnesses.md 4; reference/pi-peers-and-harness-doors.md 2.1, 2.2.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from tieline.runtime.ladder import reaching

__all__ = ["ClaudeCode"]

SOCKET_VARIABLE: Final = "CLAUDE_CODE_MESSAGING_SOCKET"
TOKEN_VARIABLE: Final = "CLAUDE_CODE_MESSAGING_TOKEN"  # noqa: S105 - a name
FOLDER_VARIABLE: Final = "CLAUDE_CONFIG_DIR"
PROTOCOL: Final = 1
ENTRY_BYTES_MAX: Final = 65_536
ENTRIES_MAX: Final = 512
IDLE: Final = "idle"


class Entry(NamedTuple):
    """What a session says of itself."""

    pid: int
    start_ticks: int
    status: str


class ClaudeCode:
    """The way into one session."""

    name = "claude-code"
    wakes_only = False

    def __init__(self, socket: str, token: str, sessions: str) -> None:
        """Name the session's socket, the token for it where there is one, and the folder of entries."""
        self._socket, self._token, self._sessions = socket, token, sessions

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the way that this environment names, or None."""
        socket = environment.get(SOCKET_VARIABLE, "")
        if not socket.startswith("/") or "\0" in socket:
            return None
        folder = environment.get(FOLDER_VARIABLE) or os.path.expanduser("~/.claude")
        return cls(socket, environment.get(TOKEN_VARIABLE, ""), os.path.join(folder, "sessions"))

    async def push(self, text: str, *, is_busy: bool) -> bool:  # noqa: ARG002 - the session itself finds the boundary
        """Write one message into the session's inbox; False when it certainly took nothing."""
        entry = self._entry()
        if entry is None or not reaching.is_our_host(entry.pid, entry.start_ticks):
            return False
        lines = [{"type": "user", "message": {"role": "user", "content": text}}]
        if self._token:
            lines.insert(0, {"type": "auth", "token": self._token})
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return await reaching.tell_process(self._socket, data, entry.pid, entry.start_ticks)

    def is_busy(self) -> bool | None:
        """Return whether the session says that it is in a turn; None where it says nothing."""
        entry = self._entry()
        return None if entry is None or not entry.status else entry.status != IDLE

    def _entry(self) -> Entry | None:
        """Return the entry of the session whose socket is ours."""
        try:
            names = sorted(os.listdir(self._sessions))[:ENTRIES_MAX]
        except OSError:
            return None
        # The socket is called after the process in most places: that one is looked at first.
        own = os.path.basename(self._socket).split(".")[0] + ".json"
        for name in sorted(names, key=lambda name: name != own):
            entry = self._read(name) if name.endswith(".json") else None
            if entry is not None:
                return entry
        return None

    def _read(self, name: str) -> Entry | None:
        try:
            with open(os.path.join(self._sessions, name), "rb") as file:
                document: Any = json.loads(file.read(ENTRY_BYTES_MAX))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("messagingSocketPath") != self._socket:
            return None
        pid, start, status = (document.get(member) for member in ("pid", "procStart", "status"))
        if document.get("peerProtocol", PROTOCOL) != PROTOCOL or not isinstance(pid, int):
            return None
        if not isinstance(start, str) or not start.isascii() or not start.isdigit():
            return None
        return Entry(pid, int(start), status if isinstance(status, str) else "")
