"""The lines of the protocol: what is read of them, what is added, and what stays."""

import json
from typing import Any

import pytest

from tieline.adapters.acp import frames


@pytest.mark.parametrize("data", [b"no json\n", b"[1]\n", b"\n", b"[" * 100_000, b"\xff\n"])
def test_line_that_is_no_object_concerns_nobody(data: bytes) -> None:
    """It goes on as it came."""
    assert frames.read(data) is None


@pytest.mark.parametrize(
    ("told", "is_yes"), [(1, True), (2, True), (True, False), ("1", False), (0, False), (1.0, False)]
)
def test_events_are_wanted_by_a_whole_number_alone(told: object, is_yes: bool) -> None:
    """Anything else is no."""
    capabilities = {"_meta": {"tieline": {"peerEvents": told}}}
    assert frames.wants_events({"params": {"clientCapabilities": capabilities}}) is is_yes
    assert not frames.wants_events({"params": {"clientCapabilities": None}})


def test_server_is_added_behind_the_clients_and_once() -> None:
    """One of our name from an earlier setup gives way; everything else of the request stays."""
    servers = [{"name": "files", "command": "f"}, {"name": "tieline", "command": "old"}]
    frame: dict[str, Any] = {"id": 1, "method": "session/new", "params": {"cwd": "/w", "mcpServers": servers}}
    made = json.loads(frames.with_server(frame, ("tieline",), {"A": "b"}))
    assert [one["name"] for one in made["params"]["mcpServers"]] == ["files", "tieline"]
    assert made["params"]["mcpServers"][1] == {
        "name": "tieline",
        "command": "tieline",
        "args": ["mcp"],
        "env": [{"name": "A", "value": "b"}],
    }
    del made["params"]["mcpServers"], frame["params"]["mcpServers"]
    assert made == frame


def test_our_side_is_said_in_meta_and_nowhere_else() -> None:
    """What the agent said of itself stays, also in `_meta`."""
    capabilities = {"loadSession": True, "_meta": {"other": 1}}
    frame = {"id": 0, "result": {"protocolVersion": 1, "agentCapabilities": capabilities}}
    told = json.loads(frames.advertised(frame))["result"]["agentCapabilities"]
    assert told == {"loadSession": True, "_meta": {"other": 1, "tieline": {"peerEvents": 1}}}


def test_ids_of_two_kinds_are_two() -> None:
    """A number and its text name two requests."""
    assert frames.key(1) != frames.key("1")


def test_lines_of_ours() -> None:
    """Each is one line."""
    for made in (frames.prompt("p", "s", "a\nb"), frames.cancelled(3), frames.event("peer_update", "s", {})):
        assert made.count(b"\n") == 1
        assert json.loads(made)["jsonrpc"] == "2.0"
    assert frames.list_of({"a": {}}, "a") is None


def test_text_of_an_answer_is_the_agents_alone() -> None:
    """Thoughts and tools are no answer."""
    content = {"type": "text", "text": "yes"}
    assert frames.text_of({"sessionUpdate": "agent_message_chunk", "content": content}) == "yes"
    assert frames.text_of({"sessionUpdate": "agent_thought_chunk", "content": content}) == ""
    assert frames.text_of({"sessionUpdate": "agent_message_chunk", "content": None}) == ""
