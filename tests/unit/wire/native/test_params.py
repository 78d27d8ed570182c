"""What peers send, as closed sets with exact types."""

from typing import Any

import pytest

from tieline.errors import Refusal
from tieline.model.message import Delivery
from tieline.wire.native.params import (
    Directory,
    Hello,
    Last,
    ReceiptParams,
    Send,
    Status,
    TielineSend,
    read_params,
    wall_ms_of,
    wrong,
)

SEND = {"version": 1, "messageId": "m", "to": "peer-x", "content": "hello"}


def refused(kind: Any, params: dict[str, Any]) -> Refusal:
    """Return the refusal of these params."""
    read = read_params(kind, params)
    assert isinstance(read, Refusal), read
    return read


@pytest.mark.clause("native-77")
def test_send_with_every_member_is_read() -> None:
    """The eleven public members are read by their public names."""
    read = read_params(
        Send,
        {
            **SEND,
            "topic": "t",
            "replyTo": "r",
            "expiresAt": "2026-01-01T00:10:00.000Z",
            "createdAt": "2026-01-01T00:00:00.000Z",
            "senderRunId": "run",
            "correlationId": "c",
            "automaticDepth": 64,
        },
    )
    assert read == Send(
        version=1,
        message_id="m",
        to="peer-x",
        content="hello",
        topic="t",
        reply_to="r",
        expires_at="2026-01-01T00:10:00.000Z",
        created_at="2026-01-01T00:00:00.000Z",
        sender_run_id="run",
        correlation_id="c",
        automatic_depth=64,
    )
    assert read_params(Send, {**SEND, "topic": None}) == read_params(Send, SEND)


@pytest.mark.clause("native-77", "native-79", "K25")
@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("version", True),
        ("version", 1.0),
        ("version", "1"),
        ("version", None),
        ("messageId", ""),
        ("messageId", "x" * 257),
        ("messageId", "a\nb"),
        ("messageId", "a\x7fb"),
        ("messageId", "a\x85b"),
        ("messageId", 7),
        ("to", ""),
        ("to", None),
        ("to", ["peer-x"]),
        ("to", "a\x1bb"),
        ("content", ""),
        ("content", None),
        ("content", {"text": "x"}),
        ("topic", "x" * 257),
        ("topic", 7),
        ("replyTo", ""),
        ("replyTo", "a\tb"),
        ("senderRunId", "\x00"),
        ("correlationId", "x" * 257),
        ("automaticDepth", -1),
        ("automaticDepth", 65),
        ("automaticDepth", True),
        ("automaticDepth", 1.0),
        ("createdAt", 7),
        ("expiresAt", False),
    ],
)
def test_send_with_member_of_another_form_is_refused_by_name(member: str, value: object) -> None:
    """A member of another type or range is INVALID_PARAMS and named."""
    refusal = refused(Send, {**SEND, member: value})
    assert refusal.code == "INVALID_PARAMS"
    assert f" {member} " in refusal.text


@pytest.mark.parametrize("member", list(SEND))
def test_send_without_needed_member_is_refused_by_name(member: str) -> None:
    """An absent member is named."""
    refusal = refused(Send, {name: value for name, value in SEND.items() if name != member})
    assert (refusal.code, f" {member} " in refusal.text) == ("INVALID_PARAMS", True)


@pytest.mark.clause("native-79", "I47", "mutant-8")
@pytest.mark.parametrize(
    "member",
    [
        "from",
        "senderInstanceId",
        "senderAlias",
        "sequence",
        "delivery",
        "thread",
        "ask",
        "attachments",
        "x`$.to`",
    ],
)
def test_send_with_member_outside_the_set_is_refused(member: str) -> None:
    """No one can say who they are, or use what is not public, in `peer.send`; their word is not repeated."""
    refusal = refused(Send, {**SEND, member: "x"})
    assert refusal.code == "INVALID_PARAMS"
    assert member not in refusal.text


@pytest.mark.parametrize("kind", [Send, TielineSend, Status, ReceiptParams, Directory, Hello, Last])
@pytest.mark.parametrize("version", [0, 2, -1])
def test_params_of_another_version_are_unsupported(kind: Any, version: int) -> None:
    """Another version is told apart from a wrong member."""
    assert refused(kind, {"version": version}).code == "UNSUPPORTED_PROTOCOL"


def test_tieline_send_has_its_own_members() -> None:
    """Delivery, thread, replacing, asking and attachments are read where both ends are Tieline."""
    read = read_params(
        TielineSend,
        {
            **SEND,
            "delivery": "passive",
            "thread": "t",
            "replace": True,
            "ask": True,
            "notifyWhenIdle": True,
            "attachments": [{"name": "a.md", "text": ""}, {"name": "b", "mediaType": "text/x", "text": "b"}],
        },
    )
    assert isinstance(read, TielineSend)
    assert (read.delivery, read.thread, read.replace, read.ask) == (Delivery.PASSIVE, "t", True, True)
    assert [item.media_type for item in read.attachments] == ["text/plain", "text/x"]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("delivery", "now"),
        ("thread", ""),
        ("thread", "a\nb"),
        ("replace", 1),
        ("ask", "true"),
        ("notifyWhenIdle", None),
        ("attachments", {}),
        ("attachments", [{"name": "", "text": "x"}]),
        ("attachments", [{"name": "a"}]),
        ("attachments", [{"name": "a", "text": "x", "path": "/etc"}]),
        ("attachments", [{"name": "a", "text": "x"}] * 33),
    ],
)
def test_tieline_send_with_member_of_another_form_is_refused_by_name(member: str, value: object) -> None:
    """The members of our own are as exact."""
    refusal = refused(TielineSend, {**SEND, member: value})
    assert (refusal.code, f" {member} " in refusal.text) == ("INVALID_PARAMS", True)


def test_status_with_sender_is_read() -> None:
    """`from` is a member of a status question only, to be compared with who asks."""
    read = read_params(Status, {"messageId": "m", "to": "p", "from": "me"})
    assert isinstance(read, Status)
    assert read.sender == "me"
    assert refused(Status, {"messageId": "m", "to": "p", "from": "\n"}).text == wrong("from").text


@pytest.mark.parametrize("offset", [-1, 2**53, True, 1.0, "0"])
def test_last_with_offset_of_another_form_is_refused(offset: object) -> None:
    """An offset is a whole number from 0 to 2^53 - 1."""
    assert refused(Last, {"to": "p", "offset": offset}).code == "INVALID_PARAMS"


def test_time_in_utc_is_wall_milliseconds() -> None:
    """A time is ISO-8601 in UTC, and absent where it was not given."""
    assert wall_ms_of("1970-01-01T00:00:01.234Z") == 1_234
    assert wall_ms_of("1970-01-01T00:00:01.234+00:00") == 1_234
    assert wall_ms_of(None) is None


@pytest.mark.parametrize(
    "text", ["", "Z", "yesterday", "1970-01-01T00:00:01.234", "1970-01-01T01:00:00+01:00", "é" * 9 + "Z"]
)
def test_time_of_another_form_is_refused(text: str) -> None:
    """Local times, other zones and words are no times."""
    with pytest.raises(ValueError, match=r"time|UTC|Invalid|zone"):
        wall_ms_of(text)
