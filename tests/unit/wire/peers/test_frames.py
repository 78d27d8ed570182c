"""Frames of the pi-peers wire, read liberally and written so that every reader of the family understands."""

import json
from typing import Any

import msgspec
import pytest

from tieline.errors import ProtocolError
from tieline.wire.peers.frames import (
    LINE_BYTES_MAX,
    NO_TEXT,
    Auth,
    Frame,
    IdleNotice,
    NotifyWhenIdle,
    Rename,
    Shutdown,
    ShutdownResponse,
    StatusFrame,
    Unknown,
    UserFrame,
    auth_line,
    decode,
    decode_auth,
    encode,
    is_message_id,
    plain_address,
)

ID = "11111111-2222-4333-8444-555555555555"
OTHER = "aaaaaaaa-2222-4333-8444-bbbbbbbbbbbb"
USER = UserFrame(ID, "/w.sock", 7, "s-1", "api", ("/w.sock",), "next", "text é 😀", OTHER, "/r.sock")
FRAMES: list[Frame] = [
    USER,
    msgspec.structs.replace(USER, name="", in_reply_to=None, reply_to="", priority="now"),
    StatusFrame(ID, "/w.sock", OTHER, "delivered", "", "synced"),
    StatusFrame(ID, "/w.sock", OTHER, "dropped", "queue-full"),
    StatusFrame(ID, "/w.sock", OTHER, "dropped", "duplicate", None, (ID,)),
    NotifyWhenIdle(ID, "/w.sock", "/r.sock", ID),
    IdleNotice(ID, "/w.sock", OTHER),
    Shutdown(ID, "/w.sock", "/r.sock", "no more work"),
    ShutdownResponse(ID, "/w.sock", OTHER, "denied"),
    Rename(ID, "/w.sock", "new", ("older", "old")),
]


def line(**fields: object) -> bytes:
    """Return a line of the given fields over a valid envelope."""
    return json.dumps({"msgV": 1, "msg_id": ID, "type": "control"} | fields).encode()


def status(**fields: object) -> Frame:
    """Return the receipt frame that `fields` give."""
    return decode(line(action="peer_message_status", **fields))


@pytest.mark.clause("pi-peers-20", "pi-peers-27")
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_frame_written_reads_as_the_same(frame: Frame) -> None:
    """Every frame comes back as it was, on one line, in an envelope of version 1 with its id and type."""
    written = encode(frame)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1
    document = json.loads(written)
    assert (document["msgV"], document["msg_id"]) == (1, ID)
    assert document["type"] == ("user" if isinstance(frame, UserFrame) else "control")
    assert decode(written[:-1]) == frame


@pytest.mark.clause("pi-peers-28", "pi-peers-30", "pi-peers-33b")
def test_user_frame_is_written_in_the_specified_case() -> None:
    """The mixed field names of the contract are written as it gives them, the text at the top level."""
    assert json.loads(encode(USER)) == {
        "msgV": 1,
        "msg_id": ID,
        "type": "user",
        "from": "/w.sock",
        "fromPid": 7,
        "fromSession": "s-1",
        "fromName": "api",
        "hopChain": ["/w.sock"],
        "priority": "next",
        "content": "text é 😀",
        "inReplyTo": OTHER,
        "reply_to": "/r.sock",
    }


def test_user_frame_of_the_least_fields_is_read() -> None:
    """What a window leaves out, or states in another type, counts as not stated."""
    bare = UserFrame(ID, "", 0, "", "", (), "next", "x")
    assert decode(line(type="user", content="x")) == bare
    odd = {"from": 1, "fromPid": True, "fromSession": ["s"], "fromName": {}, "hopChain": "me", "priority": 0}
    assert decode(line(type="user", content="x", inReplyTo=5, reply_to=None, **odd)) == bare
    assert decode(line(type="user", content="x", fromPid=-1, fromSession="s" * 257)) == bare


def test_user_frame_without_text_is_one_that_no_wrapper_fits() -> None:
    """A content of another shape is kept as a malformed one, so that its sender can be told."""
    for content in (None, 5, {"content": "x"}, ["x"]):
        frame = decode(line(type="user", content=content))
        assert isinstance(frame, UserFrame)
        assert frame.content == NO_TEXT


@pytest.mark.clause("pi-peers-30")
@pytest.mark.parametrize(
    ("said", "read"), [("now", "now"), ("next", "next"), ("later", "next"), ("NOW", "next")]
)
def test_priority_unknown_is_the_gentler_one(said: str, read: str) -> None:
    """Only "now" interrupts."""
    frame = decode(line(type="user", content="x", priority=said))
    assert isinstance(frame, UserFrame)
    assert frame.priority == read


@pytest.mark.clause("pi-peers-29", "pi-peers-U19")
def test_hop_chain_of_anything_keeps_its_length_and_addresses() -> None:
    """Every hop counts; one of unknown form has no address."""
    chain = ["/a", "uds:/b", {"address": "/c"}, {"from": "uds:/d"}, 5, None, {"x": 1}, ["/e"]]
    frame = decode(line(type="user", content="x", hopChain=chain))
    assert isinstance(frame, UserFrame)
    assert frame.hop_chain == ("/a", "/b", "/c", "/d", "", "", "", "")


@pytest.mark.clause("pi-peers-U8")
def test_address_with_a_scheme_is_the_same_address() -> None:
    """A scheme before the path is taken off, once; a path of other words keeps them."""
    assert plain_address("uds:/x/y.sock") == "/x/y.sock"
    assert plain_address(r"pipe:\\.\pipe\LOCAL\pi-peer-0") == r"\\.\pipe\LOCAL\pi-peer-0"
    assert plain_address("/uds:/x") == "/uds:/x"
    assert plain_address("uds:uds:/x") == "uds:/x"
    frame = decode(line(type="user", content="x", **{"from": "uds:/w.sock"}))
    assert isinstance(frame, UserFrame)
    assert frame.sender == "/w.sock"


def test_address_that_no_system_has_is_none() -> None:
    """A path with NUL or past every bound is not stated."""
    for address in ("/a\0b", "/" * 4_097):
        frame = decode(line(type="user", content="x", **{"from": address}))
        assert isinstance(frame, UserFrame)
        assert not frame.sender


@pytest.mark.clause("pi-peers-19")
@pytest.mark.parametrize(
    "fields",
    [
        {"action": "from_the_future", "zzz": 1},
        {"action": None},
        {"action": {"deep": 1}},
        {"type": "stream", "action": "x"},
        {"type": 3},
        {"msgV": 2, "type": "user", "content": "x"},
        {"action": "peer_message_status", "orig_msg_id": OTHER, "status": "misaddressed"},
        {"action": "peer_message_status", "status": "delivered"},
        {"action": "peer_message_status", "orig_msg_id": OTHER},
        {"action": "notify_when_idle", "nonce": "n"},
        {"action": "peer_idle_notice"},
        {"action": "shutdown_response", "outcome": "accepted"},
        {"action": "shutdown_response", "inReplyTo": OTHER, "outcome": "maybe"},
        {"action": "rename"},
    ],
)
def test_frame_of_a_later_version_is_unknown_and_no_error(fields: dict[str, Any]) -> None:
    """An unknown action, type, version or status, or an action without what it needs, is ignored."""
    frame = decode(line(**fields))
    assert isinstance(frame, Unknown)
    assert frame.message_id == ID


@pytest.mark.clause("pi-peers-19")
def test_unknown_fields_change_nothing() -> None:
    """Fields that nobody knows are ignored on every frame."""
    for frame in FRAMES:
        document = json.loads(encode(frame)) | {"zzz": {"a": [1]}, "msgW": 2, "token": "x"}
        assert decode(json.dumps(document).encode()) == frame


@pytest.mark.clause("pi-peers-35", "pi-peers-U10", "pi-peers-U13")
def test_receipt_is_written_as_a_superset() -> None:
    """The specification's spelling and the family's fields stand beside each other."""
    document = json.loads(encode(StatusFrame(ID, "/w.sock", OTHER, "dropped", "queue-full")))
    assert document["action"] == "peer_message_status"
    assert (document["orig_msg_id"], document["inReplyTo"]) == (OTHER, OTHER)
    assert (document["status"], document["delivery_status"]) == ("dropped:queue-full", "dropped")
    assert (document["reason"], document["drop_reason"]) == ("queue-full", "queue-full")
    assert json.loads(encode(StatusFrame(ID, "", OTHER, "dropped")))["status"] == "dropped:dropped"
    assert json.loads(encode(StatusFrame(ID, "", OTHER, "held")))["status"] == "held"


@pytest.mark.clause("pi-peers-35", "pi-peers-U10")
@pytest.mark.parametrize("word", ["held", "delivered", "denied", "expired", "refused", "dropped"])
@pytest.mark.parametrize("name", ["orig_msg_id", "origMsgId", "inReplyTo", "in_reply_to", "msgId"])
@pytest.mark.parametrize("status_name", ["status", "delivery_status", "deliveryStatus"])
def test_receipt_is_read_under_every_name(word: str, name: str, status_name: str) -> None:
    """Whatever a window calls the fields of a receipt, its meaning is read."""
    frame = status(**{name: OTHER, status_name: word})
    assert isinstance(frame, StatusFrame)
    assert (frame.original, frame.status, frame.reason) == (OTHER, word, "")


@pytest.mark.clause("pi-peers-35", "pi-peers-U10", "pi-peers-U13")
@pytest.mark.parametrize(
    "fields",
    [
        {"status": "dropped:rate-limited"},
        {"status": "dropped: rate-limited", "reason": "something else"},
        {"status": "dropped", "drop_reason": "rate-limited"},
        {"status": "dropped", "dropReason": "rate-limited", "reason": "other"},
        {"delivery_status": "dropped", "reason": "rate-limited"},
        {"status": "dropped", "status_detail": "rate-limited"},
    ],
)
def test_reason_of_a_drop_is_read_wherever_it_stands(fields: dict[str, Any]) -> None:
    """Behind the colon first, then in a field of its own."""
    frame = status(orig_msg_id=OTHER, **fields)
    assert isinstance(frame, StatusFrame)
    assert (frame.status, frame.reason) == ("dropped", "rate-limited")


@pytest.mark.clause("pi-peers-U10")
def test_receipt_for_several_messages_comes_apart() -> None:
    """Each message named is told of once, the first one first, and at most the bound of them."""
    names = [f"m-{at}" for at in range(300)]
    frame = status(status="dropped:rate-limited", dropped_msg_ids=[*names, 5, "", "m-0"])
    assert isinstance(frame, StatusFrame)
    parts = frame.each()
    assert [part.original for part in parts] == names[:256]
    assert all(part.also == () and part.reason == "rate-limited" for part in parts)
    single = StatusFrame(ID, "", OTHER, "held")
    assert single.each() == (single,)


@pytest.mark.clause("pi-peers-34", "pi-peers-36", "pi-peers-37", "pi-peers-U11")
def test_idle_subscription_and_notice_correlate_under_every_name() -> None:
    """The nonce is written twice and read from either; without one the subscription's own id serves."""
    written = json.loads(encode(NotifyWhenIdle(ID, "/w", "/r", ID)))
    assert (written["nonce"], written["orig_msg_id"], written["reply_to"]) == (ID, ID, "/r")
    notice = json.loads(encode(IdleNotice(ID, "/w", OTHER)))
    assert (notice["nonce"], notice["orig_msg_id"]) == (OTHER, OTHER)
    asked = {"action": "notify_when_idle", "from": "uds:/w"}
    assert decode(line(**asked)) == NotifyWhenIdle(ID, "/w", "/w", ID)
    assert decode(line(**asked, reply_to="/r", orig_msg_id=OTHER)) == NotifyWhenIdle(ID, "/w", "/r", OTHER)
    for name in ("nonce", "orig_msg_id", "inReplyTo"):
        assert decode(line(action="peer_idle_notice", **{name: OTHER})) == IdleNotice(ID, "", OTHER)


@pytest.mark.clause("pi-peers-38")
def test_shutdown_and_its_response_are_read_and_written() -> None:
    """The answer goes to `reply_to`, else to `from`, and names the request."""
    assert decode(line(action="shutdown", **{"from": "/w"})) == Shutdown(ID, "/w", "/w")
    assert decode(line(action="shutdown", reply_to="/r", reason="done")) == Shutdown(ID, "", "/r", "done")
    answer = json.loads(encode(ShutdownResponse(ID, "/w", OTHER, "accepted")))
    assert (answer["inReplyTo"], answer["outcome"]) == (OTHER, "accepted")
    for name in ("inReplyTo", "in_reply_to", "orig_msg_id"):
        read = decode(line(action="shutdown_response", outcome="denied", **{name: OTHER}))
        assert read == ShutdownResponse(ID, "", OTHER, "denied")


@pytest.mark.clause("pi-peers-39", "pi-peers-U5", "pi-peers-U12")
def test_rename_is_read_under_every_name() -> None:
    """New and old names are found whatever the fields are called; a former name may be an object."""
    written = json.loads(encode(Rename(ID, "/w", "new", ("older", "old"))))
    assert (written["name"], written["newName"], written["oldName"]) == ("new", "new", "old")
    assert written["formerNames"] == ["older", "old"]
    assert decode(line(action="rename", newName="n", oldName="o")) == Rename(ID, "", "n", ("o",))
    former = ["a", {"name": "b"}, {"x": 1}, 4, "", "c" * 257]
    assert decode(line(action="rename", name="n", formerNames=former)) == Rename(ID, "", "n", ("a", "b"))
    many = decode(line(action="rename", name="n", former_names=[f"f{at}" for at in range(100)], oldName="o"))
    assert isinstance(many, Rename)
    assert len(many.former_names) == 64
    assert many.former_names[-1] == "o"


@pytest.mark.clause("pi-peers-U20")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"msg_id":NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        rb'{"a":"\ud800"',
        rb'{"a":"\u12"}',
        rb'{"a":"\ud800","b":NaN}',
        line(type="auth", token="x"),
        line(msg_id="not-a-uuid"),
        line(msg_id=7),
        line(msg_id=None),
        line(msg_id=ID + "\n"),
        line(msg_id="{" + ID + "}"),
        json.dumps({"type": "user", "content": "x"}).encode(),
    ],
)
def test_line_that_is_no_frame_is_a_protocol_error(raw: bytes) -> None:
    """What is no JSON object, authenticates again or has no UUID closes the link."""
    with pytest.raises(ProtocolError):
        decode(raw)


@pytest.mark.clause("pi-peers-U20")
def test_message_id_is_a_uuid_of_any_version_and_case() -> None:
    """The id is checked for its form alone and kept as it came."""
    assert is_message_id(ID)
    assert is_message_id(ID.upper())
    assert is_message_id("00000000-0000-0000-0000-000000000000")
    assert not any(map(is_message_id, ("", ID[:-1], ID + "0", ID.replace("-", ""), "g" + ID[1:], ID + "\n")))
    assert decode(line(msg_id=ID.upper(), action="x")).message_id == ID.upper()


def test_half_of_a_surrogate_pair_costs_one_character_only() -> None:
    """A text cut inside a pair arrives with that half replaced, its whole pairs intact."""
    raw = line(type="user", content="CUT").replace(b"CUT", rb"a\ud83d b \ud83d\ude00 \ude00 \\ud800")
    frame = decode(raw)
    assert isinstance(frame, UserFrame)
    assert frame.content == "a\ufffd b \U0001f600 \ufffd \\ud800"


def test_name_too_long_is_cut_and_id_too_long_is_none() -> None:
    """No claim grows what is kept of a sender."""
    frame = decode(line(type="user", content="x", fromName="n" * 300, inReplyTo="i" * 300))
    assert isinstance(frame, UserFrame)
    assert len(frame.name) == 256
    assert frame.in_reply_to is None
    assert isinstance(status(status="held", orig_msg_id="a\x00b"), Unknown)


@pytest.mark.clause("pi-peers-22")
def test_line_past_its_bound_is_not_written() -> None:
    """A frame whose line with its end passes 1 MiB is refused; one that just fits is written."""
    spare = LINE_BYTES_MAX - len(encode(msgspec.structs.replace(USER, content="")))
    assert len(encode(msgspec.structs.replace(USER, content="x" * spare))) == LINE_BYTES_MAX
    with pytest.raises(ProtocolError) as caught:
        encode(msgspec.structs.replace(USER, content="x" * (spare + 1)))
    assert caught.value.code == "FRAME_TOO_LARGE"


@pytest.mark.clause("pi-peers-23")
def test_first_line_presents_a_token_and_nothing_else_does() -> None:
    """An authentication is read back; any other line is none."""
    assert auth_line("secret") == b'{"type":"auth","token":"secret"}\n'
    assert decode_auth(auth_line("secret")[:-1]) == Auth("secret")
    assert decode_auth(b'{"zzz":1,"token":"t","type":"auth"}') == Auth("t")
    for raw in (b'{"type":"auth"}', b'{"type":"auth","token":5}', b'{"type":"auth","token":""}', b"[]", b"x"):
        with pytest.raises(ProtocolError):
            decode_auth(raw)
    with pytest.raises(ProtocolError):
        decode_auth(line(type="user", content="x", token="secret"))
