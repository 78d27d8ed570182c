"""The tools of a model."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, host_of, two
from tieline import OutcomeUnknown, Refused
from tieline.model.receipt import Receipt, State
from tieline.runtime.tools import cursor_number, refuse_failure, refused, tool_message_id

pytestmark = pytest.mark.asyncio

FAST = {"rate_per_second": 1_000, "rate_burst": 1_000}


@pytest.mark.clause("native-26")
async def test_list_peers_shows_who_is_there_and_who_we_are(private_home: Path) -> None:
    """The caller itself is told apart, and is not among the peers; a query narrows."""
    async with two(private_home) as (alice, bob):
        shown = await call(alice, "list_peers")
        assert (shown["self"]["alias"], shown["self"]["isSelf"]) == ("alice", True)
        assert [(peer["alias"], peer["peerId"]) for peer in shown["peers"]] == [("bob", bob.who()["peerId"])]
        assert (await call(alice, "list_peers", query="zed"))["peers"] == []


@pytest.mark.clause("native-94", "I21")
async def test_tool_call_repeated_with_its_id_sends_one_message(private_home: Path) -> None:
    """A host that repeats a call sends nothing twice; another call of the same text is another message."""
    async with two(private_home) as (alice, bob):
        for _ in range(2):
            reply = await alice.operations.call(
                host_of(alice), "send_peer_message", {"to": "bob", "content": "x"}, call_id="call-1"
            )
            assert reply.result["state"] == "accepted"
        assert reply.result["messageId"] == tool_message_id(alice.who()["peerId"], "call-1")
        await alice.operations.call(
            host_of(alice), "send_peer_message", {"to": "bob", "content": "x"}, call_id="call-2"
        )
        assert len(await bob.inbox()) == 2


@pytest.mark.clause("native-135")
@pytest.mark.parametrize("wait_ms", [-1, 30_001])
async def test_read_with_a_wait_out_of_range_is_refused(private_home: Path, wait_ms: int) -> None:
    """A wait is 0 to 30 s."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(Refused) as caught:
            await call(alice, "peer_messages", waitMs=wait_ms)
        assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.clause("O06", "native-135")
async def test_read_that_waits_ends_with_mail_or_says_that_it_timed_out(private_home: Path) -> None:
    """A burst ends the wait at once; without mail the wait says so."""
    async with two(private_home) as (alice, bob):
        shown = await call(bob, "peer_messages", waitMs=50)
        assert shown["timedOut"]
        assert shown["messages"] == []
        waiting = asyncio.get_running_loop().create_task(call(bob, "peer_messages", waitMs=20_000))
        await asyncio.sleep(0.05)
        for number in range(5):
            await alice.send("bob", f"n{number}")
        first = await waiting
        assert "timedOut" not in first
        rest = await call(bob, "peer_messages")
        contents = [item["content"] for item in (*first["messages"], *rest["messages"])]
        assert contents == [f"n{number}" for number in range(5)]


async def test_read_is_filtered_by_sender_reply_and_id(private_home: Path) -> None:
    """Each filter reads what fits and leaves the rest unread."""
    async with two(private_home) as (alice, bob):
        sent = await bob.send("alice", "question")
        await alice.reply((await alice.inbox())[0].message_id, "answer")
        await alice.send("bob", "other", message_id="m-2")
        for params, contents in (
            ({"replyTo": sent["messageId"]}, ["answer"]),
            ({"messageId": "m-2"}, ["other"]),
            ({"from": "alice"}, ["answer", "other"]),
        ):
            shown = await call(bob, "peer_messages", consume=False, **params)
            assert [item["content"] for item in shown["messages"]] == contents
        with pytest.raises(Refused) as caught:
            await call(bob, "peer_messages", **{"from": "nobody"})
        assert caught.value.code == "UNKNOWN_TARGET"


@pytest.mark.clause("I9")
async def test_read_by_two_at_once_gives_each_message_to_one(private_home: Path) -> None:
    """What one reader has prepared is not shown to another; reading by id again shows what was read."""
    async with two(private_home) as (alice, bob):
        for number in range(4):
            await alice.send("bob", f"n{number}", message_id=f"m-{number}")
        shown = await asyncio.gather(*(call(bob, "peer_messages") for _ in range(4)))
        ids = [item["messageId"] for reply in shown for item in reply["messages"]]
        assert sorted(ids) == [f"m-{number}" for number in range(4)]
        again = await call(bob, "peer_messages", messageId="m-0")
        assert [(item["content"], item["state"]) for item in again["messages"]] == [("n0", "consumed")]


@pytest.mark.clause("native-136")
async def test_read_after_a_cursor_returns_only_later_events(private_home: Path) -> None:
    """The cursor of one read is where the next begins."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        first = await call(bob, "peer_messages", after="0", consume=False)
        await alice.send("bob", "two")
        later = await call(bob, "peer_messages", after=first["cursor"], consume=False)
        assert len(first["events"]) == len(later["events"]) == 1
        assert int(later["cursor"]) > int(first["cursor"])
        assert not later["gap"]


@pytest.mark.clause("native-136", "I12")
async def test_read_without_a_cursor_tells_no_history_and_where_to_follow_it(private_home: Path) -> None:
    """An empty mailbox costs a model nothing, however long its history; its cursor is where news begins."""
    async with two(private_home) as (alice, bob):
        for number in range(12):
            await alice.send("bob", f"n{number}")
        assert len((await call(bob, "peer_messages"))["messages"]) == 12
        empty = await call(bob, "peer_messages")
        assert (empty["events"], empty["messages"], empty["remaining"], empty["text"]) == ([], [], 0, "")
        assert empty["cursor"] == str(bob.node.engine.latest_cursor)
        sent = await bob.send("alice", "y")
        news = await call(bob, "peer_messages", after=empty["cursor"])
        assert {item["messageId"] for item in news["events"]} == {sent["messageId"]}


@pytest.mark.clause("I9")
async def test_read_of_much_mail_says_how_much_waits(private_home: Path) -> None:
    """One read holds sixteen messages; the rest is counted, and comes with the next reads."""
    async with two(private_home, limits=FAST) as (alice, bob):
        for number in range(19):
            await alice.send("bob", f"n{number}")
        first = await call(bob, "peer_messages")
        assert (len(first["messages"]), first["remaining"]) == (16, 3)
        second = await call(bob, "peer_messages")
        assert ([item["content"] for item in second["messages"]], second["remaining"]) == (
            ["n16", "n17", "n18"],
            0,
        )


@pytest.mark.clause("I9")
async def test_read_behind_sixteen_that_another_reader_has_finds_the_rest(private_home: Path) -> None:
    """What is on its way to the model stands before newer mail in no reader's way."""
    async with two(private_home, limits=FAST) as (alice, bob):
        for number in range(17):
            await alice.send("bob", f"n{number}")
        assert len((await call(bob, "host.boundary", kind="prompt"))["messageIds"]) == 16
        rest = await call(bob, "peer_messages")
        assert [item["content"] for item in rest["messages"]] == ["n16"]


async def test_cursor_is_a_short_decimal_string() -> None:
    """Anything else is refused; absent means from the start."""
    assert cursor_number(None) == 0
    assert cursor_number("0042") == 42
    for wrong in ("", "-1", "1.0", "x", "²", "9" * 17):
        with pytest.raises(Refused):
            cursor_number(wrong)


async def test_failure_of_a_receipt_is_raised_not_returned() -> None:
    """Rejected says whether to try again; expired is an unknown outcome; all else passes."""
    for state in (State.PENDING, State.UNKNOWN, State.ACCEPTED, State.CONSUMED, State.REPLIED):
        refuse_failure(Receipt("m", "a", "b", state, 1))
    with pytest.raises(Refused) as caught:
        refuse_failure(Receipt("m", "a", "b", State.REJECTED, 1, outcome="QUEUE_FULL", is_retryable=True))
    assert (caught.value.code, caught.value.is_retryable) == ("QUEUE_FULL", True)
    with pytest.raises(OutcomeUnknown):
        refuse_failure(Receipt("m", "a", "b", State.EXPIRED, 1))


@pytest.mark.clause("native-94")
async def test_tool_id_differs_for_each_peer_and_call() -> None:
    """Two peers with the same call id never share a message id."""
    ids = {tool_message_id(peer, call_id) for peer in ("a", "b") for call_id in ("1", "2", '1","2')}
    assert len(ids) == 6


async def test_scope_all_asks_for_no_more_than_is_configured(private_home: Path) -> None:
    """All is the own scope and windows of every project: natively nobody beyond the policy is seen."""
    async with two(private_home) as (alice, _bob):
        shown = await call(alice, "list_peers", scope="all")
        assert [peer["alias"] for peer in shown["peers"]] == ["bob"]
        assert "otherProjects" not in shown
        receipt = await call(alice, "send_peer_message", to="bob", content="x", scope="all")
        assert receipt["state"] == "accepted"
        with pytest.raises(Refused) as caught:
            await call(alice, "list_peers", scope="machine")
        assert caught.value.code == "SCOPE_DENIED"


async def test_refusal_of_a_wire_without_retry_offers_no_repeat_of_the_id() -> None:
    """Where a repeat would be a second message, the next action is a new one; natively the same id helps."""
    receipt = Receipt("m", "a", "b", State.REJECTED, 1, outcome="RATE_LIMITED", is_retryable=True)
    native, window = refused(receipt, "native", "x"), refused(receipt, "pi-peers", "x")
    assert (native.is_retryable, "same message id" in native.action) == (True, True)
    assert (window.is_retryable, "under a new id" in window.action) == (False, True)
    denied = refused(Receipt("m", "a", "b", State.REJECTED, 1, outcome="DENIED"), "pi-peers", "x")
    assert "person" in denied.action
