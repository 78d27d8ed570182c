"""The bench itself, without any harness: the model in its four protocols, the terminal, the report."""

import json
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harness import report
from tests.harness.__main__ import words
from tests.harness.cache import Found, Recipe, find
from tests.harness.model import Call, ModelServer, Say
from tests.harness.neighbour import document
from tests.harness.terminal import Terminal, plain

PROMPT = "please START now"
TOOL = "mcp__tieline__list_peers"

FUNCTION = {"name": TOOL, "parameters": {"type": "object"}}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages",
        {"messages": [{"role": "user", "content": PROMPT}], "tools": [{"name": TOOL}]},
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]}
            ],
            "tools": [{"type": "namespace", "name": "mcp__tieline", "tools": [{"name": "list_peers"}]}],
        },
    ),
    "chat": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": PROMPT}],
            "tools": [{"type": "function", "function": FUNCTION}],
        },
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": PROMPT}]}],
            "tools": [{"functionDeclarations": [FUNCTION]}],
        },
    ),
}


def posted(model: ModelServer, path: str, body: dict[str, Any]) -> str:
    """Return what the model answers."""
    request = urllib.request.Request(
        model.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("protocol", BODIES)
def test_model_in_each_protocol_calls_the_scripted_tool(
    model: ModelServer, protocol: str, is_streamed: bool
) -> None:
    """The token picks the script; the call has the offered tool's whole name and the arguments."""
    model.script("START", Call("list_peers", {"scope": "machine"}), Say("over"))
    path, body = BODIES[protocol]
    if is_streamed and protocol == "gemini":
        path = path.replace("generateContent", "streamGenerateContent")
    elif is_streamed:
        body = {**body, "stream": True}
    told = posted(model, path, body)
    assert "list_peers" in told
    assert "machine" in told
    assert ("data: " in told) is is_streamed
    assert model.requests[0].seen.texts("user") == [PROMPT]


def test_model_after_the_tools_result_says_the_next_step(model: ModelServer) -> None:
    """How far a script is, the request alone tells: the same request again gets the same answer."""
    model.script("START", Call("list_peers"), Say("over"))
    path, body = BODIES["anthropic"]
    call = {"type": "tool_use", "id": "t", "name": TOOL, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "nobody"}]}
    messages = [
        *body["messages"],
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    for _ in range(2):
        assert "over" in posted(model, path, {**body, "messages": messages})
    assert model.with_result("nobody").seen.count("nobody") == 1


def test_model_without_the_scripted_tool_tells_the_waiting_test_at_once(model: ModelServer) -> None:
    """A tool that a harness does not offer ends the wait with the names of what it offers."""
    model.script("START", Call("send_peer_message"))
    posted(model, *BODIES["chat"])
    begun = time.monotonic()
    with pytest.raises(AssertionError, match=f"send_peer_message is not offered; offered are: {TOOL}"):
        model.with_result("anything", seconds=30)
    assert time.monotonic() - begun < 5


def test_terminal_of_a_program_answers_its_questions_and_types(private_home: Path) -> None:
    """The program has a terminal of its own, hears where the cursor is, and gets what is typed."""
    program = (
        "import os, sys, tty; print('tty', os.isatty(0), os.getsid(0) == os.getpid()); "
        "line = input('name? '); print('hello', line); tty.setcbreak(0); "
        "sys.stdout.write('\\x1b[6n'); sys.stdout.flush(); print('at', repr(os.read(0, 6)))"
    )
    with Terminal([sys.executable, "-c", program], folder=private_home, environment={}) as window:
        window.until("name?", seconds=20)
        window.type("anna\r")
        window.until("hello anna", seconds=20)
        window.until("at b'\\x1b[1;1R'", seconds=20)
        assert "ttyTrueTrue" in plain(window.drawn())


def test_document_inside_what_a_harness_made_of_it_is_found() -> None:
    """Words before it, a wrapping object, or a text inside an object: the same document."""
    inner = json.dumps({"peers": []})
    for told in (inner, f"Wall time: 1 s\nOutput:\n{inner}", json.dumps({"output": f"<untrusted>\n{inner}"})):
        assert document(told) == {"peers": []}


def test_report_of_a_harness_that_is_not_there_names_it_and_the_reason(tmp_path: Path) -> None:
    """Nothing that did not run is counted as good."""
    missing = find(Recipe("pi", (("no-such-package", "1"),), "no/program"), tmp_path)
    there = Found("codex", "1.2", ("codex",))
    lines = report.lines([missing, there], {"codex": Counter(passed=1, failed=1)}, {"codex": 3, "pi": 1})
    assert lines[0].startswith("harness: pi: NOT RUN: no-such-package@1 is not in the cache")
    assert lines[1] == "harness: codex 1.2: 1 passed, 1 FAILED, 1 not run"


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("", "harness"),
        ("-k gemini -x", "tests/harness -k gemini -x"),
        ("tests/harness/test_acp.py -k gemini", "tests/harness/test_acp.py -k gemini"),
        ("-x ./tests/harness/test_acp.py::test_one", "-x ./tests/harness/test_acp.py::test_one"),
        ("--ignore tests/harness/test_acp.py", "tests/harness --ignore tests/harness/test_acp.py"),
        ("--ignore=tests/harness/test_acp.py", "tests/harness --ignore=tests/harness/test_acp.py"),
    ],
)
def test_path_takes_the_place_of_all_tests_and_an_option_does_not(options: str, asked: str) -> None:
    """Who names a file runs that file."""
    assert words(options.split()) == asked.split()
