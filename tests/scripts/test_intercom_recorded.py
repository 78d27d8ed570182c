"""Golden conversations of revision N of the intercom wire, and of rooms where it meets the strict form."""

# ruff: noqa: E501 - a frame is one line, as it is on the wire

from typing import Any

import pytest

from tests.scripts.room import Room, converse
from tieline.wire.intercom.forms import plain_session

ACK = '"delivery":"socket_delivered","retryable":false,"outcomeKnown":true}'
NOT = '"delivery":"failed","retryable":false,"outcomeKnown":true,"code":'


@pytest.mark.clause("intercom-100", "intercom-48", "intercom-38", "intercom-32")
def test_captured_conversation_of_revision_n_is_the_same_here() -> None:
    """The captured script of revision N goes as captured, frame by frame."""
    fields = '"cwd":"/srv/demo","model":"probe-model","pid":1,"startedAt":9,"lastActivity":9,"status":"idle"'
    a = f'{{"id":"pi-0123","endpointEpoch":"*","name":"asker",{fields},"trustedLocal":true}}'
    b = f'{{"id":"session-b-0001","endpointEpoch":"*","name":"answerer",{fields},"trustedLocal":true}}'
    features = '"features":["extension-bus-v1","exact-send-v1"]'
    converse(f"""
        A> {{"type":"health","requestId":"h1"}}
        A< {{"type":"health_ok","requestId":"h1","protocol":"pi-intercom","version":1}}
        A> {{"type":"register","session":{{{fields},"name":"asker"}},"sessionId":"pi-0123"}}
        A< {{"type":"registered","sessionId":"pi-0123",{features}}}
        B> {{"type":"register","session":{{{fields},"name":"answerer"}},"sessionId":"session-b-0001"}}
        B< {{"type":"registered","sessionId":"session-b-0001",{features}}}
        A< {{"type":"session_joined","session":{b}}}
        A> {{"type":"list","requestId":"L1"}}
        A< {{"type":"sessions","requestId":"L1","sessions":[{a},{b}]}}
        A> {{"type":"send","to":"nobody-here","message":{{"id":"m-unknown","timestamp":1,"content":{{"text":"x"}}}}}}
        A< {{"type":"delivery_failed","messageId":"m-unknown","reason":"Session not found",{NOT}"E_TARGET_NOT_FOUND"}}
        A> {{"type":"send","to":"session-b-0001","message":{{"id":"m-ask","timestamp":2,"expectsReply":true,"delivery":"steer","content":{{"text":"which one?"}}}}}}
        B< {{"type":"message","from":{a},"message":{{"id":"m-ask","timestamp":2,"expectsReply":true,"delivery":"steer","content":{{"text":"which one?"}},"brokerReceivedAt":1700000005000,"brokerDeliveredAt":1700000005000}}}}
        A< {{"type":"delivered","messageId":"m-ask",{ACK}
        B> {{"type":"send","to":"pi-0123","message":{{"id":"m-reply","timestamp":3,"replyTo":"m-ask","delivery":"steer","content":{{"text":"the second"}}}}}}
        A< {{"type":"message","from":{b},"message":{{"id":"m-reply","...":1}}}}
        B< {{"type":"delivered","messageId":"m-reply",{ACK}
        B> {{"type":"send","to":"pi-0123","message":{{"id":"m-reply2","timestamp":3,"replyTo":"m-ask","delivery":"steer","content":{{"text":"again"}}}}}}
        B< {{"type":"delivery_failed","messageId":"m-reply2","reason":"Reply target does not match a pending ask",{NOT}"E_REPLY_TARGET"}}
        B> {{"type":"presence","status":"thinking","acceptsAsks":false}}
        A< {{"type":"presence_update","session":{{"id":"session-b-0001","endpointEpoch":"*","name":"answerer","cwd":"/srv/demo","model":"probe-model","pid":1,"startedAt":9,"lastActivity":1700000005000,"status":"thinking","trustedLocal":true}}}}
        B> {{"type":"unregister"}}
        A< {{"type":"session_left","sessionId":"session-b-0001"}}
    """)


@pytest.mark.clause("intercom-1", "intercom-2", "intercom-13", "intercom-15", "intercom-16", "intercom-33")
@pytest.mark.parametrize(
    "frame",
    [
        '{"type":"register","session":{"cwd":"/w","model":"m","pid":1,"startedAt":1,"lastActivity":1},"sessionId":"x"}',
        '{"type":"nonsense"}',
        '{"type":"list"}',
        '{"type":"health","requestId":1}',
        "[]",
        "{",
    ],
)
def test_frame_out_of_order_closes_a_recorded_socket(frame: str) -> None:
    """Revision N has the same legal order."""
    room = Room()
    room.join_recorded("A")
    room.send_payload("A", frame.encode())
    assert not room.ends["A"].is_open
    assert room.heard("A") == []


@pytest.mark.clause("intercom-21", "intercom-26", "intercom-29")
def test_recorded_session_needs_its_process_and_times_and_keeps_what_is_known() -> None:
    """Without a process or times it is closed; unknown members and trust that it claims are dropped."""
    for missing in ("pid", "startedAt", "lastActivity", "cwd", "model"):
        room = Room()
        session = {"cwd": "/w", "model": "m", "pid": 7, "startedAt": 1, "lastActivity": 2}
        del session[missing]
        room.send("A", {"type": "register", "session": session, "sessionId": "s"})
        assert not room.ends["A"].is_open
    room = Room()
    room.join_recorded("B")
    room.join_recorded(
        "A", team="red", trustedLocal=False, endpointEpoch="mine", tmuxPane="%1", extensions=[]
    )
    row = room.heard("B")[0]["session"]
    assert row.keys() == {
        *("id", "endpointEpoch", "name", "cwd", "model", "pid", "startedAt", "lastActivity"),
        *("tmuxPane", "extensions", "trustedLocal"),
    }
    assert row["trustedLocal"] is True
    assert row["endpointEpoch"] != "mine"


@pytest.mark.clause("intercom-27", "intercom-28")
def test_same_id_again_takes_the_place_of_the_older_socket() -> None:
    """The newest registration wins, under a new epoch; the older socket is closed and changes nothing more."""
    room = Room()
    room.join_recorded("W")
    room.join_recorded("A", id="same")
    first = room.heard("W")[0]["session"]["endpointEpoch"]
    room.join_recorded("B", id="same")
    assert not room.ends["A"].is_open
    (joined,) = room.heard("W")
    assert joined["type"] == "session_joined"
    assert joined["session"]["endpointEpoch"] != first
    room.send("W", {"type": "list", "requestId": "x"})
    assert [row["name"] for row in room.heard("W")[0]["sessions"]] == ["W", "B"]


@pytest.mark.clause("intercom-18", "I44")
def test_recorded_newcomer_takes_no_place_of_the_strict_form() -> None:
    """A session of the strict form is neither evicted nor merged by whoever asks for its id."""
    room = Room()
    room.join("A", id="the-same-id")
    assert room.join_recorded("B", id="the-same-id") != "the-same-id"
    assert room.ends["A"].is_open
    assert room.join("C", id="the-same-id") != "the-same-id"


@pytest.mark.clause("intercom-39")
def test_presence_without_news_is_told_once_a_second() -> None:
    """A change is told at once; a flood that says nothing new is told at most each second; null clears."""
    room = Room()
    room.join_recorded("W")
    room.join_recorded("A")
    room.heard("W")
    for _ in range(50):
        room.send("A", {"type": "presence", "status": "busy", "contextUsage": 40, "name": 7})
    (told,) = room.heard("W")
    assert told["session"]["contextUsage"] == 40
    assert told["session"]["name"] == "A"
    room.pass_time(1_000)
    room.send("A", {"type": "presence", "status": "busy"})
    assert len(room.heard("W")) == 1
    room.send("A", {"type": "presence", "contextUsage": None})
    (told,) = room.heard("W")
    assert "contextUsage" not in told["session"]


def message(text: str = "x", identity: str = "m", **members: Any) -> dict[str, Any]:
    return {"id": identity, "timestamp": 1, "content": {"text": text}} | members


def send(room: Room, name: str, to: str, top: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """Send a message and return the last answer."""
    room.send(name, {"type": "send", "to": to, "message": message(**members), **(top or {})})
    return room.heard(name)[-1]


@pytest.mark.clause("intercom-45", "intercom-46", "intercom-47", "intercom-49")
def test_recorded_sender_reaches_by_prefix_where_no_name_fits() -> None:
    """An exact id, then a name in any case, then the start of an id; several fits and an empty target fail."""
    room = Room()
    for name, told in {"A": "alpha", "B": "beta", "C": "session-B"}.items():
        room.join_recorded(name, name=told)
    assert send(room, "A", "session-B", identity="1")["type"] == "delivered"
    assert room.heard("B")[-1]["message"]["id"] == "1"
    assert send(room, "A", "BETA", identity="2")["type"] == "delivered"
    assert send(room, "A", "session-", identity="3")["code"] == "E_AMBIGUOUS_TARGET"
    assert send(room, "A", "", identity="4")["code"] == "E_AMBIGUOUS_TARGET"
    assert send(room, "A", "SESSION-a", identity="5")["code"] == "E_TARGET_NOT_FOUND"
    room.join_recorded("D", id="other-id", name="delta")
    assert send(room, "A", "oth", identity="6")["type"] == "delivered"


@pytest.mark.clause("intercom-52", "intercom-53")
def test_repeat_is_answered_and_not_delivered_again() -> None:
    """The same id with the same content gets its old answer; with other content it is refused."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    first = send(room, "A", "B")
    room.heard("B")
    assert send(room, "A", "session-B") == first
    assert send(room, "A", "B", timestamp=99, senderSequence=4) == first
    assert room.heard("B") == []
    for members in (
        {"text": "other"},
        {"expectsReply": True},
        {"retryOf": "z"},
        {"content": {"text": "x", "attachments": []}},
    ):
        assert send(room, "A", "B", **members)["code"] == "E_MESSAGE_ID_REUSE"
    room.join_recorded("C")
    assert send(room, "A", "C")["code"] == "E_MESSAGE_ID_REUSE"
    room.pass_time(3_600_000)
    assert send(room, "A", "B", text="other")["type"] == "delivered"


@pytest.mark.clause("intercom-54", "intercom-55")
def test_exact_send_is_bound_to_one_registration() -> None:
    """A stale epoch is refused as retryable, half a binding for good, and the same id may then try again."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    epoch = room.heard("A")[-1]["session"]["endpointEpoch"]
    bound = {"targetId": "session-B", "targetEpoch": epoch}
    stale = send(room, "A", "B", {"targetId": "session-B", "targetEpoch": "old"})
    assert (stale["code"], stale["retryable"]) == ("E_TARGET_REBOUND", True)
    assert (
        send(room, "A", "B", {"targetId": "session-Z", "targetEpoch": epoch})["code"] == "E_TARGET_NOT_FOUND"
    )
    for half in (
        {"targetId": "session-B"},
        {"targetEpoch": epoch},
        bound | {"targetId": ""},
        bound | {"targetEpoch": 7},
    ):
        assert send(room, "A", "B", half)["code"] == "E_INVALID_TARGET"
    assert [one["type"] for one in room.heard("B")] == []
    assert send(room, "A", "anybody", bound)["type"] == "delivered"
    assert len(room.heard("B")) == 1


@pytest.mark.clause("intercom-100")
def test_crossing_asks_never_both_wait() -> None:
    """The second of two crossing asks is refused; a reply may open the reverse ask."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    assert send(room, "A", "B", identity="q1", expectsReply=True)["type"] == "delivered"
    assert send(room, "B", "A", identity="q2", expectsReply=True)["code"] == "E_MUTUAL_ASK"
    assert (
        send(room, "B", "A", identity="q3", expectsReply=True, replyTo="nonsense")["code"] == "E_REPLY_TARGET"
    )
    assert send(room, "B", "A", identity="q4", expectsReply=True, replyTo="q1")["type"] == "delivered"
    assert send(room, "A", "B", identity="q5", expectsReply=True)["code"] == "E_MUTUAL_ASK"
    assert send(room, "A", "B", identity="q6", replyTo="q4")["type"] == "delivered"


@pytest.mark.clause("intercom-100", "intercom-102")
def test_open_ask_is_in_the_journal_until_it_ends() -> None:
    """An ask is kept while it is open; a reply, its cancellation and its time end it; a failed reply does not."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    for number, identity in enumerate(("q1", "q2", "q3"), 1):
        send(room, "A", "B", identity=identity, expectsReply=True)
        assert sum(kind == "ask" for kind, _ in room.journal) == number
    send(room, "B", "A", identity="r0", replyTo="q0")
    send(room, "B", "A", identity="r1", replyTo="q1", content={"text": 7})
    assert sum(kind == "ask" for kind, _ in room.journal) == 3
    send(room, "B", "A", identity="r1", replyTo="q1")
    room.send("A", {"type": "cancel_ask", "messageId": "q2"})
    assert [key for kind, key in room.journal if kind == "ask"] == ["session-A\nq3"]
    document = room.codec.parse(room.journal["ask", "session-A\nq3"].body)
    assert document == {
        "askId": "q3",
        "messageId": "q3",
        "asker": "session-A",
        "target": "session-B",
        "question": "x",
        "createdAt": 1_700_000_005_000,
        "expiresAt": 1_700_000_605_000,
    }
    room.pass_time(630_000)
    assert not room.journal
    assert send(room, "B", "A", identity="r3", replyTo="q3")["code"] == "E_REPLY_TARGET"


def test_open_ask_outlives_its_broker() -> None:
    """The next broker still knows which ask a reply answers."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    send(room, "A", "B", identity="q1", expectsReply=True)
    after = Room(room.journal.values())
    after.join_recorded("A")
    after.join_recorded("B")
    assert send(after, "B", "A", identity="r1", replyTo="q1")["type"] == "delivered"
    assert not after.journal


@pytest.mark.clause("intercom-48", "intercom-101", "intercom-134")
def test_mail_for_one_that_left_waits_for_the_same_id() -> None:
    """A send to one that just left is queued and given to the same id; an ask to it fails at once."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    room.close(room.ends["B"])
    room.heard("A")
    held = send(room, "A", "session-B", identity="m1")
    assert (held["type"], held["delivery"]) == ("delivered", "queued")
    assert send(room, "A", "b", identity="m2")["delivery"] == "queued"
    assert send(room, "A", "session-B", identity="q", expectsReply=True)["code"] == "E_TARGET_DISCONNECTED"
    assert send(room, "A", "session-B", identity="m1") == held
    assert room.plan.idle_since_ms is None
    room.say_join_recorded("B", {})
    frames = room.heard("B")
    assert [one["type"] for one in frames] == ["registered", "message", "message"]
    assert [one["message"]["id"] for one in frames[1:]] == ["m1", "m2"]
    assert room.hub.held_count == 2
    room.pass_time(1_000)
    assert not room.journal


@pytest.mark.clause("intercom-134")
def test_mail_goes_to_an_explicit_name_in_the_same_directory_and_never_to_its_sender() -> None:
    """Another id inherits by name and directory, where it is alone; an alias and the sender inherit nothing."""

    def mailed(**told: Any) -> Room:
        room = Room()
        room.join_recorded("A", name="sender")
        room.join_recorded("B", id="first", **({"name": "w", "cwd": "/p"} | told))
        room.close(room.ends["B"])
        send(room, "A", "first", identity="m1")
        return room

    for told, is_heir in (
        ({"name": "w", "cwd": "/p"}, True),
        ({"name": "w", "cwd": "/q"}, False),
        ({"name": "v", "cwd": "/p"}, False),
        ({"name": "w", "cwd": "/p", "runtimeFallbackAlias": True}, False),
        ({"name": "w", "cwd": "/p", "top": {"scopeId": "s"}}, False),
    ):
        room = mailed()
        room.say_join_recorded("C", {"id": "second", **told})
        assert ("message" in [one["type"] for one in room.heard("C")]) == is_heir
    room = mailed(runtimeFallbackAlias="w")
    room.say_join_recorded("C", {"id": "second", "name": "w", "cwd": "/p"})
    assert len(room.heard("C")) == 1
    room = mailed()
    room.close(room.ends["A"])
    room.say_join_recorded("A", {"name": "w", "cwd": "/p"})
    assert len(room.heard("A")) == 1


@pytest.mark.clause("intercom-134", "intercom-131")
def test_mail_outlives_its_broker_and_ends_after_a_day() -> None:
    """Held mail is found by the next broker, keeps it alive, and expires with a word to its sender."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    room.close(room.ends["B"])
    send(room, "A", "session-B", identity="m1")
    after = Room(room.journal.values())
    assert after.plan.idle_since_ms is None
    after.join_recorded("A")
    after.pass_time(86_400_000 + 60_000)
    (word,) = after.heard("A")
    assert (word["type"], word["receipt"]["status"]) == ("message_receipt", "expired")
    assert not after.journal
    assert send(after, "A", "session-B", identity="m2")["code"] == "E_TARGET_NOT_FOUND"


@pytest.mark.clause("intercom-134")
def test_mailbox_refuses_what_it_has_no_room_for() -> None:
    """The 257th message is refused; nothing that is held is dropped for it."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    room.close(room.ends["B"])
    for number in range(256):
        assert send(room, "A", "session-B", identity=f"m{number}")["delivery"] == "queued"
        room.pass_time(20)
    assert send(room, "A", "session-B", identity="more")["code"] == "E_DELIVERY_FAILED"
    assert room.hub.held_count == 256


def test_receipt_is_passed_to_the_sender_of_that_message_alone() -> None:
    """A receipt reaches who sent the message to this very recipient; another's word on it goes nowhere."""
    receipt = '{"messageId":"m","status":"injected","timestamp":4,"detail":"x"}'
    converse(f"""
        A+n
        A< {{"type":"registered","...":1}}
        B+n
        B< {{"type":"registered","...":1}}
        A< {{"type":"session_joined","session":"*"}}
        C+n
        C< {{"type":"registered","...":1}}
        A< {{"type":"session_joined","session":"*"}}
        B< {{"type":"session_joined","session":"*"}}
        A> {{"type":"send","to":"session-B","message":{{"id":"m","timestamp":1,"content":{{"text":"x"}}}}}}
        B< {{"type":"message","from":"*","message":"*"}}
        A< {{"type":"delivered","messageId":"m",{ACK}
        C> {{"type":"message_receipt","receipt":{receipt}}}
        B> {{"type":"message_receipt","receipt":{receipt}}}
        A< {{"type":"message_receipt","from":{{"id":"session-B","...":1}},"receipt":{receipt}}}
        B> {{"type":"message_receipt","receipt":{{"messageId":"m","status":"eaten","timestamp":4}}}}
        B< {{"type":"error","error":"*"}}
    """)


def test_cancel_and_supersede_reach_who_has_the_message() -> None:
    """A cancellation and a superseded message are told to the recipient, the control before the new message."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    send(room, "A", "B", identity="m1", expectsReply=True)
    room.heard("B")
    assert send(room, "A", "B", identity="m2", supersedes="m1")["type"] == "delivered"
    control, new = room.heard("B")
    assert control["control"] | {"timestamp": 0} == {
        "messageId": "m1",
        "action": "supersede",
        "timestamp": 0,
        "supersededBy": "m2",
    }
    assert new["message"]["id"] == "m2"
    assert not room.journal
    assert send(room, "A", "B", identity="m1", expectsReply=True)["code"] == "E_DELIVERY_SUPERSEDED"
    assert send(room, "A", "B", identity="m3", supersedes="m1")["code"] == "E_SUPERSEDE_TARGET"
    assert send(room, "A", "B", identity="m3", supersedes="m9")["code"] == "E_SUPERSEDE_TARGET"
    room.send("A", {"type": "cancel_message", "messageId": "m2"})
    assert room.heard("A")[-1]["type"] == "delivered"
    assert room.heard("B")[-1]["control"]["action"] == "cancel"
    assert send(room, "A", "B", identity="m2", supersedes="m1")["code"] == "E_DELIVERY_CANCELLED"
    room.send("A", {"type": "cancel_message", "messageId": "m2"})
    assert room.heard("A")[-1]["code"] == "E_INVALID_TARGET"
    room.send("A", {"type": "cancel_message", "messageId": ""})
    assert room.heard("A")[-1]["type"] == "error"


def test_cancelled_mail_is_never_delivered() -> None:
    """A held message that was cancelled or superseded is gone from the mailbox."""
    room = Room()
    room.join_recorded("A")
    room.join_recorded("B")
    room.close(room.ends["B"])
    for identity in ("m1", "m2"):
        send(room, "A", "session-B", identity=identity)
    room.send("A", {"type": "cancel_message", "messageId": "m1"})
    send(room, "A", "session-B", identity="m3", supersedes="m2")
    room.say_join_recorded("B", {})
    assert [one["message"]["id"] for one in room.heard("B")[1:]] == ["m3"]


@pytest.mark.clause("intercom-133")
def test_scopes_part_lists_routing_presence_mail_and_the_bus() -> None:
    """Equal scopes see each other, and nothing of another scope or of none."""
    room = Room()
    extension = [{"namespace": "n", "ownerEligible": True}]
    for name, scope in (("A", "s1"), ("B", "s1"), ("C", "s2"), ("D", " ")):
        room.join_recorded(name, extensions=extension, top={"scopeId": scope})
    room.join("E")
    owners = {name: room.heard(name) for name in "ABCD"}
    assert [one["type"] for one in owners["C"]] == ["extension_owner"]
    assert owners["C"][0]["ownerId"] == "session-C"
    for name, seen in {"A": ["A", "B"], "C": ["C"], "D": ["D", "E"], "E": ["D", "E"]}.items():
        room.send(name, {"type": "list", "requestId": "x"})
        assert [row["name"] for row in room.heard(name)[-1]["sessions"]] == seen
    assert send(room, "C", "session-A", identity="m1")["code"] == "E_TARGET_NOT_FOUND"
    room.send("C", {"type": "presence", "status": "busy"})
    room.close(room.ends["C"])
    assert not any(room.heard(name) for name in "ABDE")
    assert send(room, "A", "session-C", identity="m2")["code"] == "E_TARGET_NOT_FOUND"


def test_extension_bus_has_one_owner_and_one_state() -> None:
    """The earliest eligible session owns a namespace, alone commits its state, and is followed when it leaves."""
    room = Room()
    room.join_recorded("A", extensions=[{"namespace": "n", "ownerEligible": False}])
    room.join_recorded("B", extensions=[{"namespace": "n", "ownerEligible": True}])
    owner = [one for one in room.heard("A") if one["type"] == "extension_owner"][-1]
    assert owner["ownerId"] == "session-B"
    epoch = owner["ownerEpoch"]
    room.heard("B")
    publish = {"type": "extension_publish", "namespace": "n", "audience": "owner", "payload": {"a": 1}}
    room.send("A", publish)
    assert room.heard("A") == room.heard("B")
    room.send("A", publish | {"ownerOnly": True})
    assert room.heard("A")[0]["type"] == "error"
    room.send("A", publish | {"ownerEpoch": "old"})
    assert room.heard("A")[0]["type"] == "error"
    room.send("A", publish | {"namespace": "other"})
    assert room.heard("A")[0]["type"] == "error"
    room.send("A", publish | {"payload": "x" * 16_384})
    assert room.heard("A")[0]["type"] == "error"
    room.send("A", publish | {"audience": "all"})
    assert room.heard("A")[0]["type"] == "error"
    commit = {
        "type": "extension_state_commit",
        "namespace": "n",
        "ownerEpoch": epoch,
        "expectedRevision": 0,
        "payload": [1],
    }
    room.send("A", commit)
    assert (room.heard("A")[0]["ok"], room.heard("B")) == (False, [])
    room.send("B", commit)
    assert [one["type"] for one in room.heard("B")] == ["extension_state_result", "extension_state"]
    assert room.heard("A")[0] == {"type": "extension_state", "namespace": "n", "revision": 1, "payload": [1]}
    room.send("B", commit)
    assert room.heard("B")[0] | {"reason": ""} == {
        "type": "extension_state_result",
        "namespace": "n",
        "ok": False,
        "revision": 1,
        "reason": "",
    }
    after = Room(room.journal.values())
    after.join_recorded("C")
    capable = {
        "type": "extension_capabilities_update",
        "extensions": [{"namespace": "n", "ownerEligible": True}],
    }
    after.send("C", capable)
    assert [one["type"] for one in after.heard("C")] == ["extension_owner", "extension_state"]
    after.send("C", capable | {"extensions": [{"namespace": "N", "ownerEligible": True}]})
    assert after.heard("C")[0]["type"] == "error"
    room.close(room.ends["B"])
    assert [one for one in room.heard("A") if one["type"] == "extension_owner"][-1]["ownerId"] is None


@pytest.mark.clause("intercom-30")
def test_recorded_sockets_are_bounded_in_number_and_in_pace() -> None:
    """129 sessions of revision N are one too many, of the strict form are not; 241 frames at once neither."""
    room = Room()
    for number in range(128):
        room.join_recorded(f"n{number}")
    room.say_join_recorded("more", {})
    assert [one["type"] for one in room.heard("more")] == ["error"]
    assert not room.ends["more"].is_open
    room.join("strict")
    for _ in range(500):
        room.send("strict", {"type": "list", "requestId": "x"})
    assert room.ends["strict"].is_open
    room.pass_time(5_000)
    room.heard("n0")
    for number in range(241):
        if room.ends["n0"].is_open:
            room.send("n0", {"type": "cancel_ask", "messageId": str(number)})
    assert not room.ends["n0"].is_open
    assert room.heard("n0")[-1] == {"type": "error", "error": "rate limit exceeded"}


def test_both_forms_in_one_room_are_shown_what_their_readers_demand() -> None:
    """Rows of the strict form have a process and times for revision N, rows of N keep the strict form for others."""
    room = Room()
    room.join("F", status="idle")
    room.join_recorded("N", name="odd\nname", status="\x07", cwd="", id="n-session")
    assert room.heard("F") == []
    room.send("N", {"type": "list", "requestId": "x"})
    row = room.heard("N")[0]["sessions"][0]
    assert row | {"endpointEpoch": ""} == {
        "id": "session-F",
        "endpointEpoch": "",
        "name": "F",
        "cwd": "/w",
        "model": "m",
        "pid": 4_242,
        "startedAt": 1_700_000_005_000,
        "lastActivity": 1_700_000_005_000,
        "status": "idle",
        "trustedLocal": True,
    }
    room.send("F", {"type": "list", "requestId": "x"})
    shown = room.heard("F")[0]["sessions"][1]
    assert plain_session(shown) is not None
    assert shown["id"] == "n-session"
    assert send(room, "N", "session-F", identity="m1", text="bell\x07")["code"] == "E_INVALID_MESSAGE"
    assert send(room, "N", "session-F", identity="m2", guard={})["code"] == "E_GUARD"
    assert send(room, "N", "session-F", identity="q1", expectsReply=True)["type"] == "delivered"
    assert plain_session(room.heard("F")[-1]["from"]) is not None
    assert send(room, "F", "n-session", identity="r1", replyTo="q1", delivery="steer") == {
        "type": "delivered",
        "messageId": "r1",
    }
    assert send(room, "F", "n-session", identity="r2", replyTo="q1")["type"] == "delivered"
    assert send(room, "F", "n-session", identity="q2", expectsReply=True)["type"] == "delivered"
    assert send(room, "N", "session-F", identity="r3", replyTo="q2")["type"] == "delivered"
    assert send(room, "N", "session-F", identity="r4", replyTo="q2")["code"] == "E_REPLY_TARGET"
    room.send("N", {"type": "cancel_message", "messageId": "r3"})
    assert room.heard("N")[-1]["code"] == "E_TARGET_DISCONNECTED"
    room.close(room.ends["N"])
    assert send(room, "F", "n-session", identity="m9")["reason"] == "Session not found"
