"""Any bytes on the intercom wire: commands or a closed socket, and never a word to who did nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripts.room import Room
from tieline.errors import ProtocolError
from tieline.wire.intercom.reading import dump, parse

WORDS = [
    *("register", "unregister", "list", "send", "presence", "health", "cancel_ask", "cancel_message"),
    *("message_receipt", "extension_publish", "extension_state_commit", "extension_capabilities_update"),
    *("last_request", "last_page", "receipt_request", "receipt_facts", "wake_outcome", "queue", "replace"),
    *("steer", "passive", "session-A", "session-B", "n", "owner", "capable", "injected", "idle", "file"),
]
MEMBERS = [
    *(
        "type",
        "session",
        "requestedId",
        "sessionId",
        "scopeId",
        "requestId",
        "to",
        "message",
        "id",
        "timestamp",
    ),
    *(
        "content",
        "text",
        "attachments",
        "replyTo",
        "expectsReply",
        "passive",
        "delivery",
        "queueMode",
        "threadId",
    ),
    *(
        "guard",
        "replyHint",
        "name",
        "status",
        "model",
        "cwd",
        "pid",
        "startedAt",
        "lastActivity",
        "pendingAsks",
    ),
    *(
        "acceptsAsks",
        "projectId",
        "rootSessionId",
        "parentSessionId",
        "incarnation",
        "applicationGuard",
        "token",
    ),
    *("entryId", "offset", "limit", "nextOffset", "empty", "error", "receipt", "ok", "detail", "parked"),
    *("guardedDelivery", "receiptReads", "lastReads", "wakeOutcomes", "namespace", "audience", "payload"),
    *(
        "extensions",
        "ownerEligible",
        "ownerEpoch",
        "expectedRevision",
        "messageId",
        "targetId",
        "targetEpoch",
    ),
    *("supersedes", "retryOf", "contextUsage", "ownerOnly"),
]
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(WORDS),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), item, max_size=5),
)
MESSAGE = st.dictionaries(st.sampled_from(MEMBERS), VALUE, max_size=4).map(
    lambda extra: {"id": "m", "timestamp": 1, "content": {"text": "x"}} | extra
)
FRAME = st.builds(
    lambda kind, fields, message: {
        "requestId": "r",
        "to": "session-B",
        "message": message,
        **fields,
        "type": kind,
    },
    st.sampled_from(WORDS[:17]),
    st.dictionaries(st.sampled_from(MEMBERS), VALUE, max_size=6),
    MESSAGE,
)
REGISTER = st.builds(
    lambda top, session: {
        "type": "register",
        "session": {"cwd": "/w", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1} | session,
        **top,
    },
    st.dictionaries(st.sampled_from(MEMBERS), VALUE, max_size=4),
    st.dictionaries(st.sampled_from(MEMBERS), VALUE, max_size=4),
)
PIECE = st.one_of(
    (FRAME | REGISTER)
    .map(lambda fields: json.dumps(fields).encode())
    .map(lambda data: len(data).to_bytes(4, "big") + data),
    st.binary(max_size=12),
)


@given(st.binary(max_size=60) | VALUE.map(lambda value: json.dumps(value).encode()))
def test_any_payload_is_a_value_that_comes_back_or_a_typed_error(data: bytes) -> None:
    """What was read can be written and reads as the same."""
    try:
        value = parse(data)
    except ProtocolError:
        return
    assert parse(dump(value)) == value or b"null" in dump(value)


@pytest.mark.clause("intercom-8", "intercom-36", "I49")
@settings(deadline=None)
@given(st.booleans(), st.lists(PIECE, max_size=12), st.integers(1, 50))
def test_any_bytes_close_at_most_their_own_socket(is_recorded: bool, pieces: list[bytes], cut: int) -> None:
    """Whatever a socket sends, nothing breaks and nobody else is closed: others only hear what they may."""
    room = Room()
    room.join(
        "B", status="idle", top={"lastReads": 1, "receiptReads": 1, "wakeOutcomes": 1, "guardedDelivery": 1}
    )
    room.join_recorded("C")
    (room.join_recorded if is_recorded else room.join)("A")
    data = b"".join(pieces)
    for at in range(0, len(data), cut):
        if room.ends["A"].is_open:
            room.send_raw("A", data[at : at + cut])
    room.pass_time(6_000)
    assert room.ends["B"].is_open
    # Revision N lets the newest registration of an id take the place of the older one.
    assert room.ends["C"].is_open or b"session-C" in data
    room.heard("B")
    room.send("B", {"type": "list", "requestId": "still here"})
    assert room.heard("B")[-1]["requestId"] == "still here"
