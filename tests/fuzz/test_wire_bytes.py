"""Any bytes: a frame or a typed error, never another exception, and never a proof."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.engine.contract import Asked, Standing
from tieline.errors import CODES, ProtocolError
from tieline.keys import PrivateKey, public_key, verify
from tieline.wire import jsonrpc
from tieline.wire.control.protocol import ControlConnection, Opened
from tieline.wire.exchange import Closed
from tieline.wire.native import mapping
from tieline.wire.native.protocol import (
    Advertised,
    Authenticated,
    Connection,
    LookupWanted,
    NativeLimits,
    NonceMemory,
)

KEY, OTHER = PrivateKey.generate(b"\x01" * 32), PrivateKey.generate(b"\x02" * 32)
LIMITS = NativeLimits(frame_bytes=1_024, pending_requests=3)

WORDS = [
    *(b'{"jsonrpc":"2.0"', b',"id":"rpc-1"', b',"id":1', b',"id":null', b',"method":"peer.hello"'),
    *(
        b',"method":"peer.authenticate"',
        b',"method":"peer.send"',
        b',"method":"control.hello"',
        b',"params":',
    ),
    *(
        b"{}",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'"',
        b"\\",
        b"\\u",
        b"\\ud800",
        b"\n",
        b"\r\n",
        b"NaN",
        b"1e999",
    ),
    *(
        b',"result":',
        b',"error":',
        b'{"code":-32000,"message":"x"}',
        b'"version":1',
        b'"proof":""',
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(b"\xef\xbb\xbf", b"9" * 20, b"x" * 600, b"[" * 40, b"\x00", KEY.public.encode(), b'{"version":1}'),
]
BYTES = st.binary(max_size=200) | st.lists(st.sampled_from(WORDS) | st.binary(max_size=4), max_size=30).map(
    b"".join
)


def native(role: str) -> Connection:
    """Return a fresh native end."""
    expected = Advertised("b", OTHER.public)
    return Connection(
        "client" if role == "client" else "server",
        instance="a",
        key=KEY,
        capabilities=(),
        nonce=bytes(32),
        nonces=NonceMemory(),
        limits=LIMITS,
        now_ms=0,
        expected=expected if role == "client" else None,
    )


ENDS: list[Callable[[], Connection | ControlConnection]] = [
    lambda: native("client"),
    lambda: native("server"),
    lambda: ControlConnection("client", product="x", now_ms=0, frame_bytes_max=1_024, pending_max=3),
    lambda: ControlConnection("server", product="x", now_ms=0, frame_bytes_max=1_024, pending_max=3),
]


@pytest.mark.clause("K24", "K25")
@given(BYTES)
def test_any_line_is_a_frame_or_a_typed_error(line: bytes) -> None:
    """The decoder has two outcomes; what it takes can be written again and read as the same."""
    code, frame = "", None
    try:
        frame = jsonrpc.decode(line)
    except ProtocolError as error:
        code = error.code
    assert code in {"", "PARSE_ERROR", "INVALID_RPC"}
    if isinstance(frame, jsonrpc.Request):
        assert jsonrpc.decode(jsonrpc.encode_request(frame.id, frame.method, frame.params)[:-1]) == frame


@pytest.mark.clause("K25", "I45", "I49")
@pytest.mark.parametrize(
    "end", ENDS, ids=["native-client", "native-server", "control-client", "control-server"]
)
@given(st.lists(BYTES, max_size=6))
def test_any_bytes_to_any_end_are_survived(
    end: Callable[[], Connection | ControlConnection], pieces: list[bytes]
) -> None:
    """Whatever comes, an end answers in its grammar, closes at most once, and proves nobody."""
    one = end()
    seen: list[object] = []
    output = one.data_to_send()
    for piece in pieces:
        one.receive_data(piece, 1)
        for event in one.events_received():
            seen.append(event)
            if isinstance(event, LookupWanted):
                assert isinstance(one, Connection)
                one.advertised(Advertised(event.instance, KEY.public), 1)
        output += one.data_to_send()
        assert one.output_bytes == 0
    seen += one.events_received()
    closed = [event for event in seen if isinstance(event, Closed)]
    assert len(closed) == one.is_closed
    assert all(event.code in CODES for event in closed)
    assert not any(isinstance(event, Authenticated) for event in seen)
    if isinstance(one, Connection) or not any(isinstance(event, Opened) for event in seen):
        assert not one.is_open
    for line in output.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.text(max_size=8), item, max_size=4),
)
MEMBERS = [
    "version",
    "messageId",
    "to",
    "content",
    "from",
    "receipt",
    "state",
    "cursor",
    "createdAt",
    "expiresAt",
]
MEMBERS += [
    "senderRunId",
    "attachments",
    "delivery",
    "features",
    "offset",
    "peers",
    "acceptedAt",
    "automaticDepth",
]
OBJECTS = st.dictionaries(st.sampled_from(MEMBERS) | st.text(max_size=4), JSON, max_size=6)


@pytest.mark.clause("K25")
@given(
    st.sampled_from(["peer.send", "tieline.send", "peer.status", "peer.subscribe", "peer.receipt", "x"]),
    OBJECTS,
)
def test_any_params_are_a_command_or_a_refusal(method: str, params: dict[str, object]) -> None:
    """The mapping has two outcomes for what peers ask, and for what they answer."""
    mapping.command(
        method,
        params,
        asked=Asked(1, 1),
        sender_instance="a",
        standing=Standing(frozenset(), is_in_scope=True),
        own_peer=lambda _peer_id: None,
    )
    for read in (mapping.hello_asked, mapping.last_asked, mapping.receipt_told, mapping.features_told):
        read(params)
    mapping.directory_asked(params, list)
    mapping.runs_told(params, "a")


@pytest.mark.clause("S8")
@given(
    st.text(max_size=100) | st.binary(min_size=66, max_size=66).map(lambda data: data.hex()),
    st.text(max_size=100),
)
def test_any_text_is_no_key_and_no_proof(text: str, proof: str) -> None:
    """A text that nobody made as a key is refused with ValueError alone, and verifies nothing."""
    with pytest.raises(ValueError, match=r"."):
        public_key(text)
    assert not verify(text, b"", proof)
    assert not verify(KEY.public, b"", proof)
