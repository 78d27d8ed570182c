"""Any bytes from a broker: events or the end of the connection, never an error, and nothing unannounced."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tieline.model.identity import Peer
from tieline.model.message import digest
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import CAPABILITIES, ClientLink, Closed, MessageCame

SESSION = {"cwd": "/", "model": "m"}
MEMBERS = [
    *("type", "requestId", "sessionId", "sessions", "from", "message", "messageId", "reason", "token"),
    *("offset", "limit", "entryId", "rootSessionId", "detail", "id", "timestamp", "content", "text", "cwd"),
    *(
        "model",
        "name",
        "expectsReply",
        "delivery",
        "attachments",
        "queueMode",
        "threadId",
        "guard",
        "replyHint",
    ),
]
KINDS = [
    *("registered", "sessions", "message", "delivered", "delivery_queued", "delivery_failed", "session_left"),
    *("last_read", "last_response", "receipt_read", "receipt_response", "wake_request", "wake_failed", "x"),
]
ROW = {"id": "pi-1", "cwd": "/", "model": "m"}
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(KINDS),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), item, max_size=5),
)
LIKELY = st.builds(
    lambda fields, kind: {"from": ROW, "token": "t", "requestId": "r", **fields, "type": kind},
    st.dictionaries(st.sampled_from(MEMBERS), VALUE, max_size=8),
    st.sampled_from(KINDS),
)


def framed(value: Any) -> bytes:
    """Return a value as a frame."""
    data = json.dumps(value).encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


@given(st.lists(LIKELY.map(framed) | st.binary(max_size=30), max_size=8), st.booleans())
def test_bytes_of_a_broker_end_in_events_or_the_end(pieces: list[bytes], is_old: bool) -> None:
    """Nothing raises; after the end nothing comes; an old broker gets no newer event through."""
    link = ClientLink(SESSION, None, 0)
    capabilities = {} if is_old else dict.fromkeys(CAPABILITIES, 1)
    link.receive_data(framed({"type": "registered", "sessionId": "own", **capabilities}))
    seen = link.events_received()
    for piece in pieces:
        link.receive_data(piece)
        was_closed = bool(seen) and isinstance(seen[-1], Closed)
        events = link.events_received()
        assert not (was_closed and events)
        seen += events
    kinds = {type(one).__name__ for one in seen}
    assert not is_old or not kinds & {"LastAsked", "ReceiptAsked", "WakeAsked", "WakeFailed"}
    for event in seen:
        if isinstance(event, MessageCame):
            told = mapping.envelope(event.sender, event.message, recipient=Peer("own"))
            assert len(digest(told)) == 32
            mapping.provenance(event.sender, event.message)
