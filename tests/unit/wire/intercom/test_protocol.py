"""One socket of the broker; whole conversations are in tests/scripts."""

from collections.abc import Iterator

import pytest

from tieline.engine.brokering.contract import (
    Departed,
    Join,
    Leave,
    ListAsked,
    Listing,
    ReadReturned,
    Row,
    SendAsked,
)
from tieline.engine.brokering.features import DIRECT
from tieline.model.moment import Moment
from tieline.wire.intercom.framing import FRAME_BYTES_MAX, fields_of, framed, payload
from tieline.wire.intercom.protocol import BrokerLink
from tieline.wire.intercom.saying import FrameCodec

NOW = Moment(10_000, 1_000)
REGISTER = {"type": "register", "session": {"cwd": "/w", "model": "m"}}
RECORDED = {
    "type": "register",
    "session": {"cwd": "/w", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1},
}


def link() -> BrokerLink:
    tokens: Iterator[str] = (f"t{number}" for number in range(10_000))
    return BrokerLink(7, lambda: next(tokens), FrameCodec())


def frame(**fields: object) -> bytes:
    return framed(payload(fields))


def said(one: BrokerLink) -> list[object]:
    data, found = one.data_to_send(), []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(fields_of(data[4 : 4 + length]))
        data = data[4 + length :]
    return found


@pytest.mark.clause("intercom-1", "intercom-2")
def test_commands_come_in_the_order_of_their_frames() -> None:
    """Frames in one read, the last of them cut, are commands in order, with fresh tokens."""
    one = link()
    data = frame(**REGISTER) + frame(type="list", requestId="x") + frame(type="unregister")
    commands = one.receive_data(data[:-3], NOW)
    assert [type(command) for command in commands] == [Join, ListAsked]
    assert isinstance(commands[0], Join)
    assert commands[0].token != commands[0].epoch
    assert one.receive_data(data[-3:], NOW) == [Leave(7)]
    assert not one.is_closed


@pytest.mark.clause("intercom-8", "intercom-13", "intercom-15", "intercom-16")
def test_offence_closes_after_what_was_whole() -> None:
    """What came before counts, what comes after does not, and nothing is heard any more."""
    for offence in (frame(type="nonsense"), frame(**REGISTER), b"\xff\xff\xff\xff", framed(b"{")):
        one = link()
        commands = one.receive_data(frame(**REGISTER) + offence + frame(type="list", requestId="x"), NOW)
        assert [type(command) for command in commands] == [Join]
        assert one.is_closed
        assert one.receive_data(frame(type="list", requestId="x"), NOW) == []
        one.send(Departed("s"))
        assert said(one) == [{"type": "session_left", "sessionId": "s"}]
    one = link()
    assert one.receive_data(frame(type="list", requestId="x"), NOW) == []
    assert one.is_closed
    assert said(one) == []


def test_health_is_answered_by_the_link_itself() -> None:
    """Before a registration and to revision N; to the strict form it is an unknown frame."""
    one = link()
    health = frame(type="health", requestId="h")
    answer = {"type": "health_ok", "requestId": "h", "protocol": "pi-intercom", "version": 1}
    assert one.receive_data(health, NOW) == []
    assert said(one) == [answer]
    one.receive_data(frame(**RECORDED) + health, NOW)
    assert said(one) == [answer]
    one = link()
    one.receive_data(frame(**REGISTER) + health, NOW)
    assert one.is_closed
    one = link()
    one.receive_data(frame(type="health"), NOW)
    assert one.is_closed


@pytest.mark.clause("intercom-30")
def test_pace_is_kept_by_all_but_the_strict_form() -> None:
    """241 frames at once close a socket of revision N with a word, one of no dialect without."""
    one = link()
    one.receive_data(frame(**RECORDED) + frame(type="list", requestId="x") * 240, NOW)
    assert one.is_closed
    assert said(one) == [{"type": "error", "error": "rate limit exceeded"}]
    one = link()
    one.receive_data(frame(type="health", requestId="h") * 241, NOW)
    assert one.is_closed
    assert len(said(one)) == 240
    one = link()
    assert len(one.receive_data(frame(**REGISTER) + frame(type="list", requestId="x") * 500, NOW)) == 501


def test_malformed_request_of_the_strict_form_is_answered_where_it_has_an_answer() -> None:
    """A read out of form is told so under its own id."""
    one = link()
    one.receive_data(
        frame(**REGISTER, lastReads=1) + frame(type="last_request", requestId="r", to="x", limit=0), NOW
    )
    assert not one.is_closed
    assert said(one) == [{"type": "last_response", "requestId": "r", "error": "invalid_request"}]


@pytest.mark.clause("intercom-11")
def test_nothing_over_the_bound_is_written() -> None:
    """A list or read that does not fit is answered short, what else does not fit is left out."""
    one = link()
    one.receive_data(frame(**REGISTER), NOW)
    row = Row(
        fields={"id": "a", "name": "x" * FRAME_BYTES_MAX},
        features=DIRECT,
        epoch="e",
        process_id=0,
        joined_ms=0,
    )
    one.send(Listing("L", (row,)))
    one.send(ReadReturned("receipt", "R", {"receipt": "x" * FRAME_BYTES_MAX}))
    one.send(Departed("x" * FRAME_BYTES_MAX))
    listing, read = said(one)
    assert isinstance(listing, dict)
    assert (listing["requestId"], listing["sessions"]) == ("L", [])
    assert read == {"type": "receipt_response", "requestId": "R", "error": "too_large"}


def test_send_of_an_invalid_message_is_a_command_too() -> None:
    """The hub answers it: it never closes."""
    one = link()
    (_, sent) = one.receive_data(frame(**REGISTER) + frame(type="send", to="x", message={}), NOW)
    assert isinstance(sent, SendAsked)
    assert (sent.letter, sent.message_id) == (None, "unknown")
