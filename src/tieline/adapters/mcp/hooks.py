"""What a harness's hooks tell through `tieline_host`, and the hook answers that bring mail to its model.

Rule 1: the event bears the harness's own name, because the form of the answer depends on it; what it says
becomes the `host.*` operations that every host speaks.
Rule 2: mail that an answer carries counts as read with the next hook of that session, or of that subagent:
a harness that goes on has taken the answer. An answer that its pipe did not take is given back.
Rule 3: a prompt in which a push of ours stands is no person's, and neither is one that a program made.
Rule 4: a turn is made to go on at most `CONTINUED_MAX` times in a row.
Rule 5: a member that is not there comes as "", as its own placeholder, or not at all: all three are nothing.

Source: reference/harnesses.md 4, 5; DESIGN.md 3; docs/delivery.md.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from tieline.adapters.mcp.transcript import last_model
from tieline.adapters.stdio.calls import Operations
from tieline.errors import Refused

__all__ = ["HookCall", "HookOperations", "Hooks"]

TEXT_BYTES_MAX: Final = 9_000
"""Of the mail in one answer: Claude Code cuts at 10,000 characters, Codex at 2,500 tokens."""
EVIDENCE_MS: Final = 3_600_000
"""A tool may run for long between the answer and the next hook."""
CONTINUED_MAX: Final = 6
"""Turn ends in a row that mail turned into a new step; Claude Code itself stops at 8."""
CALLS_MAX: Final = 256
AGAIN: Final = "~"
"""Between a subagent's id and the number of its execution: the id of a run is used once."""
MACHINE_MADE: Final = (
    "Another Claude session sent a message",
    "<cross-session-message",
    "<task-notification",
    "<local-command",
    "<command-name",
    "<hook_prompt",
)
"""How prompts begin that a harness or another program made."""

Ask = Callable[..., Awaitable[dict[str, Any]]]


class HookCall(NamedTuple):
    """One hook.

    Attributes:
        event: The harness's name of the event.
        run: The subagent's id, or None in the session itself.
        members: What its payload says, without what says nothing.
    """

    event: str
    run: str | None
    members: dict[str, str]

    @classmethod
    def of(cls, event: str, run: object, payload: dict[str, Any]) -> "HookCall":
        """Return the hook that these arguments of the tool are."""
        members = {name: value for name, value in payload.items() if isinstance(value, str) and _says(value)}
        return cls(event, run if isinstance(run, str) and _says(run) else None, members)


class Reply(NamedTuple):
    """What an operation returns."""

    result: dict[str, Any]
    taken: str | None = None


class Hooks:
    """What the hooks of one session told so far."""

    def __init__(self, *, is_codex: bool = False) -> None:
        self.is_codex = is_codex
        self.session = ""
        self._carried: dict[str | None, str] = {}  # by run: the token of mail whose evidence is the next hook
        self._runs: set[str] = set()
        self._ended: dict[str, int] = {}  # by the harness's id: how many executions of it have ended
        self._calls: OrderedDict[str, str] = OrderedDict()
        self._is_busy: bool | None = None
        self._model = ""
        self._answer_count = 0
        self._continued_count = 0

    def run_of(self, call_id: str | None) -> str | None:
        """Return the live subagent that made this tool call, or None: the session itself."""
        run = self._calls.get(call_id or "")
        return run if run in self._runs else None

    @property
    def is_owed(self) -> bool:
        """Whether mail that an answer carried waits for its evidence."""
        return bool(self._carried)

    def carried(self, run: str | None, token: str) -> None:
        """The harness's pipe took an answer with mail; its next hook is the evidence."""
        self._carried[run] = token

    async def take(self, hook: HookCall, operations: Operations, actor: Any) -> Reply:
        """Do what a hook says; return its answer, and the token of the mail that it carries."""

        async def ask(method: str, **params: Any) -> dict[str, Any]:
            reply = await operations.call(actor, method, params)
            return reply.result

        token = self._carried.pop(hook.run, None)
        if token is not None:
            await operations.flushed(token)
        if hook.run is not None:
            hook = hook._replace(run=self._name(hook.run))
            if hook.event != "SubagentStop":
                await self._begin(ask, str(hook.run))
        match hook.event:
            case "SessionStart" | "SessionEnd" | "StopFailure":
                await self._state(ask, is_busy=False, model=hook.members.get("model", ""))
                return Reply({})
            case "UserPromptSubmit":
                return await self._prompt(ask, hook)
            case "PreToolUse":
                self._note_call(hook)
                return Reply({})
            case "PostToolUse":
                if hook.run is None:
                    await self._state(ask, is_busy=True)
                return await self._mail(ask, hook, "tool")
            case "Stop":
                return await self._stop(ask, hook)
            case "SubagentStop":
                return await self._subagent_stop(ask, hook)
            case _:  # SubagentStart has begun the run above; of any other nothing is wanted
                return Reply({})

    # ------------------------------------------------------------ events

    async def _prompt(self, ask: Ask, hook: HookCall) -> Reply:
        if hook.run is not None:  # its parent asked it: no person spoke, and the session's state is its own
            return await self._mail(ask, hook, "prompt")
        text = hook.members.get("prompt", "")
        is_ours = bool((await ask("host.seen", text=text))["ours"])
        if not is_ours and not text.lstrip().startswith(MACHINE_MADE):
            self._continued_count = 0
            await ask("host.user_prompt")
        await self._state(ask, is_busy=True, model=await _model(hook))
        return await self._mail(ask, hook, "tool" if is_ours else "prompt")

    async def _stop(self, ask: Ask, hook: HookCall) -> Reply:
        await self._answer(ask, hook)
        if self._continued_count < CONTINUED_MAX:
            reply = await self._mail(ask, hook, "turn_end")
            if reply.result:
                self._continued_count += 1
                return reply
        self._continued_count = 0
        await self._state(ask, is_busy=False, model=await _model(hook))
        return Reply({})

    async def _subagent_stop(self, ask: Ask, hook: HookCall) -> Reply:
        run = hook.run
        if run is None or run not in self._runs:
            return Reply({})
        await self._answer(ask, hook)
        reply = await self._mail(ask, hook, "turn_end")
        if reply.taken is None:
            self._runs.discard(run)
            own = run.partition(AGAIN)[0]
            self._ended[own] = self._ended.get(own, 0) + 1
            await ask("host.run_end", run=run)
            return Reply({})
        return reply

    async def _begin(self, ask: Ask, run: str) -> None:
        if run not in self._runs:
            self._runs.add(run)
            await ask("host.run_begin", run=run)

    def _name(self, own: str) -> str:
        """Return the run that a subagent's id stands for now: one that was asked again is another run."""
        count = self._ended.get(own, 0)
        return f"{own}{AGAIN}{count + 1}" if count else own

    def _note_call(self, hook: HookCall) -> None:
        call = hook.members.get("call")
        if call is not None and hook.run is not None:
            self._calls[call] = hook.run
            while len(self._calls) > CALLS_MAX:
                self._calls.popitem(last=False)

    async def _answer(self, ask: Ask, hook: HookCall) -> None:
        text = hook.members.get("answer", "")
        if text:
            self._answer_count += 1
            await ask("host.answer", entry=f"turn-{self._answer_count}", text=text, run=hook.run)

    async def _state(self, ask: Ask, *, is_busy: bool, model: str = "") -> None:
        if (is_busy, model or self._model) == (self._is_busy, self._model):
            return
        self._is_busy, self._model = is_busy, model or self._model
        await ask("host.state", busy=is_busy, model=self._model or None)

    # ------------------------------------------------------------ answers

    async def _mail(self, ask: Ask, hook: HookCall, kind: str) -> Reply:
        """Return the answer that brings what waits, `{}` where nothing does."""
        try:
            shown = await ask(
                "host.boundary", kind=kind, run=hook.run, bytesMax=TEXT_BYTES_MAX, evidenceMs=EVIDENCE_MS
            )
        except Refused as refusal:
            if refusal.code == "RESOURCE_BUSY":  # another reader has it
                return Reply({})
            raise
        if not shown["text"]:
            return Reply({})
        answer = self._form(hook.event, shown["text"])
        if shown["senders"]:
            answer["systemMessage"] = f"Tieline: mail from {', '.join(shown['senders'])}"
        return Reply(answer, shown["token"])

    def _form(self, event: str, text: str) -> dict[str, Any]:
        if event == "SubagentStop" or (event == "Stop" and self.is_codex):
            return {"decision": "block", "reason": text}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


class HookOperations:
    """Serves one hook in the place of the root's operations."""

    def __init__(self, hooks: Hooks, hook: HookCall, operations: Operations) -> None:
        self._hooks, self._hook, self._operations = hooks, hook, operations

    async def call(self, actor: Any, _method: str, _params: object, *, call_id: str | None = None) -> Reply:  # noqa: ARG002 - a hook has no id
        """Carry out the hook."""
        return await self._hooks.take(self._hook, self._operations, actor)

    async def flushed(self, token: str) -> int:
        """The answer is with the harness; the evidence comes later."""
        self._hooks.carried(self._hook.run, token)
        return 0

    async def unflushed(self, token: str) -> int:
        """The answer was lost: its mail waits for the next boundary."""
        return await self._operations.unflushed(token)


async def _model(hook: HookCall) -> str:
    """Return the session's model, as the hook or the record that it names tells; "" where neither does."""
    told = hook.members.get("model", "")
    record = hook.members.get("transcript", "")
    return told or (await asyncio.to_thread(last_model, record) if record else "")


def _says(value: str) -> bool:
    return value != "" and not (value.startswith("${") and value.endswith("}"))
