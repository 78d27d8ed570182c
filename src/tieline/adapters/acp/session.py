"""One session of the agent and its root: busy from the prompt in flight, mail in prompts of ours when idle.

Rule 1: no prompt of ours while one is in flight, and none of the client's while ours is: many agents cancel
a running turn for a second prompt. The client's waits here until ours has ended.
Rule 2: mail counts as read when the agent shows that it works on our prompt, or has answered it; where it
refused the prompt, the mail waits again.
Rule 3: after a turn that the client cancelled nothing begins by itself until the client prompts.
Rule 4: an event never precedes the answer that made the session.

Source: reference/harnesses.md 9, 11; reference/native.md 1M, 4.3; DESIGN.md 3.
"""

import itertools
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tieline.adapters.acp import frames
from tieline.adapters.stdio.calls import Root
from tieline.errors import Refused, TielineError

__all__ = ["Session"]

EVIDENCE_MS: Final = 3_600_000
ANSWER_CHARACTERS_MAX: Final = 1_048_576

Write = Callable[[bytes], Coroutine[Any, Any, None]]
Start = Callable[[Coroutine[Any, Any, None]], None]


class Session:
    """One session."""

    _own_numbers = itertools.count(1)

    def __init__(self, root: Root, to_agent: Write, to_client: Write, start: Start) -> None:
        """Serve the session behind `root`; `start` runs what nobody waits for."""
        self.root = root
        self.id = ""
        self.is_announced = False
        self._to_agent, self._to_client, self._start = to_agent, to_client, start
        self._prompts: set[str] = set()
        self._held: list[tuple[object, bytes]] = []
        self._own = ""
        self._token: str | None = None
        self._text: list[str] = []
        self._answer_count = 0
        self._is_cancelled = False
        self._is_asking = False
        self.takes_events = False
        self._unsubscribe = root.operations.subscribe(self._told)

    @property
    def is_busy(self) -> bool:
        """Whether a prompt is in flight."""
        return bool(self._prompts or self._own)

    async def announce(self, session: str) -> None:
        """The client has the answer that made it: let others find it."""
        self.id = session
        self.is_announced = True
        await self.root.publish(session=session)

    async def close(self) -> None:
        """End its root."""
        self._unsubscribe()
        await self.root.close()

    # --- what the client says -----------------------------------------------------------------

    async def prompted(self, request_id: object, data: bytes) -> None:
        """The client prompts: at once, or when our own prompt has ended."""
        if self._own:
            self._held.append((request_id, data))
            return
        self._prompts.add(frames.key(request_id))
        self._is_cancelled = False
        self._text.clear()
        # The agent has it first: a root that is slow or gone holds nobody up.
        await self._to_agent(data)
        self._start(self._began())

    async def cancel(self, data: bytes) -> None:
        """The client cancels: what it prompted and the agent has not, is answered here."""
        self._is_cancelled = True
        held, self._held = self._held, []
        await self._to_agent(data)
        for request_id, _data in held:
            await self._to_client(frames.cancelled(request_id))

    async def _began(self) -> None:
        await self._ask("host.user_prompt")
        await self.state(busy=True)

    async def state(self, **members: Any) -> None:
        """Tell the root."""
        await self._ask("host.state", **members)

    # --- what the agent says ------------------------------------------------------------------

    def owns(self, request_id: object) -> bool:
        """Return whether this answers our own prompt."""
        return self._own != "" and request_id == self._own

    def has(self, request_id: object) -> bool:
        """Return whether this answers a prompt of the client."""
        return frames.key(request_id) in self._prompts

    async def updated(self, update: dict[str, Any]) -> None:
        """The agent works on the prompt in flight."""
        if self._own:
            await self._settle("host.taken")
        text = frames.text_of(update)
        if text and sum(map(len, self._text)) < ANSWER_CHARACTERS_MAX:
            self._text.append(text)

    async def answered(self, frame: dict[str, Any]) -> None:
        """A prompt has ended: keep its answer, then the client's next, or mail, or be idle."""
        result = frame.get("result")
        if self.owns(frame.get("id")):
            self._own = ""
            await self._settle("host.taken" if isinstance(result, dict) else "host.refused")
        self._prompts.discard(frames.key(frame.get("id")))
        text, reason = "".join(self._text), frames.object_of(frame, "result").get("stopReason")
        self._text.clear()
        if text and reason == "end_turn":
            self._answer_count += 1
            await self._ask("host.answer", entry=f"turn-{self._answer_count}", text=text)
        held, self._held = self._held, []
        for request_id, data in held:
            await self.prompted(request_id, data)
        if self.is_busy:
            return
        if self._is_cancelled or reason == "cancelled":
            await self.state(busy=False, paused="cancelled")
        elif not (isinstance(result, dict) and await self._mailed()) and not self.is_busy:
            await self.state(busy=False)

    # --- mail ---------------------------------------------------------------------------------

    def _told(self, kind: str, params: dict[str, Any]) -> None:
        if kind == "wake":
            self._start(self._woken())
        elif self.takes_events and self.is_announced:
            told = params.get("event", params)
            self._start(self._to_client(frames.event(kind, self.id, told)))

    async def _woken(self) -> None:
        # What came to a busy agent is looked at when its turn ends.
        if not self.is_busy and not self._is_cancelled:
            await self._mailed()

    async def _mailed(self) -> bool:
        """Begin a turn with the mail that waits; return whether one began."""
        if self._is_asking or not self.id:
            return False
        self._is_asking = True
        try:
            mail = await self._ask("host.boundary", kind="turn_end", evidenceMs=EVIDENCE_MS)
        finally:
            self._is_asking = False
        if not mail.get("text"):
            return False
        self._token = mail.get("token")
        if self.is_busy or self._is_cancelled:  # the client was faster: its turn's end asks again
            await self._settle("host.refused")
            return False
        self._own = f"tieline-{next(self._own_numbers)}"
        self._text.clear()
        await self._to_agent(frames.prompt(self._own, self.id, mail["text"]))
        await self.state(busy=True)
        return True

    async def _settle(self, method: str) -> None:
        token, self._token = self._token, None
        if token is not None:
            await self._ask(method, token=token)

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return what the root says; {} where it refuses: the agent's own work goes on without it."""
        operations = self.root.operations
        try:
            reply = await operations.call(operations.root_actor, method, params)
        except TielineError:
            return {}
        found: dict[str, Any] = reply.result
        return found

    async def events_after(self, request_id: object, after: str) -> bytes:
        """Return the answer to a client that asks which events it missed."""
        try:
            operations = self.root.operations
            asked = {"after": after, "consume": False}
            reply = await operations.call(operations.root_actor, "peer_messages", asked)
        except Refused as error:
            told = {"code": -32602, "message": str(error), "data": {"code": error.code}}
            return frames.line({"jsonrpc": "2.0", "id": request_id, "error": told})
        result = {name: reply.result.get(name) for name in ("events", "cursor", "gap")}
        return frames.line({"jsonrpc": "2.0", "id": request_id, "result": {"version": 1, **result}})
