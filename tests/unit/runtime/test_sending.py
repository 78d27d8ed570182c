"""From a wish to an intent, and to its strongest answer."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import Refused
from tieline.model.identity import Peer
from tieline.model.message import Attachment, Delivery
from tieline.model.receipt import State
from tieline.runtime.sending import Wish, settled, submit, wish_needs_tieline

pytestmark = pytest.mark.asyncio


async def test_wish_needs_a_tieline_end_only_for_what_others_cannot_be_told() -> None:
    """Topic, reply and an ask are in the public set; the rest is not."""
    plain = Wish(to="bob", content="x", topic="t", reply_to="m", is_ask=True, expiry_ms=1)
    assert not wish_needs_tieline(plain)
    for more in (
        {"delivery": Delivery.QUEUE},
        {"thread": "t"},
        {"replaces": True},
        {"notify_when_idle": True},
        {"attachments": (Attachment("a", "b"),)},
    ):
        assert wish_needs_tieline(Wish(to="bob", content="x", **more))  # type: ignore[arg-type]


@pytest.mark.clause("native-99", "native-30", "O03")
async def test_submit_stores_the_intent_and_names_the_exact_target(private_home: Path) -> None:
    """The first receipt is pending, with the intent on disk; a wrong name stores nothing."""
    async with two(private_home) as (alice, bob):
        own = Peer(alice.node.instance)
        target, receipt = await submit(alice.node, own, Wish(to="bob", content="x"))
        assert target.peer == Peer(bob.node.instance)
        assert receipt.state is State.PENDING
        with pytest.raises(Refused) as caught:
            await submit(alice.node, own, Wish(to="bo", content="x"))
        assert caught.value.code == "UNKNOWN_TARGET"
        assert len(alice.node.engine.outbox(own)) == 1


async def test_settled_returns_the_first_word_of_the_recipient_or_the_last(private_home: Path) -> None:
    """Accepted ends a plain wait at once; a wait for the final word goes on until its time."""
    async with two(private_home) as (alice, bob):
        own = Peer(alice.node.instance)
        _, first = await submit(alice.node, own, Wish(to="bob", content="x"))
        receipt = await settled(alice.node, first, 5_000)
        assert receipt.state is State.ACCEPTED
        begun = time.monotonic()
        assert (await settled(alice.node, first, 150, until_final=True)).state is State.ACCEPTED
        assert time.monotonic() - begun >= 0.15
        waiting = asyncio.get_running_loop().create_task(settled(alice.node, first, 5_000, until_final=True))
        await bob.reply((await bob.inbox())[0].message_id, "y")
        assert (await waiting).state is State.REPLIED


@pytest.mark.clause("native-99", "I2")
async def test_receipt_of_an_id_that_two_recipients_share_is_the_named_recipients(private_home: Path) -> None:
    """One id sent to two is two messages: what the first recipient accepted says nothing of the second."""
    async with two(private_home) as (alice, bob):
        kid = await call(bob, "host.run_begin", run="r-1", alias="kid")
        first = await alice.send("kid", "x", message_id="m-1")
        assert (first["state"], first["to"]) == ("accepted", kid["peerId"])
        bob.node.publication.server.stop()
        alice.node.switchboard.close()
        alice.node.switchboard.is_closed = False
        second = await alice.send(bob.who()["peerId"], "x", message_id="m-1", expiry_s=60, wait_s=0.2)
        assert second["to"] == second["target"]["peerId"] == bob.who()["peerId"]
        assert second["state"] in {"pending", "unknown"}
        assert second["expiresAt"] < first["expiresAt"]
        states = {
            item["receipt"]["to"]: item["receipt"]["state"] for item in (await alice.status("m-1"))["sent"]
        }
        assert states[kid["peerId"]] == "accepted"
        assert states[bob.who()["peerId"]] == second["state"]


@pytest.mark.clause("I2")
async def test_tool_call_id_with_two_recipients_answers_for_each(private_home: Path) -> None:
    """One call id with several targets is a message and a receipt for each, never one for another."""
    async with two(private_home) as (alice, bob):
        kid = await call(bob, "host.run_begin", run="r-1", alias="kid")
        for target in (kid["peerId"], bob.who()["peerId"], alice.who()["peerId"]):
            shape = await call(alice, "send_peer_message", to=target, content="x", callId="c-1")
            assert shape["to"] == shape["target"]["peerId"] == target


async def test_settled_without_an_answer_says_what_is_known(private_home: Path) -> None:
    """A recipient that accepts no connection: the state stays true, nothing is called refused."""
    async with two(private_home) as (alice, bob):
        own = Peer(alice.node.instance)
        target = bob.who()["peerId"]
        await alice.peers()
        for one in (alice, bob):  # they may know each other's runs by a link already
            one.node.switchboard.close()
            one.node.switchboard.is_closed = False
        bob.node.publication.server.stop()
        _, first = await submit(alice.node, own, Wish(to=target, content="x"))
        receipt = await settled(alice.node, first, 200)
        assert receipt.state in {State.PENDING, State.UNKNOWN}
