"""One send; each rule also stands in the golden conversations."""

from typing import Any

import pytest

from tests.scripts.room import Room
from tieline.engine.brokering.routing import FRAME_BYTES_MAX
from tieline.wire.intercom.framing import FRAME_BYTES_MAX as WIRE_BYTES_MAX

CHILD = {"rootSessionId": "r", "parentSessionId": "r", "top": {"wakeOutcomes": 1}}


def said(room: Room, name: str, to: str, identity: str = "m", **members: Any) -> dict[str, Any]:
    message = {"id": identity, "timestamp": 1, "content": {"text": "x"}} | members
    room.send(name, {"type": "send", "to": to, "message": message})
    return room.heard(name)[-1]


def test_bound_of_a_delivery_is_that_of_a_frame() -> None:
    """The hub and the wire hold one number."""
    assert FRAME_BYTES_MAX == WIRE_BYTES_MAX


def test_recipient_is_written_to_before_its_sender_is_answered() -> None:
    """In a plan the message stands before its acknowledgement."""
    room = Room()
    room.join("a")
    room.join("b")
    said(room, "a", "b")
    assert [link for link, _ in room.plan.outputs] == [room.ends["b"].number, room.ends["a"].number]


def test_too_large_delivery_is_refused_for_a_live_and_for_an_absent_recipient() -> None:
    """What would not fit into the recipient's frame is neither sent nor held."""
    room = Room()
    room.join_recorded("a", cwd="/" + "y" * 300)
    room.join_recorded("b")
    room.join("kid", **CHILD)
    room.join("s", **CHILD, cwd="/" + "y" * 300)
    large = {"text": "x" * (FRAME_BYTES_MAX - 200)}
    assert "too large" in said(room, "a", "b", content=large)["reason"]
    room.close(room.ends["b"])
    assert "too large" in said(room, "a", "session-b", content=large)["reason"]
    room.send("kid", {"type": "unregister", "parked": True})
    assert "too large" in said(room, "s", "session-kid", content=large)["reason"]
    assert room.hub.held_count == 0


def test_staged_update_too_large_for_its_recipient_is_dropped_in_silence() -> None:
    """It was acknowledged as queued; that it could not be delivered later is not told."""
    for is_there in (True, False):
        room = Room()
        room.join("a", cwd="/" + "y" * 300)
        room.join("b", status="idle")
        staged = {"delivery": "queue", "queueMode": "replace", "threadId": "t"}
        large = {"text": "x" * (FRAME_BYTES_MAX - 300)}
        assert said(room, "a", "b", content=large, **staged)["type"] == "delivery_queued"
        if not is_there:
            room.close(room.ends["a"])
            room.heard("b")
        room.pass_time(2_000)
        assert room.heard("b") == []


@pytest.mark.clause("intercom-100")
def test_too_many_open_asks_are_refused() -> None:
    """The bound of open asks refuses the next one and drops none."""
    room = Room()
    room.join_recorded("a")
    room.join_recorded("b")
    for number in range(256):
        assert said(room, "a", "b", f"q{number}", expectsReply=True)["type"] == "delivered"
        room.pass_time(20)
    assert said(room, "a", "b", "more", expectsReply=True)["code"] == "E_DELIVERY_FAILED"
    assert len(room.journal) == 256


def test_odd_message_to_a_parked_child_is_refused() -> None:
    """What its reader would disconnect from is not held for it either."""
    room = Room()
    room.join("kid", rootSessionId="r", parentSessionId="r", top={"wakeOutcomes": 1})
    room.join_recorded("n")
    assert said(room, "n", "session-kid", content={"text": "\x07"})["code"] == "E_TARGET_NOT_FOUND"
    room.join("s", **CHILD)
    room.send("kid", {"type": "unregister", "parked": True})
    assert said(room, "s", "session-kid", content={"text": "\x07"})["reason"] == "Invalid message format"


def test_receipt_for_what_nobody_recorded_goes_nowhere() -> None:
    """A word on a message that was not sent to this recipient is dropped."""
    room = Room()
    room.join_recorded("a")
    room.join("f")
    said(room, "f", "session-a")
    room.heard("a")
    receipt = {"messageId": "m", "status": "queued", "timestamp": 1}
    room.send("a", {"type": "message_receipt", "receipt": receipt})
    assert room.heard("a") + room.heard("f") == []


@pytest.mark.clause("intercom-52", "intercom-53", "intercom-54", "intercom-55")
def test_recorded_send_is_answered_by_its_record() -> None:
    """A repeat by name, id or binding gets the old answer; other content or another target is refused."""
    room = Room()
    room.join_recorded("a")
    room.join_recorded("b")
    epoch = room.heard("a")[-1]["session"]["endpointEpoch"]
    first = said(room, "a", "b")
    room.heard("b")
    assert said(room, "a", "session-b") == first
    message = {"id": "m", "timestamp": 2, "content": {"text": "x"}}
    bound = {
        "type": "send",
        "to": "whoever",
        "message": message,
        "targetId": "session-b",
        "targetEpoch": epoch,
    }
    room.send("a", bound)
    assert room.heard("a") == [first]
    room.close(room.ends["b"])
    room.heard("a")
    assert said(room, "a", "b") == first
    room.send("a", bound)
    assert room.heard("a") == [first]
    assert said(room, "a", "b", content={"text": "y"})["code"] == "E_MESSAGE_ID_REUSE"
    assert said(room, "a", "elsewhere")["code"] == "E_MESSAGE_ID_REUSE"
    room.send("a", {"type": "send", "to": "b", "message": message, "targetId": "session-b"})
    assert room.heard("a")[0]["code"] == "E_INVALID_TARGET"
    room.send("a", {"type": "send", "to": "b", "message": {}})
    assert room.heard("a")[0]["code"] == "E_INVALID_MESSAGE"


def test_superseded_and_cancelled_messages_are_taken_back_wherever_they_are() -> None:
    """Out of the mailbox, or by a word to who has them; what became of them is on record."""
    room = Room()
    room.join_recorded("a")
    room.join_recorded("b")
    said(room, "a", "b", "m1")
    said(room, "a", "b", "m2", supersedes="m1")
    words = [one.get("control", {}).get("action") for one in room.heard("b")]
    assert words == [None, "supersede", None]
    assert said(room, "a", "b", "m1")["code"] == "E_DELIVERY_SUPERSEDED"
    room.close(room.ends["b"])
    said(room, "a", "session-b", "m3")
    said(room, "a", "session-b", "m4", supersedes="m3")
    assert room.hub.held_count == 1
    for identity, code in (("m4", None), ("m4", "E_INVALID_TARGET"), ("m2", "E_TARGET_DISCONNECTED")):
        room.send("a", {"type": "cancel_message", "messageId": identity})
        assert room.heard("a")[-1].get("code") == code
    assert room.hub.held_count == 0
    assert said(room, "a", "session-b", "q", expectsReply=True)["code"] == "E_TARGET_DISCONNECTED"
    assert said(room, "a", "session-b", "m5", supersedes="nothing")["code"] == "E_SUPERSEDE_TARGET"


@pytest.mark.clause("intercom-100", "intercom-104")
def test_replies_crossings_and_wakes_are_judged_before_anything_is_routed() -> None:
    """An invented correlation and a crossing ask are refused; an ask of a parked child wakes it."""
    room = Room()
    room.join_recorded("a")
    room.join_recorded("b")
    assert said(room, "a", "b", "r", replyTo="q")["code"] == "E_REPLY_TARGET"
    said(room, "a", "b", "q1", expectsReply=True)
    assert said(room, "b", "a", "q2", expectsReply=True)["code"] == "E_MUTUAL_ASK"
    assert said(room, "b", "a", "r1", replyTo="q1")["type"] == "delivered"
    room.send(
        "b", {"type": "message_receipt", "receipt": {"messageId": "q1", "status": "queued", "timestamp": 1}}
    )
    assert room.heard("a")[-1]["type"] == "message_receipt"
    room.join("main", rootSessionId="r", top={"wakeOutcomes": 1})
    room.join("kid", **CHILD)
    room.send("kid", {"type": "unregister", "parked": True})
    room.heard("main")
    assert said(room, "main", "session-kid", "p", delivery="passive")["type"] == "delivery_queued"
    room.send(
        "main",
        {
            "type": "send",
            "to": "session-kid",
            "message": {"id": "w", "timestamp": 1, "content": {"text": "x"}},
        },
    )
    assert [one["type"] for one in room.heard("main")] == ["wake_request", "delivery_queued"]


@pytest.mark.clause("intercom-65", "intercom-66", "intercom-69")
def test_updates_are_staged_for_the_idle_and_refused_where_there_is_no_room() -> None:
    """Idle: staged and delivered in its time, from who is there or was; busy: at once."""
    staged = {"delivery": "queue", "queueMode": "replace", "threadId": "t"}
    for is_there in (True, False):
        room = Room()
        room.join("a")
        room.join("b", status="idle")
        assert said(room, "a", "b", **staged)["type"] == "delivery_queued"
        if not is_there:
            room.close(room.ends["a"])
            room.heard("b")
        room.pass_time(1_500)
        assert [one["from"]["id"] for one in room.heard("b")] == ["session-a"]
    room.join("a")
    for number in range(101):
        answer = said(room, "a", "b", **staged | {"threadId": str(number)})
    assert answer["type"] == "delivery_failed"
    room.send("b", {"type": "presence", "status": "busy"})
    assert said(room, "a", "b", **staged)["type"] == "delivered"
    room.close(room.ends["b"])
    room.pass_time(2_000)


def test_mail_that_has_no_room_or_is_guarded_wrongly_fails() -> None:
    """A full mailbox refuses; a guard that nobody negotiated does."""
    room = Room()
    room.join("kid", **CHILD)
    room.join("s", **CHILD)
    room.send("kid", {"type": "unregister", "parked": True})
    for number in range(101):
        answer = said(room, "s", "session-kid", str(number))
    assert "full" in answer["reason"]
    assert "not negotiated" in said(room, "s", "session-kid", guard={})["reason"]


REPLACING = {"delivery": "queue", "queueMode": "replace", "threadId": "t"}


@pytest.mark.clause("intercom-42", "intercom-68")
def test_staged_update_is_from_who_sent_it_and_not_from_who_has_its_id_now() -> None:
    """The next holder of the id may be hidden from the recipient."""
    room = Room()
    room.join("a", name="first")
    room.join("b", status="idle")
    said(room, "a", "b", **REPLACING)
    room.close(room.ends["a"])
    room.join("c", id="session-a", rootSessionId="z", parentSessionId="z", name="hidden")
    room.heard("b")
    room.pass_time(2_000)
    (message,) = room.heard("b")
    assert message["from"]["name"] == "first"
    assert "rootSessionId" not in message["from"]


@pytest.mark.clause("intercom-133")
def test_what_was_sent_in_one_scope_is_unknown_to_the_same_id_in_another() -> None:
    """No receipt, no cancellation and no recorded answer crosses over."""
    room = Room()
    for name, scope in (("t", "a"), ("s", "a")):
        room.register(name, recorded(name, scope))
    said(room, "s", "t")
    room.close(room.ends["s"])
    room.register("s", recorded("s", "b"))
    room.heard("s")
    room.heard("t")
    receipt = {"messageId": "m", "status": "queued", "timestamp": 1}
    room.send("t", {"type": "message_receipt", "receipt": receipt})
    assert room.heard("s") == []
    room.send("s", {"type": "cancel_message", "messageId": "m"})
    assert room.heard("s")[0]["code"] == "E_INVALID_TARGET"
    assert said(room, "s", "t")["code"] == "E_TARGET_NOT_FOUND"
    assert room.heard("t") == []


def recorded(name: str, scope: str) -> dict[str, Any]:
    session = {"cwd": "/w", "model": "m", "name": name, "pid": 1, "startedAt": 1, "lastActivity": 1}
    return {"type": "register", "session": session, "sessionId": name, "scopeId": scope}
