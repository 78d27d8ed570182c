"""Sessions of revision F that somebody else wrote, at a broker of theirs and at ours: nobody can tell which.

Each test names the numbered behaviours of reference/intercom.md 8 that it shows.
"""

import asyncio
import json
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.js.brokers import BROKERS, broker
from tests.contract.js.intercom import Failed, JsBroker, JsEnd, Room, room

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

PEER_ID = "pi-0123456789abcdef0123456789abcdef"
QUIET_S = 0.3
FRAME_BYTES_MAX = 1_048_576


@pytest_asyncio.fixture(params=BROKERS)
async def place(request: pytest.FixtureRequest, private_home: Path) -> AsyncIterator[Room]:
    """Give a room at a running broker, once at theirs and once at ours."""
    path = private_home / "i" / "broker.sock"
    async with broker(request.param, path), room(path) as made:
        yield made


def framed(payload: bytes) -> str:
    """Return a payload with its length before it, in hexadecimal."""
    return (struct.pack(">I", len(payload)) + payload).hex()


def message(identity: str = "m-1", text: str = "x", **more: Any) -> dict[str, Any]:
    """Return a message; what is None in `more` is left out."""
    made = {"id": identity, "timestamp": 1, "content": {"text": text}, **more}
    return {name: value for name, value in made.items() if value is not ...}


# ---------------------------------------------------------------- frames


@pytest.mark.clause("intercom-1", "intercom-2", "intercom-32")
async def test_cases_1_2_32_frames_split_and_joined_are_answered_in_order(place: Room) -> None:
    """One byte at a time or two frames in one write: each is answered, in order, and the asker is listed."""
    alice = await place.f("alice")
    asked = json.dumps({"type": "send", "to": "alice", "message": message("m-1", "slowly")}).encode()
    await alice.call("dribble", frame=json.loads(asked))
    await alice.got("slowly")
    second = json.dumps({"type": "send", "to": "alice", "message": message("m-2", "two")}).encode()
    third = json.dumps({"type": "send", "to": "alice", "message": message("m-3", "three")}).encode()
    await alice.call("raw", parts=[{"hex": framed(second) + framed(third)}])
    await alice.got("three")
    assert alice.texts() == ["slowly", "two", "three"]
    assert [row["id"] for row in await alice.call("list")] == [alice.id]


def padded(payload_bytes: int) -> bytes:
    """Return a list request whose payload has exactly this many bytes."""
    shell = b'{"type":"list","requestId":"r","pad":""}'
    return shell[:-2] + b"a" * (payload_bytes - len(shell)) + shell[-2:]


@pytest.mark.clause("intercom-4")
async def test_case_4_payload_of_exactly_one_mebibyte_is_accepted(place: Room) -> None:
    """The bound counts the payload alone, and is inclusive."""
    alice = await place.f("alice")
    await alice.call("raw", parts=[{"hex": framed(padded(FRAME_BYTES_MAX))}])
    assert len(await alice.call("list")) == 1


BROKEN: dict[str, list[dict[str, Any]]] = {
    "case_5_one_byte_over": [{"hex": struct.pack(">I", FRAME_BYTES_MAX + 1).hex()}],
    "case_6_all_ones": [{"hex": "ffffffff"}],
    "case_7_zero_length": [{"hex": "00000000"}],
    "case_8_no_json": [{"hex": framed(b"not json")}],
    "case_8_nan": [{"hex": framed(b'{"type":"list","requestId":"r","x":NaN}')}],
    "case_8_byte_order_mark": [{"hex": framed(b'\xef\xbb\xbf{"type":"list","requestId":"r"}')}],
    "case_9_null": [{"hex": framed(b"null")}],
    "case_9_array": [{"hex": framed(b'[{"type":"list","requestId":"r"}]')}],
    "case_9_no_type": [{"hex": framed(b'{"requestId":"r"}')}],
    "case_9_numeric_type": [{"hex": framed(b'{"type":1}')}],
    "case_10_lines": [{"text": '{"type":"list","requestId":"r"}\n'}],
    "case_13_unknown_type": [{"hex": framed(b'{"type":"wave"}')}],
    "case_13_named_like_a_method": [{"hex": framed(b'{"type":"constructor"}')}],
    "case_13_health_of_another_revision": [{"hex": framed(b'{"type":"health","requestId":"r"}')}],
    "case_16_second_registration": [
        {"hex": framed(b'{"type":"register","session":{"cwd":"/a","model":"m"}}')}
    ],
    "case_25_presence_with_negative_asks": [{"hex": framed(b'{"type":"presence","pendingAsks":-1}')}],
    "case_33_list_without_id": [{"hex": framed(b'{"type":"list"}')}],
    "case_33_list_with_number": [{"hex": framed(b'{"type":"list","requestId":1}')}],
    "case_36_presence_with_null": [{"hex": framed(b'{"type":"presence","status":null}')}],
    "case_36_presence_with_empty_name": [{"hex": framed(b'{"type":"presence","name":""}')}],
}


@pytest.mark.clause(
    "intercom-5", "intercom-6", "intercom-7", "intercom-8", "intercom-9", "intercom-10", "intercom-13",
    "intercom-16", "intercom-25", "intercom-33", "intercom-36",
)  # fmt: skip
@pytest.mark.parametrize("case", BROKEN)
async def test_malformed_frame_of_each_case_closes_its_socket_and_no_other(place: Room, case: str) -> None:
    """Who sent it is cut off without a word; the others hear that it left, and list it no more."""
    bad, good = await place.f("bad"), await place.f("good")
    if case.startswith("case_5"):
        assert len(bytes.fromhex(BROKEN[case][0]["hex"])) == 4  # closes before any payload comes
    await bad.call("raw", parts=BROKEN[case])
    assert await bad.lost() == "closed"
    left = await good.event("left")
    assert left["sessionId"] == bad.id
    assert [row["id"] for row in await good.call("list")] == [good.id]


@pytest.mark.clause("intercom-8")
async def test_case_8_frames_behind_a_broken_one_are_dropped(place: Room) -> None:
    """What stands before it in the same write counts, what stands behind it does not."""
    alice, bob = await place.f("alice"), await place.f("bob")

    def sent(text: str) -> str:
        return framed(
            json.dumps(
                {"type": "send", "to": "bob", "message": message(text, text, delivery="steer")}
            ).encode()
        )

    await alice.call("raw", parts=[{"hex": sent("before") + framed(b"{") + sent("behind")}])
    await alice.lost()
    await bob.event("left")
    assert bob.texts() == ["before"]


@pytest.mark.clause("intercom-11")
async def test_case_11_writer_refuses_what_is_over_the_bound(place: Room) -> None:
    """Nothing of it is written, and the socket goes on."""
    alice = await place.f("alice")
    with pytest.raises(Failed, match="Intercom message too large"):
        await alice.call("send", to="alice", text="a" * FRAME_BYTES_MAX)
    assert (await alice.call("send", to="alice", text="small"))["outcome"] == "delivered"


@pytest.mark.clause("intercom-12")
async def test_case_12_odd_text_survives(place: Room) -> None:
    """A lone surrogate, invalid UTF-8 and a key that stands twice arrive as JavaScript reads them."""
    alice, bob = await place.f("alice"), await place.f("bob")

    def raw(content: bytes, identity: bytes) -> bytes:
        return (
            b'{"type":"send","to":"bob","message":{"id":"'
            + identity
            + b'","timestamp":1.5,"content":'
            + content
            + b"}}"
        )

    parts = [
        raw(rb'{"text":"lone \ud800"}', b"m-1"),
        raw(b'{"text":"bad \xff"}', b"m-2"),
        raw(rb'{"text":"first","text":"last"}', b"m-3"),
        raw('{"text":"\u2028 \u202e \ufeff \U0001f680"}'.encode(), b"m-4"),
    ]
    await alice.call("raw", parts=[{"hex": "".join(framed(part) for part in parts)}])
    await bob.got("\u2028 \u202e \ufeff \U0001f680")
    assert bob.texts() == ["lone \ud800", "bad \ufffd", "last", "\u2028 \u202e \ufeff \U0001f680"]
    assert bob.events[-1]["message"]["timestamp"] == 1.5


# ---------------------------------------------------------------- registration


@pytest.mark.clause("intercom-15")
async def test_case_15_frame_before_registration_closes(place: Room) -> None:
    """Whoever speaks before it said who it is, is cut off."""
    for payload in (b'{"type":"list","requestId":"r"}', b'{"type":"unregister"}'):
        reader, writer = await asyncio.open_unix_connection(place.socket)
        writer.write(bytes.fromhex(framed(payload)))
        assert await reader.read() == b""
        writer.close()


@pytest.mark.clause("intercom-17", "intercom-18")
async def test_cases_17_18_wanted_id_is_granted_unless_somebody_holds_it(place: Room) -> None:
    """The first gets it and keeps it, a second gets another one; whoever comes back gets it again."""
    first = await place.f("first", requestedId=PEER_ID)
    assert first.id == PEER_ID
    second = await place.f("second", requestedId=PEER_ID)
    assert second.id != PEER_ID
    assert len(second.id) == 36
    assert len(await first.call("list")) == 2
    await first.call("leave")
    again = await place.f("again", requestedId=PEER_ID)
    assert again.id == PEER_ID


@pytest.mark.clause("intercom-19", "intercom-20")
@pytest.mark.parametrize("wanted", ["seven-7", "a" * 81, "with-newline\n", "with space", "", 12345678])
async def test_cases_19_20_unfit_wish_is_ignored_as_is_an_id_in_the_session(place: Room, wanted: Any) -> None:
    """Too short, too long, other characters: a fresh id, never the wish, never what the session claims."""
    made = await place.f("a", requestedId=wanted, session={"id": "claimed-by-itself"})
    assert made.id not in (wanted, "claimed-by-itself")
    assert len(made.id) == 36


INVALID_SESSIONS: dict[str, dict[str, Any]] = {
    "case_21_no_cwd": {"cwd": None},
    "case_21_empty_cwd": {"cwd": ""},
    "case_21_no_model": {"model": None},
    "case_21_empty_model": {"model": ""},
    "case_22_control_in_name": {"name": "a\nb"},
    "case_22_control_in_cwd": {"cwd": "/a\x00"},
    "case_22_control_in_model": {"model": "m\x7f"},
    "case_22_control_in_status": {"status": "idle\x9f"},
    "case_23_empty_name": {"name": ""},
    "case_24_short_project": {"projectId": "ab"},
    "case_24_upper_project": {"projectId": "A" * 64},
    "case_25_negative_asks": {"pendingAsks": -1},
    "case_25_fractional_asks": {"pendingAsks": 1.5},
    "case_25_asks_as_text": {"pendingAsks": "1"},
    "case_25_asks_as_flag": {"pendingAsks": True},
}


@pytest.mark.clause("intercom-21", "intercom-22", "intercom-23", "intercom-24", "intercom-25")
@pytest.mark.parametrize("case", INVALID_SESSIONS)
async def test_invalid_registration_of_each_case_closes(place: Room, case: str) -> None:
    """No answer, no session, no trace of it for the others."""
    other, made = await place.f("other"), await place.start_f()
    with pytest.raises(Failed) as caught:
        await made.register("bad", session=INVALID_SESSIONS[case])
    assert caught.value.code == "disconnected"
    assert len(await other.call("list")) == 1
    assert other.count("left") == 0


@pytest.mark.clause("intercom-25")
async def test_case_25_time_that_is_no_finite_number_closes(place: Room) -> None:
    """1e400 is JSON, and not finite."""
    reader, writer = await asyncio.open_unix_connection(place.socket)
    payload = b'{"type":"register","session":{"cwd":"/a","model":"m","lastSeen":1e400}}'
    writer.write(bytes.fromhex(framed(payload)))
    assert await reader.read() == b""
    writer.close()


@pytest.mark.clause("intercom-23", "intercom-26")
async def test_cases_23_26_unknown_fields_are_listed_and_a_name_is_not_needed(place: Room) -> None:
    """What a session says of itself is shown as it said it."""
    alice, bob = await place.f("alice", session={"mood": {"deep": [1, None]}}), await place.f(None)
    rows = {row["id"]: row for row in await bob.call("list")}
    assert rows[alice.id]["mood"] == {"deep": [1, None]}
    assert "name" not in rows[bob.id]
    assert list(rows) == [alice.id, bob.id]  # in the order of registration


@pytest.mark.clause("intercom-31")
async def test_case_31_capability_nobody_asked_for_is_not_echoed(place: Room) -> None:
    """A plain registration is answered with its id alone: newer fields would mean newer frames."""
    alice = await place.f("alice")
    assert alice.who["frame"] == {"type": "registered", "sessionId": alice.id}


# ---------------------------------------------------------------- presence


@pytest.mark.clause("intercom-34", "intercom-35")
async def test_cases_34_35_presence_is_silent_and_cannot_change_the_directory(place: Room) -> None:
    """No answer and no broadcast; the next list shows the change, and only what may change."""
    alice, bob = await place.f("alice"), await place.f("bob")
    before = {row["id"]: row for row in await bob.call("list")}[alice.id]
    facts = {"status": "thinking", "acceptsAsks": False, "cwd": "/other", "projectId": "0" * 64, "mood": "x"}
    await alice.call("presence", facts=facts)
    await alice.call("list")
    after = {row["id"]: row for row in await bob.call("list")}[alice.id]
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed - {"lastSeen"} == {"status", "acceptsAsks"}
    assert bob.events == [{"event": "ready"}]


@pytest.mark.clause("intercom-38")
@pytest.mark.parametrize("way", ["unregister", "leave", "break"])
async def test_case_38_leaving_in_each_way_tells_the_others_once(place: Room, way: str) -> None:
    """Whether it says so or just closes, all others hear it."""
    alice, bob, carol = [await place.f(name) for name in ("alice", "bob", "carol")]
    await alice.call(way)
    for other in (bob, carol):
        assert (await other.event("left"))["sessionId"] == alice.id
    if way == "unregister":
        await alice.call("frame", frame={"type": "list", "requestId": "r"})
        await alice.lost()  # whoever left may say nothing more
    assert [bob.count("left"), carol.count("left")] == [1, 1]


# ---------------------------------------------------------------- routing


@pytest.mark.clause("intercom-43", "intercom-44", "intercom-50")
async def test_cases_43_44_50_message_arrives_unchanged_by_id_and_by_name(place: Room) -> None:
    """Exact id or name in any case; unknown fields stay; `from` is the sender as the list shows it."""
    alice, bob = await place.f("Alice"), await place.f("Stra\u00dfe")
    given = message("m-1", "hello", replyTo="never-asked", mood={"a": [None, 1.5]}, delivery="steer")
    given["content"]["extra"] = "kept"
    assert (await alice.call("send_raw", to=bob.id, message=given))["outcome"] == "delivered"
    got = await bob.event("message")
    assert got["message"] == given
    assert (got["from"]["id"], got["from"]["name"], got["from"]["status"]) == (alice.id, "Alice", "idle")
    assert (await bob.call("send", to="aLICE", text="back"))["outcome"] == "delivered"
    assert (await alice.call("send", to="STRA\u00dfE", text="by name"))["outcome"] == "delivered"
    failed = await alice.call("send", to="STRASSE", text="folded")
    assert (failed["outcome"], failed["reason"]) == ("failed", "Session not found")


@pytest.mark.clause("intercom-45", "intercom-48", "intercom-49")
async def test_cases_45_48_49_what_is_no_target_fails(place: Room) -> None:
    """A prefix, an id in other case, a padded name, nobody, and one that just left are not found."""
    alice, bob = await place.f("alice"), await place.f(" spaced ", requestedId=PEER_ID)
    gone = await place.f("gone")
    await gone.call("leave")
    await alice.event("left")
    for to in (PEER_ID[:20], PEER_ID.upper(), "spaced", "nobody", gone.id, "gone", ""):
        answer = await alice.call("send", to=to, text="x")
        assert (answer["outcome"], answer["reason"]) == ("failed", "Session not found"), to
    assert bob.texts() == []


@pytest.mark.clause("intercom-46", "intercom-47")
async def test_cases_46_47_shared_name_is_ambiguous_and_an_exact_id_is_not(place: Room) -> None:
    """Nothing is delivered to either; an id goes before the same string as somebody's name."""
    alice = await place.f("alice")
    twins = [await place.f(name) for name in ("twin", "TWIN")]
    answer = await alice.call("send", to="Twin", text="x")
    reason = 'Multiple sessions named "Twin" are connected. Use the session ID instead.'
    assert (answer["outcome"], answer["reason"]) == ("failed", reason)
    impostor = await place.f(twins[0].id)
    await alice.call("send", to=twins[0].id, text="for the id")
    await twins[0].got("for the id")
    assert (twins[1].texts(), impostor.texts()) == ([], [])


@pytest.mark.clause("intercom-51")
async def test_case_51_send_that_grows_past_the_bound_fails_and_the_socket_lives(place: Room) -> None:
    """It fits as it came and does not fit with its sender in front: a definite no."""
    alice, bob = await place.f("alice", session={"mood": "m" * 2_000}), await place.f("bob")
    shell = len(
        json.dumps({"type": "send", "to": "bob", "message": message("m-1", "")}, separators=(",", ":"))
    )
    answer = await alice.call(
        "send_raw", to="bob", message=message("m-1", "a" * (FRAME_BYTES_MAX - shell - 10))
    )
    assert answer["outcome"] == "failed"
    assert answer["reason"].startswith("Intercom message too large (")
    assert answer["reason"].endswith(" bytes; max 1048576)")
    assert (await alice.call("send", to="bob", text="small"))["outcome"] == "delivered"
    await bob.got("small")


@pytest.mark.clause("intercom-52")
async def test_case_52_same_id_twice_is_delivered_twice(place: Room) -> None:
    """The broker of this revision keeps no record of ids: that is the recipient's part."""
    alice, bob = await place.f("alice"), await place.f("bob")
    for text in ("one", "two"):
        answer = await alice.call("send", to="bob", text=text, message_id="same")
        assert answer["outcome"] == "delivered"
    await bob.got("two")
    assert bob.texts() == ["one", "two"]


async def test_session_writes_to_itself_at_the_broker(place: Room) -> None:
    """Only a tool refuses that; the broker routes it."""
    alice = await place.f("alice")
    assert (await alice.call("send", to=alice.id, text="self"))["outcome"] == "delivered"
    await alice.got("self")


# ---------------------------------------------------------------- what a message must be

INVALID: dict[str, dict[str, Any]] = {
    "case_58_empty_id": {"id": ""},
    "case_58_time_as_text": {"timestamp": "1"},
    "case_58_time_as_flag": {"timestamp": True},
    "case_59_nul_in_text": {"content": {"text": "\x00"}},
    "case_59_escape_in_text": {"content": {"text": "\x1b[1m"}},
    "case_59_delete_in_text": {"content": {"text": "\x7f"}},
    "case_59_c1_in_text": {"content": {"text": "\x80"}},
    "case_59_newline_in_id": {"id": "m\n"},
    "case_59_tab_in_thread": {"delivery": "queue", "queueMode": "replace", "threadId": "a\tb"},
    "case_59_newline_in_attachment_name": {
        "content": {"text": "x", "attachments": [{"type": "file", "name": "a\nb", "content": ""}]}
    },
    "case_60_no_text": {"content": {}},
    "case_61_unknown_delivery": {"delivery": "later"},
    "case_61_null_delivery": {"delivery": None},
    "case_61_null_attachments": {"content": {"text": "x", "attachments": None}},
    "case_61_bad_attachment_type": {
        "content": {"text": "x", "attachments": [{"type": "image", "name": "a", "content": ""}]}
    },
    "case_62_passive_with_steer": {"passive": True, "delivery": "steer"},
    "case_62_passive_ask": {"delivery": "passive", "expectsReply": True},
    "case_62_legacy_passive_ask": {"passive": True, "expectsReply": True},
    "case_62_mode_without_queue": {"queueMode": "stack"},
    "case_62_replace_without_thread": {"delivery": "queue", "queueMode": "replace"},
    "case_62_replace_with_blank_thread": {"delivery": "queue", "queueMode": "replace", "threadId": " \u00a0"},
    "case_62_thread_without_replace": {"delivery": "queue", "queueMode": "stack", "threadId": "t"},
}


@pytest.mark.clause(
    "intercom-58", "intercom-59", "intercom-60", "intercom-61", "intercom-62", "intercom-64"
)  # fmt: skip
async def test_cases_58_to_62_and_64_invalid_message_fails_as_unknown_and_the_socket_lives(
    place: Room,
) -> None:
    """Each gets the same answer, nobody gets the message, and the sender stays."""
    alice, bob = await place.f("alice"), await place.f("bob")
    for case, changes in INVALID.items():
        answer = await alice.call("send_raw", to="bob", message=message() | changes, answer="unknown")
        assert (answer["outcome"], answer["reason"]) == ("failed", "Invalid message format"), case
    raw = b'{"type":"send","to":"bob","message":{"id":"m","timestamp":1e400,"content":{"text":"x"}}}'
    await alice.call("raw", parts=[{"hex": framed(raw)}])
    for to in (..., 7, None):
        params = {} if to is ... else {"to": to}
        answer = await alice.call("send_raw", message=message("m-to"), **params)
        assert (answer["outcome"], answer["messageId"]) == ("failed", "m-to")
    await alice.call("send", to="bob", text="still here")
    await bob.got("still here")
    assert bob.texts() == ["still here"]


VALID: dict[str, dict[str, Any]] = {
    "case_59_tab_and_lines": {"content": {"text": "\t\r\n"}},
    "case_60_empty_text": {"content": {"text": ""}},
    "case_63_snippet": {
        "content": {
            "text": "x",
            "attachments": [{"type": "snippet", "name": "a", "content": "b\n", "language": "py"}],
        }
    },
    "case_62_legacy_passive": {"passive": True},
    "case_62_passive_both_ways": {"passive": True, "delivery": "passive"},
    "case_62_stack": {"delivery": "queue", "queueMode": "stack"},
}


@pytest.mark.clause("intercom-59", "intercom-60", "intercom-62", "intercom-63")
async def test_cases_59_60_62_63_valid_message_arrives_unchanged(place: Room) -> None:
    """What the rules allow passes whole."""
    alice, bob = await place.f("alice"), await place.f("bob")
    for case, changes in VALID.items():
        given = message(case) | changes
        assert (await alice.call("send_raw", to="bob", message=given))["outcome"] == "delivered", case
    await alice.call("send", to="bob", text="last")
    await bob.got("last")
    got = [one["message"] for one in bob.events if one["event"] == "message"]
    assert got[:-1] == [message(case) | changes for case, changes in VALID.items()]


# ---------------------------------------------------------------- replacing updates

REPLACE = {"delivery": "queue", "queueMode": "replace"}
QUEUED = "Queued for replace-mode delivery"


@pytest.mark.clause("intercom-65")
async def test_case_65_updates_for_an_idle_target_become_the_last_one(place: Room) -> None:
    """Three updates, three times queued, one delivery after a second and a half."""
    alice, bob = await place.f("alice"), await place.f("bob")
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(3):
        answer = await alice.call("send", to="bob", text=f"v{number}", threadId="t", **REPLACE)
        assert (answer["outcome"], answer["reason"]) == ("queued", QUEUED)
    await alice.call("send", to="bob", text="other", threadId="u", **REPLACE)
    await bob.got("v2")
    assert 1.4 < loop.time() - begun < 4
    await bob.got("other")
    assert bob.texts() == ["v2", "other"]


@pytest.mark.clause("intercom-66", "intercom-67")
@pytest.mark.parametrize("facts", [{"status": "thinking"}, {"acceptsAsks": False}])
async def test_cases_66_67_busy_target_gets_updates_at_once_and_asks_never(place: Room, facts: Any) -> None:
    """Busy by status or because it takes no asks; an ask in a thread is staged all the same."""
    alice, bob = await place.f("alice"), await place.f("bob")
    await bob.call("presence", facts=facts)
    await bob.call("list")
    answer = await alice.call("send", to="bob", text="now", threadId="t", **REPLACE)
    assert answer["outcome"] == "delivered"
    await bob.got("now")
    asked = await alice.call("send", to="bob", text="ask", threadId="t", expectsReply=True, **REPLACE)
    assert asked["outcome"] == "queued"
    assert bob.texts() == ["now"]
    await bob.got("ask")


@pytest.mark.clause("intercom-68")
async def test_case_68_senders_leaving_ends_its_staged_asks_only(place: Room) -> None:
    """The staged update arrives, from who sent it; the staged ask does not."""
    alice, bob = await place.f("alice"), await place.f("bob")
    await alice.call("send", to="bob", text="ask", threadId="a", expectsReply=True, **REPLACE)
    await alice.call("send", to="bob", text="update", threadId="b", **REPLACE)
    await alice.call("break")
    got = await bob.got("update")
    assert got["from"]["id"] == alice.id
    await asyncio.sleep(QUIET_S)
    assert bob.texts() == ["update"]


@pytest.mark.clause("intercom-69")
async def test_case_69_hundred_and_first_thread_is_refused(place: Room) -> None:
    """A hundred keys per sender; a key that is there can still be replaced."""
    alice = await place.f("alice")
    await place.f("bob")
    for number in range(100):
        await alice.call("send", to="bob", text="x", threadId=f"t{number}", **REPLACE)
        if number % 25 == 24:  # none of them is due before the last one came
            await asyncio.gather(
                *(
                    alice.call("send", to="bob", text="y", threadId=f"t{one}", **REPLACE)
                    for one in range(number)
                )
            )
    refused = await alice.call("send", to="bob", text="x", threadId="t100", **REPLACE)
    reason = "Replace-mode delivery queue is full; retry after pending updates are delivered."
    assert (refused["outcome"], refused["reason"]) == ("failed", reason)
    again = await alice.call("send", to="bob", text="z", threadId="t7", **REPLACE)
    assert again["outcome"] == "queued"


# ---------------------------------------------------------------- ask and reply


@pytest.mark.clause("intercom-90", "intercom-91")
async def test_cases_90_91_reply_of_the_asked_one_to_this_ask_ends_the_wait(place: Room) -> None:
    """Neither another sender's nor one to another ask does; text and attachments come with it."""
    alice, bob, carol = [await place.f(name) for name in ("alice", "bob", "carol")]
    waiting = asyncio.ensure_future(alice.call("ask", to=bob.id, text="which?", message_id="q-1"))
    await bob.got("which?")
    await carol.call("send", to=alice.id, text="not mine", replyTo="q-1")
    await bob.call("send", to=alice.id, text="another", replyTo="q-2")
    await alice.got("not mine")
    await alice.got("another")
    assert not waiting.done()
    attachments = [{"type": "snippet", "name": "a.py", "content": "1\n", "language": "py"}]
    await bob.call("reply", text="the second", attachments=attachments)
    told = await waiting
    assert (told["reply"]["text"], told["reply"]["attachments"]) == ("the second", attachments)
    assert await bob.call("pending") == []


@pytest.mark.clause("intercom-92", "intercom-93", "intercom-94", "intercom-95", "intercom-99")
async def test_cases_92_to_95_and_99_wait_ends_in_each_other_way(place: Room) -> None:
    """Departure, time, abort, a second ask: each is an error with its reason, and frees the slot."""
    alice, bob = await place.f("alice"), await place.f("bob")

    async def code(**params: Any) -> str:
        with pytest.raises(Failed) as caught:
            await alice.call("ask", to=bob.id, **params)
        return caught.value.code

    assert await code(text="too slow", wait=200) == "reply_timeout"
    first = asyncio.ensure_future(code(text="first"))
    await bob.got("first")
    assert await code(text="second") == "busy"
    await alice.call("cancel")
    assert await first == "cancelled"
    last = asyncio.ensure_future(code(text="last"))
    await bob.got("last")
    await bob.call("break")
    assert await last == "peer_left"

    carol, dave = await place.f("carol"), await place.f("dave")
    gone = asyncio.ensure_future(dave.call("ask", to=carol.id, text="from one that goes"))
    await carol.got("from one that goes")
    assert len(await carol.call("pending")) == 1
    await dave.call("break")
    await carol.event("left", lambda one: one["sessionId"] == dave.id)
    with pytest.raises(Failed, match="Client disconnected"):
        await gone
    with pytest.raises(Failed) as caught:
        await carol.call("reply", text="to nobody")
    assert caught.value.code == "no_pending_reply"


@pytest.mark.clause("intercom-96")
async def test_case_96_peer_that_takes_no_asks_is_not_waited_for_unless_told(place: Room) -> None:
    """A default ask returns at once; an explicit steer waits."""
    alice, bob = await place.f("alice"), await place.f("bob", session={"acceptsAsks": False})
    told = await alice.call("ask", to=bob.id, text="default")
    assert (told["reason"], told["ack"]["outcome"]) == ("peer_idle", "delivered")
    waiting = asyncio.ensure_future(alice.call("ask", to=bob.id, text="steer", delivery="steer"))
    asked = await bob.got("steer")
    await bob.call("reply", text="answer", replyTo=asked["id"])
    assert (await waiting)["reply"]["text"] == "answer"


@pytest.mark.clause("intercom-106", "intercom-107")
async def test_cases_106_107_reply_names_its_ask_where_there_are_several(place: Room) -> None:
    """None: an error. Several: an error, unless the reply or its recipient is named."""
    alice, bob, carol = [await place.f(name) for name in ("alice", "bob", "carol")]
    with pytest.raises(Failed) as none:
        await carol.call("reply", text="x")
    asked = [
        asyncio.ensure_future(one.call("ask", to=carol.id, text=f"q of {name}"))
        for name, one in (("alice", alice), ("bob", bob))
    ]
    questions = [await carol.got(f"q of {name}") for name in ("alice", "bob")]
    with pytest.raises(Failed) as several:
        await carol.call("reply", text="x")
    assert (none.value.code, several.value.code) == ("no_pending_reply", "ambiguous_reply_target")
    await carol.call("reply", text="for bob", replyTo=questions[1]["id"])
    await carol.call("reply", text="for alice", to="alice")
    assert [(await one)["reply"]["text"] for one in asked] == ["for alice", "for bob"]


# ---------------------------------------------------------------- targets, as a session finds them


@pytest.mark.clause("intercom-109", "intercom-110", "intercom-111")
async def test_cases_109_to_111_prefixes_and_names_resolve_without_guessing(place: Room) -> None:
    """Eight characters of an id, a unique name; a name that is also a prefix of another id is ambiguous."""
    alice = await place.f("alice")
    one = await place.f("one", requestedId="prefix-one-aaaaaaaa")
    other = await place.f("other", requestedId="prefix-two-bbbbbbbb")
    assert await alice.call("displayed", peer=one.id) == "prefix-o"
    assert await alice.call("resolve", to="prefix-o") == {"found": one.id}
    assert await alice.call("resolve", to="prefix") == {"tooShort": True}
    assert await alice.call("resolve", to=" ONE ") == {"found": one.id}
    named = await place.f("prefix-t")
    assert set((await alice.call("resolve", to="prefix-t"))["ambiguous"]) == {other.id, named.id}
    assert await alice.call("displayed", peer=other.id) == "prefix-tw"
    await place.f("prefix-o")
    shown = await alice.call("displayed", peer=one.id)
    assert (await alice.call("resolve", to=shown)) == {"found": one.id}


# ---------------------------------------------------------------- the process


@pytest.mark.clause("intercom-123")
async def test_case_123_socket_is_the_users_own(place: Room) -> None:
    """The directory is 0700, the socket 0600."""
    assert stat.S_IMODE(place.socket.parent.stat().st_mode) == 0o700
    found = place.socket.lstat()
    assert stat.S_ISSOCK(found.st_mode)
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, os.geteuid())


@pytest.mark.clause("intercom-124")
async def test_case_124_client_refuses_a_link_to_a_socket(place: Room, private_home: Path) -> None:
    """Only a socket of the user itself is connected to."""
    link = private_home / "link.sock"
    link.symlink_to(place.socket)
    made = await JsEnd.begin("intercom-client-f.mjs", f"--socket={link}")
    with pytest.raises(Failed) as caught:
        await made.register("x")
    assert caught.value.code == "unsafe_socket"
    await made.discard()


@pytest.mark.clause("intercom-14")
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "presence_update", "session": {}},
        {"type": "registered", "sessionId": "again"},
        {"type": "last_read", "token": "t"},
        {"type": "delivered"},
        {"type": "delivery_failed", "messageId": "m"},
        {"type": "message", "from": {"id": "x"}, "message": {}},
    ],
)
async def test_case_14_frame_that_a_client_does_not_know_ends_it(private_home: Path, frame: Any) -> None:
    """The strictness that our broker must never provoke: shown on the client that the other tests use."""
    path = private_home / "odd.sock"

    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        for one in ({"type": "registered", "sessionId": "odd-session"}, frame):
            writer.write(bytes.fromhex(framed(json.dumps(one).encode())))
        await reader.read()
        writer.close()

    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    bound.listen()
    server = await asyncio.start_server(odd, sock=bound)
    made = await JsEnd.begin("intercom-client-f.mjs", f"--socket={path}")
    await made.register("x")
    assert await made.lost() != "closed"
    await made.discard()
    server.close()
    await server.wait_closed()


@pytest.mark.clause("intercom-127")
async def test_case_127_their_broker_leaves_after_the_last_session(private_home: Path) -> None:
    """The broker of the second stack ends by itself, a join in the window cancels that, files are gone."""
    path = private_home / "i" / "broker.sock"
    process = await JsBroker.start(path, "--idle=400")
    async with room(path) as made:
        first, second = await made.f("a"), await made.start_f()
        await first.call("leave")
        await asyncio.sleep(0.2)
        await second.register("b")
        await asyncio.sleep(0.6)
        assert (await second.call("who"))["isConnected"]
        await second.call("leave")
        assert await process.ended() == 0
    assert not path.exists()
    await process.discard()
