"""Which harness has a way into its session."""

import pytest

from tieline.adapters.mcp import doors
from tieline.adapters.mcp.doors import door_of, session_seen
from tieline.adapters.mcp.doors.claude_code import ClaudeCode

SOCKET = {"CLAUDE_CODE_MESSAGING_SOCKET": "/s"}


def test_door_is_that_of_the_client_and_needs_what_it_stands_on() -> None:
    """A variable that another host's shell passed on opens no door."""
    assert isinstance(door_of("claude-code", SOCKET, str), ClaudeCode)
    assert door_of("claude-code", {}, str) is None
    assert door_of("gemini-cli", SOCKET, str) is None
    assert door_of("codex-mcp-client", SOCKET, str) is None, "Codex did not start this process"


def test_session_that_was_not_told_is_looked_for_where_a_host_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of Codex alone."""
    monkeypatch.setattr(doors, "lone_thread", lambda _environment: None)
    assert session_seen("codex-mcp-client", {}) is None
    assert session_seen("claude-code", {}) == ""
