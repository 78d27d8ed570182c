"""A server whose host has our tools already: a handshake, no tools, no root."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.mcp import aside
from tieline.runtime.proxied import PROXY_VARIABLE


def told(method: str, **members: Any) -> Any:
    """Return the answer to one request."""
    answered = aside.answer(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, **members}).encode())
    return json.loads(answered)


def test_is_served_by_the_named_process_alone() -> None:
    """What the agent's shell starts inherits the name, and has another parent."""
    assert aside.is_served({"TIELINE_SERVED_BY": "42"}, 42)
    assert not aside.is_served({"TIELINE_SERVED_BY": "42"}, 43)
    assert not aside.is_served({}, 42)


def test_answer_is_a_handshake_without_instructions_and_an_empty_list_of_tools() -> None:
    """A host that starts it sees a sound server that offers nothing."""
    result = told("initialize", params={"protocolVersion": "2025-11-25"})["result"]
    assert result["serverInfo"]["name"] == "tieline"
    assert "instructions" not in result
    assert told("tools/list")["result"]["tools"] == []
    assert told("ping")["result"] == {}


def test_answer_to_a_call_is_a_refusal_that_says_who_has_the_tools() -> None:
    """Nothing is done twice in two names."""
    error = told("tools/call", params={"name": "list_peers"})["error"]
    assert error["data"]["code"] == "METHOD_NOT_FOUND"
    assert "without this server" in error["message"]


@pytest.mark.parametrize(
    "line", [b"", b"no", b"[]", b'{"method":"notifications/initialized"}', b"[" * 100_000]
)
def test_answer_is_empty_where_nothing_is_asked(line: bytes) -> None:
    """Notifications and what is no request end nothing."""
    assert aside.answer(line) == b""


def test_served_server_opens_no_root_and_ends_with_its_input(private_home: Path) -> None:
    """The process that named itself starts `tieline mcp`: nothing of a root is made."""
    asked = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method}).encode() + b"\n"
        for number, method in enumerate(("initialize", "tools/list", "tools/call"), 1)
    )
    home = private_home / "h"
    done = subprocess.run(
        ["tieline", "mcp"],
        input=asked,
        env={**os.environ, "TIELINE_HOME": str(home), aside.SERVED_VARIABLE: str(os.getpid())},
        capture_output=True,
        timeout=30,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer.get("result", {}).get("tools") for answer in answers] == [None, [], None]
    assert not home.exists()


def test_server_of_an_agent_behind_the_proxy_opens_no_root(private_home: Path) -> None:
    """Its sessions have one already. The proxy's own server, which says what it joins, is not meant."""
    assert aside.PROXY_VARIABLE == PROXY_VARIABLE
    home = private_home / "h"
    done = subprocess.run(
        ["tieline", "mcp"],
        input=b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n',
        env={**os.environ, "TIELINE_HOME": str(home), PROXY_VARIABLE: str(os.getpid())},
        start_new_session=True,
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["tools"] == []
    assert not home.exists()
