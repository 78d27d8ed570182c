"""What the hub orders, in the words of each dialect."""

import typing
from typing import Any

import pytest

from tieline.engine.brokering import contract
from tieline.engine.brokering.contract import Row
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.wire.intercom import saying
from tieline.wire.intercom.forms import plain_session, recorded_session
from tieline.wire.intercom.reading import parse
from tieline.wire.intercom.saying import FrameCodec

DIRECT_ROW = Row(
    fields={"cwd": "/w", "model": "m", "id": "a", "lastSeen": 5},
    features=DIRECT,
    epoch="e",
    process_id=0,
    joined_ms=3,
)
ODD = {"cwd": "", "model": "\x07", "name": "x\ny", "pid": 1, "startedAt": 1, "lastActivity": 1, "id": "b"}
ODD_ROW = Row(fields=ODD, features=RECORDED, epoch="e", process_id=0, joined_ms=3)
WRONG_ROW = Row(fields=ODD | {"lastSeen": "never"}, features=RECORDED, epoch="e", process_id=0, joined_ms=3)


def test_every_output_is_said_in_a_dialect() -> None:
    """No output is without a frame in both dialects, and no dialect knows one that is no output."""
    outputs = set(typing.get_args(contract.Output))
    assert set(saying._PLAIN) | set(saying._RECORDED) == outputs
    assert contract.Arrived not in saying._PLAIN
    assert contract.ReadWanted not in saying._RECORDED


def test_rows_have_the_form_that_their_readers_demand() -> None:
    """Whoever is shown keeps the strict form to one reader, and has a process and times for the other."""
    codec = FrameCodec()
    listing = contract.Listing("x", (DIRECT_ROW, ODD_ROW, WRONG_ROW))
    plain = parse(codec.payload(DIRECT, listing) or b"")["sessions"]
    assert all(plain_session(row) is not None for row in plain)
    assert [row["id"] for row in plain] == ["a", "b", "b"]
    assert plain[0] == DIRECT_ROW.fields
    recorded = parse(codec.payload(RECORDED, listing) or b"")["sessions"]
    assert all(recorded_session(row) is not None for row in recorded)
    spoilt = {
        "pid": "x",
        "startedAt": None,
        "lastActivity": True,
        "name": 3,
        "tmuxPane": 5,
        "extensions": "a",
    }
    odd = Row(fields={**DIRECT_ROW.fields, **spoilt}, features=DIRECT, epoch="e", process_id=4, joined_ms=3)
    (row,) = parse(codec.payload(RECORDED, contract.Listing("x", (odd,))) or b"")["sessions"]
    assert recorded_session(row) is not None
    assert (row["pid"], row["startedAt"], "extensions" in row, "tmuxPane" in row) == (4, 3, False, False)
    assert (recorded[0]["pid"], recorded[0]["startedAt"], recorded[0]["lastActivity"]) == (0, 3, 5)


def test_what_was_not_announced_is_not_said() -> None:
    """Reads and wakes are said to those that announced them alone."""
    codec = FrameCodec()
    able = Features(needs_plain=True, last_reads=True, receipt_reads=True, wake_outcomes=True)
    for output in (
        contract.ReadWanted("last", "t", DIRECT_ROW, {}),
        contract.ReadWanted("receipt", "t", DIRECT_ROW, {}),
        contract.WakeWanted("t", "s", "m"),
        contract.WakeFailed("m", "d"),
    ):
        assert codec.payload(DIRECT, output) is None
        assert codec.frame_bytes(DIRECT, output) == 0
        assert codec.payload(RECORDED, output) is None
        assert codec.payload(able, output) is not None


def test_one_output_is_worded_once_for_like_sessions() -> None:
    """The same output to a session of the same features gives the very same bytes; to another its own."""
    codec = FrameCodec()
    output = contract.Departed("s")
    first = codec.payload(DIRECT, output)
    assert codec.payload(DIRECT, output) is first
    assert codec.payload(DIRECT, contract.Departed("t")) != first
    failed = contract.Failed("m", "why", "E")
    assert codec.payload(DIRECT, failed) != codec.payload(RECORDED, failed)
    assert codec.frame_bytes(DIRECT, failed) == len(
        b'{"type":"delivery_failed","messageId":"m","reason":"why"}'
    )


def test_too_large_an_answer_becomes_a_smaller_one() -> None:
    """A list or read that does not fit says so; what else does not fit is not said."""
    codec = FrameCodec()
    short = parse(codec.smaller(DIRECT, contract.Listing("x", ())) or b"")
    assert (short["sessions"], short["requestId"]) == ([], "x")
    assert "too large" in short["error"]
    assert b"too_large" in (codec.smaller(DIRECT, contract.ReadReturned("last", "r", {"a": 1})) or b"")
    assert codec.smaller(DIRECT, contract.Departed("s")) is None


@pytest.mark.parametrize("features", [DIRECT, RECORDED])
def test_codec_reads_what_it_wrote(features: Features) -> None:
    """What the hub keeps through it comes back."""
    codec = FrameCodec()
    value = {"a": [1, 2.5, "\ud800", None, True], "plain": features.needs_plain}
    assert codec.parse(codec.dump(value)) == value


def said(features: Features, output: contract.Output) -> Any:
    return parse(FrameCodec().payload(features, output) or b"null")


ABLE = Features(
    needs_plain=True, last_reads=True, receipt_reads=True, wake_outcomes=True, guarded_delivery=True
)
NAMED_ROW = Row(
    fields=ODD | {"name": "fine", "status": "idle", "cwd": "/w", "model": "m"},
    features=RECORDED,
    epoch="e",
    process_id=0,
    joined_ms=3,
)


@pytest.mark.parametrize(
    ("output", "frame"),
    [
        (
            contract.Registered("s", ABLE),
            {
                "type": "registered",
                "sessionId": "s",
                "guardedDelivery": 1,
                "receiptReads": 1,
                "lastReads": 1,
                "wakeOutcomes": 1,
            },
        ),
        (
            contract.Delivery(NAMED_ROW, {"id": "m"}, 1, 2),
            {"type": "message", "from": NAMED_ROW.fields, "message": {"id": "m"}},
        ),
        (contract.Delivered("m", is_held=True), {"type": "delivered", "messageId": "m"}),
        (contract.Queued("m", "why"), {"type": "delivery_queued", "messageId": "m", "reason": "why"}),
        (contract.Departed("s"), {"type": "session_left", "sessionId": "s"}),
        (
            contract.ReadWanted("last", "t", DIRECT_ROW, {"offset": 0}),
            {"type": "last_read", "token": "t", "from": DIRECT_ROW.fields, "offset": 0},
        ),
        (
            contract.ReadReturned("receipt", "r", {"error": "e"}),
            {"type": "receipt_response", "requestId": "r", "error": "e"},
        ),
        (
            contract.WakeWanted("t", "s", "m"),
            {"type": "wake_request", "token": "t", "sessionId": "s", "messageId": "m"},
        ),
        (contract.WakeFailed("m", "d"), {"type": "wake_failed", "messageId": "m", "detail": "d"}),
        (contract.BusRefused("why"), None),
        (contract.Arrived(DIRECT_ROW), None),
    ],
)
def test_frames_of_the_strict_form(output: contract.Output, frame: dict[str, Any] | None) -> None:
    """Each output in its words, or in none."""
    assert said(ABLE, output) == frame


@pytest.mark.parametrize(
    ("output", "frame"),
    [
        (
            contract.Registered("s", RECORDED),
            {"type": "registered", "sessionId": "s", "features": ["extension-bus-v1", "exact-send-v1"]},
        ),
        (contract.Delivered("m"), {"type": "delivered", "messageId": "m", "delivery": "socket_delivered"}),
        (
            contract.Delivered("m", is_held=True),
            {"type": "delivered", "messageId": "m", "delivery": "queued"},
        ),
        (contract.Queued("m", "why"), {"type": "delivered", "messageId": "m", "delivery": "queued"}),
        (contract.Departed("s"), {"type": "session_left", "sessionId": "s"}),
        (contract.BusRefused("why"), {"type": "error", "error": "why"}),
        (
            contract.BusOwner("n", None, None),
            {"type": "extension_owner", "namespace": "n", "ownerId": None, "ownerEpoch": None},
        ),
        (
            contract.BusState("n", 2, [1]),
            {"type": "extension_state", "namespace": "n", "revision": 2, "payload": [1]},
        ),
        (
            contract.BusStateAnswered("n", is_committed=False, revision=2, reason="why", request_id="r"),
            {
                "type": "extension_state_result",
                "namespace": "n",
                "ok": False,
                "revision": 2,
                "reason": "why",
                "requestId": "r",
            },
        ),
        (
            contract.BusStateAnswered("n", is_committed=True, revision=3),
            {"type": "extension_state_result", "namespace": "n", "ok": True, "revision": 3},
        ),
    ],
)
def test_frames_of_revision_n(output: contract.Output, frame: dict[str, Any]) -> None:
    """Each output in its words; an answer to a send says besides what is known of the outcome."""
    rest = {"retryable": False, "outcomeKnown": True} if "delivery" in frame else {}
    assert said(RECORDED, output) == frame | rest


def test_frames_of_revision_n_that_show_somebody() -> None:
    """Who speaks is in each of them, in the ancestor's form."""
    shown = said(RECORDED, contract.Arrived(DIRECT_ROW))["session"]
    for output, key, value in (
        (contract.Changed(DIRECT_ROW), "session", shown),
        (
            contract.Delivery(DIRECT_ROW, {"id": "m"}, 1, 2),
            "message",
            {"id": "m", "brokerReceivedAt": 1, "brokerDeliveredAt": 2},
        ),
        (
            contract.Controlled(DIRECT_ROW, "m", "cancel", 4),
            "control",
            {"messageId": "m", "action": "cancel", "timestamp": 4},
        ),
        (
            contract.Controlled(DIRECT_ROW, "m", "supersede", 4, superseded_by="n"),
            "control",
            {"messageId": "m", "action": "supersede", "timestamp": 4, "supersededBy": "n"},
        ),
        (contract.ReceiptPassed(DIRECT_ROW, {"a": 1}), "receipt", {"a": 1}),
        (contract.BusMessage(DIRECT_ROW, "n", 7, "e"), "ownerEpoch", "e"),
        (contract.BusMessage(DIRECT_ROW, "n", 7, None), "payload", 7),
    ):
        frame = said(RECORDED, output)
        assert frame[key] == value
        assert frame.get("from", frame.get("session")) == shown
