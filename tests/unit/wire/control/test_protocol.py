"""The local door: versions first, then requests both ways."""

import json
from typing import Any

import pytest

from tieline.errors import Refusal
from tieline.wire import jsonrpc
from tieline.wire.control.protocol import (
    FRAME_BYTES_MAX,
    HELLO_MS,
    STEPS,
    VERSION,
    ControlConnection,
    Kind,
    Opened,
    Phase,
    Step,
)
from tieline.wire.exchange import (
    Closed,
    NotificationReceived,
    RequestLost,
    RequestReceived,
    ResponseReceived,
)

START_MS = 5_000
OURS, THEIRS = "tieline 0.1.0", "tieline 9.9.9"


def client() -> ControlConnection:
    """Return the dialling end."""
    return ControlConnection("client", product=OURS, now_ms=START_MS)


def server() -> ControlConnection:
    """Return the root's end."""
    return ControlConnection("server", product=THEIRS, now_ms=START_MS)


def opened() -> tuple[ControlConnection, ControlConnection]:
    """Return both ends, open, their events drained."""
    dialling, listening = client(), server()
    listening.receive_data(dialling.data_to_send(), START_MS)
    dialling.receive_data(listening.data_to_send(), START_MS)
    assert dialling.events_received() == [Opened(THEIRS)]
    assert listening.events_received() == [Opened(OURS)]
    return dialling, listening


def closed_with(one: ControlConnection) -> Closed:
    """Return the one event of an end that closed."""
    (event,) = one.events_received()
    assert isinstance(event, Closed)
    return event


def test_hello_of_same_version_opens_both_ends() -> None:
    """Both ends are open after one round, and each can say what the other is."""
    dialling, listening = opened()
    assert dialling.is_open
    assert listening.is_open
    hello = jsonrpc.decode(client().data_to_send()[:-1])
    assert hello == jsonrpc.Request("rpc-1", "control.hello", {"version": VERSION, "product": OURS})


@pytest.mark.parametrize(
    "params", [{"version": 2}, {"version": 0, "more": 1}, {}, {"version": True}, {"version": "1"}]
)
def test_hello_of_another_version_is_refused_with_both_products(params: dict[str, Any]) -> None:
    """A skew is typed, names version and product of the root, and comes before any request."""
    dialling, listening = client(), server()
    listening.receive_data(jsonrpc.encode_request("rpc-1", "control.hello", params), START_MS)
    assert closed_with(listening).code == "VERSION_SKEW"
    error = listening.data_to_send()
    assert json.loads(error)["error"]["data"] == {
        "version": VERSION,
        "product": THEIRS,
        "code": "VERSION_SKEW",
    }
    dialling.receive_data(error, START_MS)
    assert closed_with(dialling) == Closed("VERSION_SKEW", f"{THEIRS} speaks version {VERSION} here")


@pytest.mark.parametrize("more", [{"more": 1}, {"product": 7}])
def test_hello_of_this_version_with_other_fields_is_refused(more: dict[str, Any]) -> None:
    """A hello of the same version has a closed set of fields."""
    listening = server()
    listening.receive_data(jsonrpc.encode_request(1, "control.hello", {"version": 1, **more}), START_MS)
    assert closed_with(listening).code == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (jsonrpc.encode_result("rpc-1", {"version": 2}), "VERSION_SKEW"),
        (jsonrpc.encode_result("rpc-1", {"version": True}), "VERSION_SKEW"),
        (jsonrpc.encode_result("rpc-9", {"version": 1}), "VERSION_SKEW"),
        (b'{"jsonrpc":"2.0","id":"rpc-1","result":[]}\n', "VERSION_SKEW"),
        (jsonrpc.encode_result("rpc-1", {"version": 1, "more": 1}), "INVALID_RPC"),
        (jsonrpc.encode_error("rpc-1", "QUEUE_FULL", "no"), "QUEUE_FULL"),
        (jsonrpc.encode_error("rpc-1", "ODD", "no"), "VERSION_SKEW"),
    ],
)
def test_hello_answer_of_another_form_closes(answer: bytes, code: str) -> None:
    """A root of another version or form is left with a type."""
    dialling = client()
    dialling.receive_data(answer, START_MS)
    assert closed_with(dialling).code == code


def test_hello_that_never_comes_closes_after_its_time() -> None:
    """A silent end is let go."""
    for one in (client(), server()):
        assert one.deadline_ms == START_MS + HELLO_MS
        one.expire(START_MS + HELLO_MS - 1)
        assert one.events_received() == []
        one.expire(START_MS + HELLO_MS)
        assert closed_with(one).code == "VERSION_SKEW"
        assert one.phase is Phase.CLOSED


FRAME_OF_KIND = {
    Kind.HELLO: jsonrpc.encode_request("x", "control.hello", {}),
    Kind.REQUEST: jsonrpc.encode_request("x", "peers", {}),
    Kind.NOTIFICATION: jsonrpc.encode_notification("wake", {}),
    Kind.RESPONSE: jsonrpc.encode_result("x", {}),
}


def in_phase(phase: Phase) -> ControlConnection:
    """Return an end that is in `phase`, its bytes drained."""
    one = {Phase.AWAIT_HELLO: server, Phase.HELLO_SENT: client}.get(phase, lambda: opened()[1])()
    if phase is Phase.CLOSED:
        one.close()
    one.events_received()
    one.data_to_send()
    assert one.phase is phase
    return one


def test_table_of_steps_holds_every_pair() -> None:
    """Every phase with every kind of frame has exactly one step."""
    assert set(STEPS) == {(phase, kind) for phase in Phase for kind in Kind}


@pytest.mark.parametrize(("phase", "kind"), list(STEPS))
def test_every_frame_in_every_phase_does_what_the_table_says(phase: Phase, kind: Kind) -> None:
    """Only the frame that is due counts; any other closes the link."""
    one = in_phase(phase)
    one.receive_data(FRAME_OF_KIND[kind], START_MS)
    if phase is Phase.CLOSED:
        one._take(jsonrpc.decode(FRAME_OF_KIND[kind][:-1]), START_MS)
    events, output = one.events_received(), one.data_to_send()
    codes = [event.code for event in events if isinstance(event, Closed)]
    match STEPS[phase, kind]:
        case Step.IGNORE:
            assert (events, output) == ([], b"")
        case Step.REFUSE:
            assert codes == ["INVALID_RPC"]
            assert json.loads(output)["id"] == "x"
        case Step.HANG_UP:
            assert (codes, output) == (["INVALID_RPC"], b"")
        case Step.EXCHANGE:
            assert codes == []
            assert len(events) == (kind is not Kind.RESPONSE)
        case Step.CHECK_HELLO | Step.TAKE_HELLO_ANSWER:
            # The frame is due, but empty: it is looked at and refused.
            assert codes == ["VERSION_SKEW"]


def test_requests_and_notifications_go_both_ways() -> None:
    """After the hello either end asks and tells; local codes and our own sentences pass."""
    for asking, answering in (opened(), tuple(reversed(opened()))):
        attempt = asking.request("peers", {"scope": "machine"}, START_MS)
        other = asking.request("send", {}, START_MS)
        assert asking.notify("wake", {"x": 1}) is None
        answering.receive_data(asking.data_to_send(), START_MS)
        assert answering.events_received() == [
            RequestReceived(str(attempt), "peers", {"scope": "machine"}),
            RequestReceived(str(other), "send", {}),
            NotificationReceived("wake", {"x": 1}),
        ]
        answering.respond(str(attempt), {"peers": []})
        answering.refuse(str(other), Refusal("NO_ROOT", "no root here", is_retryable=True), {"seen": 0})
        asking.receive_data(answering.data_to_send(), START_MS)
        assert asking.events_received() == [
            ResponseReceived(str(attempt), {"peers": []}),
            ResponseReceived(
                str(other), None, Refusal("NO_ROOT", "no root here", is_retryable=True), {"seen": 0}
            ),
        ]


def test_request_without_time_waits_as_long_as_the_link() -> None:
    """A request may have no deadline; one that has is lost at it."""
    dialling, _ = opened()
    attempt = dialling.request("inbox", {}, START_MS)
    assert dialling.deadline_ms is None
    timed = dialling.request("inbox", {}, START_MS, timeout_ms=10)
    assert dialling.deadline_ms == START_MS + 10
    dialling.expire(START_MS + 10)
    assert dialling.events_received() == [RequestLost(str(timed), "timeout")]
    dialling.receive_eof()
    assert dialling.events_received()[0] == RequestLost(str(attempt), "closed")


def test_end_that_is_not_open_takes_nothing() -> None:
    """Before the hello nothing is sent."""
    one = client()
    for refusal in (one.request("peers", {}, START_MS), one.notify("wake", {})):
        assert isinstance(refusal, Refusal)
        assert refusal.code == "PEER_OFFLINE"


def test_frame_of_one_mebibyte_of_controls_fits() -> None:
    """The longest text of any wire passes, also where every character of it needs an escape."""
    dialling, listening = opened()
    text = "\x01" * (1024 * 1024)
    attempt = dialling.request("send", {"content": text}, START_MS)
    listening.receive_data(dialling.data_to_send(), START_MS)
    (event,) = listening.events_received()
    assert event == RequestReceived(str(attempt), "send", {"content": text})
    refusal = dialling.request("send", {"content": "x" * FRAME_BYTES_MAX}, START_MS)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "FRAME_TOO_LARGE"
