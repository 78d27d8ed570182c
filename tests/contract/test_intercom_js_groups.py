"""Groups, guards, reads, receipts and parked children at our broker, seen by JavaScript ends.

The frames behind these are this product's own, so this shows that its parts agree, and no more.
Each test names the numbered behaviours of reference/intercom.md 8 that it shows.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.js.brokers import OURS, THEIRS, OurBroker, broker
from tests.contract.js.intercom import Failed, JsEnd, Room, room
from tieline.shims import INTERCOM_CLIENT

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

QUIET_S = 0.3
COMMAND = "6f0f2a8e-6f43-4d51-9b57-0a4b5a2f9e11"
ALL = ["guardedDelivery", "receiptReads", "lastReads", "wakeOutcomes"]


@pytest_asyncio.fixture
async def place(private_home: Path) -> AsyncIterator[Room]:
    """Give a room at our broker."""
    path = private_home / "i" / "broker.sock"
    async with broker(OURS, path), room(path) as made:
        yield made


async def names(end: JsEnd) -> set[str]:
    """Return the names that `end` lists."""
    return {row["name"] for row in await end.call("list")}


async def companion(place: Room, **session: Any) -> JsEnd:
    """Return the shipped client, connected."""
    made = await JsEnd.begin("intercom-companion.mjs", f"--shim={INTERCOM_CLIENT}")
    place.stack.push_async_callback(made.discard)
    facts = {"name": "companion", "cwd": "/srv", "model": "none", "rootSessionId": "c", "incarnation": "c-1"}
    made.who = await made.call("connect", options={"spawn": False, "session": facts | session})
    return made


async def code(end: JsEnd, word: str, **params: Any) -> str:
    """Return the code with which it refuses; `?` behind it says that the outcome is unknown."""
    with pytest.raises(Failed) as caught:
        await end.call(word, **params)
    return caught.value.code


# ---------------------------------------------------------------- negotiation


@pytest.mark.clause("intercom-31")
async def test_case_31_each_capability_is_echoed_only_to_who_asked_for_it(place: Room) -> None:
    """One, all or none: the answer names exactly those that the registration named."""
    for announced in ([], ALL[:1], ALL[2:], ALL):
        end = await place.start_f(*([f"--announce={','.join(announced)}"] if announced else []))
        await end.register("x")
        assert end.who["granted"] == announced
        assert set(end.who["frame"]) == {"type", "sessionId", *announced}


@pytest.mark.clause("intercom-31", "intercom-14")
async def test_case_31_peer_that_announced_nothing_gets_no_frame_of_a_newer_kind(place: Room) -> None:
    """Reads of it are unsupported at once, guarded sends refused, and its strictness is never provoked."""
    old = await place.f("old", session={"rootSessionId": "o", "incarnation": "o-1"})
    asker = await place.s("a", name="asker")
    for kind, body in (("last", {}), ("receipt", {"rootSessionId": "o", "messageId": "m"})):
        answer = await asker.call("read", kind=kind, to=old.id, body=body)
        assert answer["error"] == "unsupported"
    guard = {
        "rootSessionId": "o", "peerId": old.id, "incarnation": "o-1", "applicationGuard": "g",
    }  # fmt: skip
    answer = await asker.call("send", to=old.id, text="x", expectsReply=False, delivery="steer", guard=guard)
    assert answer["outcome"] == "failed"
    assert (await old.call("who"))["isConnected"]
    assert old.texts() == []


# ---------------------------------------------------------------- groups


@pytest.mark.clause("intercom-42", "intercom-56", "intercom-57")
async def test_cases_42_56_57_groups_see_exactly_whom_they_may(place: Room) -> None:
    """Mains see mains, a main its children, siblings each other; hidden is answered as absent, even by id."""
    main_a, main_b = await place.s("a", name="main a"), await place.s("b", name="main b")
    a1, a2 = await place.s("a", "a", name="a1"), await place.s("a", "a", name="a2")
    b1, legacy = await place.s("b", "b", name="b1"), await place.f("legacy")
    sees = {
        main_a: {"main a", "main b", "legacy", "a1", "a2"},
        main_b: {"main a", "main b", "legacy", "b1"},
        a1: {"main a", "a1", "a2"},
        b1: {"main b", "b1"},
        legacy: {"main a", "main b", "legacy"},
    }
    ends = {"main a": main_a, "main b": main_b, "a1": a1, "a2": a2, "b1": b1, "legacy": legacy}
    for end, seen in sees.items():
        assert await names(end) == seen
        for name, other in ends.items():
            for to in (other.id, name):
                answer = await end.call("send", to=to, text=f"for {name}")
                if name in seen:
                    assert answer["outcome"] == "delivered"
                else:
                    assert (answer["outcome"], answer["reason"]) == ("failed", "Session not found")
    absent = await a1.call("send", to="nobody-at-all", text="x")
    hidden = await a1.call("send", to=main_b.id, text="x")
    assert {**absent, "messageId": 0, "frame": 0} == {**hidden, "messageId": 0, "frame": 0}
    await main_a.call("leave")
    assert await names(a1) == {"a1", "a2"}
    assert (await a1.call("send", to=a2.id, text="orphans"))["outcome"] == "delivered"
    await a2.got("orphans")


@pytest.mark.clause("intercom-42")
async def test_case_42_hidden_peer_makes_no_name_ambiguous_and_leaves_unheard(place: Room) -> None:
    """Two of a name, one of them hidden, are one; its reads are not found; nobody else hears it go."""
    main_a, main_b = await place.s("a", name="main a"), await place.s("b", name="main b")
    seen, hidden = await place.s("a", "a", name="worker"), await place.s("b", "b", name="worker")
    assert (await main_a.call("send", to="worker", text="mine"))["outcome"] == "delivered"
    await seen.got("mine")
    assert hidden.texts() == []
    answer = await main_a.call("read", kind="last", to=hidden.id)
    assert answer["error"] == "not_found"
    absent = await main_a.call("read", kind="last", to="nobody-at-all")
    assert absent["error"] == answer["error"]
    await hidden.call("leave")
    await main_b.event("left")
    await main_a.call("list")
    assert main_a.count("left") + seen.count("left") == 0


@pytest.mark.clause("intercom-35")
async def test_case_35_presence_cannot_change_the_group(place: Room) -> None:
    """What was pinned at registration stays, whatever presence says."""
    main_a, child = await place.s("a", name="main a"), await place.s("b", "b", name="child of b")
    await child.call("presence", facts={"rootSessionId": "a", "parentSessionId": "a", "status": "sly"})
    assert await names(child) == {"child of b"}
    assert await names(main_a) == {"main a"}


@pytest.mark.parametrize(
    "lineage",
    [
        {"rootSessionId": None, "parentSessionId": "a"},
        {"rootSessionId": "a", "parentSessionId": "b"},
        {"rootSessionId": "", "parentSessionId": ""},
        {"rootSessionId": "a", "parentSessionId": "a\n"},
    ],
)
async def test_lineage_that_is_none_is_no_registration(place: Room, lineage: dict[str, Any]) -> None:
    """A parent that is not the root, or no label: never trimmed or guessed into another group."""
    end = await place.start_f("--announce=guardedDelivery")
    with pytest.raises(Failed) as caught:
        await end.register("x", session=lineage)
    assert caught.value.code == "disconnected"


# ---------------------------------------------------------------- the shipped client


@pytest.mark.clause("intercom-31")
async def test_client_at_a_broker_of_an_old_revision_sends_nothing(private_home: Path) -> None:
    """It connects and lists, and refuses every guarded send, receipt and page."""
    path = private_home / "i" / "broker.sock"
    async with broker(THEIRS, path), room(path) as place:
        old = await place.f("old")
        client = await companion(place)
        assert await names(client) == {"old", "companion"}
        guard = {"rootSessionId": "o", "peerId": old.id, "incarnation": "i", "applicationGuard": "g"}
        message = {
            "messageId": "m", "text": "x", "expectsReply": False, "delivery": "steer", "guard": guard,
        }  # fmt: skip
        assert await code(client, "send", to=old.id, message=message) == "unsupported"
        assert await code(client, "last", to=old.id) == "unsupported"
        wanted = {"rootSessionId": "o", "messageId": "m"}
        assert await code(client, "receipt", to=old.id, wanted=wanted) == "unsupported"
        assert old.texts() == []
        await client.call("disconnect")
        await old.event("left")


async def guarded(place: Room) -> tuple[JsEnd, JsEnd, dict[str, Any]]:
    """Return a guarded main, the shipped client, and the guard as the client reads it from its list."""
    main = await place.s("a", name="main a", session={"applicationGuard": "revision-1"})
    client = await companion(place)
    row = next(row for row in await client.call("list") if row["id"] == main.id)
    assert row["guardedDelivery"] == 1
    named = ("rootSessionId", "incarnation", "applicationGuard")
    return main, client, {**{name: row[name] for name in named}, "peerId": row["id"]}


def command(guard: dict[str, Any], text: str = "x", **more: Any) -> dict[str, Any]:
    """Return a guarded message."""
    made = {
        "messageId": f"m-{text}",
        "text": text,
        "expectsReply": False,
        "delivery": "steer",
        "guard": guard,
    }
    return made | more


@pytest.mark.clause("intercom-135")
async def test_case_135_guarded_send_reaches_exactly_the_main_that_was_chosen(place: Room) -> None:
    """The whole binding as the list shows it is routed, with guard and hint; anything stale in it is not."""
    main, client, guard = await guarded(place)
    hint = {"tool": "my_tool", "commandId": COMMAND}
    told = await client.call("send", to=main.id, message=command(guard, "good", replyHint=hint))
    assert (told["accepted"], told["delivered"]) == (True, True)
    got = await main.got("good")
    assert (got["guard"], got["replyHint"], got["expectsReply"]) == (guard, hint, False)
    assert got["from"]["id"] == client.id
    for name in ("rootSessionId", "incarnation", "applicationGuard"):
        stale = command({**guard, name: "other"}, f"stale {name}")
        told = await client.call("send", to=main.id, message=stale)
        assert (told["accepted"], told["delivered"], told["queued"]) == (False, False, False)
    absent = {**guard, "peerId": "nobody-at-all"}
    told = await client.call("send", to="nobody-at-all", message=command(absent, "absent"))
    assert (told["accepted"], told["reason"]) == (False, "Session not found")
    assert main.texts() == ["good"]


@pytest.mark.clause("intercom-135")
async def test_case_135_withdrawn_changed_or_ambiguous_consent_fails_closed(place: Room) -> None:
    """A changed guard, none any more, a child, a second main of that root: refused, and nobody gets it."""
    main, client, guard = await guarded(place)
    await main.call("presence", facts={"applicationGuard": "revision-2"})
    await main.call("list")
    assert not (await client.call("send", to=main.id, message=command(guard, "changed")))["accepted"]
    newer = {**guard, "applicationGuard": "revision-2"}
    assert (await client.call("send", to=main.id, message=command(newer, "newer")))["accepted"]
    child = await place.s("a", "a", name="child", session={"applicationGuard": "revision-2"})
    aimed = {**newer, "peerId": child.id}
    assert not (await client.call("send", to=child.id, message=command(aimed, "child")))["accepted"]
    twin = await place.s("a", name="twin", session={"applicationGuard": "revision-2"})
    for one in (main, twin):
        double = {**newer, "peerId": one.id}
        assert not (await client.call("send", to=one.id, message=command(double, f"two {one.id}")))[
            "accepted"
        ]
    await twin.call("leave")
    await main.event("left", lambda one: one["sessionId"] == twin.id)
    assert (await client.call("send", to=main.id, message=command(newer, "alone")))["accepted"]
    await main.call("presence", facts={"applicationGuard": None})
    await main.call("list")
    assert not (await client.call("send", to=main.id, message=command(newer, "withdrawn")))["accepted"]
    await main.got("alone")
    assert (main.texts(), twin.texts(), child.texts()) == (["newer", "alone"], [], [])


@pytest.mark.clause("intercom-136")
async def test_case_136_last_answer_is_read_in_pinned_pages_without_a_message(place: Room) -> None:
    """Pages by code units; a newer answer changes nothing; empty and gone are said; nobody is woken."""
    main, client, _ = await guarded(place)
    assert await client.call("last", to=main.id) == {
        "entryId": None, "text": "", "offset": 0, "nextOffset": None, "empty": True,
    }  # fmt: skip
    text = "\U0001f680" * 10_000 + "end"
    await main.call("entries", entries=[{"id": "e-1", "text": text}])
    page = await client.call("last", to=main.id)
    assert (page["entryId"], page["nextOffset"], page["empty"]) == ("e-1", 16_384, False)
    await main.call("entries", entries=[{"id": "e-1", "text": text}, {"id": "e-2", "text": "newer"}])
    found = page["text"]
    while page["nextOffset"] is not None:
        wanted = {"entryId": "e-1", "offset": page["nextOffset"], "limit": 5_001}
        page = await client.call("last", to=main.id, wanted=wanted)
        found += page["text"]
    assert found.encode("utf-16-le", "surrogatepass").decode("utf-16-le") == text
    assert (await client.call("last", to=main.id))["text"] == "newer"
    await main.call("entries", entries=[])
    gone = {"entryId": "e-1", "offset": 16_384}
    assert await code(client, "last", to=main.id, wanted=gone) == "entry_not_found"
    assert await code(client, "last", to="nobody-at-all") == "not_found"
    assert main.texts() == []


@pytest.mark.clause("intercom-137")
async def test_case_137_receipt_is_of_the_exact_root_and_raw_text(place: Room) -> None:
    """The owner's facts, with the hash of the raw text; another root is unavailable, another id not found."""
    main, client, guard = await guarded(place)
    text = "raw \r\n e\u0301 text "
    await client.call("send", to=main.id, message=command(guard, text, messageId="m-1"))
    got = await main.got(text)
    wanted = {"rootSessionId": guard["rootSessionId"], "messageId": got["id"]}
    digest = hashlib.sha256(got["content"]["text"].encode()).hexdigest()
    facts = {
        "version": 1,
        **wanted,
        "textSha256": digest,
        "checkpointEntryId": "e-9",
        "placementEntryId": None,
    }
    await main.call("facts", receipts=[facts])
    assert await client.call("receipt", to=main.id, wanted=wanted) == facts
    assert digest == hashlib.sha256(text.encode()).hexdigest()
    unknown = {**wanted, "messageId": "never-sent"}
    assert await code(client, "receipt", to=main.id, wanted=unknown) == "receipt_not_found"
    foreign = {**wanted, "rootSessionId": "other"}
    assert await code(client, "receipt", to=main.id, wanted=foreign) == "publication_unavailable"
    read = await main.event("read", lambda one: one["wanted"] == wanted)
    assert read["from"] == client.id


async def test_read_ends_when_its_owner_leaves_or_does_not_answer(place: Room) -> None:
    """Departure settles it at once, silence after the broker's time; nobody else can answer in its place."""
    main, client, _ = await guarded(place)
    other = await place.s("b", name="main b")
    await main.call("hush", hushed=True)
    waiting = asyncio.ensure_future(code(client, "last", to=main.id))
    read = await main.event("read")
    forged = {"entryId": "e", "text": "forged", "offset": 0, "nextOffset": None}
    await other.call("frame", frame={"type": "last_page", "token": read["token"], **forged})
    await other.call("list")
    assert not waiting.done()
    await main.call("break")
    assert await waiting == "disconnected"
    await other.call("hush", hushed=True)
    assert await code(client, "last", to=other.id) == "timeout"


async def test_client_is_lost_with_its_broker_and_stays_lost(private_home: Path) -> None:
    """A killed broker ends what waits; the next one sees no client come back by itself."""
    path = private_home / "i" / "broker.sock"
    async with room(path) as place:
        first = await OurBroker.begin(path.parent)
        main, client, guard = await guarded(place)
        await main.call("hush", hushed=True)
        waiting = asyncio.ensure_future(code(client, "last", to=main.id))
        await main.event("read")
        await first.discard()
        assert await waiting == "disconnected"
        await client.event("lost")
        assert await code(client, "send", to=main.id, message=command(guard)) == "disconnected"
        second = await OurBroker.begin(path.parent)
        watcher = await place.f("watcher")
        await asyncio.sleep(1.2)
        assert await names(watcher) == {"watcher"}
        await second.discard()


# ---------------------------------------------------------------- parked children


async def parked(place: Room, main: JsEnd) -> str:
    """Return the id of a child of group `a` that left and will come back."""
    child = await place.s("a", "a", name="child", requestedId="pi-child-0000000000000001")
    await child.call("unregister", parked=True)
    await main.event("left", lambda one: one["sessionId"] == child.id)
    await child.call("break")
    return child.id


@pytest.mark.clause("intercom-104", "intercom-131")
async def test_cases_104_131_failed_wake_ends_the_ask_and_the_question_still_arrives(place: Room) -> None:
    """Its main is asked to wake it; the failure reaches who asks; the mail waits and comes in order."""
    main = await place.s("a", name="main a")
    child_id = await parked(place, main)
    await main.call("on_wake", outcome={"ok": False, "detail": "no such run"})
    with pytest.raises(Failed) as caught:
        await main.call("ask", to=child_id, text="question", delivery="queue", message_id="q-1")
    assert caught.value.code == "wake_failed"
    assert "may still arrive later" in str(caught.value)
    await main.call("on_wake", outcome={"ok": True})
    again = await main.call("send", to=child_id, text="second")
    assert again["outcome"] == "queued"
    await main.event("wake", lambda one: one["messageId"] == again["messageId"])
    assert main.count("wake") == 2
    back = await place.s("a", "a", name="child", requestedId=child_id)
    assert back.id == child_id
    await back.got("second")
    assert back.texts() == ["question", "second"]


@pytest.mark.clause("intercom-131")
async def test_case_131_parked_childs_mail_survives_the_broker_and_its_main(private_home: Path) -> None:
    """Held mail outlives a killed broker; the next main of the group is asked to wake the child."""
    path = private_home / "i" / "broker.sock"
    async with room(path) as place:
        first = await OurBroker.begin(path.parent)
        main = await place.s("a", name="main a")
        child_id = await parked(place, main)
        assert (await main.call("send", to=child_id, text="kept"))["outcome"] == "queued"
        await first.discard()
        await main.lost()
        second = await OurBroker.begin(path.parent)
        await asyncio.sleep(6)  # longer than a broker without mail stays
        assert second.process.returncode is None
        stranger = await place.s("b", "b", name="stranger", requestedId=child_id)
        assert stranger.id != child_id
        again = await place.s("a", name="main a again")
        await again.event("wake", lambda one: one["sessionId"] == child_id)
        back = await place.s("a", "a", name="child", requestedId=child_id)
        await back.got("kept")
        await asyncio.sleep(QUIET_S)
        assert (back.texts(), stranger.texts()) == (["kept"], [])
        await second.discard()
