"""The base of a link: what every door does alike with bytes and time."""

import json

import pytest

from tieline.errors import WIRE_CODES, Refusal
from tieline.wire import jsonrpc
from tieline.wire.conversation import Conversation
from tieline.wire.exchange import Closed, RequestLost, RequestReceived, ResponseReceived
from tieline.wire.jsonrpc import Body, Frame, Request

FRAME_BYTES = 200


class Plain(Conversation):
    """A door whose opening is the first frame, whatever it is."""

    def __init__(self) -> None:
        super().__init__(
            frame_bytes_max=FRAME_BYTES,
            pending_max=4,
            codes=WIRE_CODES,
            is_own=False,
            opening_deadline_ms=100,
        )

    def ask(self, method: str, params: Body, deadline_ms: int | None) -> str | Refusal:
        return self._ask(method, params, deadline_ms)

    def _take(self, frame: Frame, now_ms: int) -> None:
        self._is_opened = True
        if isinstance(frame, Request) and frame.method == "bye":
            self.close()
        else:
            self._exchange.take(frame)

    def _opening_expired(self) -> None:
        self._exchange.close("AUTHENTICATION_FAILED", "too late")


def line(request_id: str, method: str = "m") -> bytes:
    """Return one request's line."""
    return jsonrpc.encode_request(request_id, method, {})


def test_bytes_cut_anywhere_give_the_same_events() -> None:
    """Frames come out alike whether their bytes came one by one or at once."""
    data = line("a") + b"\n" + line("b")
    whole, cut = Plain(), Plain()
    whole.receive_data(data, 0)
    for byte in data:
        cut.receive_data(bytes([byte]), 0)
    expected = [RequestReceived("a", "m", {}), RequestReceived("b", "m", {})]
    assert whole.events_received() == cut.events_received() == expected


@pytest.mark.clause("native-59", "native-63")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"{]\n", "PARSE_ERROR"),
        (b"[]\n", "INVALID_RPC"),
        (b"x" * (FRAME_BYTES + 1), "FRAME_TOO_LARGE"),
        (b"x" * (FRAME_BYTES + 1) + b"\n" + line("c"), "FRAME_TOO_LARGE"),
    ],
)
def test_broken_frame_after_good_one_is_answered_once_then_closed(bad: bytes, code: str) -> None:
    """What came before a broken frame counts; the breach is answered under the id null, the rest ignored."""
    one = Plain()
    one.receive_data(line("a") + bad + line("b"), 0)
    one.receive_data(line("d"), 0)
    received, closed = one.events_received()
    assert received == RequestReceived("a", "m", {})
    assert closed.code == code
    (error,) = one.data_to_send().splitlines()
    assert (json.loads(error)["id"], json.loads(error)["error"]["data"]["code"]) == (None, code)
    assert one.data_to_send() == b""
    assert one.is_closed


def test_frames_after_a_close_in_one_read_are_ignored() -> None:
    """Nothing that follows the frame that ended the link is looked at, even a broken one."""
    one = Plain()
    one.receive_data(line("a", "bye") + line("b") + b"x" * (FRAME_BYTES + 1), 0)
    assert one.events_received() == [Closed("", "closed here")]
    assert one.data_to_send() == b""


@pytest.mark.clause("native-66")
@pytest.mark.parametrize(("rest", "word"), [(b"", "link"), (b'{"json', "within a frame")])
def test_end_of_bytes_loses_requests_and_closes(rest: bytes, word: str) -> None:
    """At the end of the far end's bytes what we asked is lost, and the text says if a frame was cut."""
    one = Plain()
    one.receive_data(line("a"), 0)
    attempt = one.ask("m", {}, None)
    assert isinstance(attempt, str)
    one.receive_data(rest, 0)
    one.events_received()
    one.receive_eof()
    one.receive_eof()
    lost, closed = one.events_received()
    assert lost == RequestLost(attempt, "closed")
    assert closed.code == "PEER_OFFLINE"
    assert closed.text.endswith(word)


def test_opening_out_of_time_closes_though_bytes_drip() -> None:
    """The opening's budget is one, however its bytes come."""
    one = Plain()
    assert one.deadline_ms == 100
    for now_ms in range(0, 120, 19):
        one.receive_data(b"x", now_ms)
    assert one.events_received() == [Closed("AUTHENTICATION_FAILED", "too late")]
    assert one.deadline_ms is None


def test_open_link_is_asked_and_answers() -> None:
    """Before its opening a link takes no request; then requests go both ways and deadlines are theirs."""
    one = Plain()
    refusal = one.ask("m", {}, 500)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "PEER_OFFLINE"
    one.receive_data(line("a") + line("b"), 50)
    assert one.is_open
    assert one.deadline_ms is None
    attempt = one.ask("m", {}, 500)
    assert attempt == "rpc-1"
    assert one.deadline_ms == 500
    assert one.respond("a", {"x": 1}) is None
    assert not one.paused
    one.refuse("b", Refusal("SCOPE_DENIED", "no"))
    assert one.output_bytes == len(one.data_to_send())
    one.receive_data(jsonrpc.encode_result("rpc-1", {"y": 2}), 499)
    one.receive_data(jsonrpc.encode_result("rpc-1", {"y": 3}), 499)
    assert one.events_received()[2:] == [ResponseReceived("rpc-1", {"y": 2})]
    assert one.counts.responses_ignored == 1
    one.close()
    assert not one.is_open


def test_base_alone_says_nothing_of_openings() -> None:
    """What opens a link is the subclass's to say."""
    base = Conversation(
        frame_bytes_max=9, pending_max=1, codes=WIRE_CODES, is_own=False, opening_deadline_ms=0
    )
    with pytest.raises(NotImplementedError):
        base.expire(0)
    base._opening_deadline_ms = 9
    with pytest.raises(NotImplementedError):
        base._take(Request("a", "m", {}), 0)
