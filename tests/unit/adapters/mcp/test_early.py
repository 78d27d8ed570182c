"""The first answers: right in both protocol families, and silent about anything doubtful."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.adapters.mcp.constants import INSTRUCTIONS, TOOLS
from tieline.adapters.mcp.early import EarlyAnswers, constant_result
from tieline.errors import ProtocolError
from tieline.wire import jsonrpc

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def line(method: str, params: dict[str, Any] | None = None, **members: Any) -> bytes:
    """Return the line of a request."""
    document = {"jsonrpc": "2.0", "id": 1, "method": method, **members}
    if params is not None:
        document["params"] = params
    return json.dumps(document).encode()


def answered(data: bytes) -> dict[str, Any]:
    """Return the early answer to a line."""
    answer = EarlyAnswers().answer(data)
    assert answer is not None
    assert answer.endswith(b"\n")
    document: dict[str, Any] = json.loads(answer)
    return document


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_version_is_echoed_or_the_newest_with_a_handshake(asked: str | None, told: str) -> None:
    """A known version is echoed; any other gets the newest that begins with `initialize`."""
    result = answered(line("initialize", {"protocolVersion": asked}))["result"]
    assert result["protocolVersion"] == told
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["instructions"] == INSTRUCTIONS
    assert "resultType" not in result


def test_discover_answer_has_what_the_modern_family_requires() -> None:
    """Versions, capabilities, cache terms and the result's type are there."""
    result = answered(line("server/discover", {"_meta": MODERN}))["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["resultType"] == "complete"
    assert result["cacheScope"] == "public"
    assert result["ttlMs"] > 0
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tieline"


def test_tool_list_is_the_same_in_both_families() -> None:
    """Only the envelope differs."""
    old, new = (
        answered(line("tools/list"))["result"],
        answered(line("tools/list", {"_meta": MODERN}))["result"],
    )
    assert old == {"tools": json.loads(json.dumps(TOOLS))}
    assert new["tools"] == old["tools"]
    assert new["resultType"] == "complete"


@pytest.mark.parametrize("identity", [0, -5, 9, "a", "x" * 256])
def test_answer_id_is_echoed_with_its_type(identity: int | str) -> None:
    """An id comes back as it came."""
    assert answered(line("ping", id=identity)) == {"jsonrpc": "2.0", "id": identity, "result": {}}


def test_initialized_notification_asks_for_nothing() -> None:
    """A notification is never answered."""
    early = EarlyAnswers()
    assert early.answer(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == b""
    assert not early.is_answered


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} x',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","extra":1}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":"","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\xc3\xbc","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"p\\u0069ng"}',
        b'{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 99 + b"]" * 99 + b"}",
        line("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}}),
    ],
)
@pytest.mark.clause("O48")
def test_doubtful_line_is_left_to_the_grammar(data: bytes) -> None:
    """What is not plainly one of these requests is not answered here, and stops nothing."""
    early = EarlyAnswers()
    assert early.answer(data) is None
    assert not early.is_answered
    assert early.answer(line("ping")) is not None


@given(
    data=st.one_of(
        st.binary(max_size=60),
        st.builds(
            lambda value: json.dumps(
                {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": value}}
            ).encode(),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda inner: (
                    st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
                ),
                max_leaves=6,
            ),
        ),
    )
)
def test_whatever_is_answered_early_the_strict_grammar_takes_too(data: bytes) -> None:
    """There is one grammar: the early answers accept nothing that it refuses."""
    if EarlyAnswers().answer(data) is None:
        return
    try:
        frame = jsonrpc.decode(data)
    except ProtocolError:
        pytest.fail("answered early, refused by the grammar")
    assert isinstance(frame, jsonrpc.Request)


def test_early_answers_remember_what_the_host_told() -> None:
    """The client's name and its `_meta` are there for the root that opens next."""
    early = EarlyAnswers()
    early.answer(line("initialize", {"clientInfo": {"name": "codex-mcp-client"}, "_meta": {"threadId": "t"}}))
    early.answer(line("tools/list"))
    assert early.client == "codex-mcp-client"
    assert early.meta == {"threadId": "t"}
    assert early.is_answered


def test_constant_result_ping_of_the_modern_family_is_complete() -> None:
    """Every result of that family names its type."""
    assert constant_result("ping", {"_meta": MODERN})["resultType"] == "complete"


def test_module_import_brings_nothing_heavy_along() -> None:
    """A host waits for the first answer: no loop, codec, store, key, argument parser or pattern is loaded."""
    code = (
        "import sys, tieline; before = set(sys.modules)\n"
        "import tieline.adapters.mcp\n"
        "heavy = {'asyncio', 'msgspec', 'apsw', 'nacl', 'argparse', 'json', 're', 'typing', 'threading'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
