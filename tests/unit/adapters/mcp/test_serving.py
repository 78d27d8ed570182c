"""The MCP door with a root that a test holds: framing, failures, sessions, the way out."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.adapters.fake_root import FakeHost, FakeReply, FakeRoot, serving
from tieline.adapters.mcp import serving as door
from tieline.adapters.mcp.early import EarlyAnswers
from tieline.errors import OutcomeUnknown, Refused

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
Story = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A host, a root and the door between them."""

    def __init__(self, client: str, options: door.Options) -> None:
        self.host, self.root = FakeHost(), FakeRoot()
        self.client, self.options = client, options
        self.task: asyncio.Task[int]

    def call(self, identity: int, name: str, arguments: Any = None, **meta: Any) -> None:
        self.host.ask(identity, "tools/call", {"name": name, "arguments": arguments or {}, "_meta": meta})

    async def result(self) -> dict[str, Any]:
        line = await self.host.line()
        result: dict[str, Any] = line["result"]
        return result


@pytest.fixture(autouse=True)
def no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the door from ending the test process."""
    monkeypatch.setattr(door, "end_within", lambda _seconds, _code: None)


def play(story: Story, client: str = "", options: door.Options = door.Options()) -> Stage:  # noqa: B008
    """Tell `story` to a host; return what was on the stage."""

    async def main() -> Stage:
        stage = Stage(client, options)
        answers = EarlyAnswers()
        answers.client = client
        async with serving(
            stage.host, lambda inlet, outlet: door.Door(inlet, outlet, answers, options, stage.root.open)
        ) as stage.task:
            await story(stage)
        return stage

    return asyncio.run(main())


@pytest.mark.parametrize("client", ["claude-code", "codex-mcp-client"])
def test_host_that_drops_texts_beside_members_gets_texts_alone(client: str) -> None:
    """The label around received text reaches every model: members never stand in its place."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("peer_messages", {"messages": [], "text": "a label and mail"})
        stage.call(1, "peer_messages")
        assert await stage.result() == {"content": [{"type": "text", "text": "a label and mail"}]}

    play(story, client)


@pytest.mark.clause("native-133")
def test_tool_result_has_text_for_the_model_and_members_for_a_program() -> None:
    """The model reads the safe text; the same facts are there as members."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives(
            "send_peer_message", {"messageId": "m", "state": "accepted", "text": "Taken."}
        )
        stage.call(1, "send_peer_message", {"to": "a", "content": "b"}, **{"claudecode/toolUseId": "toolu_1"})
        result = await stage.result()
        assert result == {
            "content": [
                {"type": "text", "text": "Taken."},
                {"type": "text", "text": '{"messageId":"m","state":"accepted"}'},
            ],
            "structuredContent": {"messageId": "m", "state": "accepted"},
        }
        actor, method, params, call_id = stage.root.operations.asked[0]
        assert (method, params, call_id) == ("send_peer_message", {"to": "a", "content": "b"}, "toolu_1")
        assert (actor.door, actor.is_host) == ("mcp", False)

    play(story)


def test_tool_result_says_in_a_text_what_comes_beside_the_mail() -> None:
    """Hosts that show a model the texts alone show it events, and that more mail waits."""

    async def story(stage: Stage) -> None:
        answer = {
            "messages": [],
            "events": [{"type": "resource"}],
            "remaining": 3,
            "cursor": "9",
            "text": "mail",
        }
        stage.root.operations.gives("peer_messages", answer)
        stage.call(1, "peer_messages")
        result = await stage.result()
        first, second = (part["text"] for part in result["content"])
        assert first == "mail"
        assert json.loads(second) == {"events": [{"type": "resource"}], "remaining": 3, "cursor": "9"}

    play(story)


def test_tool_result_of_the_modern_family_is_complete() -> None:
    """A request that names the modern version gets that family's envelope."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("list_peers", {"peers": []})
        stage.call(1, "list_peers", **MODERN)
        result = await stage.result()
        assert result["resultType"] == "complete"
        assert json.loads(result["content"][0]["text"]) == {"peers": []}

    play(story)


@pytest.mark.clause("native-133", "native-211")
def test_tool_refusal_tells_code_sentence_and_next_action() -> None:
    """A typed failure is a tool error that the model can act on."""

    async def story(stage: Stage) -> None:
        async def refuse(_params: Any) -> FakeReply:
            raise Refused("AMBIGUOUS_TARGET", "two peers are called api")

        stage.root.operations.answers["send_peer_message"] = refuse
        stage.call(1, "send_peer_message", {"to": "api", "content": "b"})
        result = await stage.result()
        assert result["isError"] is True
        text = result["content"][0]["text"]
        assert text.startswith("AMBIGUOUS_TARGET: two peers are called api. Next: use the exact peer id")
        assert result["structuredContent"]["code"] == "AMBIGUOUS_TARGET"
        assert result["structuredContent"]["retryable"] is False

    play(story)


def test_tool_unknown_outcome_names_the_message_id() -> None:
    """Only the same id may ask again, so the model is told it."""

    async def story(stage: Stage) -> None:
        async def lose(_params: Any) -> FakeReply:
            raise OutcomeUnknown("no answer came", "m-7")

        stage.root.operations.answers["send_peer_message"] = lose
        stage.call(1, "send_peer_message", {"to": "api", "content": "b"})
        assert (await stage.result())["structuredContent"]["messageId"] == "m-7"

    play(story)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("send_peer_message", {"to": "a", "content": "b", "from": "c"}),
        ("send_peer_message", {"to": "a", "content": "b", "run": "r"}),
        ("send_peer_message", {"to": "a", "content": "b", "callId": "r"}),
        ("peer_messages", {"consume": False}),
        ("list_peers", [1]),
        ("tieline_host", {"event": "unheard"}),
        ("tieline_host", {"event": "state", "payload": 3}),
        ("tieline_host", {"event": "state", "session": 3}),
    ],
)
def test_tool_fields_outside_the_schema_never_reach_an_operation(name: str, arguments: Any) -> None:
    """Arguments are closed: a model cannot name its sender, its run or its consumption."""

    async def story(stage: Stage) -> None:
        stage.call(1, name, arguments)
        assert (await stage.result())["structuredContent"]["code"] == "INVALID_PARAMS"
        assert stage.root.operations.asked == []

    play(story)


def test_tool_unknown_is_a_protocol_error() -> None:
    """A tool that was never listed is no tool failure."""

    async def story(stage: Stage) -> None:
        stage.call(1, "rm_rf")
        assert (await stage.host.line())["error"]["code"] == -32602
        stage.host.ask(2, "resources/list")
        assert (await stage.host.line())["error"]["code"] == -32601

    play(story)


def test_modern_version_unknown_is_refused_with_the_versions_served() -> None:
    """The client learns what it may speak."""

    async def story(stage: Stage) -> None:
        meta = {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}
        stage.host.ask(1, "tools/list", {"_meta": meta})
        error = (await stage.host.line())["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2030-01-01"}

    play(story)


@pytest.mark.clause("O48", "K33", "K25")
@pytest.mark.parametrize(
    "bad",
    [
        b'{"a":"\xff\xfe"}',
        b"\x80\x80",
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b'{"jsonrpc":"2.0","id":1,"method":"\xf0\x9f',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        b"{}",
        b"[" * 100_000,
    ],
)
def test_bad_line_is_one_error_and_the_next_is_served(bad: bytes) -> None:
    """One bad line on the input costs one error."""

    async def story(stage: Stage) -> None:
        stage.host.send_bytes(bad + b"\n")
        stage.host.ask(2, "ping")
        first, second = await stage.host.line(), await stage.host.line()
        assert first["id"] is None
        assert first["error"]["code"] in (-32700, -32600)
        assert second == {"jsonrpc": "2.0", "id": 2, "result": {}}

    play(story)


@pytest.mark.clause("native-135")
def test_cancelled_wait_is_not_answered_and_reads_nothing() -> None:
    """The protocol's cancellation ends a wait, silently."""

    async def story(stage: Stage) -> None:
        begun = stage.root.operations.waits("peer_messages")
        stage.call(1, "peer_messages", {"waitMs": 30_000})
        await begun.wait()
        stage.host.note("notifications/cancelled", {"requestId": 1})
        stage.host.ask(2, "ping")
        assert (await stage.host.line())["id"] == 2
        assert stage.root.operations.was_flushed == []

    play(story)


@pytest.mark.clause("O33", "K33")
def test_end_of_input_during_a_wait_ends_the_door_and_consumes_nothing() -> None:
    """The door leaves within its time, presence withdrawn, the mail unread."""

    async def story(stage: Stage) -> None:
        begun = stage.root.operations.waits("peer_messages")
        stage.call(1, "peer_messages", {"waitMs": 30_000})
        await begun.wait()
        stage.host.leave()
        async with asyncio.timeout(2):
            assert await stage.task == 0

    stage = play(story)
    assert stage.root.is_closed
    assert stage.root.operations.was_flushed == []


@pytest.mark.clause("O33", "K33")
def test_output_closed_while_the_input_is_open_ends_the_door() -> None:
    """A host that reads no more is gone; what it did not take stays unread."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("peer_messages", {"messages": [], "text": "x"}, taken="token")
        stage.host.break_output()
        stage.call(1, "peer_messages")
        async with asyncio.timeout(2):
            assert await stage.task == 1  # not one line was taken

    stage = play(story)
    assert stage.root.operations.was_flushed == []
    assert stage.root.operations.was_unflushed == ["token"]
    assert stage.root.is_closed


def test_call_before_the_root_is_open_waits_for_it() -> None:
    """The first tool call needs the root at once and gets it."""

    async def story(stage: Stage) -> None:
        stage.root.may_open.clear()
        stage.root.operations.gives("list_peers", {"peers": []})
        stage.call(1, "list_peers")
        await asyncio.sleep(0.05)
        stage.root.may_open.set()
        await stage.result()
        assert len(stage.root.options) == 1

    play(story)


@pytest.mark.clause("native-208")
def test_root_that_does_not_open_is_a_typed_failure_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host stays connected and reads why; later calls try again."""
    monkeypatch.setattr(door, "REOPEN_S", 0.0)

    async def story(stage: Stage) -> None:
        stage.root.failures = [Refused("COMMUNICATION_DISABLED", "switched off"), OSError("no space")]
        stage.root.operations.gives("list_peers", {"peers": []})
        await asyncio.sleep(0.05)
        codes = []
        for identity in (1, 2):
            stage.call(identity, "list_peers")
            result = await stage.result()
            codes.append(result.get("structuredContent", {}).get("code"))
            await asyncio.sleep(0.01)
        # The first was the opening in the background; each call then tries anew.
        assert codes == ["RECOVERY_REQUIRED", None]

    play(story)


@pytest.mark.clause("I43")
def test_presence_waits_for_the_session_that_the_host_tells() -> None:
    """Codex names its session in the first call; only then others see the root."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("list_peers", {"peers": []})
        await asyncio.sleep(0.05)
        assert stage.root.options[0].is_published is False
        assert stage.root.published == []
        stage.call(1, "list_peers", threadId="t", sessionId="s")
        await stage.result()
        stage.call(2, "list_peers", threadId="t", sessionId="s")
        await stage.result()
        assert stage.root.published == ["s"]
        assert stage.root.options[0].harness == "codex"

    play(story, client="codex-mcp-client")


def test_presence_of_a_silent_host_comes_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that tells nothing is published all the same."""
    monkeypatch.setattr(door, "PUBLISH_S", 0.05)

    async def story(stage: Stage) -> None:
        await asyncio.sleep(0.2)
        assert stage.root.published == [None]

    play(story, client="opencode")


def test_presence_of_a_host_that_named_its_session_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of Claude Code names the session before any call."""
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "c1")

    async def story(stage: Stage) -> None:
        await asyncio.sleep(0.05)
        assert stage.root.options[0].is_published is True
        assert stage.root.options[0].session == "c1"

    assert play(story, client="claude-code").root.published == []


def test_option_session_is_not_replaced_by_what_calls_say() -> None:
    """What the person gave on the command line stands."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("list_peers", {"peers": []})
        stage.call(1, "list_peers", sessionId="other")
        await stage.result()
        assert stage.root.options[0].session == "given"
        assert stage.root.published == []

    play(story, options=door.Options(session="given"))


def test_hook_call_reaches_the_host_operation_as_the_host() -> None:
    """`tieline_host` is the host's own word."""

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("host.boundary", {"text": "mail", "token": "t"})
        stage.call(
            1, "tieline_host", {"event": "boundary", "run": "r", "session": "s", "payload": {"kind": "tool"}}
        )
        result = await stage.result()
        assert result["content"][0]["text"] == "mail"
        assert result["structuredContent"] == {"text": "mail", "token": "t"}
        actor, method, params, _ = stage.root.operations.asked[0]
        assert (actor.is_host, method, params) == (True, "host.boundary", {"kind": "tool", "run": "r"})
        assert stage.root.published == ["s"]

    play(story)


def test_hook_of_a_harness_is_answered_in_its_own_form_and_names_the_session() -> None:
    """The text alone is the hook's answer; the session that the hook names is the one from now on."""

    async def story(stage: Stage) -> None:
        operations = stage.root.operations
        operations.gives("host.state", {})
        operations.gives("list_peers", {"peers": []})
        mail = {"text": "mail", "messageIds": ["m"], "senders": [], "token": "t"}
        operations.gives("host.boundary", mail)
        hook = {"event": "PostToolUse", "session": "new", "run": "", "payload": {"tool": "Bash"}}
        stage.call(1, "tieline_host", hook)
        result = await stage.result()
        assert json.loads(result["content"][0]["text"]) == {
            "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "mail"}
        }
        assert "structuredContent" not in result
        assert operations.was_flushed == []
        stage.call(2, "list_peers", sessionId="old")
        await stage.result()
        assert stage.root.published == ["new"]
        operations.gives("host.boundary", {**mail, "text": "", "token": None})
        stage.call(3, "tieline_host", {"event": "PostToolUse", "session": "${session_id}"})
        assert (await stage.result())["content"][0]["text"] == "{}"
        assert operations.was_flushed == ["t"]
        assert stage.root.published == ["new"]

    play(story)


def test_tool_call_of_a_subagent_acts_as_its_run() -> None:
    """The hook before the call says whose it is."""

    async def story(stage: Stage) -> None:
        operations = stage.root.operations
        operations.gives("host.run_begin", {})
        operations.gives("list_peers", {"peers": []})
        hook = {"event": "PreToolUse", "run": "sub", "payload": {"call": "toolu_1"}}
        stage.call(1, "tieline_host", hook)
        await stage.result()
        for identity, call_id in ((2, "toolu_1"), (3, "toolu_2")):
            stage.call(identity, "list_peers", **{"claudecode/toolUseId": call_id})
            await stage.result()
        assert [actor.peer.run for actor, *_ in operations.asked[-2:]] == ["sub", None]

    play(story)


def test_reply_of_the_model_is_told_as_evidence_before_it_is_sent() -> None:
    """Who answers a message has read it."""

    async def story(stage: Stage) -> None:
        operations = stage.root.operations
        operations.gives("host.answered", {"consumed": 1})
        operations.gives("send_peer_message", {"text": "Taken."})
        stage.call(1, "send_peer_message", {"to": "a", "content": "b", "replyTo": "m"})
        await stage.result()
        assert [(method, params.get("messageId")) for _, method, params, _ in operations.asked] == [
            ("host.answered", "m"),
            ("send_peer_message", None),
        ]

    play(story)


SUBAGENT = {"threadId": "t", "sessionId": "s", "callId": "c"}


def test_server_of_a_subagent_joins_the_root_of_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own root goes; what its hooks and its model say goes to the other, as the run of that thread."""
    joined, asked = FakeRoot(), []

    async def join(path: str, run: str) -> FakeRoot:
        asked.append((path, run))
        return joined

    monkeypatch.setattr(door, "join", join)
    monkeypatch.setattr(door, "root_beside", lambda session, _own: "/c" if session == "s" else None)

    async def story(stage: Stage) -> None:
        for method in ("host.run_begin", "host.boundary", "list_peers"):
            joined.operations.gives(method, {"text": "", "token": None, "senders": [], "peers": []})
        hook = {"event": "UserPromptSubmit", "session": "s", "payload": {"prompt": "look"}}
        stage.call(1, "tieline_host", hook, threadId="t")
        await stage.result()
        stage.call(2, "list_peers", **SUBAGENT)
        await stage.result()
        assert asked == [("/c", "t")]
        assert stage.root.is_closed
        assert stage.root.options[0].session == ""
        assert stage.root.published == []
        told = [(method, params.get("run")) for _actor, method, params, _id in joined.operations.asked]
        assert told == [("host.run_begin", "t"), ("host.boundary", "t"), ("list_peers", None)]

    play(story, client="codex-mcp-client")
    assert joined.is_closed


def test_server_of_a_subagent_without_a_root_of_its_session_is_a_peer_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is left without an address."""
    monkeypatch.setattr(door, "root_beside", lambda _session, _own: None)

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("list_peers", {"peers": []})
        stage.call(1, "list_peers", **SUBAGENT)
        assert "text" in (await stage.result())["content"][0]
        assert stage.root.options[0].session == "s"
        assert not stage.root.is_closed

    play(story, client="codex-mcp-client")


def test_server_among_several_threads_is_not_listed_before_it_is_known_whose_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lone thread is the session; of several, one may be a subagent's."""
    monkeypatch.setattr(door, "PUBLISH_S", 0.01)
    for seen, published in (("lone", ["lone"]), ("", [None]), (None, [])):
        monkeypatch.setattr(door, "session_seen", lambda _client, _environment, seen=seen: seen)

        async def story(stage: Stage) -> None:
            await asyncio.sleep(0.2)

        assert play(story, client="codex-mcp-client").root.published == published


def test_session_with_a_door_of_its_own_is_pushed_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root gets the way that the client and the environment name."""
    monkeypatch.setenv("CLAUDE_CODE_MESSAGING_SOCKET", "/s")

    async def story(stage: Stage) -> None:
        stage.root.operations.gives("list_peers", {"peers": []})
        stage.call(1, "list_peers")
        await stage.result()

    assert [door_.name for door_ in play(story, "claude-code").root.doors] == ["claude-code"]
    assert play(story, "gemini-cli").root.doors == []


def test_hook_tool_called_by_the_model_itself_is_refused() -> None:
    """A model must not say that a person spoke."""

    async def story(stage: Stage) -> None:
        stage.call(1, "tieline_host", {"event": "user_prompt"}, **{"claudecode/toolUseId": "toolu_1"})
        assert (await stage.result())["structuredContent"]["code"] == "CAPABILITY_DENIED"
        assert stage.root.operations.asked == []

    play(story)


def test_calls_beyond_the_bound_are_refused_and_the_door_lives() -> None:
    """33 calls at once: one typed refusal."""

    async def story(stage: Stage) -> None:
        begun = stage.root.operations.waits("peer_messages")
        for identity in range(door.CALLS_MAX + 1):
            stage.call(identity, "peer_messages", {"waitMs": 1000})
        await begun.wait()
        result = await stage.result()
        assert result["structuredContent"]["code"] == "RESOURCE_BUSY"
        stage.host.ask(99, "ping")
        assert (await stage.host.line())["id"] == 99

    play(story)


def test_shutdown_by_the_host_ends_the_door() -> None:
    """`host.shutdown` is an orderly end with the input still open."""

    async def story(stage: Stage) -> None:
        await asyncio.sleep(0.05)
        stage.root.shutdown.set()
        async with asyncio.timeout(2):
            assert await stage.task == 0

    assert play(story).root.is_closed
