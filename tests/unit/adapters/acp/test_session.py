"""One session: never two prompts at once, mail when idle, and evidence for it."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.unit.adapters.fake_root import FakeReply, FakeRoot
from tieline.adapters.acp import frames
from tieline.adapters.acp.session import Session

pytestmark = pytest.mark.asyncio
UPDATE = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "done"}}


class Ends:
    """Both ends of a session, and its root."""

    def __init__(self) -> None:
        self.agent: list[dict[str, Any]] = []
        self.client: list[dict[str, Any]] = []
        self.mail = ["mail"]
        self.root = FakeRoot()
        self._work: list[asyncio.Task[None]] = []
        for method in ("host.state", "host.answer", "host.user_prompt", "host.taken", "host.refused"):
            self.root.operations.answers[method] = self._nothing
        self.root.operations.answers["host.boundary"] = self.boundary
        self.session = Session(self.root, self._to_agent, self._to_client, self._start)

    async def _nothing(self, _params: object) -> FakeReply:
        return FakeReply({})

    async def boundary(self, _params: object) -> FakeReply:
        text = self.mail.pop() if self.mail else ""
        return FakeReply({"text": text, "token": "t" if text else None})

    async def _to_agent(self, data: bytes) -> None:
        self.agent.append(json.loads(data))

    async def _to_client(self, data: bytes) -> None:
        self.client.append(json.loads(data))

    def _start(self, work: Awaitable[None]) -> None:
        self._work.append(asyncio.ensure_future(work))

    async def rest(self) -> None:
        """Let all that was begun end."""
        while self._work:
            await self._work.pop(0)

    def asked(self, method: str) -> list[Any]:
        """Return what the root was asked under this name."""
        return [params for _actor, name, params, _call in self.root.operations.asked if name == method]

    def wake(self) -> None:
        """Tell that mail waits."""
        for callback in self.root.operations.callbacks:
            callback("wake", {})


async def begun() -> Ends:
    ends = Ends()
    ends.session.id = "s"
    await ends.session.announce()
    return ends


def prompt(number: int) -> bytes:
    return frames.line({"jsonrpc": "2.0", "id": number, "method": "session/prompt", "params": {}})


async def test_idle_session_is_woken_and_its_mail_is_read_with_the_first_update() -> None:
    """The prompt is ours; its answer is for nobody else."""
    ends = await begun()
    ends.wake()
    await ends.rest()
    (own,) = ends.agent
    assert own["params"] == {"sessionId": "s", "prompt": [{"type": "text", "text": "mail"}]}
    assert ends.session.owns(own["id"])
    assert ends.asked("host.taken") == []
    ends.session.updated({"sessionUpdate": "usage_update"})
    await ends.rest()
    assert ends.asked("host.taken") == []
    ends.session.updated(UPDATE)
    await ends.rest()
    assert ends.asked("host.taken") == [{"token": "t"}]
    await ends.session.answered({"id": own["id"], "result": {"stopReason": "end_turn"}})
    assert ends.asked("host.taken") == [{"token": "t"}]
    assert ends.asked("host.answer") == [{"entry": "turn-1", "text": "done"}]
    assert ends.asked("host.state")[-1] == {"busy": False, "resumed": True}


async def test_busy_session_gets_its_mail_when_the_turn_ends() -> None:
    """A wake meanwhile begins nothing."""
    ends = await begun()
    await ends.session.prompted(1, prompt(1))
    ends.wake()
    await ends.rest()
    assert len(ends.agent) == 1
    assert ends.asked("host.user_prompt") == [{}]
    assert ends.session.has(1)
    await ends.session.answered({"id": 1, "result": {"stopReason": "end_turn"}})
    assert ends.agent[1]["params"]["prompt"][0]["text"] == "mail"


async def test_prompt_of_the_client_waits_for_the_end_of_ours() -> None:
    """The agent never has two."""
    ends = await begun()
    ends.wake()
    await ends.rest()
    await ends.session.prompted(2, prompt(2))
    assert len(ends.agent) == 1
    await ends.session.answered({"id": ends.agent[0]["id"], "result": {"stopReason": "end_turn"}})
    assert ends.agent[1]["id"] == 2


async def test_cancel_answers_what_was_held_and_begins_nothing_more() -> None:
    """The agent had never seen that prompt, so the answer is said here."""
    ends = await begun()
    ends.wake()
    await ends.rest()
    ends.mail = ["more"]
    await ends.session.prompted(2, prompt(2))
    await ends.session.cancel(b'{"method":"session/cancel"}\n')
    assert ends.client == [{"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "cancelled"}}]
    await ends.session.answered({"id": ends.agent[0]["id"], "result": {"stopReason": "cancelled"}})
    ends.wake()
    await ends.rest()
    assert ends.asked("host.state")[-1] == {"busy": False, "paused": "cancelled"}
    assert [one.get("method") for one in ends.agent] == ["session/prompt", "session/cancel"]


async def test_prompt_that_the_agent_refuses_gives_its_mail_back() -> None:
    """It waits for the next boundary; nothing is tried again at once."""
    ends = await begun()
    ends.wake()
    await ends.rest()
    ends.mail = ["mail"]
    await ends.session.answered({"id": ends.agent[0]["id"], "error": {"code": -1, "message": "no"}})
    assert ends.asked("host.refused") == [{"token": "t"}]
    assert len(ends.agent) == 1


async def test_events_come_after_the_sessions_answer_alone() -> None:
    """And only where they were asked for."""
    ends = Ends()
    (callback,) = ends.root.operations.callbacks
    ends.session.takes_events = True
    callback("peer_update", {"event": {"type": "message"}})
    await ends.rest()
    assert ends.client == []
    ends.session.id = "s"
    await ends.session.announce()
    callback("resource_update", {"event": {"type": "resource"}})
    await ends.rest()
    (told,) = ends.client
    assert told["method"] == "_tieline/resource_update"
    assert told["params"] == {"sessionId": "s", "version": 1, "event": {"type": "resource"}}


async def test_missed_events_that_cannot_be_told_are_an_error() -> None:
    """The root's refusal is the answer."""
    ends = await begun()
    await ends.session.events_after(4, "x")
    (told,) = ends.client
    assert (told["id"], told["error"]["data"]["code"]) == (4, "METHOD_NOT_FOUND")


async def test_prompt_that_waits_and_is_withdrawn_never_begins() -> None:
    """The agent has never heard of that request, so it is answered here; of others the agent is told."""
    ends = await begun()
    ends.wake()
    await ends.rest()
    await ends.session.prompted(2, prompt(2))
    assert not await ends.session.withdraw(3)
    assert await ends.session.withdraw(2)
    assert ends.client == [{"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "cancelled"}}]
    await ends.session.answered({"id": ends.agent[0]["id"], "result": {"stopReason": "end_turn"}})
    assert len(ends.agent) == 1


async def test_prompt_that_waits_is_answered_when_its_session_is_closed() -> None:
    """Who asked is not left without an answer."""
    ends = await begun()
    ends.wake()
    await ends.rest()
    await ends.session.prompted(2, prompt(2))
    await ends.session.close()
    assert [one["id"] for one in ends.client] == [2]
    assert ends.root.is_closed


async def test_mail_comes_also_behind_a_prompt_that_failed() -> None:
    """That the client's own failed says nothing of ours."""
    ends = await begun()
    await ends.session.prompted(1, prompt(1))
    await ends.session.answered({"id": 1, "error": {"code": -1, "message": "too many"}})
    assert [one["params"]["prompt"][0]["text"] for one in ends.agent[1:]] == ["mail"]


async def test_session_made_a_second_time_knows_what_is_in_flight() -> None:
    """Else the agent would be prompted while it works. Its root is the new one, and the former ends."""
    ends, again = await begun(), await begun()
    former = ends.root
    await ends.session.prompted(1, prompt(1))
    await ends.rest()
    ends.session.adopt(again.session)
    await again.session.close()
    assert former.is_closed
    again.wake()
    await ends.rest()
    assert len(ends.agent) == 1
    assert again.asked("host.state")[-1]["busy"] is True
    await ends.session.answered({"id": 1, "result": {"stopReason": "end_turn"}})
    assert [one["params"]["prompt"][0]["text"] for one in ends.agent[1:]] == ["mail"]
    assert again.asked("host.state")[-1]["busy"] is True
    assert not former.operations.callbacks


async def test_question_of_the_agent_pauses_until_every_one_is_answered() -> None:
    """Two tools may ask at one time; a turn that ended asks nothing."""
    ends = await begun()
    ends.mail = []
    await ends.session.prompted(1, prompt(1))
    for number in (7, 8):
        await ends.session.asks(number)
    await ends.session.permitted(7)
    assert ends.asked("host.state")[-1] == {"busy": True, "paused": "permission"}
    await ends.session.answered({"id": 1, "result": {"stopReason": "end_turn"}})
    assert ends.asked("host.state")[-1] == {"busy": False, "resumed": True}


async def test_cancel_of_an_idle_agent_rests_it_until_its_next_prompt() -> None:
    """The turn had just ended: a person who stops it wants no other one to begin."""
    ends = await begun()
    await ends.session.cancel(b'{"method":"session/cancel"}\n')
    ends.wake()
    await ends.rest()
    assert ends.asked("host.state")[-1] == {"busy": False, "paused": "cancelled"}
    assert len(ends.agent) == 1


async def test_mail_that_comes_while_the_root_looks_is_looked_for_again() -> None:
    """Its wake is the only one that the root tells."""
    ends = await begun()
    ends.mail = ["late", ""]

    async def slow(params: object) -> FakeReply:
        if len(ends.asked("host.boundary")) == 1:
            ends.wake()
            await asyncio.sleep(0)
        return await ends.boundary(params)

    ends.root.operations.answers["host.boundary"] = slow
    ends.wake()
    await ends.rest()
    assert [one["params"]["prompt"][0]["text"] for one in ends.agent] == ["late"]


async def test_long_answer_is_kept_up_to_its_bound() -> None:
    """However small the pieces are in which it comes."""
    ends = await begun()
    ends.mail = []
    await ends.session.prompted(1, prompt(1))
    content = {"type": "text", "text": "x" * 400_000}
    for _ in range(3):
        ends.session.updated({"sessionUpdate": "agent_message_chunk", "content": content})
    await ends.session.answered({"id": 1, "result": {"stopReason": "end_turn"}})
    assert [len(one["text"]) for one in ends.asked("host.answer")] == [1_048_576]
