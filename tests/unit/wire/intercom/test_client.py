"""A session's end of one connection: what it may say, what ends it, what waits and for how long."""

import json
from typing import Any

import pytest

from tieline.errors import ProtocolError, Refused
from tieline.wire.intercom.client import (
    CAPABILITIES,
    LIST_MS,
    REGISTER_MS,
    REQUESTS_MAX,
    SEND_MS,
    ClientLink,
    Closed,
    LastAsked,
    Left,
    Listed,
    MessageCame,
    ReadAnswered,
    ReceiptAsked,
    Registered,
    Sent,
    TimedOut,
    WakeAsked,
    WakeFailed,
)
from tieline.wire.intercom.framing import FRAME_BYTES_MAX

SESSION = {"cwd": "/w", "model": "m", "name": "one"}
ROW = {"id": "pi-2", "cwd": "/w", "model": "m", "name": "two"}
MESSAGE: dict[str, Any] = {"id": "m1", "timestamp": 1, "content": {"text": "hello"}, "delivery": "steer"}
GUARD = {"rootSessionId": "r", "peerId": "pi-2", "incarnation": "i", "applicationGuard": "g"}


def frame(**fields: Any) -> bytes:
    """Return a frame."""
    data = json.dumps(fields).encode()
    return len(data).to_bytes(4, "big") + data


def said(link: ClientLink) -> list[dict[str, Any]]:
    """Return the frames that a link wrote."""
    data, found = link.data_to_send(), []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(json.loads(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


def joined(*capabilities: str) -> ClientLink:
    """Return a link that a broker with these capabilities took."""
    link = ClientLink(SESSION, "pi-1", 0)
    link.data_to_send()
    link.receive_data(frame(type="registered", sessionId="pi-1", **dict.fromkeys(capabilities, 1)))
    assert isinstance(link.events_received()[0], Registered)
    return link


@pytest.mark.clause("intercom-31")
def test_registration_announces_and_takes_only_what_is_echoed() -> None:
    """Capabilities are additive fields; one that the broker does not echo as the number 1 is off."""
    link = ClientLink(SESSION, "pi-1", 0)
    assert said(link) == [
        {"type": "register", "session": SESSION, "requestedId": "pi-1", **dict.fromkeys(CAPABILITIES, 1)}
    ]
    link.receive_data(frame(type="registered", sessionId="other", lastReads=1, receiptReads=True))
    assert link.events_received() == [Registered("other", frozenset({"lastReads"}))]
    assert (link.session_id, link.is_registered) == ("other", True)


def test_registration_that_no_broker_takes_is_refused_before_a_byte() -> None:
    """A session without a model is our own defect, and is not sent."""
    with pytest.raises(ProtocolError):
        ClientLink({"cwd": "/w"}, None, 0)
    assert "requestedId" not in said(ClientLink(SESSION, None, 0))[0]


def test_registration_without_an_answer_ends_the_connection_in_its_time() -> None:
    """Ten seconds, not one more."""
    link = ClientLink(SESSION, "pi-1", 0)
    assert link.deadline_ms == REGISTER_MS
    link.expire(REGISTER_MS - 1)
    assert not link.is_closed
    link.expire(REGISTER_MS)
    assert link.is_closed
    assert link.deadline_ms is None


@pytest.mark.clause("intercom-14")
@pytest.mark.parametrize(
    "data",
    [
        frame(type="surprise"),
        frame(type="session_joined", session=ROW),
        frame(type="registered", sessionId="again"),
        frame(type="message", message=MESSAGE, **{"from": {"id": "x"}}),
        frame(type="message", message={"id": "m"}, **{"from": ROW}),
        frame(type="delivered", messageId=1),
        frame(type="delivery_failed", messageId="m"),
        frame(type="sessions", requestId="r", sessions={}),
        frame(type="sessions", sessions=[]),
        frame(type="last_read", token="t", **{"from": ROW}),
        frame(type="wake_request", token="t", sessionId="s", messageId="m"),
        b"\x00\x00\x00\x00",
        b"\x00\x10\x00\x01",
        b"\x00\x00\x00\x04null",
    ],
)  # fmt: skip
def test_frame_that_breaks_the_rules_ends_the_connection(data: bytes) -> None:
    """Also one that needs a capability which this broker did not announce."""
    link = joined()
    link.list("r", 0)
    link.receive_data(data)
    (closed,) = link.events_received()
    assert isinstance(closed, Closed)
    assert closed.unanswered == (("list", "r"),)
    link.receive_data(frame(type="session_left", sessionId="x"))
    assert link.events_received() == []


def test_frame_before_the_registration_was_taken_ends_the_connection() -> None:
    """`registered` comes first, always."""
    link = ClientLink(SESSION, "pi-1", 0)
    link.receive_data(frame(type="session_left", sessionId="x"))
    assert link.is_closed


def test_frames_before_an_oversize_one_still_count() -> None:
    """What was whole before the broken length is told, then the end."""
    link = joined()
    link.receive_data(frame(type="session_left", sessionId="x") + b"\xff\xff\xff\xff")
    left, closed = link.events_received()
    assert left == Left("x")
    assert isinstance(closed, Closed)


@pytest.mark.clause("intercom-37")
def test_list_drops_faulty_rows_and_keeps_one_less_its_project() -> None:
    """One bad session costs nobody else's row; a malformed projectId costs only itself."""
    link = joined()
    link.list("r", 0)
    rows = [ROW, {"id": "x", "cwd": ""}, {**ROW, "id": "pi-3", "projectId": "short"}, 7]
    link.receive_data(frame(type="sessions", requestId="r", sessions=rows, error="part"))
    (listed,) = link.events_received()
    assert listed == Listed("r", (ROW, {**ROW, "id": "pi-3"}), "part")
    link.receive_data(frame(type="sessions", requestId="r", sessions=[]))
    assert link.events_received() == []


@pytest.mark.clause("intercom-11")
def test_send_over_the_bound_writes_nothing() -> None:
    """It is refused here, with the words of the wire, and the connection stands."""
    link = joined()
    with pytest.raises(Refused) as caught:
        link.send("pi-2", {**MESSAGE, "content": {"text": "x" * FRAME_BYTES_MAX}}, 0)
    assert caught.value.code == "MESSAGE_TOO_LARGE"
    assert "Intercom message too large" in str(caught.value)
    assert (said(link), link.deadline_ms, link.is_registered) == ([], None, True)


def test_send_that_every_broker_would_refuse_is_not_made() -> None:
    """A form that the wire forbids, a broken guard, a second one under the same id, and too many."""
    link = joined("guardedDelivery")
    broken = [{**MESSAGE, "delivery": "later"}, {**MESSAGE, "guard": {"rootSessionId": "r"}}]
    for message in broken:
        with pytest.raises(Refused, match="refused by every broker"):
            link.send("pi-2", message, 0)
    link.send("pi-2", MESSAGE, 0)
    with pytest.raises(Refused) as caught:
        link.send("pi-2", MESSAGE, 0)
    assert caught.value.code == "RESOURCE_BUSY"
    for number in range(REQUESTS_MAX - 1):
        link.list(str(number), 0)
    with pytest.raises(Refused, match="too many"):
        link.list("one more", 0)


@pytest.mark.clause("intercom-135")
def test_guard_and_reads_need_a_broker_that_announced_them() -> None:
    """A frame that was not announced is never written: whoever asks is refused."""
    old = joined()
    for call in (
        lambda: old.send("pi-2", {**MESSAGE, "guard": GUARD, "expectsReply": False}, 0),
        lambda: old.read("last", "r", "pi-2", {}, 0),
        lambda: old.read("receipt", "r", "pi-2", {}, 0),
    ):
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.code == "CAPABILITY_DENIED"
    old.tell_presence({"applicationGuard": "g"})
    old.leave(is_parked=True)
    assert said(old) == [{"type": "unregister"}]
    new = joined(*CAPABILITIES)
    new.send("pi-2", {**MESSAGE, "guard": GUARD, "expectsReply": False}, 0)
    new.read("last", "r", "pi-2", {"offset": 0}, 0)
    new.tell_presence({"applicationGuard": None})
    new.leave(is_parked=True)
    assert [one["type"] for one in said(new)] == ["send", "last_request", "presence", "unregister"]


def test_answers_of_a_broker_end_their_sends_once() -> None:
    """Each of the three words; a late one and one for nobody mean nothing."""
    link = joined()
    told = (
        (frame(type="delivered", messageId="m1"), Sent("m1", "delivered")),
        (frame(type="delivery_queued", messageId="m1", reason="q"), Sent("m1", "queued", "q")),
        (frame(type="delivery_failed", messageId="m1", reason="no"), Sent("m1", "failed", "no")),
        (
            frame(type="delivery_failed", messageId="m1", reason="?", outcomeKnown=False),
            Sent("m1", "failed", "?", is_outcome_known=False),
        ),
    )
    for data, event in told:
        link.send("pi-2", MESSAGE, 0)
        link.receive_data(data)
        assert link.events_received() == [event]
        link.receive_data(data)
        assert link.events_received() == []


def test_operations_without_an_answer_end_in_their_time() -> None:
    """A send waits 8 s, a list and a read 5 s; the answer that comes later is ignored."""
    link = joined(*CAPABILITIES)
    link.send("pi-2", MESSAGE, 0)
    link.list("l", 0)
    link.read("receipt", "r", "pi-2", {"rootSessionId": "a", "messageId": "b"}, 0)
    link.expire(LIST_MS)
    assert link.events_received() == [TimedOut("list", "l"), TimedOut("receipt", "r")]
    assert link.deadline_ms == SEND_MS
    link.expire(SEND_MS)
    assert link.events_received() == [TimedOut("send", "m1")]
    link.receive_data(frame(type="delivered", messageId="m1"))
    assert link.events_received() == []
    assert not link.is_closed


def test_loss_ends_every_operation_and_refuses_the_next() -> None:
    """Nobody waits for a connection that is over."""
    link = joined()
    link.send("pi-2", MESSAGE, 0)
    link.receive_eof()
    (closed,) = link.events_received()
    assert isinstance(closed, Closed)
    assert closed.unanswered == (("send", "m1"),)
    with pytest.raises(Refused) as caught:
        link.list("r", 0)
    assert caught.value.code == "PEER_OFFLINE"
    link.close("again")
    link.tell_presence({"status": "idle"})
    assert link.events_received() == []
    assert said(link)[1:] == []


def test_messages_and_reads_come_as_events() -> None:
    """What a capable broker relays is told with who is behind it."""
    link = joined(*CAPABILITIES)
    shown = {**ROW, "guardedDelivery": 1}
    link.receive_data(
        frame(type="message", message=MESSAGE, **{"from": shown})
        + frame(type="last_read", token="t1", offset=0, limit=9, **{"from": ROW})
        + frame(type="receipt_read", token="t2", rootSessionId="r", messageId="m", **{"from": ROW})
        + frame(type="wake_request", token="t3", sessionId="s", messageId="m")
        + frame(type="wake_failed", messageId="m", detail="gone")
    )
    assert link.events_received() == [
        MessageCame(shown, MESSAGE),
        LastAsked("t1", ROW, None, 0, 9),
        ReceiptAsked("t2", ROW, "r", "m"),
        WakeAsked("t3", "s", "m"),
        WakeFailed("m", "gone"),
    ]
    link.answer_last("t1", {"error": "x"})
    link.answer_receipt("t2", {"error": "x"})
    link.answer_wake("t3", is_woken=False, detail="d")
    assert [(one["type"], one["token"]) for one in said(link)] == [
        ("last_page", "t1"), ("receipt_facts", "t2"), ("wake_outcome", "t3"),
    ]  # fmt: skip
    link.read("last", "q", "pi-2", {"offset": 0}, 0)
    link.receive_data(frame(type="last_response", requestId="q", entryId="e", text="t"))
    assert link.events_received() == [ReadAnswered("last", "q", {"entryId": "e", "text": "t"})]


@pytest.mark.parametrize("bad", [{"entryId": ""}, {"offset": -1}, {"limit": True}])
def test_read_of_no_form_ends_the_connection(bad: dict[str, Any]) -> None:
    """A broker that relays nonsense is not believed any further."""
    link = joined(*CAPABILITIES)
    fields = {"token": "t", "from": ROW, "offset": 0, "limit": 1, **bad}
    link.receive_data(frame(type="last_read", **fields))
    assert link.is_closed
