"""What hooks tell and are answered: host operations in order, mail in the harness's own form, evidence."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.adapters.fake_root import FakeOperations, FakeReply
from tieline.adapters.mcp.hooks import CALLS_MAX, CONTINUED_MAX, HookCall, HookOperations, Hooks
from tieline.errors import Refused

NOTHING = {"text": "", "messageIds": [], "senders": [], "token": None}
MAIL = {"text": "mail", "messageIds": ["m"], "senders": ["bob"], "token": "t1"}


class Bench:
    """Hooks over a root that a test holds."""

    def __init__(self, *, is_codex: bool = False) -> None:
        self.root = FakeOperations()
        self.hooks = Hooks(is_codex=is_codex)
        self.waiting: dict[str, Any] = NOTHING
        self.root.gives("host.seen", {"ours": False, "consumed": 0})
        for method in ("state", "user_prompt", "run_begin", "run_end", "answer"):
            self.root.gives(f"host.{method}", {})

        async def boundary(_params: Any) -> FakeReply:
            return FakeReply(self.waiting)

        self.root.answers["host.boundary"] = boundary

    def tell(self, event: str, run: str = "", *, is_taken: bool = True, **payload: str) -> dict[str, Any]:
        """Fire one hook; return its answer."""

        async def fire() -> dict[str, Any]:
            served = HookOperations(self.hooks, HookCall.of(event, run, payload), self.root)
            reply = await served.call(self.root.root_actor, "host.x", {})
            if reply.taken is not None:
                await (served.flushed if is_taken else served.unflushed)(reply.taken)
            return reply.result

        return asyncio.run(fire())

    def asked(self, method: str) -> list[Any]:
        """Return the params of each call of an operation."""
        return [params for _actor, name, params, _id in self.root.asked if name == method]


def test_hook_without_mail_is_answered_with_nothing() -> None:
    """A model pays nothing for an empty mailbox."""
    assert Bench().tell("PostToolUse", tool="Bash") == {}


def test_tool_boundary_brings_mail_as_added_context_and_tells_the_person() -> None:
    """The form is the harness's own; the person is told who wrote."""
    bench = Bench()
    bench.waiting = MAIL
    assert bench.tell("PostToolUse") == {
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "mail"},
        "systemMessage": "Tieline: mail from bob",
    }
    (asked,) = bench.asked("host.boundary")
    assert (asked["kind"], asked["run"]) == ("tool", None)
    assert asked["bytesMax"] < 10_000


def test_mail_of_a_hook_is_consumed_with_the_next_hook_of_that_session() -> None:
    """An answer on its way is no evidence, and another subagent's hook is none either."""
    bench = Bench()
    bench.waiting = MAIL
    bench.tell("PostToolUse")
    bench.waiting = NOTHING
    bench.tell("PostToolUse", "sub")
    assert bench.root.was_flushed == []
    bench.tell("PostToolUse")
    assert bench.root.was_flushed == ["t1"]


def test_mail_of_an_answer_that_was_not_taken_is_given_back() -> None:
    """It waits for the next boundary."""
    bench = Bench()
    bench.waiting = MAIL
    bench.tell("PostToolUse", is_taken=False)
    assert bench.root.was_unflushed == ["t1"]
    bench.tell("PostToolUse")
    assert bench.root.was_flushed == []


def test_prompt_of_a_person_renews_the_budgets_and_shows_all_that_waits() -> None:
    """Only a person's prompt counts as one."""
    bench = Bench()
    bench.waiting = MAIL
    answer = bench.tell("UserPromptSubmit", prompt="please go on")
    assert answer["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert len(bench.asked("host.user_prompt")) == 1
    assert bench.asked("host.boundary")[0]["kind"] == "prompt"
    assert bench.asked("host.state") == [{"busy": True, "model": None}]


def test_prompt_that_is_our_own_push_is_evidence_and_no_person() -> None:
    """A push must not renew the budget that bounds pushes."""
    bench = Bench()
    bench.root.gives("host.seen", {"ours": True, "consumed": 1})
    bench.tell("UserPromptSubmit", prompt="Another Claude session sent a message: pushed")
    assert bench.asked("host.user_prompt") == []
    assert bench.asked("host.boundary")[0]["kind"] == "tool"


@pytest.mark.parametrize("start", ["Another Claude session sent a message: x", "<task-notification>x"])
def test_prompt_that_a_program_made_is_no_person(start: str) -> None:
    """What a harness writes into its own session renews no budget."""
    bench = Bench()
    bench.tell("UserPromptSubmit", prompt=start)
    assert bench.asked("host.user_prompt") == []


def test_turn_end_keeps_the_answer_and_says_idle() -> None:
    """The last answer is there for peers that ask for it."""
    bench = Bench()
    bench.tell("PostToolUse")
    assert bench.tell("Stop", answer="All is done.") == {}
    assert bench.asked("host.answer") == [{"entry": "turn-1", "text": "All is done.", "run": None}]
    assert [params["busy"] for params in bench.asked("host.state")] == [True, False]


@pytest.mark.parametrize("is_codex", [False, True])
def test_turn_end_with_mail_goes_on_in_the_form_of_the_harness(is_codex: bool) -> None:
    """Claude Code takes added context; Codex takes a block with its reason."""
    bench = Bench(is_codex=is_codex)
    bench.waiting = MAIL
    answer = bench.tell("Stop", answer="done")
    if is_codex:
        assert (answer["decision"], answer["reason"]) == ("block", "mail")
    else:
        assert answer["hookSpecificOutput"] == {"hookEventName": "Stop", "additionalContext": "mail"}
    assert bench.asked("host.state") == []


def test_turn_ends_with_mail_are_bounded() -> None:
    """Mail without end does not keep a turn alive without end; a person's prompt counts anew."""
    bench = Bench()
    bench.waiting = MAIL
    for _ in range(CONTINUED_MAX):
        assert bench.tell("Stop") != {}
    assert bench.tell("Stop") == {}
    bench.tell("UserPromptSubmit", prompt="go on")
    assert bench.tell("Stop") != {}


def test_subagent_is_a_run_from_its_first_hook_to_its_stop() -> None:
    """Begun once, its answer kept, ended."""
    bench = Bench()
    bench.tell("SubagentStart", "sub", type="explorer")
    bench.tell("PostToolUse", "sub")
    bench.tell("SubagentStop", "sub", answer="found it")
    assert bench.asked("host.run_begin") == [{"run": "sub"}]
    assert bench.asked("host.answer")[0]["run"] == "sub"
    assert bench.asked("host.run_end") == [{"run": "sub"}]
    assert bench.asked("host.state") == []
    assert bench.tell("SubagentStop", "unknown") == {}


def test_subagent_with_mail_goes_on_before_it_ends() -> None:
    """What came for it is read by it."""
    bench = Bench()
    bench.tell("SubagentStart", "sub")
    bench.waiting = MAIL
    assert bench.tell("SubagentStop", "sub")["decision"] == "block"
    assert bench.asked("host.run_end") == []


def test_tool_call_of_a_subagent_is_known_by_the_hook_before_it() -> None:
    """The call's own id links the two; the oldest are forgotten."""
    bench = Bench()
    bench.tell("PreToolUse", "sub", call="toolu_1")
    bench.tell("PreToolUse", call="toolu_2")
    assert bench.hooks.run_of("toolu_1") == "sub"
    assert bench.hooks.run_of("toolu_2") is None
    assert bench.hooks.run_of(None) is None
    for number in range(CALLS_MAX):
        bench.tell("PreToolUse", "sub", call=f"later-{number}")
    assert bench.hooks.run_of("toolu_1") is None
    bench.tell("SubagentStop", "sub")
    assert bench.hooks.run_of("later-1") is None


def test_hook_members_that_say_nothing_are_left_out() -> None:
    """Empty, a placeholder that nobody filled, or no text: all are nothing."""
    call = HookCall.of("Stop", "${agent_id}", {"a": "", "b": "${answer}", "c": 3, "d": "text"})
    assert call == HookCall("Stop", None, {"d": "text"})


def test_hook_finds_mail_that_another_reader_has_and_goes_on() -> None:
    """A race is no failure of the hook; anything else is."""
    bench = Bench()

    async def busy(_params: Any) -> FakeReply:
        raise Refused("RESOURCE_BUSY", "another reader has this message")

    bench.root.answers["host.boundary"] = busy
    assert bench.tell("PostToolUse") == {}

    async def ended(_params: Any) -> FakeReply:
        raise Refused("TARGET_ENDED", "no such run")

    bench.root.answers["host.boundary"] = ended
    with pytest.raises(Refused):
        bench.tell("PostToolUse")


@pytest.mark.parametrize("event", ["SessionStart", "SessionEnd", "StopFailure"])
def test_session_events_say_idle_and_which_model(event: str) -> None:
    """No turn runs then."""
    bench = Bench()
    assert bench.tell(event, model="m-1") == {}
    assert bench.asked("host.state") == [{"busy": False, "model": "m-1"}]


@pytest.mark.parametrize(("event", "is_busy"), [("UserPromptSubmit", True), ("Stop", False)])
def test_model_is_told_from_the_record_where_the_hook_names_only_that(
    event: str, is_busy: bool, private_home: Path
) -> None:
    """Claude Code and Gemini CLI name the file; what is not there changes nothing."""
    bench = Bench()
    record = private_home / "record.jsonl"
    record.write_text('{"type": "gemini", "model": "m-2"}\n')
    bench.tell(event, transcript=str(record))
    assert bench.asked("host.state") == [{"busy": is_busy, "model": "m-2"}]
    bench.tell(event, transcript=str(private_home / "none"))
    assert len(bench.asked("host.state")) == 1


def test_prompt_of_a_subagent_is_no_persons_and_leaves_the_session_as_it_is() -> None:
    """Its parent asked it: budgets and the session's state stay, and its mail comes with it."""
    bench = Bench(is_codex=True)
    bench.waiting = MAIL
    assert bench.tell("UserPromptSubmit", "a1", prompt="look there") != {}
    assert [params["run"] for params in bench.asked("host.boundary")] == ["a1"]
    assert bench.asked("host.user_prompt") == bench.asked("host.state") == []


def test_subagent_that_is_asked_again_is_another_run() -> None:
    """The id of a run is used once; its evidence still finds it."""
    bench = Bench(is_codex=True)
    for _ in range(2):
        bench.tell("SubagentStart", "a1")
        bench.tell("SubagentStop", "a1")
    assert bench.asked("host.run_begin") == [{"run": "a1"}, {"run": "a1~2"}]
    assert bench.asked("host.run_end") == [{"run": "a1"}, {"run": "a1~2"}]
    bench.tell("PostToolUse", "a1")
    bench.waiting = MAIL
    bench.tell("PostToolUse", "a1")
    bench.waiting = NOTHING
    assert bench.tell("PostToolUse", "a1") == {}
    assert bench.root.was_flushed == ["t1"]
