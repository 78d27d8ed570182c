"""Hooks that come as commands: whose they are, which session, and the answer in the harness's own form."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.adapters.mcp.test_hooks import MAIL, NOTHING, Bench
from tieline.adapters.mcp.commands import CommandHooks
from tieline.errors import Refused

FRAME = "==== external message " + "ab" * 16 + " ===="


class Commands(Bench):
    """Command hooks over a root that a test holds."""

    def __init__(self, harness: str = "gemini-cli") -> None:
        super().__init__()
        self.sessions: list[str] = []

        async def publish(session: str) -> None:
            self.sessions.append(session)

        self.served = CommandHooks(self.hooks, harness, self.root, publish)

    def fire(self, event: str, harness: str = "gemini", **document: Any) -> dict[str, Any]:
        """Fire one hook, whose answer is taken; return it."""
        answer = asyncio.run(self.served.take(harness, event, document, self.root.root_actor))
        if answer.token:
            self.served.carried(answer.token)
        return dict(json.loads(answer.output)) if answer.output else {}


def test_hooks_of_gemini_bring_mail_in_its_forms() -> None:
    """Added context at a tool and a prompt, a refusal to end at a turn's end; each is the evidence before."""
    bench = Commands()
    bench.waiting = MAIL
    added = {"additionalContext": "mail"}
    said = {"systemMessage": "Tieline: mail from bob"}
    for event in ("BeforeAgent", "AfterTool"):
        assert bench.fire(event) == {"hookSpecificOutput": {"hookEventName": event, **added}, **said}
    assert bench.fire("AfterAgent", prompt_response="done") == {"decision": "block", "reason": "mail", **said}
    assert [one["kind"] for one in bench.asked("host.boundary")] == ["prompt", "tool", "turn_end"]
    assert bench.root.was_flushed == ["t1", "t1"]
    assert bench.asked("host.answer")[0]["text"] == "done"


def test_hook_without_mail_answers_nothing() -> None:
    """Not even an empty object."""
    assert Commands().fire("AfterTool") == {}
    assert Commands().fire("Unknown") == {}


def test_mail_is_not_given_to_a_subagent_of_gemini() -> None:
    """Its hooks are its session's. What waits comes when the last has ended; one may never tell its end."""
    bench = Commands()
    bench.waiting = MAIL
    for _ in range(2):
        assert bench.fire("BeforeTool", tool_name="invoke_agent") == {}
    assert bench.fire("AfterTool", tool_name="read_file") == {}
    assert bench.fire("AfterTool", tool_name="invoke_agent") == {}
    assert bench.asked("host.boundary") == []
    assert "hookSpecificOutput" in bench.fire("AfterTool", tool_name="invoke_agent")
    assert "hookSpecificOutput" in bench.fire("AfterTool", tool_name="read_file")
    bench.fire("BeforeTool", tool_name="invoke_agent")
    assert "hookSpecificOutput" in bench.fire("BeforeAgent", prompt="a person, who has cancelled it")
    assert "hookSpecificOutput" in bench.fire("AfterTool", tool_name="read_file")


def test_prompt_that_our_mail_made_is_no_person() -> None:
    """A turn that goes on with mail fires the prompt hook with it."""
    bench = Commands()
    bench.waiting = {**MAIL, "text": FRAME}
    bench.fire("AfterAgent")
    bench.waiting = NOTHING
    bench.fire("BeforeAgent", prompt=FRAME)
    assert bench.asked("host.user_prompt") == []
    bench.fire("BeforeAgent", prompt="a person")
    bench.fire("BeforeAgent", prompt=FRAME.replace("ab", "cd"))
    assert len(bench.asked("host.user_prompt")) == 2


def test_hook_tells_which_session_it_is_once_and_when_that_changes() -> None:
    """What is no id tells nothing."""
    bench = Commands()
    for session in ("s-1", "s-1", 7, "", "x" * 300, "s-2"):
        bench.fire("AfterTool", session_id=session)
    assert bench.sessions == ["s-1", "s-2"]


def test_hook_of_another_harness_is_refused() -> None:
    """A program inside ours may run hooks of its own."""
    with pytest.raises(Refused):
        Commands("claude-code").fire("AfterTool")


def test_hooks_of_claude_code_keep_its_own_form() -> None:
    """As its tool hooks do."""
    bench = Commands("claude-code")
    bench.waiting = MAIL
    told = bench.fire("PostToolUse", "claude-code", agent_id="sub")
    assert told["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
    assert bench.asked("host.run_begin") == [{"run": "sub"}]


def test_command_that_waits_gets_its_text_as_it_is_and_only_where_one_is_wanted() -> None:
    """Where a socket wakes the session it goes home at once."""

    class Waiting:
        async def wait(self) -> str:
            return "mail"

    bench = Commands("claude-code")
    wait = bench.served.take("claude-code", "Wait", {}, bench.root.root_actor)
    assert asyncio.run(wait) == ("", "")
    bench.served.waiting = Waiting()  # type: ignore[assignment]
    wait = bench.served.take("claude-code", "Wait", {}, bench.root.root_actor)
    assert asyncio.run(wait) == ("mail", "")
