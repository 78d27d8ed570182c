"""The lines of the protocol: what is read of them, what is added, and what stays."""

import json
from typing import Any

import pytest

from tieline.adapters.acp import frames


@pytest.mark.parametrize(
    "data",
    [b"no json\n", b"[1]\n", b"\n", b"[" * 100_000, b"\xff\n", b'{"id": NaN}\n', b'{"id": -Infinity}\n'],
)
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


OURS = b'{"name":"tieline","command":"tieline","args":["mcp"],"env":[{"name":"A","value":"b"}]}'


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (b'{"mcpServers": []}', b'{"mcpServers": [%s]}' % OURS),
        (b'{"mcpServers": [ {"name":"f"} ] }', b'{"mcpServers": [ {"name":"f"} ,%s] }' % OURS),
        (b'{"mcpServers":[1,{"name":"tieline"}]}', b'{"mcpServers":[1,%s]}' % OURS),
        (b'{"cwd": "/w"}', b'{"mcpServers":[%s],"cwd": "/w"}' % OURS),
        (b"{ }", b'{"mcpServers":[%s] }' % OURS),
    ],
)
def test_server_is_added_behind_the_clients_and_once(given: bytes, made: bytes) -> None:
    """One of our name from an earlier setup gives way; everything else of the request stays, to the byte."""
    around = b' {"id" : 1.50, "method":"session/new", "x":"\xff", "params" : %s}\r\n'
    data = around % given
    frame = frames.read(data)
    assert frame is not None
    assert frames.with_server(data, frame, ("tieline",), {"A": "b"}) == around % made


def test_our_side_is_said_in_meta_and_nowhere_else() -> None:
    """What the agent said of itself stays, also in `_meta`."""
    told = b'{"id":0,"result":{"agentCapabilities":{"load":true,"_meta":{"o":1%s}}}}\n'
    assert frames.advertised(told % b"") == (told % b"").replace(b'{"o"', b'{"tieline":{"peerEvents":1},"o"')
    assert frames.advertised(told % b',"tieline":{"x":2}') == told % b',"tieline":{"peerEvents":1,"x":2}'
    bare = b'{"id":0,"result":{}}'
    assert json.loads(frames.advertised(bare))["result"] == {
        "agentCapabilities": {"_meta": {"tieline": {"peerEvents": 1}}}
    }


def test_ids_of_two_kinds_are_two() -> None:
    """A number and its text name two requests; a number spelled in two ways names one."""
    assert frames.key(1) != frames.key("1")
    assert frames.key(1e2) == frames.key(100)
    assert frames.key(1.5) != frames.key(1)


def test_line_with_bytes_that_are_no_text_is_read_as_agents_read_it() -> None:
    """A prompt that the agent works on is in flight, whatever its text holds."""
    assert frames.read(b'{"id":1,"method":"a\xff"}') == {"id": 1, "method": "a\ufffd"}


def test_ids_of_our_prompts_are_of_this_process_alone() -> None:
    """A proxy behind this one, or a client, may number in the same way."""
    assert frames.is_ours(frames.own_id(7))
    assert not frames.is_ours("tieline-7")
    assert not frames.is_ours(7)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"result": {"stopReason": "end_turn"}}, "end_turn"),
        ({"error": {"code": -32_800, "message": "cancelled"}}, "cancelled"),
        ({"error": {"code": -32_603}}, ""),
        ({"result": {"stopReason": 1}}, ""),
    ],
)
def test_end_of_a_prompt_is_the_agents_reason(answer: dict[str, Any], reason: str) -> None:
    """A request that was withdrawn ends as a cancelled one does."""
    assert frames.end_of(answer) == reason


def test_lines_of_ours() -> None:
    """Each is one line."""
    for made in (frames.prompt("p", "s", "a\nb"), frames.cancelled(3), frames.event("peer_update", "s", {})):
        assert made.count(b"\n") == 1
        assert json.loads(made)["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("kind", "is_work"),
    [("tool_call", True), ("agent_thought_chunk", True), ("usage_update", False), (None, False)],
)
def test_work_on_a_prompt_is_told_by_its_own_updates_alone(kind: str | None, is_work: bool) -> None:
    """An agent tells of its commands, modes and costs at any time: that is no evidence for a prompt."""
    assert frames.is_work({"sessionUpdate": kind}) is is_work


def test_text_of_an_answer_is_the_agents_alone() -> None:
    """Thoughts and tools are no answer."""
    content = {"type": "text", "text": "yes"}
    assert frames.text_of({"sessionUpdate": "agent_message_chunk", "content": content}) == "yes"
    assert frames.text_of({"sessionUpdate": "agent_thought_chunk", "content": content}) == ""
    assert frames.text_of({"sessionUpdate": "agent_message_chunk", "content": None}) == ""
