"""What hosts tell of themselves, and what is not believed."""

import pytest

from tieline.adapters.mcp import hosts

CLAUDE = {"CLAUDE_CODE_SESSION_ID": "c1", "CLAUDE_PROJECT_DIR": "/p"}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("claude-code", "claude-code"),
        ("codex-mcp-client", "codex"),
        ("gemini-cli-mcp-client-tieline", "gemini-cli"),
        ("opencode", "opencode"),
        ("pi", "pi"),
        ("omp-coding-agent", "oh-my-pi"),
        ("some host!", "some-host"),
        ("", ""),
    ],
)
def test_harness_client_name_gives_our_word(name: str, word: str) -> None:
    """A known host has one word; an unknown one keeps its name, made plain."""
    assert hosts.harness(name) == word


def test_session_variable_of_another_host_is_not_believed() -> None:
    """A host that runs inside another agent's shell does not get that agent's session."""
    assert hosts.session("claude-code", CLAUDE, {}) == "c1"
    assert hosts.session("codex-mcp-client", CLAUDE, {}) == ""
    assert hosts.session("", CLAUDE, {}) == ""
    assert hosts.workspace("claude-code", CLAUDE) == "/p"
    assert hosts.workspace("codex-mcp-client", CLAUDE) == ""


def test_session_of_a_call_is_the_root_session_not_the_thread() -> None:
    """Codex tells both: the session owns the thread."""
    assert hosts.session("codex-mcp-client", {}, {"threadId": "t", "sessionId": "s"}) == "s"
    assert hosts.session("codex-mcp-client", {}, {"threadId": "t"}) == "t"
    assert hosts.thread({"threadId": "t", "sessionId": "s"}) == "t"
    assert hosts.thread({"threadId": "s", "sessionId": "s"}) == ""
    assert hosts.thread({"threadId": "s"}) == ""


def test_session_of_a_shim_goes_first() -> None:
    """`TIELINE_SESSION` is set on purpose."""
    assert hosts.session("claude-code", {**CLAUDE, "TIELINE_SESSION": "mine"}, {"sessionId": "x"}) == "mine"


@pytest.mark.parametrize("bad", ["", "a" * 257, "a\nb", 7, None, ["x"]])
def test_call_id_of_a_wrong_form_is_none(bad: object) -> None:
    """Only a plain text may become part of a message id."""
    assert hosts.call_id({"claudecode/toolUseId": bad}) is None


def test_call_id_of_the_host_is_found() -> None:
    """The same tool call has the same id, so its message has too."""
    assert hosts.call_id({"claudecode/toolUseId": "toolu_1"}) == "toolu_1"
    assert hosts.is_model_call({"claudecode/toolUseId": "toolu_1"})
    assert hosts.call_id({}) is None
    assert not hosts.is_model_call({})


@pytest.mark.parametrize("member", ["x-codex-turn-metadata", "callId", "itemId"])
def test_call_of_the_model_of_codex_is_told_from_a_hook(member: str) -> None:
    """A hook of Codex comes with the thread alone; what its model calls bears the item and the turn."""
    assert not hosts.is_model_call({"threadId": "t", "progressToken": 1})
    assert hosts.is_model_call({"threadId": "t", "progressToken": 1, member: {}})


def test_client_name_is_found_in_both_protocol_families() -> None:
    """`initialize` has it in its params, a request without handshake in `_meta`."""
    assert hosts.client_name({"clientInfo": {"name": "Claude-Code"}}) == "claude-code"
    assert hosts.client_name({"_meta": {hosts.CLIENT_META: {"name": "x"}}}) == "x"
    for params in ({}, {"clientInfo": 3}, {"clientInfo": {"name": 3}}, {"_meta": []}):
        assert hosts.client_name(params) == ""


@pytest.mark.parametrize(
    ("name", "drops"), [("claude-code", True), ("codex-mcp-client", True), ("opencode", False), ("", False)]
)
def test_host_that_shows_members_alone_is_known_by_its_name(name: str, drops: bool) -> None:
    """Its model reads the label around received text only where no members stand beside it."""
    assert hosts.drops_texts(name) is drops
