"""Which harness has a way into its session."""

from tieline.adapters.mcp.doors import door_of
from tieline.adapters.mcp.doors.claude_code import ClaudeCode

SOCKET = {"CLAUDE_CODE_MESSAGING_SOCKET": "/s"}


def test_door_is_that_of_the_client_and_needs_what_it_stands_on() -> None:
    """A variable that another host's shell passed on opens no door."""
    assert isinstance(door_of("claude-code", SOCKET), ClaudeCode)
    assert door_of("claude-code", {}) is None
    assert door_of("gemini-cli", SOCKET) is None
