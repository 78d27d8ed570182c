"""Requests and answers in both directions: each ends once, and all that waits is bounded."""

import json
from typing import Any

import pytest

from tieline.errors import CODES, WIRE_CODES, Refusal
from tieline.wire import jsonrpc
from tieline.wire.exchange import (
    Closed,
    Exchange,
    NotificationReceived,
    RequestLost,
    RequestReceived,
    ResponseReceived,
)
from tieline.wire.jsonrpc import ErrorObject, Notification, Request, Response

PENDING = 4
SMALL_BYTES = 300


def exchange(*, is_own: bool = False) -> Exchange:
    """Return a fresh exchange with small bounds."""
    codes = CODES if is_own else WIRE_CODES
    return Exchange(frame_bytes_max=SMALL_BYTES, pending_max=PENDING, codes=codes, is_own=is_own)


def sent(one: Exchange) -> list[dict[str, Any]]:
    """Return the frames that wait, parsed, and drain them."""
    return [json.loads(line) for line in one.drain_output().splitlines()]


def code_sent(frame: dict[str, Any]) -> str:
    """Return the typed code of an error frame."""
    code = frame["error"]["data"]["code"]
    assert isinstance(code, str)
    return code


def asked(one: Exchange, deadline_ms: int | None = None) -> str:
    """Ask something and return the attempt."""
    attempt = one.request("m", {}, deadline_ms)
    assert isinstance(attempt, str)
    return attempt


def test_request_of_ours_is_answered_once() -> None:
    """A request's answer comes out under its attempt; a second answer is counted and ignored."""
    one = exchange()
    attempt = one.request("m", {"x": 1}, 50)
    assert attempt == "rpc-1"
    assert sent(one) == [{"jsonrpc": "2.0", "id": "rpc-1", "method": "m", "params": {"x": 1}}]
    one.take(Response("rpc-1", {"y": 2}))
    one.take(Response("rpc-1", {"y": 3}))
    assert one.drain_events() == [ResponseReceived("rpc-1", {"y": 2})]
    assert one.counts.responses_ignored == 1
    one.expire(99)
    one.close("", "")
    assert one.drain_events() == [Closed("", "")]


def test_attempt_names_with_a_handshake_never_recur() -> None:
    """A handshake's request takes its name from the same row, so a request never bears it again."""
    one = exchange()
    assert one.new_attempt() == "rpc-1"
    one.put_unasked(b"x\n")
    assert one.drain_output() == b"x\n"
    assert asked(one) == "rpc-2"


@pytest.mark.parametrize("stray", ["rpc-2", "", "x", 1, None])
def test_response_under_unknown_id_is_counted(stray: str | int | None) -> None:
    """An answer to nothing changes nothing, whatever its id."""
    one = exchange()
    asked(one)
    one.take(Response(stray, {}) if stray is not None else Response(None, None, ErrorObject(-32700, "no")))
    assert one.drain_events() == []
    assert one.counts.responses_ignored == 1


def test_responses_out_of_order_find_their_requests() -> None:
    """Answers are joined to requests by id alone."""
    one = exchange()
    first, second = asked(one), asked(one)
    one.take(Response(second, {"x": 2}))
    one.take(Response(first, {"x": 1}))
    assert one.drain_events() == [ResponseReceived(second, {"x": 2}), ResponseReceived(first, {"x": 1})]


@pytest.mark.parametrize("own", [False, True])
def test_refusal_from_far_end_is_typed(own: bool) -> None:
    """A refusal keeps its code and details; a foreign sentence is not repeated, our own product's is."""
    one = exchange(is_own=own)
    attempt = asked(one)
    data = {"code": "QUEUE_FULL", "held": 32, "retryable": True}
    one.take(Response(attempt, None, ErrorObject(-32000, "inbox is full", data)))
    text = "inbox is full" if own else "the far end refused"
    refusal = Refusal("QUEUE_FULL", text, is_retryable=True)
    assert one.drain_events() == [ResponseReceived(attempt, None, refusal, {"held": 32})]


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("QUEUE_FULL", True), ("RATE_LIMITED", True), ("MESSAGE_TOO_LARGE", False), ("SCOPE_DENIED", False)],
)
def test_refusal_from_foreign_end_is_retryable_by_its_code(code: str, retryable: bool) -> None:
    """Whether the same id may try again follows from the code; a foreign word for it is not believed."""
    one = exchange()
    attempt = asked(one)
    one.take(Response(attempt, None, ErrorObject(-32000, "no", {"code": code, "retryable": not retryable})))
    (event,) = one.drain_events()
    assert event.refusal == Refusal(code, "the far end refused", retryable)


@pytest.mark.parametrize("data", [None, {}, [], {"code": "WHATEVER"}, {"code": "VERSION_SKEW"}, {"code": 7}])
def test_refusal_with_unknown_code_is_outcome_unknown(data: object) -> None:
    """A code outside the wire's thirty is INVALID_RPC, which settles nothing."""
    one = exchange()
    attempt = asked(one)
    one.take(Response(attempt, None, ErrorObject(-32603, "boom", data)))
    (event,) = one.drain_events()
    assert event.refusal.code == "INVALID_RPC"
    assert "boom" not in event.refusal.text


@pytest.mark.parametrize("result", [None, [], "x", 7, True])
def test_result_that_is_no_object_is_outcome_unknown(result: object) -> None:
    """An answer of another shape says nothing."""
    one = exchange()
    attempt = asked(one)
    one.take(Response(attempt, result))
    (event,) = one.drain_events()
    assert event.result is None
    assert event.refusal.code == "INVALID_RPC"


def test_request_past_its_deadline_is_lost_once() -> None:
    """A request is lost at its deadline and not before; a late answer is ignored."""
    one = exchange()
    never, late, soon = asked(one), asked(one, 200), asked(one, 100)
    assert one.deadline_ms == 100
    one.expire(99)
    assert one.drain_events() == []
    one.expire(100)
    assert one.drain_events() == [RequestLost(soon, "timeout")]
    assert one.deadline_ms == 200
    one.take(Response(soon, {}))
    assert one.counts.responses_ignored == 1
    one.expire(10_000)
    assert one.drain_events() == [RequestLost(late, "timeout")]
    assert one.deadline_ms is None
    one.close("PEER_OFFLINE", "gone")
    assert one.drain_events() == [RequestLost(never, "closed"), Closed("PEER_OFFLINE", "gone")]


@pytest.mark.clause("native-66", "K8")
def test_close_with_requests_pending_loses_each_then_tells() -> None:
    """The end of a link settles every request of ours once, and is told once and last."""
    one = exchange()
    attempts = [asked(one) for _ in range(PENDING)]
    one.take(Request("a", "m", {}))
    one.drain_events()
    one.close("PEER_OFFLINE", "gone")
    one.close("QUEUE_FULL", "again")
    one.expire(10_000)
    assert one.drain_events() == [
        *(RequestLost(attempt, "closed") for attempt in attempts),
        Closed("PEER_OFFLINE", "gone"),
    ]
    assert one.is_closed


def test_exchange_after_close_takes_nothing() -> None:
    """On a closed link a request and a result are refused, and a refusal or a frame leaves no byte."""
    one = exchange()
    one.take(Request("a", "m", {}))
    one.take(Request("b", "m", {}))
    one.close("", "")
    for answer in (one.request("m", {}, None), one.notify("m", {}), one.respond("a", {})):
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.is_retryable) == ("PEER_OFFLINE", True)
    one.refuse("b", Refusal("SCOPE_DENIED", "no"))
    one.put_unasked(b"x\n")
    assert one.drain_output() == b""


def test_request_of_theirs_is_answered_under_its_id() -> None:
    """A request comes out with its id, and its answer bears that id with its type."""
    one = exchange()
    one.take(Request(7, "m", {"x": 1}))
    one.take(Request("7", "m", {"x": 2}))
    assert one.drain_events() == [RequestReceived(7, "m", {"x": 1}), RequestReceived("7", "m", {"x": 2})]
    assert one.respond("7", {"y": 2}) is None
    one.refuse(7, Refusal("QUEUE_FULL", "inbox of :api holds 32 of 32", is_retryable=True), {"held": 32})
    result, error = sent(one)
    assert result == {"jsonrpc": "2.0", "id": "7", "result": {"y": 2}}
    assert error["id"] == 7
    assert error["error"]["message"] == "inbox of :api holds 32 of 32"
    assert error["error"]["data"] == {"code": "QUEUE_FULL", "held": 32, "retryable": True}


def test_answer_given_twice_is_our_own_defect() -> None:
    """A second answer to one request is never written."""
    one = exchange()
    one.take(Request("a", "m", {}))
    one.refuse("a", Refusal("SCOPE_DENIED", "no"))
    with pytest.raises(AssertionError):
        one.respond("a", {})
    assert len(sent(one)) == 1


@pytest.mark.clause("native-156", "I49")
def test_request_of_theirs_above_the_window_is_refused() -> None:
    """One request too many is answered QUEUE_FULL at once; an answered one makes room again."""
    one = exchange()
    for at in range(PENDING):
        one.take(Request(at, "m", {}))
    one.drain_events()
    one.take(Request("more", "m", {}))
    assert one.drain_events() == []
    (error,) = sent(one)
    assert (error["id"], code_sent(error)) == ("more", "QUEUE_FULL")
    assert one.counts.requests_refused == 1
    one.respond(0, {})
    one.take(Request("more", "m", {}))
    assert one.drain_events() == [RequestReceived("more", "m", {})]


def test_id_used_again_before_its_answer_ends_the_link() -> None:
    """Two open requests under one id are a broken link: refusing one would settle the other."""
    one = exchange()
    one.take(Request("a", "m", {}))
    one.take(Request("a", "m", {}))
    assert [type(event) for event in one.drain_events()] == [RequestReceived, Closed]
    (error,) = sent(one)
    assert (error["id"], code_sent(error)) == (None, "INVALID_RPC")
    again = exchange()
    again.take(Request("a", "m", {}))
    again.respond("a", {})
    again.take(Request("a", "m", {}))
    assert not again.is_closed


@pytest.mark.clause("native-156")
def test_request_of_ours_above_the_window_is_refused() -> None:
    """One request too many of ours is not sent, and uses no attempt name."""
    one = exchange()
    for _ in range(PENDING):
        asked(one)
    sent(one)
    refusal = one.request("m", {}, None)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.is_retryable) == ("QUEUE_FULL", True)
    assert one.drain_output() == b""
    one.take(Response("rpc-1", {}))
    assert one.request("m", {}, None) == f"rpc-{PENDING + 1}"


def test_notifications_above_the_bound_are_dropped_and_counted() -> None:
    """Notifications are kept up to the bound between two drains."""
    one = exchange()
    for at in range(PENDING + 3):
        one.take(Notification("m", {"at": at}))
    assert one.drain_events() == [NotificationReceived("m", {"at": at}) for at in range(PENDING)]
    assert one.counts.notifications_dropped == 3
    one.take(Notification("m", {}))
    assert len(one.drain_events()) == 1


@pytest.mark.clause("native-65")
def test_frames_not_taken_by_the_link_pause_then_refuse() -> None:
    """At half of the room the link is told to read no more; when it is full, requests are refused."""
    one = exchange()
    for _ in range(PENDING):
        assert not one.is_paused
        asked(one)
    assert one.is_paused
    for at in range(PENDING):
        assert one.notify("m", {"at": at}) is None
    assert one.output_bytes > 0
    refusal = one.notify("m", {})
    assert isinstance(refusal, Refusal)
    assert refusal.code == "QUEUE_FULL"
    one.take(Response("rpc-1", {}))
    assert isinstance(one.request("m", {}, None), Refusal)
    assert len(sent(one)) == 2 * PENDING
    assert (one.output_bytes, one.is_paused) == (0, False)


@pytest.mark.clause("native-65", "native-66")
def test_answer_without_room_ends_the_link() -> None:
    """An answer is never dropped in silence: without room for it the link ends, and the end is seen."""
    one = exchange()
    for at in range(2 * PENDING):
        one.notify("m", {"at": at})
    one.take(Request("a", "m", {}))
    one.drain_events()
    refusal = one.respond("a", {})
    assert isinstance(refusal, Refusal)
    assert one.drain_events() == [Closed("QUEUE_FULL", refusal.text)]


def test_frame_over_the_bound_is_not_sent() -> None:
    """A request or notification that would be too long is refused; the bound does not count the line end."""
    one = exchange()
    room = SMALL_BYTES - len(jsonrpc.encode_request("rpc-1", "m", {"x": ""})) + 1
    refusal = one.request("m", {"x": "x" * (room + 1)}, None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "FRAME_TOO_LARGE"
    assert one.request("m", {"x": "x" * room}, None) == "rpc-1"
    told = one.notify("m", {"x": "x" * SMALL_BYTES})
    assert isinstance(told, Refusal)
    assert told.code == "FRAME_TOO_LARGE"


@pytest.mark.parametrize("value", ["\ud800", object(), 1 << 80_000], ids=["surrogate", "object", "huge"])
def test_value_without_form_in_json_is_refused(value: object) -> None:
    """What JSON cannot say is refused before a byte leaves."""
    one = exchange()
    refusal = one.request("m", {"x": value}, None)
    assert isinstance(refusal, Refusal)
    assert refusal.code in {"INVALID_PARAMS", "FRAME_TOO_LARGE"}
    assert one.drain_output() == b""


def test_result_too_large_is_answered_with_a_refusal() -> None:
    """The asker of a result that does not fit learns so, and so does the answerer."""
    one = exchange()
    one.take(Request("a", "m", {}))
    one.take(Request("b", "m", {}))
    for name in ("a", "b"):
        details = {"x": "x" * SMALL_BYTES}
        if name == "a":
            refusal = one.respond(name, details)
            assert isinstance(refusal, Refusal)
            assert refusal.code == "FRAME_TOO_LARGE"
        else:
            one.refuse(name, Refusal("SCOPE_DENIED", "no"), details)
    assert [(frame["id"], code_sent(frame)) for frame in sent(one)] == [
        ("a", "FRAME_TOO_LARGE"),
        ("b", "SCOPE_DENIED"),
    ]
