"""What the MCP door says of itself does not change without somebody seeing it."""

import hashlib
import json

import pytest

import tieline
from tieline.adapters.mcp.constants import (
    HOST_EVENTS,
    INSTRUCTIONS,
    INTERCOM_TOOL,
    TOOL_FIELDS,
    TOOLS,
    VERSION,
    to_json,
)

# A host's user approved these very words. Whoever changes them changes this hash, and says so in a fragment.
TOOL_LIST_SHA256 = "357534c2b137c1cc6bb0d37d6c0120b1a076d67f2b8c7e731177c681091d8e42"


def test_tool_list_hash_is_the_golden_one() -> None:
    """The tools that a person approved are the tools that are served."""
    assert hashlib.sha256(to_json(TOOLS).encode()).hexdigest() == TOOL_LIST_SHA256


def test_tools_text_is_static_ascii_below_the_cut_of_hosts() -> None:
    """Descriptions and instructions are ASCII and shorter than 2,048 bytes."""
    assert to_json(TOOLS).isascii()
    for text in (INSTRUCTIONS, *(str(tool["description"]) for tool in (*TOOLS, INTERCOM_TOOL))):
        assert text.isascii()
        assert len(text) < 2_048
    assert [tool["name"] for tool in TOOLS] == [
        "list_peers",
        "send_peer_message",
        "peer_messages",
        "coordinate_resource",
        "tieline_host",
    ]


@pytest.mark.clause("native-132", "native-133", "native-134", "native-136")
def test_tool_schemas_are_closed_and_have_the_fields_of_the_specification() -> None:
    """Each schema refuses unknown fields and names exactly what the tool takes."""
    required = {}
    for tool in json.loads(to_json((*TOOLS, INTERCOM_TOOL))):
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False
        assert frozenset(schema["properties"]) == TOOL_FIELDS[tool["name"]]
        required[tool["name"]] = schema.get("required", [])
    assert required == {
        "list_peers": [],
        "send_peer_message": ["to", "content"],
        "peer_messages": [],
        "coordinate_resource": ["operation"],
        "intercom": ["action"],
        "tieline_host": ["event"],
    }
    assert {"scope", "query", "cursor"} == TOOL_FIELDS["list_peers"]
    assert {"after", "from", "replyTo", "messageId", "waitMs"} == TOOL_FIELDS["peer_messages"]
    assert TOOL_FIELDS["coordinate_resource"] == frozenset(
        ("operation", "resource", "reason", "requestId", "epoch", "controller", "participants", "profile")
    )


@pytest.mark.clause("native-135")
def test_tool_wait_is_bounded_in_the_schema() -> None:
    """A model is told that a wait is 0 to 30,000 ms."""
    tool = json.loads(to_json(TOOLS))[2]
    wait = tool["inputSchema"]["properties"]["waitMs"]
    assert (wait["minimum"], wait["maximum"]) == (0, 30_000)


def test_tool_annotations_ask_no_host_for_approval() -> None:
    """No tool destroys or reaches the open world; listing only reads."""
    for tool in json.loads(to_json(TOOLS)):
        notes = tool["annotations"]
        assert notes["destructiveHint"] is False
        assert notes["openWorldHint"] is False
        assert notes["readOnlyHint"] is (tool["name"] == "list_peers")
        assert tool["_meta"]["anthropic/alwaysLoad"] is (tool["name"] != "tieline_host")


@pytest.mark.clause("pi-peers-33")
def test_instructions_alone_say_how_to_talk_and_what_peer_text_is() -> None:
    """A model that sees no tool still learns the rules."""
    rules = (
        "replyTo",
        "waitMs",
        "notifyWhenIdle",
        'scope "all"',
        "no authority",
        "accepted",
        "unknown",
        "external data",
    )
    for words in ("list_peers", "send_peer_message", "peer_messages", *rules):
        assert words in INSTRUCTIONS


def test_constants_version_is_the_package_version() -> None:
    """The door names the version that is installed."""
    assert tieline.__version__ == VERSION


def test_to_json_equals_the_standard_encoder() -> None:
    """The little encoder writes what the big one writes."""
    value = {"a": [1, True, False, None, 'x"\\\n'], "b": {"c": list(HOST_EVENTS)}}
    assert json.loads(to_json(value)) == value


@pytest.mark.parametrize("value", ["\u00fc", "\x07", 1.5, {1: 2}, object()])
def test_to_json_anything_else_is_refused(value: object) -> None:
    """What it cannot write it does not write wrongly."""
    with pytest.raises(TypeError):
        to_json(value)
