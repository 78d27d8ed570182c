"""Hooks that a harness has as commands: its words become those of `hooks`, and the answer its own form.

Rule 1: a hook counts only for the harness that started this door: a program of another one, run inside it,
inherits its place among the ancestors.
Rule 2: the first hook tells which session this is, and a later one when that changed.
Rule 3: a prompt in which mail stands that an answer of ours carried is no person's.
Rule 4: Gemini CLI writes `<` and `>` of added context as `&lt;` and `&gt;`. A frame holds neither: both are
escapes of JSON there, so what the model reads is what was sent.
Rule 5: a subagent of Gemini CLI fires its session's hooks, and nothing tells them apart but when it began and
ended: meanwhile no hook between two tools brings mail, since the session's own model would not see it.
Rule 6: the event `Wait` is no harness's own: it is the command whose end wakes the session, by a text.

Source: reference/harnesses.md 4, 5, 6; Gemini CLI's reference of its hooks.
"""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tieline.adapters.mcp.hooks import HookCall, Hooks
from tieline.adapters.mcp.waiting import Waiting
from tieline.adapters.stdio.calls import Operations
from tieline.errors import Refused
from tieline.runtime.hooked import HookAnswer
from tieline.runtime.ladder import Flags

__all__ = ["CommandHooks"]

GEMINI: Final = "gemini-cli"
WAIT: Final = "Wait"
_WORDS: Final = {"gemini": GEMINI, "claude": "claude-code", "claude-code": "claude-code", "codex": "codex"}
"""As `tieline hook` calls a harness: our word for it."""
_GEMINI_EVENTS: Final = {
    "SessionStart": "SessionStart",
    "BeforeAgent": "UserPromptSubmit",
    "AfterTool": "PostToolUse",
    "AfterAgent": "Stop",
    "SessionEnd": "SessionEnd",
}
GEMINI_SUBAGENT: Final = "invoke_agent"
"""The tool by which its model starts a subagent."""
_MEMBERS: Final = {
    "prompt": "prompt",
    "tool_name": "tool",
    "tool_use_id": "call",
    "agent_type": "type",
    "model": "model",
    "transcript_path": "transcript",
    "last_assistant_message": "answer",
    "prompt_response": "answer",
}
"""A member of an event, and what `hooks` calls it."""
_CONTINUED: Final = "<hook_prompt>"
_FRAME: Final = re.compile(r"==== external message [0-9a-f]{32,64} ====")
SESSION_CHARACTERS_MAX: Final = 256


class CommandHooks:
    """The hooks of one session that come as commands."""

    def __init__(
        self,
        hooks: Hooks,
        harness: str,
        operations: Operations,
        publish: Callable[[str], Awaitable[None]],
    ) -> None:
        """Serve `harness`, our word for it; `publish` tells others which session this is."""
        self._hooks, self._harness, self._operations, self._publish = hooks, harness, operations, publish
        self.flags: Flags | None = None
        self.waiting: Waiting | None = None
        self._runs: dict[str, str | None] = {}  # token: whose hook carries it
        self._frames: set[str] = set()  # of the last answer that lets a turn go on
        self._subagent_count = 0  # of Gemini CLI, that work now

    async def take(self, harness: str, event: str, document: dict[str, Any], actor: Any) -> HookAnswer:
        """Do what a hook says.

        Raises:
            Refused: CAPABILITY_DENIED, this door serves another harness.
        """
        if _WORDS.get(harness) != self._harness:
            raise Refused("CAPABILITY_DENIED", f"this root serves {self._harness or 'no harness'}")
        if event == WAIT:
            return HookAnswer("" if self.waiting is None else await self.waiting.wait(), "")
        await self._learn(document.get("session_id"))
        self._hooks.is_codex = self._harness == "codex"
        payload = {name: document.get(member) for member, name in _MEMBERS.items() if member in document}
        if _FRAME.search(str(payload.get("prompt", ""))) and self._is_continued(str(payload["prompt"])):
            payload["prompt"] = _CONTINUED
        known = self._of_gemini(event, document.get("tool_name")) if self._harness == GEMINI else event
        call = HookCall.of(known, document.get("agent_id"), payload)
        reply = await self._hooks.take(call, self._operations, actor)
        self._settle_flag()
        if not reply.result:
            return HookAnswer("", "")
        if reply.taken is not None:
            self._runs[reply.taken] = call.run
        return HookAnswer(json.dumps(self._form(event, reply.result)), reply.taken or "")

    def carried(self, token: str) -> None:
        """The harness's pipe took the answer: its next hook is the evidence."""
        if token in self._runs:
            self._hooks.carried(self._runs.pop(token), token)
        self._settle_flag()

    async def _learn(self, session: object) -> None:
        if not isinstance(session, str) or not 0 < len(session) <= SESSION_CHARACTERS_MAX:
            return
        if session != self._hooks.session and session.isprintable():
            self._hooks.session = session
            await self._publish(session)
            if self.flags is not None:
                self.flags.open(session)

    def _of_gemini(self, event: str, tool: object) -> str:
        """Return our word for an event of Gemini CLI; "" where nothing is wanted of it."""
        if event not in ("BeforeTool", "AfterTool"):
            self._subagent_count = 0  # one that was cancelled may never have told its end
        elif tool == GEMINI_SUBAGENT:
            self._subagent_count = max(0, self._subagent_count + (1 if event == "BeforeTool" else -1))
        return "" if self._subagent_count else _GEMINI_EVENTS.get(event, "")

    def _settle_flag(self) -> None:
        if self.flags is not None:
            self.flags.is_owed = self._hooks.is_owed
            self.flags.look()

    def _is_continued(self, prompt: str) -> bool:
        return bool(self._frames & set(_FRAME.findall(prompt)))

    def _form(self, event: str, result: dict[str, Any]) -> dict[str, Any]:
        """Return the answer in the harness's own form."""
        told = result.get("hookSpecificOutput", {})
        text = str(told.get("additionalContext") or result.get("reason", ""))
        if event in ("AfterAgent", "Stop", "SubagentStop"):
            self._frames = set(_FRAME.findall(text))
        if self._harness != GEMINI:
            return result
        message = {name: result[name] for name in ("systemMessage",) if name in result}
        if event == "AfterAgent":
            return {"decision": "block", "reason": text, **message}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}, **message}
