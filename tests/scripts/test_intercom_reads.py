"""Golden conversations of what the newest revision adds: last answers, receipts, parked children and their wakes.

No other program's bytes of these are public: they are consistent with themselves.
"""

# ruff: noqa: E501 - a frame is one line, as it is on the wire

from typing import Any

import pytest

from tests.scripts.room import Room, converse
from tieline.engine.brokering.contract import Put, RowKind

ALL = {"guardedDelivery": 1, "receiptReads": 1, "lastReads": 1, "wakeOutcomes": 1}
MAIN = {"rootSessionId": "r1", "incarnation": "i1", "top": ALL}
CHILD = {"rootSessionId": "r1", "parentSessionId": "r1", "incarnation": "i2", "top": ALL}
OTHER = {"rootSessionId": "r2", "incarnation": "i3", "top": ALL}


def readers() -> Room:
    """Return a room with a reader and an owner of two groups."""
    room = Room()
    room.join("A", **MAIN)
    room.join("B", **OTHER)
    return room


def asked(room: Room, **members: Any) -> dict[str, Any]:
    """Ask for the last answer of B; return what B is asked."""
    room.send("A", {"type": "last_request", "requestId": "r", "to": "session-B"} | members)
    (frame,) = room.heard("B")
    return frame


@pytest.mark.clause("intercom-136")
def test_last_answer_is_read_page_by_page_without_a_message() -> None:
    """A reader gets the owner's page under its own id; the owner sees a token, the reader, and the place."""
    room = readers()
    wanted = asked(room)
    assert wanted.pop("from")["id"] == "session-A"
    token = wanted.pop("token")
    assert wanted == {"type": "last_read", "offset": 0, "limit": 16_384}
    page = {"entryId": "e1", "text": "x" * 16_384, "offset": 0, "nextOffset": 16_384}
    room.send("B", {"type": "last_page", "token": token, **page})
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", **page}]
    wanted = asked(room, entryId="e1", offset=16_384, limit=10)
    assert (wanted["entryId"], wanted["offset"], wanted["limit"]) == ("e1", 16_384, 10)
    page = {"entryId": "e1", "text": "end", "offset": 16_384, "nextOffset": None}
    room.send("B", {"type": "last_page", "token": wanted["token"], **page})
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", **page}]


@pytest.mark.clause("intercom-136")
def test_empty_history_and_an_owners_error_are_told_as_such() -> None:
    """Nothing to read is an answer of its own; an owner's error comes through."""
    room = readers()
    room.send("B", {"type": "last_page", "token": asked(room)["token"], "empty": True})
    nothing = {"entryId": None, "text": "", "offset": 0, "nextOffset": None, "empty": True}
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", **nothing}]
    room.send(
        "B", {"type": "last_page", "token": asked(room, entryId="e")["token"], "error": "entry_not_found"}
    )
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", "error": "entry_not_found"}]


@pytest.mark.clause("intercom-136")
@pytest.mark.parametrize(
    "page",
    [
        {"entryId": "e2", "text": "x", "offset": 5, "nextOffset": None},
        {"entryId": "e1", "text": "x", "offset": 0, "nextOffset": None},
        {"entryId": "e1", "text": "12345678901", "offset": 5, "nextOffset": None},
        {"entryId": "e1", "text": "😀😀😀😀😀😀", "offset": 5, "nextOffset": None},
        {"entryId": "e1", "text": "x", "offset": 5, "nextOffset": 7},
        {"entryId": "e1", "text": 7, "offset": 5, "nextOffset": None},
        {"entryId": None, "text": "x", "offset": 5, "nextOffset": None},
        {"empty": True},
        {"error": 7},
        {},
    ],
)
def test_page_that_is_not_the_one_asked_for_is_no_answer(page: dict[str, Any]) -> None:
    """Another entry, another place, or more units than asked for never pass as the page."""
    room = readers()
    token = asked(room, entryId="e1", offset=5, limit=10)["token"]
    room.send("B", {"type": "last_page", "token": token, **page})
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", "error": "invalid_answer"}]


@pytest.mark.clause("intercom-136")
def test_answer_counts_from_who_was_asked_and_once() -> None:
    """A token that leaked, a second answer, and an answer of another kind change nothing."""
    room = readers()
    room.join("C", **OTHER | {"rootSessionId": "r3"})
    token = asked(room)["token"]
    page = {"type": "last_page", "token": token, "entryId": "e", "text": "x", "offset": 0, "nextOffset": None}
    room.send("C", page)
    room.send("B", {"type": "receipt_facts", "token": token, "receipt": {}})
    assert room.heard("A") == []
    room.send("B", page)
    room.send("B", page)
    assert [one["entryId"] for one in room.heard("A")] == ["e"]


@pytest.mark.clause("intercom-136", "intercom-56")
def test_read_that_cannot_be_asked_is_answered_at_once() -> None:
    """Hidden and unknown owners are not found, an old one is unsupported, a malformed request is said to be."""
    room = readers()
    room.join("Kid", **CHILD | {"rootSessionId": "r2", "parentSessionId": "r2"})
    room.join("Old")
    for to, error in (
        ("session-Kid", "not_found"),
        ("session-Z", "not_found"),
        ("B", "not_found"),
        ("session-Old", "unsupported"),
    ):
        room.send("A", {"type": "last_request", "requestId": "r", "to": to})
        assert room.heard("A") == [{"type": "last_response", "requestId": "r", "error": error}]
    for wrong in (
        {"limit": 16_385},
        {"limit": 0},
        {"offset": -1},
        {"offset": 0.5},
        {"entryId": ""},
        {"limit": True},
    ):
        room.send("A", {"type": "last_request", "requestId": "r", "to": "session-B"} | wrong)
        assert room.heard("A") == [{"type": "last_response", "requestId": "r", "error": "invalid_request"}]
    assert not any(room.heard(name) for name in ("B", "Kid", "Old"))


@pytest.mark.clause("intercom-136")
def test_read_ends_by_its_time_or_with_its_owner() -> None:
    """No answer in time is a timeout; an owner who leaves ends it; a reader who leaves is owed nothing."""
    room = readers()
    token = asked(room)["token"]
    room.pass_time(4_999)
    assert room.heard("A") == []
    room.pass_time(1)
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", "error": "timeout"}]
    room.send("B", {"type": "last_page", "token": token, "empty": True})
    assert room.heard("A") == []
    asked(room)
    room.close(room.ends["B"])
    assert room.heard("A")[0] == {"type": "last_response", "requestId": "r", "error": "disconnected"}
    room.join("B", **OTHER)
    asked(room)
    room.close(room.ends["A"])
    room.pass_time(6_000)
    assert [one["type"] for one in room.heard("B")] == ["session_left"]


@pytest.mark.clause("intercom-136")
def test_reads_of_one_reader_are_bounded() -> None:
    """The 65th read that waits is refused."""
    room = readers()
    for _ in range(65):
        room.send("A", {"type": "last_request", "requestId": "r", "to": "session-B"})
    assert room.heard("A") == [{"type": "last_response", "requestId": "r", "error": "busy"}]
    assert len(room.heard("B")) == 64


@pytest.mark.clause("intercom-137")
def test_receipt_comes_from_the_exact_root_and_message() -> None:
    """A receipt passes whole where it is of the wanted root and message, and nothing else passes as one."""
    ask = {
        "type": "receipt_request",
        "requestId": "r",
        "to": "session-B",
        "rootSessionId": "r2",
        "messageId": "m",
    }
    receipt = {"version": 1, "rootSessionId": "r2", "messageId": "m", "textSha256": "0" * 64, "queued": True}

    def answered(**members: Any) -> dict[str, Any]:
        room = readers()
        room.send("A", ask)
        (wanted,) = room.heard("B")
        assert (wanted["type"], wanted["rootSessionId"], wanted["messageId"]) == ("receipt_read", "r2", "m")
        room.send("B", {"type": "receipt_facts", "token": wanted["token"], **members})
        (answer,) = room.heard("A")
        return answer

    head = {"type": "receipt_response", "requestId": "r"}
    assert answered(receipt=receipt) == head | {"receipt": receipt}
    for error in ("receipt_not_found", "publication_unavailable"):
        assert answered(error=error) == head | {"error": error}
    for wrong in (
        receipt | {"rootSessionId": "r1"},
        receipt | {"messageId": "n"},
        receipt | {"version": 2},
        7,
        None,
    ):
        assert answered(receipt=wrong) == head | {"error": "invalid_answer"}
    room = readers()
    room.send("A", ask | {"messageId": ""})
    assert room.heard("A") == [head | {"error": "invalid_request"}]


def ask_of(identity: str, **members: Any) -> dict[str, Any]:
    message = {
        "id": identity,
        "timestamp": 1,
        "content": {"text": "x"},
        "expectsReply": True,
        "delivery": "steer",
    }
    return {"type": "send", "to": "session-K", "message": message | members}


def parked(**top: int) -> Room:
    """Return a room with a main, a sibling, and a child of theirs that parked."""
    room = Room()
    room.join("A", **MAIN | {"top": ALL | top})
    room.join("S", **CHILD)
    room.join("K", **CHILD)
    room.send("K", {"type": "unregister", "parked": True})
    for name in ("A", "S"):
        assert room.heard(name) == [{"type": "session_left", "sessionId": "session-K"}]
    return room


HELD = "Recipient is away; held until it returns"


@pytest.mark.clause("intercom-131")
def test_mail_for_a_parked_child_waits_and_its_main_is_asked_to_wake_it() -> None:
    """A send and an ask are queued durably, each active one asks for a wake, and the child gets them in order."""
    room = parked()
    room.send("S", ask_of("q1"))
    assert room.heard("S") == [{"type": "delivery_queued", "messageId": "q1", "reason": HELD}]
    (wake,) = room.heard("A")
    assert wake | {"token": ""} == {
        "type": "wake_request",
        "token": "",
        "sessionId": "session-K",
        "messageId": "q1",
    }
    room.send("S", ask_of("p1", expectsReply=False, delivery="passive"))
    assert room.heard("A") == []
    room.send("A", ask_of("m2", expectsReply=False))
    assert [one["type"] for one in room.heard("A")] == ["wake_request", "delivery_queued"]
    assert sum(kind == "mail" for kind, _ in room.journal) == 3
    room.send("A", {"type": "wake_outcome", "token": wake["token"], "ok": True})
    room.say_join("K", CHILD | {"top": ALL})
    frames = room.heard("K")
    assert [one.get("message", {}).get("id") for one in frames] == [None, "q1", "p1", "m2"]
    assert frames[1]["from"]["id"] == "session-S"
    room.pass_time(1_000)
    assert not room.journal
    assert [one["messageId"] for one in room.heard("S")] == ["p1"]


@pytest.mark.clause("intercom-104")
def test_failed_wake_is_told_to_the_ask_that_waits_and_its_mail_stays() -> None:
    """The asker that can hear it is told why; the question may still arrive; another's token tells nothing."""
    room = parked()
    room.join("O", rootSessionId="r1", parentSessionId="r1")
    for name, identity in (("S", "q1"), ("O", "q2"), ("S", "m1")):
        room.send(name, ask_of(identity, expectsReply=identity != "m1"))
    tokens = [one["token"] for one in room.heard("A")]
    room.heard("S")
    room.heard("O")
    room.send("S", {"type": "wake_outcome", "token": tokens[0], "ok": False, "detail": "forged"})
    assert room.heard("S") == []
    for _ in range(2):
        room.send("A", {"type": "wake_outcome", "token": tokens[0], "ok": False, "detail": "no model"})
    assert room.heard("S") == [{"type": "wake_failed", "messageId": "q1", "detail": "no model"}]
    assert room.heard("O") == []
    room.say_join("K", CHILD)
    assert [one["message"]["id"] for one in room.heard("K")[1:]] == ["q1", "q2", "m1"]


@pytest.mark.clause("intercom-131")
def test_parked_mail_outlives_its_broker_and_waits_for_its_main() -> None:
    """After a crash the next broker holds the mail, stays for it, and asks the main that returns."""
    room = parked()
    room.close(room.ends["A"])
    room.heard("S")
    room.send("S", ask_of("q1"))
    room.close(room.ends["S"])
    assert room.plan.idle_since_ms is None
    after = Room(room.journal.values())
    assert after.plan.idle_since_ms is None
    after.say_join("A", MAIN)
    assert [one["type"] for one in after.heard("A")] == ["registered", "wake_request"]
    after.join("Stranger", **OTHER)
    after.send("Stranger", ask_of("m1"))
    assert after.heard("Stranger")[0]["reason"] == "Session not found"
    after.say_join("K", CHILD)
    assert [one["type"] for one in after.heard("K")] == ["registered", "message"]
    after.close(after.ends["K"])
    after.say_join("K", CHILD)
    assert [one["type"] for one in after.heard("K")] == ["registered", "message"]
    after.pass_time(1_000)
    assert not after.journal


@pytest.mark.clause("intercom-131", "I44")
def test_parked_childs_id_and_mail_are_for_that_child_alone() -> None:
    """Who asks for the id of a parked child from another place gets a fresh id and none of its mail."""
    room = parked()
    room.send("S", ask_of("q1"))
    for session in ({}, OTHER, MAIN):
        room.say_join("X", {"id": "session-K"} | session)
        frames = room.heard("X")
        assert frames[0]["sessionId"] != "session-K"
        assert all(one["type"] != "message" for one in frames)
        room.close(room.ends["X"])
    room.say_join_recorded("X", {"id": "session-K"})
    assert room.heard("X")[0]["sessionId"] != "session-K"


@pytest.mark.clause("intercom-131")
def test_only_a_child_that_can_be_woken_parks() -> None:
    """A main, and a child that did not announce wakes, leave for good."""
    for session in (MAIN, CHILD | {"top": {}}):
        room = Room()
        room.join("A", **OTHER if session is MAIN else MAIN)
        room.join("K", **session)
        room.send("K", {"type": "unregister", "parked": True})
        room.heard("A")
        room.send("A", ask_of("m"))
        assert room.heard("A")[0]["reason"] == "Session not found"
        assert not room.journal


@pytest.mark.clause("intercom-131")
def test_main_that_cannot_wake_is_sent_no_frame_of_it() -> None:
    """An old main is never asked; the mail waits all the same."""
    room = parked(wakeOutcomes=0)
    room.send("S", ask_of("q1"))
    assert room.heard("A") == []
    assert [one["type"] for one in room.heard("S")] == ["delivery_queued"]


@pytest.mark.clause("intercom-131")
def test_mail_of_a_parked_child_is_bounded_and_loses_nothing() -> None:
    """The 101st message for a child is refused; the hundred stay."""
    room = parked()
    for number in range(101):
        room.send("S", ask_of(f"m{number}", expectsReply=False))
    answers = room.heard("S")
    assert [one["type"] for one in answers[:100]] == ["delivery_queued"] * 100
    assert answers[100]["type"] == "delivery_failed"
    assert room.hub.held_count == 100


def test_staged_update_for_a_child_that_parks_becomes_held_mail() -> None:
    """What waited for a later update when its recipient parked is not lost."""
    room = Room()
    room.join("A", **MAIN)
    room.join("K", **CHILD, status="idle")
    room.send("A", ask_of("u1", expectsReply=False, delivery="queue", queueMode="replace", threadId="t"))
    room.send("K", {"type": "unregister", "parked": True})
    room.pass_time(2_000)
    room.say_join("K", CHILD)
    assert [one["message"]["id"] for one in room.heard("K")[1:]] == ["u1"]


@pytest.mark.clause("intercom-131")
def test_parked_child_without_mail_holds_no_broker_and_is_forgotten_after_a_day() -> None:
    """A parked child is remembered by the journal; only its mail holds the broker."""
    room = parked()
    for name in ("A", "S"):
        room.close(room.ends[name])
    assert room.plan.idle_since_ms is not None
    assert [kind for kind, _ in room.journal] == ["parked"]
    room.pass_time(86_400_000 + 60_000)
    assert not room.journal


@pytest.mark.parametrize("kind", ["mail", "parked", "ask", "extension_state"])
@pytest.mark.parametrize("body", [b"{}", b"[1]", b"7", b"{"])
def test_row_that_cannot_be_read_is_dropped(kind: RowKind, body: bytes) -> None:
    """A journal row that is no longer one costs itself alone."""
    assert not Room([Put(kind, "k", body)]).journal


def test_conversation_names_what_it_left_out() -> None:
    """The text form of these tests notices a frame that nobody named."""
    with pytest.raises(AssertionError, match="was sent besides"):
        converse("A+ {}")
