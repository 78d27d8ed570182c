"""Any bytes on the pi-peers wire: a frame or a typed error, and never a proof that nobody gave."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.errors import ProtocolError
from tieline.wire.peers.frames import Frame, Unknown, UserFrame, decode, decode_auth, encode
from tieline.wire.peers.protocol import Authenticated, Closed, FrameReceived, Grade, Inbound
from tieline.wire.peers.wrapper import unwrap

ID = "11111111-2222-4333-8444-555555555555"
MEMBERS = [
    *("msgV", "msg_id", "type", "from", "fromPid", "fromSession", "fromName", "hopChain", "priority"),
    *("content", "action", "reply_to", "nonce", "orig_msg_id", "inReplyTo", "status", "delivery_status"),
    *(
        "reason",
        "drop_reason",
        "dropped_msg_ids",
        "droppedMsgIds",
        "durability",
        "name",
        "newName",
        "oldName",
    ),
    *("formerNames", "outcome", "text", "token"),
]
WORDS = [
    *("user", "control", "auth", "peer_message_status", "notify_when_idle", "peer_idle_notice", "shutdown"),
    *("shutdown_response", "rename", "delivered", "dropped:x", "held", "accepted", "uds:/a", "/a", ID),
]
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), item, max_size=4),
)
OBJECT = st.dictionaries(st.sampled_from(MEMBERS), VALUE, max_size=8)
LIKELY = OBJECT.flatmap(
    lambda fields: st.sampled_from(WORDS).map(
        lambda word: {"msg_id": ID, "type": "control", "action": word} | fields
    )
)
PIECE = st.binary(max_size=40) | st.sampled_from(
    [
        *(b'{"type":"auth","token":"t"}\n', b"\n", b"\r\n", b"{", b"}", b'{"msg_id":"' + ID.encode(), b'"\n'),
        *(b'"type":"user",', rb"\ud800", b"\xed\xa0\x80", b"[" * 3_000, b"NaN", b"9" * 5_000, b"\x00"),
    ]
)


def taken(line: bytes) -> Frame | None:
    """Return the frame in `line`, or None where it was refused with the typed error."""
    try:
        return decode(line)
    except ProtocolError:
        return None


@given(st.binary(max_size=200) | st.lists(PIECE, max_size=8).map(b"".join))
def test_any_line_is_a_frame_or_a_typed_error(line: bytes) -> None:
    """The readers have two outcomes."""
    taken(line)
    with suppress(ProtocolError):
        assert decode_auth(line).token


@pytest.mark.clause("pi-peers-19")
@given(OBJECT | LIKELY)
def test_any_object_that_is_taken_can_be_said_again(fields: dict[str, object]) -> None:
    """What was read can be written and reads as the same; its text is judged without an error."""
    frame = taken(json.dumps(fields).encode())
    if frame is None:
        return
    if not isinstance(frame, Unknown):
        assert decode(encode(frame)[:-1]) == frame
    if isinstance(frame, UserFrame):
        unwrap(frame.content, frame.sender)


@pytest.mark.clause("pi-peers-23", "pi-peers-U20")
@given(st.lists(PIECE, max_size=12), st.sampled_from([{"t"}, set()]))
def test_any_bytes_to_a_connection_are_survived(pieces: list[bytes], tokens: set[str]) -> None:
    """A connection closes once and last, and tells frames only behind a token that was graded."""
    end = Inbound(lambda token: Grade(is_child=True) if token in tokens else None, 0)
    for piece in pieces:
        end.receive_data(piece, 1)
    end.receive_eof()
    events = end.events_received()
    assert [at for at, event in enumerate(events) if isinstance(event, Closed)] == [len(events) - 1]
    proofs = [at for at, event in enumerate(events) if isinstance(event, Authenticated)]
    assert proofs in ([], [0])
    if not tokens:
        assert proofs == []
    if not proofs:
        assert not any(isinstance(event, FrameReceived) for event in events)
