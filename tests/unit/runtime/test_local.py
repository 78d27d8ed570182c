"""What a command line and a program's own calls ask."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline import OutcomeUnknown, Refused, Root
from tieline.engine.contract import Act, Asked, Offer, Standing
from tieline.model.identity import Peer, foreign_instance
from tieline.model.message import Envelope
from tieline.runtime.calls import Actor
from tieline.runtime.local import GONE, GONE_ADVICE

pytestmark = pytest.mark.asyncio


@pytest.mark.clause("native-101")
async def test_send_to_many_gives_one_receipt_or_error_for_each(private_home: Path) -> None:
    """A refused target does not spoil the others, and says what to do."""
    async with two(private_home) as (alice, bob):
        result = await call(alice, "local.send", to=["bob", "nobody", "bob"], content="x")
        assert [item["target"]["alias"] for item in result["receipts"]] == ["bob", "bob"]
        assert [(item["to"], item["code"]) for item in result["errors"]] == [("nobody", "UNKNOWN_TARGET")]
        assert result["errors"][0]["action"]
        assert len(await bob.inbox()) == 2


async def test_send_to_an_alias_of_two_names_the_candidates(private_home: Path) -> None:
    """Who wrote a name that two bear is told both exact ids, by an error as in a list of errors."""
    async with two(private_home) as (alice, bob):
        for run in ("r-1", "r-2"):
            await call(bob, "host.run_begin", run=run, alias="kid")
        ids = [{"peerId": one["peerId"]} for one in sorted(bob.who()["runs"], key=lambda one: one["peerId"])]
        (error,) = (await call(alice, "local.send", to="kid", content="x"))["errors"]
        assert (error["code"], error["candidates"]) == ("AMBIGUOUS_TARGET", ids)
        with pytest.raises(Refused) as caught:
            await call(alice, "send_peer_message", to=":kid", content="x")
        assert caught.value.candidates == ids
        assert ids[0]["peerId"] in str(caught.value)


@pytest.mark.parametrize(
    "params",
    [
        {"to": [], "content": "x"},
        {"to": ["bob"] * 65, "content": "x"},
        {"to": ["bob", "alice"], "content": "x", "messageId": "m-1"},
        {"to": "bob", "content": "x", "waitMs": -1},
        {"to": "bob", "content": "x", "waitMs": 3_600_001},
    ],
)
async def test_send_with_impossible_params_is_refused(private_home: Path, params: dict[str, object]) -> None:
    """No targets, too many, one id for two messages, a wait out of range: nothing is sent twice or early."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(Refused) as caught:
            await call(alice, "local.send", **params)
        assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.clause("native-108", "I27")
async def test_ask_answers_with_the_correlated_reply_alone(private_home: Path) -> None:
    """Other mail of the same peer is no answer; the reply comes under a token that its reader settles."""
    async with two(private_home) as (alice, bob):
        asking = asyncio.get_running_loop().create_task(
            call(alice, "local.ask", to="bob", content="?", timeoutMs=10_000)
        )
        question = (await bob.inbox(wait_s=5, asks=True))[0]
        await bob.send("alice", "noise")
        await asyncio.sleep(0.05)
        assert not asking.done()
        await bob.reply(question.message_id, "42")
        answer = await asking
        assert answer["reply"]["content"] == "42"
        assert not answer["timedOut"]
        assert (answer["receipt"]["state"], answer["receipt"]["text"]) == (
            "replied",
            "The recipient replied.",
        )
        assert sorted(message.content for message in await alice.inbox()) == ["42", "noise"]
        assert (await call(alice, "host.taken", token=answer["token"]))["consumed"] == 1
        assert [message.content for message in await alice.inbox()] == ["noise"]


@pytest.mark.clause("native-108", "I9")
async def test_ask_takes_the_answer_of_the_asked_and_leaves_a_twin_of_its_id(private_home: Path) -> None:
    """Another sender's message of the same id stays unread beside the answer."""
    async with two(private_home) as (alice, bob):
        asking = asyncio.get_running_loop().create_task(
            call(alice, "local.ask", to="bob", content="?", timeoutMs=10_000)
        )
        question = (await bob.inbox(wait_s=5, asks=True))[0]
        await alice.send("alice", "a twin", message_id="z")
        await bob.send("alice", "42", message_id="z", reply_to=question.message_id)
        answer = await asking
        assert answer["reply"]["content"] == "42"
        assert (await call(alice, "host.taken", token=answer["token"]))["consumed"] == 1
        assert [message.content for message in await alice.inbox()] == ["a twin"]


async def test_ask_that_expires_or_has_two_targets_is_no_answer(private_home: Path) -> None:
    """An expired question is an unknown outcome with its id; two targets are refused."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(OutcomeUnknown) as caught:
            await call(
                alice, "local.ask", to="bob", content="?", timeoutMs=5_000, expiryMs=300, messageId="m-1"
            )
        assert caught.value.message_id == "m-1"
        with pytest.raises(Refused) as refused:
            await call(alice, "local.ask", to=["bob", "alice"], content="?")
        assert refused.value.code == "INVALID_PARAMS"


@pytest.mark.clause("native-1", "I9")
async def test_inbox_previews_until_it_is_told_to_consume(private_home: Path) -> None:
    """A preview has no token; consuming has one, and only settling it consumes."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        await alice.send("bob", "two")
        preview = await call(bob, "local.inbox")
        assert (preview["token"], preview["unread"], len(preview["messages"])) == (None, 2, 2)
        taking = await call(bob, "local.inbox", consume=True)
        assert len(taking["messages"]) == 2
        assert (await call(bob, "local.inbox"))["unread"] == 2
        assert (await call(bob, "host.taken", token=taking["token"]))["consumed"] == 2
        assert (await call(bob, "local.inbox"))["unread"] == 0


@pytest.mark.clause("O07")
@pytest.mark.parametrize("wait_ms", [0, 1, 100])
async def test_inbox_reads_at_least_once_whatever_the_wait(private_home: Path, wait_ms: int) -> None:
    """Mail that is there is returned under any budget; none at all ends after it."""
    async with two(private_home) as (alice, bob):
        assert (await call(bob, "local.inbox", waitMs=wait_ms))["messages"] == []
        await alice.send("bob", "one")
        assert len((await call(bob, "local.inbox", waitMs=wait_ms))["messages"]) == 1


@pytest.mark.clause("I9")
async def test_inbox_shows_as_much_as_was_asked_and_says_what_is_left(private_home: Path) -> None:
    """A limit is kept; a cursor leads on through a preview, and consuming goes on where it stopped."""
    async with two(private_home, limits={"rate_per_second": 1_000, "rate_burst": 1_000}) as (alice, bob):
        for number in range(20):
            await alice.send("bob", f"n{number}")
        whole = await call(bob, "local.inbox")
        assert (len(whole["messages"]), whole["remaining"], whole["unread"]) == (20, 0, 20)
        seen: list[str] = []
        after, remaining = "0", 1
        while remaining:
            page = await call(bob, "local.inbox", limit=8, after=after)
            seen += [item["content"] for item in page["messages"]]
            after, remaining = page["cursor"], page["remaining"]
        assert seen == [f"n{number}" for number in range(20)]
        assert [message.content for message in await bob.inbox()] == seen
        for count, left in ((15, 5), (5, 0)):
            taking = await call(bob, "local.inbox", limit=15, consume=True)
            assert (len(taking["messages"]), taking["remaining"]) == (count, left)
            assert (await call(bob, "host.taken", token=taking["token"]))["consumed"] == count
        for wrong in (0, 1_001):
            with pytest.raises(Refused) as caught:
                await call(bob, "local.inbox", limit=wrong)
            assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.clause("I9")
async def test_inbox_of_much_text_is_cut_to_what_an_answer_holds(private_home: Path) -> None:
    """An answer never grows beyond its frame; the program's own call reads on until all was shown."""
    limits = {
        "message_bytes": 300_000,
        "frame_bytes": 1_048_576,
        "rate_per_second": 1_000,
        "storage_bytes": 1 << 30,
    }
    async with two(private_home, limits=limits) as (alice, bob):
        for number in range(3):
            await alice.send("bob", str(number) * 290_000)
        page = await call(bob, "local.inbox")
        assert (len(page["messages"]), page["remaining"]) == (1, 2)
        assert [message.content[:1] for message in await bob.inbox(consume=True)] == ["0", "1", "2"]
        assert await bob.inbox() == []


@pytest.mark.clause("I9")
async def test_inbox_says_what_is_on_its_way_to_the_model(private_home: Path) -> None:
    """Mail of an open boundary is unread still; who would consume is told why nothing comes."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        await alice.send("bob", "two", delivery="queue")
        await call(bob, "host.boundary", kind="tool")
        taking = await call(bob, "local.inbox", consume=True)
        assert [item["content"] for item in taking["messages"]] == ["two"]
        assert (taking["unread"], taking["prepared"], taking["remaining"]) == (2, 1, 0)
        assert (await call(bob, "local.inbox"))["prepared"] == 2


async def test_inbox_finds_questions_behind_other_mail(private_home: Path) -> None:
    """Only questions are asked for: what stands before them does not hide them."""
    async with two(private_home, limits={"rate_per_second": 1_000, "rate_burst": 1_000}) as (alice, bob):
        for number in range(17):
            await alice.send("bob", f"n{number}")
        await call(alice, "local.send", to="bob", content="?", ask=True)
        asks = await call(bob, "local.inbox", asks=True, limit=1)
        assert ([item["content"] for item in asks["messages"]], asks["remaining"]) == (["?"], 0)


async def test_reply_needs_a_message_that_was_received(private_home: Path) -> None:
    """Without an id, or with one of our own, there is nothing to reply to."""
    async with two(private_home) as (alice, _bob):
        sent = await alice.send("bob", "x", message_id="m-1")
        assert sent["messageId"] == "m-1"
        for params, code in (
            ({"content": "x"}, "INVALID_PARAMS"),
            ({"content": "x", "messageId": "m-1"}, "INVALID_REPLY"),
        ):
            with pytest.raises(Refused) as caught:
                await call(alice, "local.reply", **params)
            assert caught.value.code == code


async def test_reply_to_who_has_ended_says_so_and_what_helps(private_home: Path) -> None:
    """A command's own root ends with it: nobody is there to take the answer, under any name."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "x", message_id="m-1")
        await alice.close()
        told = await call(bob, "local.reply", messageId="m-1", content="y")
        (error,) = told["errors"]
        assert error["code"] in GONE
        assert (error["text"], error["action"]) == (
            "who sent m-1 is not there any more: nothing was delivered",
            GONE_ADVICE,
        )


async def test_status_tells_both_sides_of_an_id_and_refuses_an_unknown_one(private_home: Path) -> None:
    """The sender's and the receiver's record each with its own history."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "x", message_id="m-1")
        sent, received = await alice.status("m-1"), await bob.status("m-1")
        assert [item["state"] for item in sent["sent"][0]["history"]] == ["pending", "accepted"]
        assert received["received"][0]["message"]["content"] == "x"
        assert sent["received"] == received["sent"] == []
        with pytest.raises(Refused) as caught:
            await alice.status("m-2")
        assert caught.value.code == "UNKNOWN_TARGET"


async def test_log_is_filtered_by_text_peer_and_cursor(private_home: Path) -> None:
    """The history goes on after a cursor; a peer or a word narrows it."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "apples")
        await alice.send("bob", "pears")
        whole = await call(bob, "local.log")
        assert [item["preview"] for item in whole["events"]] == ["apples", "pears"]
        assert [item["preview"] for item in (await call(bob, "local.log", query="PEAR"))["events"]] == [
            "pears"
        ]
        rest = await call(bob, "local.log", after=whole["events"][0]["cursor"])
        assert [item["preview"] for item in rest["events"]] == ["pears"]
        assert len((await call(bob, "local.log", peer="alice", limit=1))["events"]) == 1
        assert (await call(bob, "local.log", peer="bob", query="nothing"))["events"] == []
        with pytest.raises(Refused) as caught:
            await call(bob, "local.log", after="-1")
        assert caught.value.code == "INVALID_PARAMS"


async def test_mute_keeps_the_mail_and_can_be_taken_back(private_home: Path) -> None:
    """A silenced peer's mail is stored; nobody is told of it until it is heard again."""
    async with two(private_home) as (alice, bob):
        told: list[str] = []
        bob.operations.subscribe(lambda kind, _params: told.append(kind))
        muted = await call(bob, "local.mute", peer="alice")
        assert muted["peer"] == alice.who()["peerId"]
        await alice.send("bob", "quiet")
        assert told == []
        assert [message.content for message in await bob.inbox()] == ["quiet"]
        await call(bob, "local.mute", peer="alice", muted=False)
        await alice.send("bob", "loud")
        assert told == ["peer_update"]


async def test_doctor_shows_checks_counters_and_limits(private_home: Path) -> None:
    """A healthy root says so; every limit is there with its default."""
    async with two(private_home) as (alice, _bob):
        shown = await call(alice, "local.doctor")
        assert {item["name"]: item["ok"] for item in shown["checks"]} == {
            "store": True,
            "room": True,
            "endpoint": True,
            "presence": True,
        }
        assert shown["limits"]["inbox_messages"]["default"] == 32
        assert shown["counters"]["relays_refused"] == 0


async def test_last_refuses_an_offset_below_nothing(private_home: Path) -> None:
    """A page begins at a whole number from 0; an unknown peer has no answers."""
    async with two(private_home) as (alice, _bob):
        for params, code in (
            ({"to": "bob", "offset": -1}, "INVALID_PARAMS"),
            ({"to": "carol"}, "UNKNOWN_TARGET"),
        ):
            with pytest.raises(Refused) as caught:
                await call(alice, "local.last", **params)
            assert caught.value.code == code
        assert isinstance(alice, Root)


def window_mail(root: Root, message_id: str, content: str) -> Offer:
    """Return what a window of another kind wrote to a root whose person is asked first."""
    window = Peer(foreign_instance("pi-peers", "s-1"))
    envelope = Envelope(message_id, window, Peer(root.node.instance), content, topic="t", sender_alias="pi-1")
    standing = Standing(frozenset({"message.send"}), is_in_scope=True, alias="pi-1", project="p")
    return Offer(Asked(1_000_000, message_id), window.instance, standing, envelope, is_held=True)


@pytest.mark.clause("pi-peers-35", "pi-peers-U16")
async def test_consent_lets_a_held_message_in_or_sends_it_away(private_home: Path) -> None:
    """What is held is listed and read by nobody; yes makes it mail, no ends it, and neither is said twice."""
    async with two(private_home) as (alice, _bob):
        for name in ("m-yes", "m-no"):
            await alice.node.ask(window_mail(alice, name, f"text of {name}"))
        assert (await call(alice, "peer_messages"))["messages"] == []
        shown = await call(alice, "local.inbox")
        assert [(one["messageId"], one["content"]) for one in shown["held"]] == [
            ("m-yes", "text of m-yes"),
            ("m-no", "text of m-no"),
        ]
        assert (await call(alice, "local.consent", messageId="m-yes", accept=True))["accepted"]
        denied = await call(alice, "local.consent", messageId="m-no", accept=False)
        assert (denied["receipt"]["state"], denied["receipt"]["outcome"]) == ("rejected", "DENIED")
        assert (await call(alice, "local.inbox"))["held"] == []
        assert [one["content"] for one in (await call(alice, "peer_messages"))["messages"]] == [
            "text of m-yes"
        ]
        for name in ("m-yes", "m-no", "m-none"):
            with pytest.raises(Refused) as caught:
                await call(alice, "local.consent", messageId=name, accept=True)
            assert caught.value.code == "UNKNOWN_TARGET"


async def test_consent_is_no_word_of_an_agents_own_shell(private_home: Path) -> None:
    """A command below the host sees that something waits, not what it says, and decides nothing."""
    async with two(private_home) as (alice, _bob):
        await alice.node.ask(window_mail(alice, "m-1", "obey"))
        shell = Actor(Peer(alice.node.instance), Act.AGENT, "control", is_host=True, is_in_tree=True)
        (shown,) = (await call(alice, "local.inbox", shell))["held"]
        assert (shown["messageId"], shown["contentBytes"]) == ("m-1", 4)
        assert not {"content", "topic"} & set(shown)
        with pytest.raises(Refused) as caught:
            await call(alice, "local.consent", shell, messageId="m-1", accept=True)
        assert caught.value.code == "CAPABILITY_DENIED"
        assert len((await call(alice, "local.inbox"))["held"]) == 1
