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
