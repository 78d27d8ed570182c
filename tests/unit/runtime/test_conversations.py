"""What a root and its peers said to each other, for a screen."""

from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused
from tieline.model.identity import Peer
from tieline.runtime import conversations

pytestmark = pytest.mark.asyncio


async def test_conversation_is_seen_from_both_ends_and_consumes_nothing(private_home: Path) -> None:
    """A question and its answer are two messages of one chain, with their receipts, texts and words."""
    async with two(private_home) as (alice, bob):
        sent = await alice.send("bob", "Is it green?", topic="build")
        (seen,) = (await call(bob, "local.conversations"))["messages"]
        assert (seen["isReceived"], seen["isUnread"], seen["content"]) == (True, True, "Is it green?")
        assert (seen["fromAlias"], seen["topic"], seen["chain"]) == ("alice", "build", sent["messageId"])
        assert [step["state"] for step in seen["steps"]] == ["accepted"]
        assert len(await bob.inbox()) == 1, "looking consumes nothing"
        await bob.reply(sent["messageId"], "It is.")
        (question, answer) = (await call(alice, "local.conversations"))["messages"]
        assert [step["state"] for step in question["steps"]][-1] == "replied"
        assert question["said"] == "The recipient replied."
        assert (question["isReceived"], question["content"]) == (False, "Is it green?")
        assert (answer["chain"], answer["replyTo"]) == (sent["messageId"], sent["messageId"])


async def test_conversation_after_cursor_has_what_changed(private_home: Path) -> None:
    """Only what moved behind the cursor comes again, with all of its steps."""
    async with two(private_home) as (alice, bob):
        one = await alice.send("bob", "one")
        await alice.send("bob", "two")
        first = await call(bob, "local.conversations")
        assert not first["remaining"]
        again = await call(bob, "local.conversations", after=first["cursor"])
        assert (again["messages"], again["cursor"], again["gap"]) == ([], first["cursor"], False)
        await bob.reply(one["messageId"], "done")
        moved = await call(bob, "local.conversations", after=first["cursor"])
        assert {item["content"] for item in moved["messages"]} == {"one", "done"}
        asked = next(item for item in moved["messages"] if item["content"] == "one")
        assert [step["state"] for step in asked["steps"]] == ["accepted", "replied"]
        with pytest.raises(Refused):
            await call(bob, "local.conversations", after="999999")


async def test_conversation_of_long_history_comes_in_portions(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one answer holds is read on from the cursor."""
    monkeypatch.setattr(conversations, "EVENTS_MAX", 2)
    async with two(private_home) as (alice, bob):
        for number in range(5):
            await alice.send("bob", f"n {number}")
        found, cursor = [], None
        while True:
            page = await call(bob, "local.conversations", after=cursor)
            found += [item["content"] for item in page["messages"]]
            cursor = page["cursor"]
            if not page["remaining"]:
                break
        assert found == [f"n {number}" for number in range(5)]
        assert Peer(bob.node.instance).id
