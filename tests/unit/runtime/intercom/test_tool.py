"""The tool: what each action takes, waits for, and truly says."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.intercom.kit import intercom_of, station, tool, until
from tests.unit.runtime.roots import call
from tieline.errors import Refused
from tieline.runtime.intercom import roster as roster_module
from tieline.runtime.intercom import tool as tool_module
from tieline.runtime.intercom.connecting import connect
from tieline.runtime.node import Node
from tieline.runtime.options import RootOptions
from tieline.runtime.root import Root

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("intercom-113")
@pytest.mark.parametrize(
    "fields",
    [
        {"action": "send", "to": "x"},
        {"action": "send", "message": "x"},
        {"action": "ask", "to": "x", "message": "x", "delivery": "passive"},
        {"action": "reply", "message": "x", "delivery": "passive"},
        {"action": "send", "to": "x", "message": "x", "queueMode": "replace", "threadId": "t"},
        {"action": "send", "to": "x", "message": "x", "delivery": "queue", "queueMode": "replace"},
        {"action": "send", "to": "x", "message": "x", "delivery": "queue", "threadId": "t"},
        {
            "action": "ask", "to": "x", "message": "m", "delivery": "queue", "queueMode": "replace",
            "threadId": " ",
        },
        {"action": "reply", "message": "x", "queueMode": "stack"},
        {"action": "last"},
        {"action": "last", "to": "x", "offset": -1},
        {"action": "list", "entryId": "e"},
        {"action": "dance"},
    ],
)  # fmt: skip
async def test_fields_that_an_action_does_not_take_are_refused(
    private_home: Path, fields: dict[str, Any]
) -> None:
    """Before anybody is looked for, and with nothing stored."""
    async with station(private_home) as at:
        root = await at.root("api", is_joined=False)
        with pytest.raises(Refused) as caught:
            await call(root, "intercom", **fields)
        assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.clause("intercom-115", "intercom-116")
async def test_list_and_status_say_what_sessions_say(private_home: Path) -> None:
    """Alone there is advice; then state, questions and project; the scope filters and hides nobody."""
    async with station(private_home) as at:
        root = await at.root("api")
        alone = await tool(root, "list")
        assert (alone["sessionCount"], "start another" in alone["text"]) == (0, True)
        other = await at.root("other")
        await call(other, "host.state", busy=True)
        status = await tool(root, "status")
        assert (status["connected"], status["brokers"][0]["connected"]) == (True, True)
        (row,) = status["sessions"]
        assert (row["state"], row["acceptsAsks"], row["pendingAsks"], row["sameProject"]) == (
            "busy",
            False,
            0,
            True,
        )
        assert "accepts_asks:false" in status["text"]
        assert status["self"][0]["sessionId"] == intercom_of(root).peer
        assert len((await tool(root, "list", scope="project"))["sessions"]) == 1


@pytest.mark.clause("intercom-93")
async def test_question_without_an_answer_is_pending_and_its_answer_comes_as_mail(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends below every host's limit, names the id, and asks nothing again."""
    monkeypatch.setattr(tool_module, "ASK_WAIT_MS", 100)
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        told = await tool(one, "ask", to="other", message="slow?")
        assert told["status"] == "pending"
        assert told["messageId"] in told["text"]
        await tool(other, "reply", message="at last")
        found = await call(one, "peer_messages", replyTo=told["messageId"], waitMs=5_000)
        assert [item["content"] for item in found["messages"]] == ["at last"]


@pytest.mark.clause("intercom-94")
async def test_cancelled_question_frees_its_place(private_home: Path) -> None:
    """The wait ends, the slot is free, and the next question is asked."""
    async with station(private_home) as at:
        one, other = await at.root("one"), await at.root("other")
        asking = asyncio.create_task(tool(one, "ask", to="other", message="first?"))
        await other.inbox(wait_s=5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        asking = asyncio.create_task(tool(one, "ask", to="other", message="second?"))
        asks = intercom_of(other).asks
        await until(lambda: asking.done() or len(asks.waiting(0)) == 2)
        assert not asking.done(), asking.exception()
        await tool(other, "reply", message="yes", replyTo=asks.waiting(0)[1].message_id)
        assert (await asking)["status"] == "answered"


@pytest.mark.clause("intercom-87", "intercom-105", "intercom-106")
async def test_reply_without_a_name_means_the_first_question_of_the_turn(private_home: Path) -> None:
    """Two questions in one batch: the first is the implicit one, the second stays pending."""
    async with station(private_home) as at:
        one, two, me = await at.root("one"), await at.root("two"), await at.root("me")
        first = await one.node.operations.call(
            one.operations.root_actor, "local.send", {"to": "me", "content": "first?", "ask": True}
        )
        second = await two.node.operations.call(
            two.operations.root_actor, "local.send", {"to": "me", "content": "second?", "ask": True}
        )
        await until(lambda: len(intercom_of(me).asks.waiting(0)) == 2)
        with pytest.raises(Refused, match="Multiple pending asks"):
            await tool(me, "reply", message="which?")
        await call(me, "host.state", busy=True)
        token = (await call(me, "host.boundary", kind="prompt"))["token"]
        await call(me, "host.taken", token=token)
        answered = await tool(me, "reply", message="to the first")
        waiting = (await tool(me, "pending"))["asks"]
        ids = {answered["replyTo"], waiting[0]["replyTo"]}
        assert ids == {first.result["receipts"][0]["messageId"], second.result["receipts"][0]["messageId"]}
        assert [one["preview"] for one in waiting] == ["second?"]


async def test_names_of_sessions_reach_a_line_of_ours_escaped_and_bounded(private_home: Path) -> None:
    """No name turns the line around, begins another, or fills the model's context."""
    async with station(private_home) as at:
        root = await at.root("api")
        odd = "x\u202e\u2028" + "y" * 100_000
        session = {"name": odd, "cwd": "/" + odd, "model": odd, "rootSessionId": "r", "incarnation": "i"}
        async with await connect(spawn=False, session=session, environment=at.environment):
            listed = await tool(root, "list")
            assert listed["text"].startswith(r"- x\u202e\u2028y")
            assert (len(listed["text"]) < 600, "\u202e" in listed["text"]) == (True, False)
            assert len(listed["sessions"][0]["name"]) <= 256
            sent = await tool(root, "send", to=listed["sessions"][0]["target"], message="hi")
            assert "\u202e" not in sent["text"]


async def test_message_of_a_wrong_form_is_refused_with_what_to_correct(private_home: Path) -> None:
    """What the wire does not take is the sender's to correct; the same id again would not help."""
    async with station(private_home) as at:
        root = await at.root("api")
        await at.root("other")
        nameless = {"attachments": [{"type": "file", "name": "", "content": "x"}]}
        for fields in ({"message": "a\x01b"}, {"message": "x", **nameless}):
            with pytest.raises(Refused) as caught:
                await tool(root, "send", to="other", **fields)
            assert (caught.value.code, caught.value.is_retryable) == ("INVALID_PARAMS", False)
            assert "control characters" in caught.value.action


async def test_who_only_looks_waits_for_no_broker_longer_than_a_second(private_home: Path) -> None:
    """An owner of the socket that says nothing costs a turn a second, and it is said that we are not in."""
    (private_home / "i").mkdir(mode=0o700)
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(str(private_home / "i" / "broker.sock"))
    silent.listen()
    environment = {
        **os.environ,
        "PI_INTERCOM_RUNTIME_DIR": str(private_home / "i"),
        "TIELINE_INTERCOM_ENABLED": "true",
    }
    options = RootOptions(home=str(private_home / "h"), workspace=str(private_home), session="s", host_pid=1)
    root = Root(await Node.open(options, environment))
    try:
        for action in ("list", "status"):
            began = time.monotonic()
            with pytest.raises(Refused, match="Intercom not connected") as caught:
                await tool(root, action)
            assert caught.value.code == "PEER_OFFLINE"
            assert time.monotonic() - began < roster_module.LOOK_SECONDS_MAX / 2
        assert (await tool(root, "pending"))["asks"] == []
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(Refused, match="Intercom not connected"):
                await tool(root, "send", to="bob", message="there?")
        assert time.monotonic() - began < roster_module.LOOK_SECONDS_MAX, "it was silent before"
    finally:
        await root.close()
        silent.close()


async def test_list_that_a_broker_did_not_answer_is_not_called_empty(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as last listed, and says so; nobody is told to be alone by a silence."""
    async with station(private_home) as at:
        one = await at.root("one")
        assert (await tool(one, "list"))["text"] == tool_module.ALONE
        monkeypatch.setattr(tool_module, "GLANCE_SECONDS_MAX", 0.3)
        monkeypatch.setattr(roster_module, "GLANCE_SECONDS_MAX", 0.1)
        waiting: list[Callable[[], None]] = []
        monkeypatch.setattr(intercom_of(one).post, "look", waiting.append)
        assert (await tool(one, "list"))["text"] == tool_module.STALE
        began = time.monotonic()
        with pytest.raises(Refused):
            await tool(one, "send", to="bob", message="there?")
        assert time.monotonic() - began < roster_module.LOOK_SECONDS_MAX / 2, "one wait in vain is enough"
        waiting[-1]()
        assert intercom_of(one).roster._patience(5.0) == 5.0, "it speaks again"
