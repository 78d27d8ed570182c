"""One session of the agent and its root: busy from the prompt in flight, mail in prompts of ours when idle.

Rule 1: no prompt of ours while one is in flight, and none of the client's while ours is: many agents cancel
a running turn for a second prompt. The client's waits here until ours has ended.
Rule 2: mail counts as read when the agent shows that it works on our prompt, or has answered it; where it
refused the prompt, the mail waits again.
Rule 3: after a turn that the client cancelled nothing begins by itself until the client prompts.
Rule 4: an event never precedes the answer that made the session.
Rule 5: the root is told what holds when it is told, and after every change once more: two that tell at
one time cannot leave it with what held before.

Source: reference/harnesses.md 9, 11; reference/native.md 1M, 4.3; DESIGN.md 3.
"""

import asyncio
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
        self._permissions: set[str] = set()
        self._held: list[tuple[object, bytes]] = []
        self._own = ""
        self._token: str | None = None
        self._text: list[str] = []
        self._text_room = ANSWER_CHARACTERS_MAX
        self._answer_count = 0
        self._is_cancelled = False
        self._is_asking = self._is_asked_again = False
        self._telling = asyncio.Lock()
        self.takes_events = False
        self._unsubscribe = root.operations.subscribe(self._told)

    @property
    def is_busy(self) -> bool:
        """Whether a prompt is in flight."""
        return bool(self._prompts or self._own)

    @property
    def _may_begin(self) -> bool:
        """Whether a prompt of ours may begin."""
        return self.id != "" and not self.is_busy and not self._is_cancelled

    async def announce(self) -> None:
        """The client has the answer that made it: let others find it."""
        self.is_announced = True
        await self.root.publish(session=self.id)

    def serve(self, root: Root) -> None:
        """Be the session of this root from now on."""
        self._unsubscribe()
        self.root = root
        self._unsubscribe = root.operations.subscribe(self._told)

    def adopt(self, made_again: "Session") -> None:
        """Serve on behind the root of the same session made a second time, and leave it this one's.

        What the agent works on goes on. What the former root showed and nobody took stays with that root.
        """
        former = self.root
        self.serve(made_again.root)
        made_again.serve(former)
        self.takes_events, self.is_announced, self._token = made_again.takes_events, False, None
        self._start(self._tell())

    async def close(self) -> None:
        """End its root; what the agent was not given yet is answered."""
        self._unsubscribe()
        held, self._held = self._held, []
        for request_id, _data in held:
            await self._to_client(frames.cancelled(request_id))
        await self.root.close()

    # --- what the client says -----------------------------------------------------------------

    async def prompted(self, request_id: object, data: bytes) -> None:
        """The client prompts: at once, or when our own prompt has ended."""
        if self._own:
            self._held.append((request_id, data))
        else:
            await self._hand_on([(request_id, data)])

    async def cancel(self, data: bytes) -> None:
        """The client cancels: what it prompted and the agent has not, is answered here."""
        self._is_cancelled = True
        held, self._held = self._held, []
        await self._to_agent(data)
        for request_id, _data in held:
            await self._to_client(frames.cancelled(request_id))
        if not self.is_busy:
            self._start(self._tell())

    async def withdraw(self, request_id: object) -> bool:
        """The client wants one request no more; return whether it was a prompt that waited here."""
        kept = [one for one in self._held if frames.key(one[0]) != frames.key(request_id)]
        if len(kept) == len(self._held):
            return False
        self._held = kept
        await self._to_client(frames.cancelled(request_id))
        return True

    async def permitted(self, request_id: object) -> None:
        """The client has answered a question of the agent's."""
        self._permissions.discard(frames.key(request_id))
        await self._tell()

    async def _hand_on(self, prompts: list[tuple[object, bytes]]) -> None:
        """Give the agent prompts of the client, before anything that waits: a slow root holds nobody up."""
        self._prompts.update(frames.key(request_id) for request_id, _data in prompts)
        self._is_cancelled = False
        self._forget_text()
        await self._to_agent(b"".join(data for _id, data in prompts))
        self._start(self._began())

    async def _began(self) -> None:
        async with self._telling:
            await self._ask("host.user_prompt")
        await self._tell()

    async def _tell(self) -> None:
        """Tell the root whether it is busy, and whether something keeps it from being woken."""
        pause = "cancelled" if self._is_cancelled and not self.is_busy else None
        if self._permissions and self.is_busy:
            pause = "permission"
        told = {"resumed": True} if pause is None else {"paused": pause}
        await self._ask("host.state", busy=self.is_busy, **told)

    # --- what the agent says ------------------------------------------------------------------

    def owns(self, request_id: object) -> bool:
        """Return whether this answers our own prompt."""
        return self._own != "" and request_id == self._own

    def has(self, request_id: object) -> bool:
        """Return whether this answers a prompt of the client."""
        return frames.key(request_id) in self._prompts

    async def asks(self, request_id: object) -> None:
        """The agent asks the client for a permission."""
        self._permissions.add(frames.key(request_id))
        await self._tell()

    def updated(self, update: dict[str, Any]) -> None:
        """The agent tells of its work."""
        if self._own and frames.is_work(update):
            self._start(self._settle("host.taken", self._taken_token()))
        text = frames.text_of(update)[: self._text_room]
        if text:
            self._text.append(text)
            self._text_room -= len(text)

    async def answered(self, frame: dict[str, Any]) -> None:
        """A prompt has ended: keep its answer, then the client's next, or mail, or be idle."""
        is_own, is_taken = self.owns(frame.get("id")), isinstance(frame.get("result"), dict)
        reason, text = frames.end_of(frame), "".join(self._text)
        token, held = None, self._held
        if is_own:
            self._own, self._held, token = "", [], self._taken_token()
        self._prompts.discard(frames.key(frame.get("id")))
        self._forget_text()
        if not self.is_busy:
            self._permissions.clear()
            self._is_cancelled |= reason == "cancelled"
        if is_own and held:
            await self._hand_on(held)
        # What is told of a prompt that was handed on here comes behind what is told of this one.
        async with self._telling:
            await self._settle("host.taken" if is_taken else "host.refused", token)
            if text and reason == "end_turn":
                self._answer_count += 1
                await self._ask("host.answer", entry=f"turn-{self._answer_count}", text=text)
        # Idle first: mail that comes while we ask for mail wakes.
        await self._tell()
        if is_taken or not is_own:  # what it refused is not tried again at once
            await self._mailed()

    def _forget_text(self) -> None:
        self._text, self._text_room = [], ANSWER_CHARACTERS_MAX

    # --- mail ---------------------------------------------------------------------------------

    def _told(self, kind: str, params: dict[str, Any]) -> None:
        if kind == "wake":
            self._start(self._mailed())
        elif self.takes_events and self.is_announced:
            told = params.get("event", params)
            self._start(self._to_client(frames.event(kind, self.id, told)))

    async def _mailed(self) -> None:
        """Begin a turn with the mail that waits; a busy agent gets it when its turn ends."""
        self._is_asked_again = True
        if self._is_asking:
            return
        self._is_asking, root = True, self.root
        mail: dict[str, Any] = {}
        try:
            # Mail that comes while the root looks may come too late for that look.
            while self._may_begin and self._is_asked_again and not mail.get("text"):
                self._is_asked_again = False
                mail = await self._ask("host.boundary", kind="turn_end", evidenceMs=EVIDENCE_MS)
        finally:
            self._is_asking = False
        if not mail.get("text"):
            return
        if root is not self.root:
            self._start(self._mailed())
            return
        if not self._may_begin:  # the client was faster: its turn's end asks again
            await self._settle("host.refused", mail.get("token"))
            return
        self._own, self._token = frames.own_id(next(self._own_numbers)), mail.get("token")
        self._forget_text()
        await self._to_agent(frames.prompt(self._own, self.id, mail["text"]))
        await self._tell()

    def _taken_token(self) -> str | None:
        token, self._token = self._token, None
        return token

    async def _settle(self, method: str, token: str | None) -> None:
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

    async def events_after(self, request_id: object, after: str) -> None:
        """Answer a client that asks which events it missed."""
        try:
            operations = self.root.operations
            asked = {"after": after, "consume": False}
            reply = await operations.call(operations.root_actor, "peer_messages", asked)
        except Refused as error:
            told = {"code": -32602, "message": str(error), "data": {"code": error.code}}
            await self._to_client(frames.line({"jsonrpc": "2.0", "id": request_id, "error": told}))
            return
        result = {name: reply.result.get(name) for name in ("events", "cursor", "gap")}
        told = {"jsonrpc": "2.0", "id": request_id, "result": {"version": 1, **result}}
        await self._to_client(frames.line(told))
