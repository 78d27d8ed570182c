"""The Python API over real sockets and a real journal."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused, Root, UsageError
from tieline.model.identity import Peer

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("native-69", "native-90", "native-101", "native-1", "native-4")
async def test_root_sends_and_the_other_has_it_until_consumed(private_home: Path) -> None:
    """Accepted means stored there; a preview leaves it; consuming tells the sender."""
    async with two(private_home) as (alice, bob):
        receipt = await alice.send("bob", "hello", topic="greeting")
        assert (receipt["state"], receipt["durability"]) == ("accepted", "synced")
        preview = await bob.inbox()
        for _ in range(2):
            assert await bob.inbox() == preview
            assert [message.content for message in preview] == ["hello"]
        assert preview[0].sender == Peer(alice.node.instance).id
        assert preview[0].from_alias == "alice"
        assert len(await bob.inbox(consume=True)) == 1
        assert await bob.inbox() == []
        status = await _until(alice, receipt["messageId"], "consumed")
        assert [event["state"] for event in status["sent"][0]["history"]] == [
            "pending",
            "accepted",
            "consumed",
        ]


async def test_root_is_opened_by_await_as_by_async_with(private_home: Path) -> None:
    """Both forms give the same root, a task may carry it, and the block closes it."""
    where = {"home": str(private_home / "h"), "workspace": str(private_home)}
    async with Root.open(alias="a", **where) as entered:
        assert entered.who()["alias"] == "a"
        awaited = await Root.open(alias="b", **where)
        in_task = await asyncio.get_running_loop().create_task(Root.open(alias="c", **where))
        async with await Root.open(alias="d", **where) as both:
            assert {peer["alias"] for peer in await both.peers()} == {"a", "b", "c"}
        assert {peer["alias"] for peer in await entered.peers()} == {"b", "c"}
        await awaited.close()
        await in_task.close()
    assert entered.node.is_closing


async def test_root_that_does_not_open_is_refused_at_the_block(private_home: Path) -> None:
    """A wrong setting is raised before the block begins, and nothing is left to close."""
    with pytest.raises(UsageError):
        async with Root.open(alias="1 wrong", home=str(private_home / "h")):
            raise AssertionError("the block must not begin")
    Root.open(home=str(private_home / "h")).close()


@pytest.mark.clause("native-107", "native-108", "I27")
async def test_root_asks_and_gets_the_correlated_reply(private_home: Path) -> None:
    """An ask returns the reply to it and nothing else; the question becomes replied."""
    async with two(private_home) as (alice, bob):

        async def answer() -> None:
            await alice_noise()
            question = (await bob.inbox(wait_s=10, consume=True, asks=True))[0]
            assert question.ask
            await bob.reply(question.message_id, "42")

        async def alice_noise() -> None:
            await bob.send("alice", "unrelated")

        task = asyncio.get_running_loop().create_task(answer())
        reply = await alice.ask("bob", "what?", timeout_s=10)
        await task
        assert reply is not None
        assert reply.content == "42"
        assert reply.reply_to is not None
        await _until(alice, reply.reply_to, "replied")
        assert [message.content for message in await alice.inbox()] == ["unrelated"]


@pytest.mark.clause("I27")
async def test_root_ask_without_an_answer_is_none(private_home: Path) -> None:
    """A timeout is not an answer, and the question stays where it is."""
    async with two(private_home) as (alice, bob):
        assert await alice.ask("bob", "anyone?", timeout_s=0.2) is None
        assert len(await bob.inbox(asks=True)) == 1


@pytest.mark.clause("O03", "native-210", "native-211", "native-30")
@pytest.mark.parametrize("target", ["bo", "bob ", "", "*", "4711", "/w", "peer-" + "0" * 32, "nobody"])
async def test_root_send_to_a_wrong_name_stores_nothing(private_home: Path, target: str) -> None:
    """A misspelt name is a typed no; no intent is stored and nothing arrives later."""
    async with two(private_home) as (alice, bob):
        with pytest.raises(Refused) as caught:
            await alice.send(target, "x")
        assert caught.value.code == "UNKNOWN_TARGET"
        assert alice.node.engine.outbox(Peer(alice.node.instance)) == ()
        assert await bob.inbox() == []


@pytest.mark.clause("native-83", "native-84", "native-146")
async def test_root_of_another_workspace_is_neither_seen_nor_reached(private_home: Path) -> None:
    """Workspace scope: another directory's root is not listed and not a target."""
    async with two(private_home) as (alice, _bob):
        other_place = private_home / "other"
        other_place.mkdir()
        async with await Root.open(
            home=str(private_home / "h"), workspace=str(other_place), alias="carol"
        ) as carol:
            assert [peer["alias"] for peer in await alice.peers()] == ["bob"]
            assert await carol.peers() == []
            with pytest.raises(Refused) as caught:
                await carol.send("bob", "x")
            assert caught.value.code == "SCOPE_DENIED"
            with pytest.raises(Refused) as caught:
                await carol.peers(scope="machine")
            assert caught.value.code == "SCOPE_DENIED"


@pytest.mark.clause("native-93", "native-92", "native-95", "I22", "I21")
async def test_root_send_with_the_same_id_is_the_same_message(private_home: Path) -> None:
    """The id is the idempotency key; a changed text under it conflicts; a new send is a new message."""
    async with two(private_home) as (alice, bob):
        first = await alice.send("bob", "one", message_id="m-1")
        again = await alice.send("bob", "one", message_id="m-1")
        assert again["acceptedAt"] == first["acceptedAt"]
        with pytest.raises(Refused) as caught:
            await alice.send("bob", "two", message_id="m-1")
        assert caught.value.code == "MESSAGE_ID_CONFLICT"
        await alice.send("bob", "one")
        assert [message.content for message in await bob.inbox()] == ["one", "one"]


async def test_root_reply_to_an_unknown_id_is_refused(private_home: Path) -> None:
    """A reply names a message that was received here."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(Refused) as caught:
            await alice.reply("no-such", "x")
        assert caught.value.code == "INVALID_REPLY"


@pytest.mark.clause("native-182", "native-183", "native-184", "native-185", "O10")
async def test_root_recovers_an_ended_instance_for_review_only(private_home: Path) -> None:
    """Mail of a live instance is not shown; of an ended one it is, with its id, and nothing moves."""
    async with two(private_home) as (alice, bob):
        receipt = await alice.send("bob", "survive", message_id="m-1")
        instance = bob.node.instance
        with pytest.raises(Refused) as caught:
            await alice.recover(instance)
        assert caught.value.code == "STILL_ALIVE"
        await bob.close()
        for _ in range(2):
            found = await alice.recover(instance)
            assert [item.envelope.message_id for item in found.unread] == ["m-1"]
            assert found.unread[0].envelope.content == "survive"
        assert receipt["state"] == "accepted"
        assert await alice.inbox() == []


@pytest.mark.clause("native-28", "native-29", "native-68", "native-110", "native-109", "S15")
async def test_run_of_a_root_is_listed_addressed_and_ended(private_home: Path) -> None:
    """A child run gets mail of its own; after its end senders are told TARGET_ENDED."""
    async with two(private_home) as (alice, bob):
        run = await call(bob, "host.run_begin", run="r-1", alias="kid")
        listed = {peer["alias"]: peer for peer in await alice.peers()}
        assert listed["kid"]["kind"] == "run"
        assert listed["kid"]["peerId"] == run["peerId"] == Peer(bob.node.instance, "r-1").id
        await alice.send("kid", "for the run")
        assert await bob.inbox() == []
        mail = await call(bob, "peer_messages", run=run["token"])
        assert [message["content"] for message in mail["messages"]] == ["for the run"]
        await call(bob, "host.run_end", run="r-1")
        with pytest.raises(Refused) as caught:
            await alice.send(run["peerId"], "late")
        assert caught.value.code in {"TARGET_ENDED", "UNKNOWN_TARGET"}
        with pytest.raises(Refused) as caught:
            await call(bob, "host.run_begin", run="r-1")
        assert caught.value.code == "TARGET_ENDED"
        with pytest.raises(Refused) as caught:
            await call(bob, "peer_messages", run=run["token"])
        assert caught.value.code == "TARGET_ENDED"


async def _until(root: Root, message_id: str, state: str) -> dict:  # type: ignore[type-arg]
    """Return the status once the message is in `state`."""
    status = await root.status(message_id)
    for _ in range(200):
        status = await root.status(message_id)
        if status["sent"][0]["receipt"]["state"] == state:
            return status
        await asyncio.sleep(0.02)
    raise AssertionError(f"{message_id} is not {state}: {status}")


@pytest.mark.clause("I30", "O21")
async def test_asks_of_two_roots_to_each_other_never_both_wait(private_home: Path) -> None:
    """Of crossing questions exactly one gives way at once; asking back is refused."""
    async with two(private_home) as (alice, bob):
        for _ in range(5):
            ended = await asyncio.gather(_contend(alice, "bob"), _contend(bob, "alice"))
            assert sorted(ended) == ["answered", "gave way"]
        question = asyncio.get_running_loop().create_task(alice.ask("bob", "waiting?", timeout_s=3))
        waiting = (await bob.inbox(wait_s=3, asks=True))[0]
        with pytest.raises(Refused, match="reply to it first") as caught:
            await bob.ask("alice", "what do you mean?", timeout_s=3)
        assert caught.value.code == "RESOURCE_BUSY"
        await bob.reply(waiting.message_id, "answer")
        reply = await question
        assert reply is not None
        assert reply.content == "answer"


async def _contend(root: Root, other: str) -> str:
    """Ask the other at the same moment; whoever gives way answers the question that stands."""
    try:
        reply = await root.ask(other, "first?", timeout_s=5)
    except Refused as refused:
        if refused.code != "RESOURCE_BUSY":
            raise
        question = (await root.inbox(wait_s=3, consume=True, asks=True))[0]
        await root.reply(question.message_id, "yes")
        return "gave way"
    assert reply is not None
    return "answered"
