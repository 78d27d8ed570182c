"""The ways into the session of the harness that started this MCP server, where it has one.

Source: reference/harnesses.md 0, 4, 5; docs/delivery.md.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from tieline.adapters.mcp.doors.claude_code import ClaudeCode
from tieline.adapters.mcp.doors.codex import Codex, lone_thread
from tieline.runtime.ladder import PushDoor

__all__ = ["Way", "door_of", "session_seen"]


class Way(PushDoor, Protocol):
    """A way into a session."""

    @property
    def wakes_only(self) -> bool:
        """Whether it is no way into a running turn."""


def door_of(client: str, environment: Mapping[str, str], session: Callable[[], str]) -> Way | None:
    """Return the way into the session of this client, or None where it has none that is known.

    `session` tells its id at the moment of a push.
    """
    if "claude" in client:
        return ClaudeCode.of(environment)
    return Codex.of(environment, session) if "codex" in client else None


def session_seen(client: str, environment: Mapping[str, str]) -> str | None:
    """Return the session of a host that told none, as the machine shows it: '' where it shows none.

    None among several: this server may belong to a subagent of one, which must not be listed beside it.
    """
    return lone_thread(environment) if "codex" in client else ""
