"""Golden conversations of the strict form of the intercom wire, each named by its number in the reference."""

# ruff: noqa: E501 - a frame is one line, as it is on the wire

from typing import Any

import pytest

from tests.scripts.room import Room, converse
from tieline.wire.intercom.reading import dump

ASKER = "pi-0123456789abcdef0123456789abcdef"


@pytest.mark.clause("intercom-17", "intercom-18", "intercom-43", "intercom-48", "intercom-52")
def test_captured_conversation_is_the_same_here() -> None:
    """A colliding id, a list, an unknown target, an ask with two replies, presence and leave go as captured."""
    me = '{"cwd":"/srv/demo","model":"probe-model","status":"idle"'
    converse(
        f"""
        A> {{"type":"register","session":{me},"name":"asker"}},"requestedId":"{ASKER}"}}
        A< {{"type":"registered","sessionId":"{ASKER}"}}
        B> {{"type":"register","session":{me},"name":"answerer"}},"requestedId":"{ASKER}"}}
        B< {{"type":"registered","sessionId":"00000000-0000-4000-8000-000000000003"}}
        A> {{"type":"list","requestId":"L1"}}
        A< {{"type":"sessions","requestId":"L1","sessions":[{me},"name":"asker","id":"{ASKER}","lastSeen":"*"}},{me},"name":"answerer","id":"00000000-0000-4000-8000-000000000003","lastSeen":"*"}}]}}
        A> {{"type":"send","to":"nobody-here","message":{{"id":"m-unknown","timestamp":1,"content":{{"text":"x"}}}}}}
        A< {{"type":"delivery_failed","messageId":"m-unknown","reason":"Session not found"}}
        A> {{"type":"send","to":"00000000-0000-4000-8000-000000000003","message":{{"id":"m-ask","timestamp":2,"expectsReply":true,"delivery":"steer","content":{{"text":"which one?"}}}}}}
        A< {{"type":"delivered","messageId":"m-ask"}}
        B< {{"type":"message","from":{me},"name":"asker","id":"{ASKER}","lastSeen":1700000005000,"lastIntercomActivity":1700000005000}},"message":{{"id":"m-ask","timestamp":2,"expectsReply":true,"delivery":"steer","content":{{"text":"which one?"}}}}}}
        B> {{"type":"send","to":"{ASKER}","message":{{"id":"m-reply","timestamp":3,"replyTo":"m-ask","delivery":"steer","content":{{"text":"the second"}}}}}}
        B< {{"type":"delivered","messageId":"m-reply"}}
        A< {{"type":"message","from":{me},"name":"answerer","id":"*","lastSeen":"*","lastIntercomActivity":"*"}},"message":{{"id":"m-reply","timestamp":3,"replyTo":"m-ask","delivery":"steer","content":{{"text":"the second"}}}}}}
        B> {{"type":"send","to":"{ASKER}","message":{{"id":"m-reply","timestamp":3,"replyTo":"m-ask","delivery":"steer","content":{{"text":"again"}}}}}}
        B< {{"type":"delivered","messageId":"m-reply"}}
        A< {{"type":"message","from":"*","message":{{"id":"m-reply","timestamp":3,"replyTo":"m-ask","delivery":"steer","content":{{"text":"again"}}}}}}
        B> {{"type":"presence","status":"thinking","acceptsAsks":false}}
        B> {{"type":"unregister"}}
        A< {{"type":"session_left","sessionId":"00000000-0000-4000-8000-000000000003"}}
    """.replace("1700000005000", "1700000005000")
    )


@pytest.mark.clause("intercom-1", "intercom-2", "intercom-3")
def test_frames_cut_anywhere_are_answered_in_order() -> None:
    """A frame that comes byte by byte and two frames in one read are answered, in order."""
    room = Room()
    room.join("A")
    first, second = (dump({"type": "list", "requestId": name}) for name in ("one", "t-w-o"))
    framed = b"".join(len(each).to_bytes(4, "big") + each for each in (first, second))
    for at in range(len(framed)):
        room.send_raw("A", framed[at : at + 1])
    assert [frame["requestId"] for frame in room.heard("A")] == ["one", "t-w-o"]
    room.send_raw("A", framed)
    assert [frame["requestId"] for frame in room.heard("A")] == ["one", "t-w-o"]
    room.send_raw("A", framed[:4])
    room.send_raw("A", framed[4 : 4 + len(first)] + framed[4 + len(first) : 8 + len(first)])
    room.send_raw("A", framed[8 + len(first) :])
    assert [frame["requestId"] for frame in room.heard("A")] == ["one", "t-w-o"]


@pytest.mark.clause("intercom-4")
def test_payload_of_exactly_the_bound_is_taken() -> None:
    """A payload of 1,048,576 bytes is answered."""
    room = Room()
    room.join("A")
    payload = dump({"type": "list", "requestId": "x"})
    room.send_payload("A", payload + b" " * (1_048_576 - len(payload)))
    assert [frame["requestId"] for frame in room.heard("A")] == ["x"]


@pytest.mark.clause("intercom-5", "intercom-6", "intercom-7", "intercom-8", "intercom-9", "intercom-10")
@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x10\x00\x01",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01{",
        b"\x00\x00\x00\x04null",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{}",
        b'\x00\x00\x00\x0a{"type":1}',
        b'{"type":"list","requestId":"x"}\n',
        b'\x00\x00\x00\x22\xef\xbb\xbf{"type":"list","requestId":"x"}',
        b'\x00\x00\x00\x20{"type":"list","requestId":"x"}!',
        b'\x00\x00\x00\x1e{"type":"list","requestId":NaN}',
        b'\x00\x00\x00\x24{"type":"list","x":1,"requestId":null}'[:40],
        (40_019).to_bytes(4, "big") + b'{"type":"list","a":' + b"[" * 20_000 + b"]" * 20_000,
    ],
)
def test_malformed_frame_closes_its_socket_alone(data: bytes) -> None:
    """What breaks the framing closes exactly the socket that sent it, without a frame."""
    room = Room()
    room.join("A")
    room.join("B")
    room.send_raw("B", data)
    assert not room.ends["B"].is_open
    assert room.heard("B") == []
    assert room.heard("A") == [{"type": "session_left", "sessionId": "session-B"}]
    room.send("A", {"type": "list", "requestId": "still"})
    assert [one["id"] for one in room.heard("A")[0]["sessions"]] == ["session-A"]


@pytest.mark.clause("intercom-8")
def test_frame_before_a_malformed_one_counts_and_one_after_does_not() -> None:
    """In one read, what was whole before the offence is answered, what comes after it is dropped."""
    room = Room()
    room.join("A")
    good = dump({"type": "list", "requestId": "x"})
    framed = len(good).to_bytes(4, "big") + good
    room.send_raw("A", framed + b"\x00\x00\x00\x01{" + framed)
    assert len(room.heard("A")) == 1
    assert not room.ends["A"].is_open


@pytest.mark.clause("intercom-11", "intercom-51")
def test_message_whose_delivery_would_be_too_large_fails_cleanly() -> None:
    """A send that fits but whose forwarded frame would not is refused with its size, and its socket lives on."""
    room = Room()
    room.join("A", cwd="/" + "x" * 400)
    room.join("B")
    message: dict[str, Any] = {"id": "m", "timestamp": 1, "content": {"text": ""}}
    frame = {"type": "send", "to": "B", "message": message}
    message["content"] = {"text": "x" * (1_048_576 - len(dump(frame)))}
    room.send("A", frame)
    (failed,) = room.heard("A")
    size = int(failed["reason"].split("(")[1].split(" ")[0])
    assert failed == {
        "type": "delivery_failed",
        "messageId": "m",
        "reason": f"Intercom message too large ({size} bytes; max 1048576)",
    }
    assert size > 1_048_576
    assert room.heard("B") == []
    room.send("A", {"type": "list", "requestId": "x"})
    assert len(room.heard("A")) == 1


@pytest.mark.clause("intercom-12", "intercom-50")
def test_message_reaches_its_recipient_as_it_was_sent() -> None:
    """Unknown members, lone surrogates, bytes that are no UTF-8, equal keys and odd numbers go on as they mean."""
    converse(
        r"""
        A+
        A< {"type":"registered","sessionId":"session-A"}
        B+
        B< {"type":"registered","sessionId":"session-B"}
        A>b b' {"type":"send","to":"b","message":{"id":"m","timestamp":1.5,"content":{"text":"\\ud800 \xff \xe2\x80\xa8","deep":[[1e400]]},"x":1,"x":{"y":null}}} '
        A< {"type":"delivered","messageId":"m"}
        B< {"type":"message","from":{"cwd":"/w","model":"m","name":"A","id":"session-A","lastSeen":"*","lastIntercomActivity":"*"},"message":{"id":"m","timestamp":1.5,"content":{"text":"\ud800 \ufffd \u2028","deep":[[null]]},"x":{"y":null}}}
        A> {"type":"send","to":"b","message":{"id":"m","timestamp":9007199254740993,"content":{"text":""}}}
        A< {"type":"delivered","messageId":"m"}
        B< {"type":"message","from":"*","message":{"id":"m","timestamp":9007199254740992,"content":{"text":""}}}
        A> {"type":"list","requestId":""}
        A< {"type":"sessions","requestId":"","sessions":["*","*"]}
    """
    )


@pytest.mark.clause("intercom-13", "intercom-15", "intercom-16", "intercom-33")
@pytest.mark.parametrize(
    "frame",
    [
        '{"type":"register","session":{"cwd":"/w","model":"m"}}',
        '{"type":"health","requestId":"h"}',
        '{"type":"nonsense"}',
        '{"type":"list"}',
        '{"type":"list","requestId":1}',
        '{"type":"last_request","requestId":"r","to":"session-A"}',
        '{"type":"receipt_request","requestId":"r","to":"session-A"}',
        '{"type":"last_page","token":"t"}',
        '{"type":"receipt_facts","token":"t"}',
        '{"type":"wake_outcome","token":"t","ok":true}',
        '{"type":"cancel_ask","messageId":"m"}',
    ],
)
def test_frame_out_of_order_or_unknown_closes_its_socket(frame: str) -> None:
    """A second registration, an unknown type, what was not announced, and a list without an id close."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+
        B< {{"type":"registered","sessionId":"session-B"}}
        B> {frame}
        B!
        A< {{"type":"session_left","sessionId":"session-B"}}
    """)


@pytest.mark.clause("intercom-15")
@pytest.mark.parametrize("kind", ["list", "send", "presence", "unregister", "nonsense"])
def test_frame_before_registration_closes_its_socket(kind: str) -> None:
    """Who has not registered says nothing else."""
    converse(f"""
        A> {{"type":"{kind}","requestId":"x"}}
        A!
    """)


@pytest.mark.clause("intercom-38", "intercom-48")
def test_socket_stays_open_after_unregister_and_may_register_again() -> None:
    """Who unregistered is gone for the others; on its socket only a registration is heard."""
    converse("""
        A+
        A< {"type":"registered","sessionId":"session-A"}
        B+
        B< {"type":"registered","sessionId":"session-B"}
        A> {"type":"unregister"}
        B< {"type":"session_left","sessionId":"session-A"}
        B> {"type":"send","to":"session-A","message":{"id":"m","timestamp":1,"content":{"text":"x"}}}
        B< {"type":"delivery_failed","messageId":"m","reason":"Session not found"}
        A+
        A< {"type":"registered","sessionId":"session-A"}
        A> {"type":"unregister"}
        B< {"type":"session_left","sessionId":"session-A"}
        + 60000
        A> {"type":"list","requestId":"x"}
        A!
    """)


@pytest.mark.clause("intercom-17", "intercom-38")
def test_requested_id_is_granted_again_after_a_reconnect() -> None:
    """The id of a session that is gone is granted to the next who asks for it."""
    converse("""
        A+
        A< {"type":"registered","sessionId":"session-A"}
        B+
        B< {"type":"registered","sessionId":"session-B"}
        A.
        B< {"type":"session_left","sessionId":"session-A"}
        A+
        A< {"type":"registered","sessionId":"session-A"}
    """)


@pytest.mark.clause("intercom-19", "intercom-20")
@pytest.mark.parametrize(
    "wanted", ['"seven77"', f'"{"x" * 81}"', '"session-A\\n"', '"sess ion-A"', "7", "null"]
)
def test_malformed_requested_id_is_ignored(wanted: str) -> None:
    """An id that may not be granted, and one inside the session, are replaced by a fresh one."""
    converse(f"""
        A+ {{"id":{wanted},"top":{{}}}}
        A< {{"type":"registered","sessionId":"00000000-0000-4000-8000-000000000001"}}
        B> {{"type":"register","session":{{"cwd":"/w","model":"m","id":"inside-it"}}}}
        B< {{"type":"registered","sessionId":"00000000-0000-4000-8000-000000000003"}}
    """)


@pytest.mark.clause("intercom-17")
@pytest.mark.parametrize("wanted", ["eight-88", "x" * 80, "A_-9abcd"])
def test_requested_id_at_its_bounds_is_granted(wanted: str) -> None:
    """Ids of 8 and of 80 characters are granted."""
    assert Room().join("A", id=wanted) == wanted


@pytest.mark.clause("intercom-21", "intercom-22", "intercom-23", "intercom-24", "intercom-25")
@pytest.mark.parametrize(
    "session",
    [
        "{}",
        "[]",
        '"x"',
        '{"cwd":"/w"}',
        '{"model":"m"}',
        '{"cwd":"","model":"m"}',
        '{"cwd":"/w","model":""}',
        '{"cwd":"/w","model":null}',
        '{"cwd":"/w\\u0001","model":"m"}',
        '{"cwd":"/w","model":"m\\u0085"}',
        '{"cwd":"/w","model":"m","name":"a\\nb"}',
        '{"cwd":"/w","model":"m","status":"\\u007f"}',
        '{"cwd":"/w","model":"m","name":""}',
        '{"cwd":"/w","model":"m","name":null}',
        '{"cwd":"/w","model":"m","status":7}',
        '{"cwd":"/w","model":"m","projectId":"abc"}',
        '{"cwd":"/w","model":"m","projectId":"' + "A" * 64 + '"}',
        '{"cwd":"/w","model":"m","projectId":"' + "a" * 64 + '\\n"}',
        '{"cwd":"/w","model":"m","pendingAsks":-1}',
        '{"cwd":"/w","model":"m","pendingAsks":0.5}',
        '{"cwd":"/w","model":"m","pendingAsks":"1"}',
        '{"cwd":"/w","model":"m","pendingAsks":true}',
        '{"cwd":"/w","model":"m","acceptsAsks":1}',
        '{"cwd":"/w","model":"m","lastSeen":1e400}',
        '{"cwd":"/w","model":"m","lastSeen":"now"}',
        '{"cwd":"/w","model":"m","lastIntercomActivity":null}',
        '{"cwd":"/w","model":"m","rootSessionId":""}',
        '{"cwd":"/w","model":"m","parentSessionId":"r"}',
        '{"cwd":"/w","model":"m","rootSessionId":"r","parentSessionId":"q"}',
        '{"cwd":"/w","model":"m","rootSessionId":"r","parentSessionId":null}',
    ],
)
def test_invalid_session_closes_its_socket(session: str) -> None:
    """A registration that breaks the strict form closes, and nobody hears of it."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B> {{"type":"register","session":{session},"requestedId":"session-B"}}
        B!
    """)


@pytest.mark.clause("intercom-26", "intercom-23", "intercom-32", "intercom-34", "intercom-35")
def test_presence_is_silent_and_shown_by_the_next_list() -> None:
    """What a session tells of itself is listed, unknown members too; presence changes what it may, for all."""
    converse("""
        A+ {"team":"red","lastSeen":5}
        A< {"type":"registered","sessionId":"session-A"}
        B> {"type":"register","session":{"cwd":"/b","model":"m"},"requestedId":"session-B"}
        B< {"type":"registered","sessionId":"session-B"}
        B> {"type":"list","requestId":"1"}
        B< {"type":"sessions","requestId":"1","sessions":[{"cwd":"/w","model":"m","name":"A","team":"red","id":"session-A","lastSeen":5},{"cwd":"/b","model":"m","id":"session-B","lastSeen":1700000005000}]}
        + 10
        A> {"type":"presence","status":"idle","acceptsAsks":false,"pendingAsks":2,"cwd":"/else","projectId":"x","rootSessionId":"r","lastIntercomActivity":4.5}
        + 10
        B> {"type":"list","requestId":"2"}
        B< {"type":"sessions","requestId":"2","sessions":[{"cwd":"/w","model":"m","name":"A","team":"red","id":"session-A","lastSeen":1700000005010,"status":"idle","acceptsAsks":false,"pendingAsks":2,"lastIntercomActivity":4.5},{"cwd":"/b","model":"m","id":"session-B","lastSeen":1700000005020}]}
    """)


@pytest.mark.clause("intercom-36")
@pytest.mark.parametrize(
    "told",
    [
        '"name":""',
        '"status":null',
        '"acceptsAsks":"yes"',
        '"pendingAsks":1.5',
        '"model":"\\u0000"',
        '"name":7',
    ],
)
def test_invalid_presence_closes_its_sender_alone(told: str) -> None:
    """Presence that breaks the strict form closes its sender and changes nobody's list."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+
        B< {{"type":"registered","sessionId":"session-B"}}
        B> {{"type":"presence","status":"thinking",{told}}}
        B!
        A< {{"type":"session_left","sessionId":"session-B"}}
        A> {{"type":"list","requestId":"x"}}
        A< {{"type":"sessions","requestId":"x","sessions":[{{"id":"session-A","...":1}}]}}
    """)


@pytest.mark.clause("intercom-44", "intercom-45", "intercom-46", "intercom-47", "intercom-49")
def test_target_is_resolved_by_exact_id_then_by_name() -> None:
    """An exact id wins, a name counts in any case, a prefix or another case of an id does not; two are refused."""
    message = '"message":{"id":"m","timestamp":1,"content":{"text":"x"}}'
    failed = '"type":"delivery_failed","messageId":"m","reason":'
    converse(f"""
        A+ {{"name":"Worker"}}
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {{"name":"session-A"}}
        B< {{"type":"registered","sessionId":"session-B"}}
        C+ {{"name":"twin"}}
        C< {{"type":"registered","sessionId":"session-C"}}
        D+ {{"name":"TWIN"}}
        D< {{"type":"registered","sessionId":"session-D"}}
        E+ {{"name":"Straße"}}
        E< {{"type":"registered","sessionId":"session-E"}}
        B> {{"type":"send","to":"wORKER",{message}}}
        A< {{"type":"message","from":"*","message":"*"}}
        B< {{"type":"delivered","messageId":"m"}}
        B> {{"type":"send","to":"session-A",{message}}}
        A< {{"type":"message","from":"*","message":"*"}}
        B< {{"type":"delivered","messageId":"m"}}
        B> {{"type":"send","to":"SESSION-C",{message}}}
        B< {{{failed}"Session not found"}}
        B> {{"type":"send","to":"session-",{message}}}
        B< {{{failed}"Session not found"}}
        B> {{"type":"send","to":"",{message}}}
        B< {{{failed}"Session not found"}}
        B> {{"type":"send","to":" worker",{message}}}
        B< {{{failed}"Session not found"}}
        B> {{"type":"send","to":"STRASSE",{message}}}
        B< {{{failed}"Session not found"}}
        B> {{"type":"send","to":"tWin",{message}}}
        B< {{{failed}"Multiple sessions named \\"tWin\\" are connected. Use the session ID instead."}}
        B> {{"type":"send","to":"session-B",{message}}}
        B< {{"type":"message","from":"*","message":"*"}}
        B< {{"type":"delivered","messageId":"m"}}
    """)


def sent(**parts: str) -> str:
    """Return a send whose message has these members, as JSON texts."""
    members = {"id": '"m"', "timestamp": "1", "content": '{"text":"x"}'} | parts
    body = ",".join(f'"{name}":{value}' for name, value in members.items() if value)
    return '{"type":"send","to":"session-B","message":{' + body + "}}"


@pytest.mark.clause("intercom-58", "intercom-59", "intercom-60", "intercom-61", "intercom-62", "intercom-64")
@pytest.mark.parametrize(
    "frame",
    [
        sent(id='""'),
        sent(id="7"),
        sent(id=""),
        sent(timestamp='"now"'),
        sent(timestamp="1e400"),
        sent(timestamp="true"),
        sent(timestamp=""),
        *(sent(content=f'{{"text":"\\u{code:04x}"}}') for code in (0, 8, 11, 12, 14, 31, 127, 128, 159)),
        sent(id='"a\\tb"'),
        sent(replyTo='"\\u009f"'),
        sent(content="{}"),
        sent(content='"x"'),
        sent(content='[{"text":"x"}]'),
        sent(content=""),
        sent(delivery='"later"'),
        sent(delivery="null"),
        sent(delivery='["steer"]'),
        sent(expectsReply="1"),
        sent(passive='"yes"'),
        sent(replyTo="null"),
        sent(content='{"text":"x","attachments":null}'),
        sent(content='{"text":"x","attachments":{}}'),
        sent(content='{"text":"x","attachments":[{"type":"image","name":"n","content":"c"}]}'),
        sent(content='{"text":"x","attachments":[{"type":"file","name":"","content":"c"}]}'),
        sent(content='{"text":"x","attachments":[{"type":"file","name":"a\\nb","content":"c"}]}'),
        sent(content='{"text":"x","attachments":[{"type":"file","name":"n","content":7}]}'),
        sent(content='{"text":"x","attachments":[{"type":"file","name":"n","content":"c","language":null}]}'),
        sent(passive="true", delivery='"steer"'),
        sent(passive="true", expectsReply="true"),
        sent(delivery='"passive"', expectsReply="true"),
        sent(queueMode='"stack"'),
        sent(queueMode='"stack"', delivery='"steer"'),
        sent(queueMode='"pile"', delivery='"queue"'),
        sent(queueMode='"replace"', delivery='"queue"'),
        sent(queueMode='"replace"', delivery='"queue"', threadId='" \\u00a0"'),
        sent(queueMode='"replace"', delivery='"queue"', threadId='"a\\u0007b"'),
        sent(queueMode='"replace"', delivery='"queue"', threadId="7"),
        sent(queueMode='"stack"', delivery='"queue"', threadId='"t"'),
        sent(delivery='"queue"', threadId='"t"'),
        sent(threadId='"t"'),
        '{"type":"send","to":"session-B"}',
        '{"type":"send","to":"session-B","message":null}',
        '{"type":"send","message":{"id":""}}',
    ],
)
def test_invalid_message_fails_and_its_socket_stays_open(frame: str) -> None:
    """A message that breaks the strict form is refused under the id "unknown", and nobody gets it."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+
        B< {{"type":"registered","sessionId":"session-B"}}
        A> {frame}
        A< {{"type":"delivery_failed","messageId":"unknown","reason":"Invalid message format"}}
        A> {{"type":"list","requestId":"x"}}
        A< {{"type":"sessions","requestId":"x","sessions":["*","*"]}}
    """)


@pytest.mark.clause("intercom-64")
@pytest.mark.parametrize("to", ["7", "null", "[]"])
def test_target_that_is_no_string_fails_with_the_real_id(to: str) -> None:
    """A valid message to no string is refused under its own id."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        A> {{"type":"send","to":{to},"message":{{"id":"m","timestamp":1,"content":{{"text":"x"}}}}}}
        A< {{"type":"delivery_failed","messageId":"m","reason":"Invalid message format"}}
    """)


@pytest.mark.clause("intercom-59", "intercom-60", "intercom-63")
@pytest.mark.parametrize(
    "frame",
    [
        sent(content='{"text":""}'),
        sent(content='{"text":"a\\tb\\r\\nc"}'),
        sent(content='{"text":"x","attachments":[]}'),
        sent(
            content='{"text":"x","attachments":[{"type":"snippet","name":"n","content":"c","language":"py"}]}'
        ),
        sent(passive="true"),
        sent(passive="true", delivery='"passive"'),
        sent(passive="false", delivery='"steer"', expectsReply="true"),
        sent(queueMode='"stack"', delivery='"queue"'),
        sent(queueMode='"replace"', delivery='"queue"', threadId='"\\tt"'),
        sent(replyTo='"never-asked"'),
    ],
)
def test_valid_message_is_delivered(frame: str) -> None:
    """What keeps the strict form is delivered, an invented correlation too."""
    room = Room()
    room.join("A")
    room.join("B", status="thinking")
    room.send_payload("A", frame.encode())
    assert [one["type"] for one in room.heard("A")] == ["delivered"]
    assert [one["type"] for one in room.heard("B")] == ["message"]


@pytest.mark.clause("intercom-58")
def test_message_with_no_number_for_a_time_closes() -> None:
    """NaN is no JSON: the socket is closed, where an infinite number only fails."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        A> {sent(timestamp="NaN")}
        A!
    """)


def replacing(text: str, thread: str = "t", *, is_ask: bool = False) -> str:
    """Return a send to B that replaces in a thread."""
    return (
        '{{"type":"send","to":"session-B","message":{{"id":"{}","timestamp":1,"delivery":"queue","queueMode":"replace",'
        '"threadId":"{}","expectsReply":{},"content":{{"text":"{}"}}}}}}'.format(
            text, thread, "true" if is_ask else "false", text
        )
    )


STAGED = '"reason":"Queued for replace-mode delivery"}'


@pytest.mark.clause("intercom-65")
def test_updates_to_an_idle_target_are_delivered_once_after_their_time() -> None:
    """Three updates of a thread get three answers, and the last of them arrives 1.5 s after it was sent."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {{"status":"idle · reviewing"}}
        B< {{"type":"registered","sessionId":"session-B"}}
        A> {replacing("v0")}
        A< {{"type":"delivery_queued","messageId":"v0",{STAGED}
        + 1000
        A> {replacing("v1")}
        A< {{"type":"delivery_queued","messageId":"v1",{STAGED}
        A> {replacing("other", "u")}
        A< {{"type":"delivery_queued","messageId":"other",{STAGED}
        A> {replacing("v2")}
        A< {{"type":"delivery_queued","messageId":"v2",{STAGED}
        + 1499
        + 1
        B< {{"type":"message","from":"*","message":{{"id":"other","...":1}}}}
        B< {{"type":"message","from":"*","message":{{"id":"v2","...":1}}}}
    """)


@pytest.mark.clause("intercom-66", "intercom-67")
@pytest.mark.parametrize("session", ['{"status":"thinking"}', '{"status":"idle","acceptsAsks":false}', "{}"])
def test_update_to_a_busy_target_goes_on_at_once_and_an_ask_is_staged(session: str) -> None:
    """Who is not idle gets an update at once; an ask that replaces waits in any case."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {session}
        B< {{"type":"registered","sessionId":"session-B"}}
        A> {replacing("v0")}
        B< {{"type":"message","from":"*","message":{{"id":"v0","...":1}}}}
        A< {{"type":"delivered","messageId":"v0"}}
        A> {replacing("v1", is_ask=True)}
        A< {{"type":"delivery_queued","messageId":"v1",{STAGED}
        + 1500
        B< {{"type":"message","from":"*","message":{{"id":"v1","...":1}}}}
        A> {replacing("v2", is_ask=True)}
        A< {{"type":"delivery_queued","messageId":"v2",{STAGED}
        A> {replacing("v3")}
        B< {{"type":"message","from":"*","message":{{"id":"v3","...":1}}}}
        A< {{"type":"delivered","messageId":"v3"}}
        + 3000
    """)


@pytest.mark.clause("intercom-68")
def test_staged_update_outlives_its_sender_and_a_staged_ask_does_not() -> None:
    """When the sender leaves, its staged update still arrives, its staged ask is gone."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {{"status":"idle"}}
        B< {{"type":"registered","sessionId":"session-B"}}
        A> {replacing("send", "one")}
        A< {{"type":"delivery_queued","messageId":"send",{STAGED}
        A> {replacing("ask", "two", is_ask=True)}
        A< {{"type":"delivery_queued","messageId":"ask",{STAGED}
        A.
        B< {{"type":"session_left","sessionId":"session-A"}}
        + 5000
        B< {{"type":"message","from":{{"id":"session-A","...":1}},"message":{{"id":"send","...":1}}}}
    """)


@pytest.mark.clause("intercom-69")
def test_staging_refuses_the_101st_thread_and_still_replaces() -> None:
    """A sender has 100 threads; one more is refused, a newer update of one of them is not."""
    room = Room()
    room.join("A")
    room.join("B", status="idle")
    for number in range(100):
        room.send_payload("A", replacing(f"v{number}", f"t{number}").encode())
    assert {one["type"] for one in room.heard("A")} == {"delivery_queued"}
    room.send_payload("A", replacing("more", "t100").encode())
    assert room.heard("A") == [
        {
            "type": "delivery_failed",
            "messageId": "more",
            "reason": "Replace-mode delivery queue is full; retry after pending updates are delivered.",
        }
    ]
    room.send_payload("A", replacing("again", "t7").encode())
    assert [one["type"] for one in room.heard("A")] == ["delivery_queued"]
    room.pass_time(1_500)
    texts = [one["message"]["id"] for one in room.heard("B")]
    assert len(texts) == 100
    assert texts[-1] == "again"
    assert "v7" not in texts


def test_recipient_who_leaves_takes_what_was_staged_for_it_along() -> None:
    """Nothing staged for a session reaches who registers under its id after it."""
    converse(f"""
        A+
        A< {{"type":"registered","sessionId":"session-A"}}
        B+ {{"status":"idle"}}
        B< {{"type":"registered","sessionId":"session-B"}}
        A> {replacing("v0")}
        A< {{"type":"delivery_queued","messageId":"v0",{STAGED}
        B.
        A< {{"type":"session_left","sessionId":"session-B"}}
        B+
        B< {{"type":"registered","sessionId":"session-B"}}
        + 5000
    """)


@pytest.mark.clause("intercom-30")
def test_socket_that_does_not_register_is_cut_and_blocks_nobody() -> None:
    """A silent socket has one second; 40 of them keep no session out, and those that come together all stay."""
    room = Room()
    for number in range(40):
        room.open(f"raw{number}")
    assert all(end.is_open for end in room.ends.values())
    room.join("A")
    room.pass_time(300)
    assert [end.is_open for end in room.ends.values()].count(True) == 33
    room.pass_time(700)
    assert [name for name, end in room.ends.items() if end.is_open] == ["A"]


@pytest.mark.clause("intercom-127", "intercom-128")
def test_idle_time_counts_from_the_start_and_from_the_last_session() -> None:
    """A broker knows since when nobody is registered; a raw socket does not hold it, a registration does."""
    room = Room()
    room.open("raw")
    assert room.plan.idle_since_ms == 5_000
    room.pass_time(200)
    room.join("A")
    assert room.plan.idle_since_ms is None
    room.pass_time(100)
    room.close(room.ends["A"])
    assert room.plan.idle_since_ms == 5_300
