"""What the model does: a token in the user's text picks a script, and the tool results tell how far it is.

Rule 1: the next step is computed from the request alone, so a request that a program repeats, or sends
a second time for a title or a summary, moves nothing on.
Rule 2: a call of a tool that is not offered is said in the answer's text, never invented: the test then
fails with the sentence that names what was offered.
Rule 3: arguments that cannot be made are said the same way, with the reason.
Rule 4: without a token the model says `IDLE_TEXT`.

Source: reference/harnesses.md 1.
"""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.harness.model.conversation import Conversation, Tool

__all__ = ["IDLE_TEXT", "Call", "Reply", "Say", "Scripts", "Step"]

IDLE_TEXT = "Understood."
HELD_SECONDS_MAX = 120.0


class Call(NamedTuple):
    """Call one tool. Arguments that depend on what was shown are made by a function of it.

    Attributes:
        tool: The tool's name without what the program puts before it.
        arguments: As an object, or a function of the conversation that returns it.
        until: The answer is held back until this is set, at most `HELD_SECONDS_MAX`.
    """

    tool: str
    arguments: Mapping[str, Any] | Callable[[Conversation], Mapping[str, Any]] = MappingProxyType({})
    until: threading.Event | None = None


class Say(NamedTuple):
    """End the turn with a text."""

    text: str
    until: threading.Event | None = None


Step = Call | Say


class Reply(NamedTuple):
    """What the model answers to one request: a text, or one call; `is_wrong` where no script foresaw it."""

    text: str = ""
    tool: Tool | None = None
    arguments: Mapping[str, Any] = MappingProxyType({})
    is_wrong: bool = False


class Scripts:
    """The scripts of one model."""

    def __init__(self) -> None:
        self._scripts: dict[str, tuple[Step, ...]] = {}
        self.summaries: threading.Event | None = None
        """Holds back what is asked without tools, as a summary is, at most `HELD_SECONDS_MAX`."""

    def add(self, token: str, *steps: Step) -> None:
        """From now on a text of the user that holds `token` starts these steps."""
        self._scripts[token] = steps

    def next(self, seen: Conversation) -> Reply:
        """Return the answer to a request, once its step may be taken."""
        if not seen.tools:
            # A title, a summary, a probe: the program's own business.
            if self.summaries is not None:
                self.summaries.wait(HELD_SECONDS_MAX)
            return Reply(IDLE_TEXT)
        begun = {token: seen.last_user_with(token) for token in self._scripts}
        token = max(begun, key=lambda name: begun[name], default="")
        if not token or begun[token] < 0:
            return Reply(IDLE_TEXT)
        steps, done = self._scripts[token], len(seen.results(begun[token]))
        if done >= len(steps):
            return Reply(IDLE_TEXT)
        step = steps[done]
        if step.until is not None:
            step.until.wait(HELD_SECONDS_MAX)
        return Reply(step.text) if isinstance(step, Say) else _called(step, seen)


def _called(step: Call, seen: Conversation) -> Reply:
    tool = seen.tool(step.tool)
    if tool is None:
        offered = ", ".join(sorted(tool.full_name for tool in seen.tools))
        return Reply(f"the tool {step.tool} is not offered; offered are: {offered}", is_wrong=True)
    if not callable(step.arguments):
        return Reply("", tool, step.arguments)
    try:
        return Reply("", tool, step.arguments(seen))
    except (AssertionError, LookupError) as error:
        return Reply(f"the arguments of {step.tool} cannot be made: {error!r}", is_wrong=True)
