"""One incoming connection of the pi-peers wire: who may speak, how long, and what ends it."""

import json

import msgspec
import pytest

from tieline.errors import ProtocolError
from tieline.wire.peers.frames import (
    LINE_BYTES_MAX,
    Frame,
    Shutdown,
    StatusFrame,
    Unknown,
    UserFrame,
    auth_line,
    encode,
)
from tieline.wire.peers.protocol import (
    LINE_MS,
    Authenticated,
    Closed,
    Event,
    FrameReceived,
    Grade,
    Inbound,
    outbound,
)

ID = "11111111-2222-4333-8444-555555555555"
OTHER = "aaaaaaaa-2222-4333-8444-bbbbbbbbbbbb"
USER = UserFrame(ID, "/w.sock", 7, "s-1", "api", ("/w.sock",), "next", "text é 😀")
CONTROL = Shutdown(OTHER, "/w.sock", "/w.sock")
GRADES = {"peer": Grade(is_child=False), "child": Grade(is_child=True, run="r-1")}


def inbound(now_ms: int = 0) -> Inbound:
    """Return a fresh connection that knows the tokens of `GRADES`."""
    return Inbound(GRADES.get, now_ms)


def told(*frames: Frame) -> list[Event]:
    """Return what whole frames on a peer token give."""
    return [Authenticated(GRADES["peer"]), *(FrameReceived(frame) for frame in frames)]


@pytest.mark.clause("pi-peers-21", "pi-peers-22", "pi-peers-23")
def test_authentication_and_frame_in_one_write_are_told_in_order() -> None:
    """A connection's one write gives the grade, the frame and the end."""
    end = inbound()
    grades = [end.grade]
    end.receive_data(outbound("peer", [USER, CONTROL]), 1)
    assert end.events_received() == told(USER, CONTROL)
    assert [*grades, end.grade] == [None, GRADES["peer"]]
    closed = [end.is_closed]
    end.receive_eof()
    assert end.events_received() == [Closed("ended")]
    assert [*closed, end.is_closed] == [False, True]
    assert end.deadline_ms is None


@pytest.mark.clause("pi-peers-26")
def test_child_token_tells_whose_child_speaks() -> None:
    """The grade carries the run; a child needs no address of its own."""
    bare = msgspec.structs.replace(USER, sender="")
    end = inbound()
    end.receive_data(outbound("child", [bare]), 1)
    assert end.events_received() == [Authenticated(Grade(is_child=True, run="r-1")), FrameReceived(bare)]


@pytest.mark.clause("pi-peers-28")
def test_message_without_an_address_closes_on_the_peer_token() -> None:
    """A stranger without an address could neither be known nor told."""
    end = inbound()
    end.receive_data(outbound("peer", [msgspec.structs.replace(USER, sender=""), CONTROL]), 1)
    assert end.events_received() == [Authenticated(GRADES["peer"]), Closed("malformed")]


@pytest.mark.clause("pi-peers-23", "pi-peers-U20")
@pytest.mark.parametrize(
    "first",
    [
        auth_line("wrong"),
        auth_line("Peer"),
        encode(USER),
        b"hello\n",
        b'{"type":"auth"}\n',
        b'{"type":"auth","token":["peer"]}\n',
        b'{"type":"hello","token":"peer"}\n',
        b"\xff\n",
    ],
)
def test_first_line_without_a_token_of_ours_closes_and_tells_nothing(first: bytes) -> None:
    """Nothing of a stranger's connection is told but its end, however good its later lines are."""
    end = inbound()
    end.receive_data(first + outbound("peer", [USER]), 1)
    assert end.events_received() == [Closed("unauthenticated")]
    end.receive_data(outbound("peer", [USER]), 2)
    end.receive_eof()
    assert end.events_received() == []


@pytest.mark.clause("pi-peers-U20")
@pytest.mark.parametrize(
    "line", [auth_line("peer"), b"{\n", b"[]\n", b'{"msg_id":"x","type":"user"}\n', b"\xc3\n"]
)
def test_malformed_line_closes_after_the_frames_before_it(line: bytes) -> None:
    """The first offence ends it; what was whole before it is good, what comes after is not read."""
    end = inbound()
    end.receive_data(auth_line("peer") + encode(USER) + line + encode(CONTROL), 1)
    assert end.events_received() == [*told(USER), Closed("malformed")]


@pytest.mark.clause("pi-peers-22", "pi-peers-U20")
def test_oversize_line_closes_while_it_is_read() -> None:
    """A line past 1 MiB ends the connection before its end came; the frame before it stands."""
    end = inbound()
    end.receive_data(auth_line("peer") + encode(USER) + b"x" * LINE_BYTES_MAX, 1)
    assert end.events_received() == told(USER)
    end.receive_data(b"y", 2)
    assert end.events_received() == [Closed("oversize")]
    stranger = inbound()
    stranger.receive_data(b"x" * (LINE_BYTES_MAX + 1), 1)
    assert stranger.events_received() == [Closed("oversize")]


@pytest.mark.clause("pi-peers-22")
def test_longest_line_is_read() -> None:
    """A line of exactly 1 MiB with its end is a frame."""
    spare = LINE_BYTES_MAX - len(encode(msgspec.structs.replace(USER, content="")))
    frame = msgspec.structs.replace(USER, content="x" * spare)
    end = inbound()
    end.receive_data(outbound("peer", [frame]), 1)
    assert end.events_received() == told(frame)


@pytest.mark.clause("pi-peers-22")
def test_first_line_that_trickles_has_one_budget() -> None:
    """Bytes, blank lines among them, do not extend the thirty seconds of the first line."""
    end = inbound(1_000)
    assert end.deadline_ms == 1_000 + LINE_MS
    for at in range(1_000, 1_000 + LINE_MS, 1_000):
        end.receive_data(b" " if at % 2_000 else b"\n", at)
        assert end.deadline_ms == 1_000 + LINE_MS
    end.expire(1_000 + LINE_MS - 1)
    assert not end.is_closed
    end.receive_data(outbound("peer", [USER]), 1_000 + LINE_MS)
    assert end.events_received() == [Closed("late")]


@pytest.mark.clause("pi-peers-22", "pi-peers-24")
def test_later_line_that_trickles_has_one_budget_and_silence_has_none() -> None:
    """An unfinished later line ends in its time; between lines nothing is awaited."""
    end = inbound()
    end.receive_data(auth_line("peer"), 10)
    deadlines = [end.deadline_ms]
    end.expire(10**9)
    assert not end.is_closed
    line = encode(USER)
    end.receive_data(line[:5], 1_000)
    end.receive_data(line[5:9], 1_000 + LINE_MS - 1)
    deadlines.append(end.deadline_ms)
    end.receive_data(line[9:] + line[:3], 1_000 + LINE_MS - 1)
    deadlines.append(end.deadline_ms)
    assert deadlines == [None, 1_000 + LINE_MS, 1_000 + 2 * LINE_MS - 1]
    end.expire(1_000 + 2 * LINE_MS - 1)
    assert end.events_received() == [*told(USER), Closed("late")]


@pytest.mark.clause("pi-peers-22")
def test_unfinished_line_behind_the_authentication_has_its_own_budget() -> None:
    """The first line's budget ends with it; the line that began behind it starts one."""
    end = inbound()
    end.receive_data(auth_line("peer") + b"{", LINE_MS - 1)
    assert end.deadline_ms == 2 * LINE_MS - 1


def test_last_line_without_its_end_counts_when_it_is_whole() -> None:
    """A half close behind a whole object is its line end; behind a cut one it is an offence."""
    end = inbound()
    end.receive_data(outbound("peer", [USER])[:-1], 1)
    end.receive_eof()
    assert end.events_received() == [*told(USER), Closed("ended")]
    cut = inbound()
    cut.receive_data(outbound("peer", [USER])[:-2], 1)
    cut.receive_eof()
    assert cut.events_received() == [*told(), Closed("malformed")]
    only = inbound()
    only.receive_data(auth_line("peer")[:-1], 1)
    only.receive_eof()
    assert only.events_received() == [*told(), Closed("ended")]


def test_end_before_the_first_line_is_a_stranger() -> None:
    """Who hangs up at once, as a probe does, proved nothing."""
    end = inbound()
    end.receive_eof()
    end.receive_eof()
    assert end.events_received() == [Closed("unauthenticated")]


def test_stop_keeps_what_came_and_closes_once() -> None:
    """This end may hang up; the events before it are told."""
    end = inbound()
    end.receive_data(outbound("peer", [USER]), 1)
    end.stop()
    end.stop()
    end.expire(10**9)
    assert end.events_received() == [*told(USER), Closed("stopped")]


@pytest.mark.clause("pi-peers-19")
def test_unknown_action_is_told_and_closes_nothing() -> None:
    """A frame of a later version passes as unknown, and the next one is read."""
    unknown = {"msgV": 1, "msg_id": ID, "type": "control", "action": "from_the_future"}
    end = inbound()
    end.receive_data(auth_line("peer") + json.dumps(unknown).encode() + b"\n\r\n" + encode(USER), 1)
    assert end.events_received() == told(Unknown(ID, "from_the_future"), USER)


@pytest.mark.clause("pi-peers-U10")
def test_receipt_for_several_messages_is_told_one_by_one() -> None:
    """Each message of a combined receipt has an event of its own."""
    end = inbound()
    end.receive_data(
        outbound("peer", [StatusFrame(ID, "/w", "a", "dropped", "duplicate", None, ("b", "c"))]), 1
    )
    parts = [StatusFrame(ID, "/w", name, "dropped", "duplicate") for name in "abc"]
    assert end.events_received() == told(*parts)


def test_outbound_refuses_what_does_not_fit_in_a_line() -> None:
    """A frame past the bound is an error before anything is written."""
    with pytest.raises(ProtocolError):
        outbound("peer", [USER, msgspec.structs.replace(USER, content="x" * LINE_BYTES_MAX)])
