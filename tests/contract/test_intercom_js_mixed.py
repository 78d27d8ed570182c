"""Sessions of revisions F and N that somebody else wrote, mixed in one room of our broker.

Each test names the numbered behaviours of reference/intercom.md 8 that it shows; 1.8 says what is mixed.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.js.brokers import OURS, OurBroker, broker
from tests.contract.js.intercom import Failed, JsEnd, Room, room

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

QUIET_S = 0.3


@pytest_asyncio.fixture
async def place(private_home: Path) -> AsyncIterator[Room]:
    """Give a room at our broker."""
    path = private_home / "i" / "broker.sock"
    async with broker(OURS, path), room(path) as made:
        yield made


async def connected(*ends: JsEnd) -> bool:
    """Return whether all of them are still connected."""
    return all([(await end.call("who"))["isConnected"] for end in ends])


async def row_of(end: JsEnd, session_id: str) -> dict[str, Any]:
    """Return a session as `end` lists it."""
    return next(row for row in await end.call("list") if row["id"] == session_id)


# ---------------------------------------------------------------- both in one room


async def test_mixed_room_talks_in_every_direction_and_nobody_disconnects(place: Room) -> None:
    """Two of each revision list each other and write to each other, and no strictness is provoked."""
    ends = {
        "f1": await place.f("f1"),
        "n1": await place.n("n1", sessionId="n-session-1"),
        "f2": await place.f("f2"),
        "n2": await place.n("n2", sessionId="n-session-2"),
    }
    for end in ends.values():
        assert {row["name"] for row in await end.call("list")} == set(ends)
    for sender, end in ends.items():
        for recipient in ends:
            answer = await end.call("send", to=recipient, text=f"{sender} to {recipient}")
            assert answer["outcome"] == "delivered", answer
    for recipient, end in ends.items():
        for sender, other in ends.items():
            got = await end.got(f"{sender} to {recipient}")
            assert (got["from"]["id"], got["from"]["name"]) == (other.id, sender)
    assert await connected(*ends.values())


async def test_rows_have_the_form_that_each_reader_demands(place: Room) -> None:
    """Whoever reads as N finds a process and two times on every row; whoever reads as F what F demands."""
    f, n = await place.f("f"), await place.n("n", sessionId="n-session-1")
    shown = await row_of(n, f.id)
    assert all(isinstance(shown[name], int) for name in ("pid", "startedAt", "lastActivity"))
    assert shown["trustedLocal"] is True
    assert shown["endpointEpoch"]
    odd = await place.n("odd\x01name", sessionId="n-session-odd", session={"status": "", "cwd": ""})
    listed = {row["id"] for row in await f.call("list")}
    assert odd.id in listed
    assert (await odd.call("send", to=f.id, text="from an odd one"))["outcome"] == "delivered"
    await f.got("from an odd one")
    assert await connected(f, n, odd)


async def test_broadcasts_reach_those_who_know_them_and_no_others(place: Room) -> None:
    """N hears of joins and presence of both kinds; F hears only departures."""
    f, n = await place.f("f"), await place.n("n", sessionId="n-session-1")
    other_f, other_n = await place.f("other f"), await place.n("other n", sessionId="n-session-2")
    for other in (other_f, other_n):
        joined = await n.event("joined", lambda one, other=other: one["session"]["id"] == other.id)
        assert joined["session"]["trustedLocal"] is True
        await other.call("presence", facts={"status": "thinking"})
        await n.event(
            "presence",
            lambda one, other=other: (
                (one["session"]["id"], one["session"]["status"]) == (other.id, "thinking")
            ),
        )
    await other_f.call("leave")
    await other_n.call("leave")
    for end in (f, n):
        for other in (other_f, other_n):
            await end.event("left", lambda one, other=other: one["sessionId"] == other.id)
    assert {one["event"] for one in f.events} == {"ready", "left"}
    assert await connected(f, n)


@pytest.mark.clause("intercom-90")
async def test_case_90_ask_and_reply_between_the_revisions(place: Room) -> None:
    """Either may ask the other; the reply names the ask and reaches it."""
    f, n = await place.f("f"), await place.n("n", sessionId="n-session-1")
    waiting = asyncio.ensure_future(f.call("ask", to=n.id, text="f asks"))
    asked = await n.got("f asks")
    assert asked["expectsReply"] is True
    assert "delivery" not in asked
    await n.call("send", to=asked["from"]["id"], text="n answers", replyTo=asked["id"])
    assert (await waiting)["reply"]["text"] == "n answers"
    await n.call("send", to="f", text="n asks", expectsReply=True, message_id="n-ask")
    await f.got("n asks")
    assert (await f.call("reply", text="f answers"))["outcome"] == "delivered"
    assert (await n.got("f answers"))["replyTo"] == "n-ask"


async def test_message_that_the_strict_form_forbids_never_reaches_an_f_session(place: Room) -> None:
    """What N may say and F would disconnect from is a failure for its sender, and costs nobody a socket."""
    f, n = await place.f("f"), await place.n("n", sessionId="n-session-1")
    other = await place.n("other", sessionId="n-session-2")
    answer = await n.call("send", to=f.id, text="bell \x07")
    assert answer["outcome"] == "failed"
    assert (await n.call("send", to=other.id, text="bell \x07"))["outcome"] == "delivered"
    await other.got("bell \x07")
    assert (await n.call("send", to=f.id, text="clean"))["outcome"] == "delivered"
    await f.got("clean")
    assert f.texts() == ["clean"]
    assert await connected(f, n, other)


# ---------------------------------------------------------------- revision N


async def test_health_is_answered_before_a_registration_and_features_with_it(place: Room) -> None:
    """Whoever asks first learns whom it reaches, and then what the broker can."""
    n = await place.start_n()
    health = await n.call("health")
    assert (health["protocol"], health["version"]) == ("pi-intercom", 1)
    await n.register("n", sessionId="n-session-1")
    assert n.id == "n-session-1"
    assert n.who["features"] == ["extension-bus-v1", "exact-send-v1"]
    assert (await n.call("health"))["version"] == 1


@pytest.mark.parametrize("absent", ["pid", "startedAt", "lastActivity", "cwd", "model"])
async def test_registration_of_n_without_a_needed_field_closes(place: Room, absent: str) -> None:
    """What N requires is required of whoever speaks N."""
    n = await place.start_n()
    with pytest.raises(Failed) as caught:
        await n.register("n", sessionId="n-session-1", session={absent: None})
    assert caught.value.code == "disconnected"


@pytest.mark.clause("intercom-26", "intercom-29")
async def test_cases_26_29_unknown_and_trusted_fields_of_n_are_dropped(place: Room) -> None:
    """It cannot say what the broker alone may say of it, and what nobody knows is not shown."""
    n = await place.n(
        "n", sessionId="n-session-1", session={"mood": 1, "trustedLocal": False, "endpointEpoch": "mine"}
    )
    shown = await row_of(n, n.id)
    assert "mood" not in shown
    assert shown["trustedLocal"] is True
    assert shown["endpointEpoch"] != "mine"


@pytest.mark.clause("intercom-27", "intercom-28")
async def test_cases_27_28_newest_registration_of_an_id_replaces_the_older(place: Room) -> None:
    """The older socket ends and changes nothing any more; the id stays, with a new epoch."""
    watcher = await place.n("watcher", sessionId="n-watcher")
    old = await place.n("old", sessionId="n-session-1")
    before = (await row_of(watcher, old.id))["endpointEpoch"]
    new = await place.n("new", sessionId="n-session-1")
    await old.lost()
    shown = await row_of(watcher, new.id)
    assert (new.id, shown["name"]) == ("n-session-1", "new")
    assert shown["endpointEpoch"] != before
    assert (await watcher.call("send", to="n-session-1", text="for the new one"))["outcome"] == "delivered"
    await new.got("for the new one")


@pytest.mark.clause("intercom-30")
async def test_case_30_socket_that_does_not_register_is_cut(place: Room) -> None:
    """After a second; and forty of them keep nobody from registering."""
    raw = [await asyncio.open_unix_connection(place.socket) for _ in range(40)]
    n = await place.n("n", sessionId="n-session-1")
    f = await place.f("f")
    async with asyncio.timeout(5):
        for reader, writer in raw:
            assert await reader.read() == b""
            writer.close()
    assert await connected(n, f)


@pytest.mark.clause("intercom-39")
async def test_case_39_presence_that_says_nothing_new_is_not_repeated(place: Room) -> None:
    """A flood of the same presence is told once a second at most; null takes the context usage away."""
    watcher, n = await place.n("watcher", sessionId="n-watcher"), await place.n("n", sessionId="n-session-1")
    await n.call("presence", facts={"contextUsage": 41})
    await watcher.event("presence", lambda one: one["session"].get("contextUsage") == 41)
    for _ in range(20):
        await n.call("presence", facts={"contextUsage": 41})
    await n.call("presence", facts={"contextUsage": None})
    await watcher.event("presence", lambda one: "contextUsage" not in one["session"])
    assert watcher.count("presence") <= 4


@pytest.mark.clause("intercom-45", "intercom-46", "intercom-49")
async def test_cases_45_46_49_prefixes_of_n_are_case_sensitive_and_never_guessed(place: Room) -> None:
    """Any prefix of an id that fits one; none or several fail with their code."""
    n = await place.n("n", sessionId="abc-sender")
    one, two = await place.n("one", sessionId="xyz-one"), await place.n("two", sessionId="xyz-two")
    exact: dict[str, Any] = {"target": {}}
    assert (await n.call("send", to="xyz-o", text="prefix", **exact))["outcome"] == "delivered"
    await one.got("prefix")
    for to, code in (
        ("xyz-", "E_AMBIGUOUS_TARGET"),
        ("XYZ-T", "E_TARGET_NOT_FOUND"),
        ("", "E_AMBIGUOUS_TARGET"),
    ):
        answer = await n.call("send", to=to, text="x", **exact)
        assert (answer["outcome"], answer["code"], answer["retryable"]) == ("failed", code, False), to
    assert two.texts() == []


@pytest.mark.clause("intercom-52", "intercom-53")
async def test_cases_52_53_repeated_send_of_n_is_answered_and_delivered_once(place: Room) -> None:
    """The same id with the same content gets its old answer; with other content it is refused."""
    n, other = await place.n("n", sessionId="n-session-1"), await place.n("other", sessionId="n-session-2")
    first = await n.call("send", to=other.id, text="once", message_id="m-1")
    again = await n.call("send", to=other.id, text="once", message_id="m-1")
    assert first == again
    assert (first["delivery"], first["retryable"], first["outcomeKnown"]) == ("socket_delivered", False, True)
    changed = await n.call("send", to=other.id, text="changed", message_id="m-1")
    assert (changed["outcome"], changed["code"]) == ("failed", "E_MESSAGE_ID_REUSE")
    await n.call("send", to=other.id, text="last")
    got = await other.got("last")
    assert other.texts() == ["once", "last"]
    assert isinstance(got["brokerReceivedAt"], int)
    assert got["senderSequence"] == 4


@pytest.mark.clause("intercom-54", "intercom-55")
async def test_cases_54_55_exact_target_is_of_its_epoch_or_refused(place: Room) -> None:
    """A stale epoch may be tried again, half a target never names anybody; the client finds the new epoch."""
    n, old = await place.n("n", sessionId="n-session-1"), await place.n("old", sessionId="n-session-2")
    stale = {"targetId": old.id, "targetEpoch": (await row_of(n, old.id))["endpointEpoch"]}
    new = await place.n("new", sessionId="n-session-2")
    answer = await n.call("send", to="new", text="stale", target=stale, message_id="m-1")
    assert (answer["code"], answer["retryable"]) == ("E_TARGET_REBOUND", True)
    assert (await n.call("send", to="new", text="stale", message_id="m-1"))["outcome"] == "delivered"
    await new.got("stale")
    for half in ({"targetId": new.id}, {"targetEpoch": "x"}, {"targetId": "", "targetEpoch": "x"}):
        answer = await n.call("send", to="new", text="half", target=half)
        assert (answer["outcome"], answer["code"]) == ("failed", "E_INVALID_TARGET"), half
    assert new.texts() == ["stale"]


@pytest.mark.clause("intercom-100")
async def test_case_100_replies_of_n_answer_an_open_ask_of_the_pair(place: Room) -> None:
    """An invented, a second and a crossing one are refused; a failed reply leaves the ask open."""
    a, b = await place.n("a", sessionId="n-session-a"), await place.n("b", sessionId="n-session-b")
    c = await place.n("c", sessionId="n-session-c")
    await a.call("send", to=b.id, text="q", expectsReply=True, message_id="q-1")
    await b.got("q")
    crossing = await b.call("send", to=a.id, text="crossing", expectsReply=True)
    assert crossing["code"] == "E_MUTUAL_ASK"
    assert (await b.call("send", to=a.id, text="x", replyTo="q-0"))["code"] == "E_REPLY_TARGET"
    assert (await c.call("send", to=a.id, text="x", replyTo="q-1"))["code"] == "E_REPLY_TARGET"
    assert (await b.call("send", to=a.id, text="yes", replyTo="q-1"))["outcome"] == "delivered"
    assert (await b.call("send", to=a.id, text="again", replyTo="q-1"))["code"] == "E_REPLY_TARGET"
    await a.got("yes")
    assert a.texts() == ["yes"]
    assert (await b.call("send", to=a.id, text="now", expectsReply=True))["outcome"] == "delivered"


@pytest.mark.clause("intercom-48", "intercom-101", "intercom-134")
async def test_cases_48_101_134_mail_for_who_just_left_waits_for_its_return(place: Room) -> None:
    """A send is held, an ask refused; nobody of the same name gets it, only who comes back with the id."""
    n = await place.n("n", sessionId="n-session-1")
    gone = await place.n("gone", sessionId="n-session-2", session={"cwd": "/srv/demo"})
    await gone.call("leave")
    await n.event("left")
    held = await n.call("send", to="n-session-2", text="for later")
    assert (held["outcome"], held["delivery"]) == ("delivered", "queued")
    asked = await n.call("send", to="n-session-2", text="ask", expectsReply=True)
    assert asked["outcome"] == "failed"
    stranger = await place.n("gone", sessionId="n-session-3", session={"cwd": "/srv/else"})
    alias = await place.n(
        "gone", sessionId="n-session-4", session={"cwd": "/srv/demo", "runtimeFallbackAlias": True}
    )
    back = await place.n("back", sessionId="n-session-2")
    await back.got("for later")
    assert (stranger.texts(), alias.texts(), n.texts()) == ([], [], [])


@pytest.mark.clause("intercom-133")
async def test_case_133_scopes_see_nothing_of_each_other(place: Room) -> None:
    """Lists, targets, joins and departures stay inside; no scope is a scope, and F sessions are in it."""
    f, plain = await place.f("f"), await place.n("plain", sessionId="n-plain")
    a = await place.n("a", sessionId="n-a", scopeId="team")
    b = await place.n("b", sessionId="n-b", scopeId=" team ")
    assert {row["name"] for row in await a.call("list")} == {"a", "b"}
    for end in (f, plain):
        assert {row["name"] for row in await end.call("list")} == {"f", "plain"}
    assert (await a.call("send", to=f.id, text="x"))["code"] == "E_TARGET_NOT_FOUND"
    assert (await f.call("send", to="b", text="x"))["reason"] == "Session not found"
    assert (await a.call("send", to="b", text="inside"))["outcome"] == "delivered"
    await b.got("inside")
    await b.call("leave")
    await a.event("left")
    assert plain.count("joined") == 0
    assert f.count("left") + plain.count("left") == 0


async def test_receipts_and_cancellations_of_n_reach_the_other_end(place: Room) -> None:
    """A receipt goes to who sent, a cancellation to who received; both name the message."""
    n, other = await place.n("n", sessionId="n-session-1"), await place.n("other", sessionId="n-session-2")
    await n.call("send", to=other.id, text="x", message_id="m-1")
    await other.got("x")
    receipt = {"messageId": "m-1", "status": "injected", "timestamp": 5}
    await other.call("frame", frame={"type": "message_receipt", "receipt": receipt})
    told = await n.event("receipt")
    assert (told["from"], told["receipt"]) == (other.id, receipt)
    assert (await n.call("cancel_message", message_id="m-1"))["outcome"] == "delivered"
    control = await other.event("control")
    assert (control["control"]["messageId"], control["control"]["action"]) == ("m-1", "cancel")
    await n.call("send", to=other.id, text="y", message_id="m-2")
    await n.call("send", to=other.id, text="z", message_id="m-3", supersedes="m-2")
    await other.got("z")
    kinds = [
        (one["event"], (one.get("control") or one.get("message") or {}).get("action"))
        for one in other.events
        if one["event"] in ("control", "message")
    ]
    assert kinds[-2:] == [("control", "supersede"), ("message", None)]


async def test_flood_of_n_is_cut_off_and_costs_nobody_else(place: Room) -> None:
    """Four hundred frames at once are over its bucket; the room goes on."""
    n, f = await place.n("n", sessionId="n-session-1"), await place.f("f")
    await n.call("frames", frame={"type": "presence", "status": "idle"}, count=400)
    await n.lost()
    assert await connected(f)
    assert len(await f.call("list")) == 1


async def test_extension_bus_is_among_those_who_announced_it(place: Room) -> None:
    """Who is capable learns the owner, and gets what is published, its sender too; nobody else does."""
    namespace = {"namespace": "demo/bus", "ownerEligible": True}
    a = await place.n("a", sessionId="n-session-a", session={"extensions": [namespace]})
    b = await place.n("b", sessionId="n-session-b", session={"extensions": [namespace]})
    f, deaf = await place.f("f"), await place.n("deaf", sessionId="n-session-d")
    owner = await b.event("bus", lambda one: one["type"] == "extension_owner")
    assert owner["namespace"] == "demo/bus"
    await b.call(
        "frame",
        frame={
            "type": "extension_publish", "namespace": "demo/bus", "audience": "capable", "payload": {"x": 1},
        },
    )  # fmt: skip
    for end in (a, b):
        told = await end.event("bus", lambda one: one["type"] == "extension_message")
        assert told["payload"] == {"x": 1}
    assert deaf.count("bus") == 0
    assert await connected(a, b, f, deaf)


# ---------------------------------------------------------------- the broker's own death


@pytest.mark.clause("intercom-134")
async def test_case_134_held_mail_is_there_after_the_broker_was_killed(private_home: Path) -> None:
    """What was acknowledged as queued is found by the next broker, and handed over once."""
    path = private_home / "i" / "broker.sock"
    async with room(path) as made:
        first = await OurBroker.begin(path.parent)
        n = await made.n("n", sessionId="n-session-1")
        await (await made.n("gone", sessionId="n-session-2")).call("leave")
        await n.event("left")
        assert (await n.call("send", to="n-session-2", text="held"))["delivery"] == "queued"
        await first.discard()
        await n.lost()
        second = await OurBroker.begin(path.parent)
        back = await made.n("back", sessionId="n-session-2")
        await back.got("held")
        await asyncio.sleep(QUIET_S)
        assert back.texts() == ["held"]
        await second.discard()
