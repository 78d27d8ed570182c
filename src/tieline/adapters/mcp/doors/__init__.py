"""The ways into the session of the harness that started this MCP server, where it has one.

Source: reference/harnesses.md 0, 4, 5; docs/delivery.md.
"""

from collections.abc import Mapping

from tieline.adapters.mcp.doors.claude_code import ClaudeCode
from tieline.runtime.ladder import PushDoor

__all__ = ["door_of"]


def door_of(client: str, environment: Mapping[str, str]) -> PushDoor | None:
    """Return the way into the session of this client, or None where it has none that is known."""
    return ClaudeCode.of(environment) if "claude" in client else None
