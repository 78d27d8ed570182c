"""One native link, both ends in one process, and everything that may be done to it in between."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tieline.errors import Refusal
from tieline.keys import PrivateKey, encode_base64
from tieline.wire import jsonrpc
from tieline.wire.exchange import (
    Closed,
    NotificationReceived,
    RequestLost,
    RequestReceived,
    ResponseReceived,
)
from tieline.wire.native.handshake import Advertised, NonceMemory, transcript
from tieline.wire.native.protocol import (
    STEPS,
    Authenticated,
    Connection,
    Kind,
    LookupWanted,
    NativeLimits,
    Phase,
    Step,
)

LIMITS = NativeLimits(frame_bytes=4_096, pending_requests=4, handshake_ms=2_000, acknowledgement_ms=1_000)
CLIENT_KEY, SERVER_KEY = PrivateKey.generate(b"\x01" * 32), PrivateKey.generate(b"\x02" * 32)
CLIENT, SERVER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
CLIENT_ADVERTISED = Advertised(CLIENT, CLIENT_KEY.public, ("message.send",))
SERVER_ADVERTISED = Advertised(SERVER, SERVER_KEY.public, ("message.receive",))
CLIENT_NONCE, SERVER_NONCE = b"\xaa" * 32, b"\xbb" * 32
START_MS = 5_000


def client(expected: Advertised = SERVER_ADVERTISED, **changes: Any) -> Connection:
    """Return the dialling end, with anything changed."""
    given: dict[str, Any] = {
        "instance": CLIENT,
        "key": CLIENT_KEY,
        "capabilities": ("message.send",),
        "nonce": CLIENT_NONCE,
        "nonces": NonceMemory(),
        "limits": LIMITS,
        "now_ms": START_MS,
    }
    return Connection("client", expected=expected, **{**given, **changes})


def server(**changes: Any) -> Connection:
    """Return the listening end, with anything changed."""
    given: dict[str, Any] = {
        "instance": SERVER,
        "key": SERVER_KEY,
        "capabilities": ("message.receive",),
        "nonce": SERVER_NONCE,
        "nonces": NonceMemory(),
        "limits": LIMITS,
        "now_ms": START_MS,
    }
    return Connection("server", **{**given, **changes})


def carry(
    one: Connection, other: Connection, change: Callable[[dict[str, Any]], object] | None = None
) -> None:
    """Carry what waits from one end to the other, each frame changed on the way."""
    for line in one.data_to_send().splitlines():
        frame = json.loads(line)
        if change is not None:
            change(frame)
        other.receive_data(json.dumps(frame).encode() + b"\n", START_MS)


def frames(one: Connection) -> list[dict[str, Any]]:
    """Return the frames that wait at an end."""
    return [json.loads(line) for line in one.data_to_send().splitlines()]


def only_error(one: Connection) -> tuple[object, str]:
    """Return id and typed code of the one error that waits at an end."""
    (frame,) = frames(one)
    return frame["id"], frame["error"]["data"]["code"]


def at_lookup() -> tuple[Connection, Connection]:
    """Return both ends after the hello came."""
    dialling, listening = client(), server()
    carry(dialling, listening)
    return dialling, listening


def at_proof() -> tuple[Connection, Connection]:
    """Return both ends after the server proved itself."""
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling)
    return dialling, listening


def at_recheck() -> tuple[Connection, Connection]:
    """Return both ends after the client's proof came."""
    dialling, listening = at_proof()
    carry(dialling, listening)
    return dialling, listening


def opened() -> tuple[Connection, Connection]:
    """Return both ends, proved, their events drained."""
    dialling, listening = at_recheck()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling)
    dialling.events_received()
    listening.events_received()
    return dialling, listening


def closed_with(one: Connection) -> str:
    """Return the code an end closed with; nothing was authenticated and nothing served before."""
    *earlier, last = one.events_received()
    assert isinstance(last, Closed)
    assert all(isinstance(event, LookupWanted) for event in earlier)
    assert not one.is_open
    return last.code


# --- the handshake ----------------------------------------------------------------------------------


@pytest.mark.clause("native-49", "native-54")
def test_handshake_of_honest_ends_opens_both() -> None:
    """Each end learns who the other is, after both proofs, with the capabilities of its advertisement."""
    dialling, listening = at_recheck()
    assert not dialling.is_open
    assert not listening.is_open
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling)
    assert listening.events_received() == [
        LookupWanted(CLIENT),
        LookupWanted(CLIENT),
        Authenticated(CLIENT, ("message.send",)),
    ]
    assert dialling.events_received() == [Authenticated(SERVER, ("message.receive",))]
    assert dialling.is_open
    assert listening.is_open
    assert (dialling.far_end, listening.far_end) == (SERVER_ADVERTISED, CLIENT_ADVERTISED)


@pytest.mark.clause("native-49", "native-67")
def test_handshake_frames_are_the_published_ones() -> None:
    """The four frames have the published methods, fields and values, the server proving itself first."""
    dialling, listening = client(), server()
    (hello,) = frames(dialling)
    assert hello == {
        "jsonrpc": "2.0",
        "id": "rpc-1",
        "method": "peer.hello",
        "params": {
            "version": 1,
            "instanceId": CLIENT,
            "publicKey": CLIENT_KEY.public,
            "nonce": encode_base64(CLIENT_NONCE),
        },
    }
    listening.receive_data(json.dumps(hello).encode() + b"\n", START_MS)
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    (answer,) = frames(listening)
    assert answer["result"] == {
        "version": 1,
        "instanceId": SERVER,
        "publicKey": SERVER_KEY.public,
        "nonce": encode_base64(SERVER_NONCE),
        "proof": "gwZyrGULAbTNd20rYsyZqQz6x69WNciF8YCgMc4rnZt0/jAXFhDSBawkzEVEeQmqUVdXpfrpcpnnR35S5w6jDw==",
        "capabilities": ["message.receive"],
    }
    dialling.receive_data(json.dumps(answer).encode() + b"\n", START_MS)
    (proof,) = frames(dialling)
    assert proof["method"] == "peer.authenticate"
    assert proof["params"] == {
        "proof": "Rj6/ww19nswSNV9rqqZMETZFBWIcyqppNgRJRPEaeT8ldH3waUF4QMzy/mlahQuuh/Q3urL5BeSL+Ayipl5mBg=="
    }
    listening.receive_data(json.dumps(proof).encode() + b"\n", START_MS)
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    assert frames(listening)[0]["result"] == {"authenticated": True, "version": 1}


def changed_hello(member: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return the change that sets one member of a hello's params, or removes it for None."""

    def change(frame: dict[str, Any]) -> None:
        frame["params"][member] = value
        if value is None:
            del frame["params"][member]

    return change


@pytest.mark.clause("native-48", "S8", "mutant-12")
@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("version", None),
        ("version", True),
        ("version", "1"),
        ("version", 1.0),
        ("instanceId", None),
        ("instanceId", ""),
        ("instanceId", "../x"),
        ("instanceId", "x" * 129),
        ("instanceId", SERVER),
        ("publicKey", SERVER_KEY.public),
        ("publicKey", CLIENT_KEY.public[:-1]),
        ("publicKey", encode_base64(bytes.fromhex("302a300506032b6570032100") + b"\1" + bytes(31))),
        ("nonce", encode_base64(b"\xaa" * 31)),
        ("nonce", encode_base64(b"\xaa" * 32)[:-2] + "p="),
        ("nonce", ""),
        ("token", "secret"),
        ("capabilities", ["resource.control"]),
    ],
)
def test_hello_that_is_malformed_is_refused(member: str, value: object) -> None:
    """A hello outside its closed form is refused without a lookup, answered once, and the link closed."""
    dialling, listening = client(), server()
    carry(dialling, listening, changed_hello(member, value))
    (closed,) = listening.events_received()
    assert closed.code == "AUTHENTICATION_FAILED"
    carry(listening, dialling)
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.clause("S12", "native-67")
@pytest.mark.parametrize("version", [0, 2, -1, 99])
def test_hello_of_another_version_is_unsupported(version: int) -> None:
    """Another protocol number is told so, at either end, and nothing weaker is tried instead."""
    dialling, listening = client(), server()
    carry(dialling, listening, changed_hello("version", version))
    carry(listening, dialling)
    assert closed_with(listening) == "UNSUPPORTED_PROTOCOL"
    assert closed_with(dialling) == "UNSUPPORTED_PROTOCOL"
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling, lambda frame: frame["result"].update(version=version))
    assert closed_with(dialling) == "UNSUPPORTED_PROTOCOL"


@pytest.mark.clause("native-56", "native-57", "S11")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        Advertised(CLIENT, SERVER_KEY.public),
        Advertised(SERVER, CLIENT_KEY.public),
        Advertised(CLIENT, PrivateKey.generate(b"\x03" * 32).public),
    ],
)
def test_instance_not_advertised_with_this_key_is_refused_at_both_lookups(answer: Advertised | None) -> None:
    """An unknown, ended or other-keyed instance is refused at the hello, and again at its proof."""
    dialling, listening = at_lookup()
    listening.advertised(answer, START_MS)
    assert only_error(listening) == ("rpc-1", "AUTHENTICATION_FAILED")
    assert closed_with(listening) == "AUTHENTICATION_FAILED"
    dialling, listening = at_recheck()
    listening.advertised(answer, START_MS)
    carry(listening, dialling)
    assert closed_with(listening) == "AUTHENTICATION_FAILED"
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.clause("native-56", "native-57", "S10", "S12")
@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.update(instanceId=CLIENT),
        lambda result: result.update(instanceId="other"),
        lambda result: result.update(publicKey=CLIENT_KEY.public),
        lambda result: result.update(publicKey=PrivateKey.generate(b"\x03" * 32).public),
        lambda result: result.update(nonce=encode_base64(b"\xcc" * 32)),
        lambda result: result.update(nonce=encode_base64(CLIENT_NONCE)),
        lambda result: result.update(nonce="x"),
        lambda result: result.update(proof=encode_base64(bytes(64))),
        lambda result: result.update(proof=""),
        lambda result: result.update(version=True),
        lambda result: result.update(more=1),
        lambda result: result.pop("proof"),
        lambda result: result.pop("capabilities"),
        lambda result: result.clear(),
    ],
)
def test_hello_answer_changed_on_the_way_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    """The client goes on only for the instance, key and proof it expects, and sends no proof of its own."""
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling, lambda frame: change(frame["result"]))
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"
    assert dialling.data_to_send() == b""


def test_hello_answer_that_is_no_object_is_refused() -> None:
    """A result of another shape ends the handshake."""
    dialling = client()
    dialling.receive_data(b'{"jsonrpc":"2.0","id":"rpc-1","result":[]}\n', START_MS)
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.clause("S12")
def test_capabilities_claimed_in_a_hello_grant_nothing() -> None:
    """What the server says it can do is for show; the advertisement decides."""
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling, lambda frame: frame["result"].update(capabilities=["resource.control"]))
    carry(dialling, listening)
    listening.advertised(Advertised(CLIENT, CLIENT_KEY.public, ("message.wait",)), START_MS)
    carry(listening, dialling)
    assert dialling.events_received() == [Authenticated(SERVER, ("message.receive",))]
    # The second lookup is the newer one.
    assert listening.events_received()[-1] == Authenticated(CLIENT, ("message.wait",))


@pytest.mark.clause("native-53", "native-54", "I45")
@pytest.mark.parametrize(
    "params",
    [
        {"proof": ""},
        {"proof": encode_base64(bytes(64))},
        {},
        {"proof": 7},
        {"proof": "x", "more": 1},
        {"forged": 1},
    ],
)
def test_proof_that_does_not_verify_is_refused(params: dict[str, Any]) -> None:
    """A missing, malformed or false proof opens nothing."""
    dialling, listening = at_proof()
    carry(dialling, listening, lambda frame: frame.update(params=params))
    if listening.phase is Phase.RECHECK:
        listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling)
    assert closed_with(listening) == "AUTHENTICATION_FAILED"
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.parametrize(
    "result", [{}, {"authenticated": False, "version": 1}, {"authenticated": True, "version": 2}, [], None]
)
def test_answer_to_proof_of_another_form_opens_nothing(result: object) -> None:
    """The client is open only once the server says so in the published form."""
    dialling, _ = at_proof()
    dialling.data_to_send()
    dialling.receive_data(
        json.dumps({"jsonrpc": "2.0", "id": "rpc-2", "result": result}).encode() + b"\n", START_MS
    )
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.parametrize("begin", [at_lookup, at_recheck])
def test_answer_under_another_id_ends_the_handshake(
    begin: Callable[[], tuple[Connection, Connection]],
) -> None:
    """In the handshake only the answer to the open request counts, however right it is."""
    dialling, listening = begin()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling, lambda frame: frame.update(id="rpc-9"))
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.clause("native-56", "native-57", "I46")
def test_expected_key_under_another_instance_is_refused() -> None:
    """A root that proves the expected key but is another instance is not whom the client dialled."""
    dialling, listening = client(), server(instance="33333333-3333-4333-8333-333333333333")
    carry(dialling, listening)
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling)
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"


@pytest.mark.parametrize(
    ("code", "believed"),
    [
        ("QUEUE_FULL", "QUEUE_FULL"),
        ("COMMUNICATION_DISABLED", "COMMUNICATION_DISABLED"),
        ("UNSUPPORTED_PROTOCOL", "UNSUPPORTED_PROTOCOL"),
        ("MESSAGE_TOO_LARGE", "AUTHENTICATION_FAILED"),
        ("ODD", "AUTHENTICATION_FAILED"),
    ],
)
def test_refusal_by_an_unproved_end_is_believed_only_so_far(code: str, believed: str) -> None:
    """An end that has not proved itself can refuse the link, not speak of messages."""
    dialling = client()
    dialling.receive_data(jsonrpc.encode_error("rpc-1", code, "no"), START_MS)
    assert closed_with(dialling) == believed


# --- replay, reflection, confusion -------------------------------------------------------------------


@pytest.mark.clause("native-55", "I46", "S10")
def test_recorded_handshake_replayed_is_refused() -> None:
    """The frames of a whole recorded handshake open nothing, at the same root or at a restarted one."""
    dialling = client()
    hello = dialling.data_to_send()
    memory = NonceMemory()
    listening = server(nonces=memory)
    listening.receive_data(hello, START_MS)
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    carry(listening, dialling)
    proof = dialling.data_to_send()
    same = server(nonces=memory, nonce=b"\xcc" * 32)
    same.receive_data(hello, START_MS)
    same.advertised(CLIENT_ADVERTISED, START_MS)
    assert closed_with(same) == "AUTHENTICATION_FAILED"
    restarted = server(nonce=b"\xcc" * 32)
    restarted.receive_data(hello, START_MS)
    restarted.advertised(CLIENT_ADVERTISED, START_MS)
    restarted.receive_data(proof, START_MS)
    restarted.advertised(CLIENT_ADVERTISED, START_MS)
    assert closed_with(restarted) == "AUTHENTICATION_FAILED"


@pytest.mark.clause("native-55", "I46", "S10")
def test_server_answer_replayed_to_a_new_client_is_refused() -> None:
    """A recorded answer does not prove a server to a client with another nonce, nor twice to one root."""
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    answer = listening.data_to_send()
    fresh = client(nonce=b"\xdd" * 32)
    fresh.receive_data(answer, START_MS)
    assert closed_with(fresh) == "AUTHENTICATION_FAILED"
    memory = NonceMemory()
    assert memory.take(SERVER_NONCE, START_MS)
    again = client(nonces=memory)
    again.receive_data(answer, START_MS)
    assert closed_with(again) == "AUTHENTICATION_FAILED"
    dialling.receive_data(answer, START_MS)
    assert dialling.phase is Phase.PROOF_SENT


@pytest.mark.clause("S9", "S10", "I46")
def test_own_proof_reflected_is_refused() -> None:
    """A far end that sends a root's own hello, key or proof back to it proves nothing."""
    dialling = client(expected=Advertised(CLIENT, CLIENT_KEY.public))
    nonce = encode_base64(b"\xcc" * 32)
    fields = (CLIENT, CLIENT, CLIENT_KEY.public, CLIENT_KEY.public, encode_base64(CLIENT_NONCE), nonce)
    result = {
        "version": 1,
        "instanceId": CLIENT,
        "publicKey": CLIENT_KEY.public,
        "nonce": nonce,
        "proof": CLIENT_KEY.sign(transcript("server", *fields)),
        "capabilities": [],
    }
    dialling.receive_data(jsonrpc.encode_result("rpc-1", result), START_MS)
    assert closed_with(dialling) == "AUTHENTICATION_FAILED"
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    (answer,) = frames(listening)
    reflected = jsonrpc.encode_request("rpc-2", "peer.authenticate", {"proof": answer["result"]["proof"]})
    listening.receive_data(reflected, START_MS)
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    assert closed_with(listening) == "AUTHENTICATION_FAILED"


@pytest.mark.clause("S10", "I46")
def test_sessions_interleaved_open_only_with_their_own_frames() -> None:
    """Of two handshakes of one pair, every crossing of their frames is refused, every straight one opens."""

    def pair(byte: int) -> tuple[Connection, Connection]:
        return client(nonce=bytes([byte]) * 32), server(nonce=bytes([byte + 1]) * 32)

    for answer_from in (0, 1):
        for proof_from in (0, 1):
            dialling, listening = zip(pair(1), pair(3), strict=True)
            for one, other in zip(dialling, listening, strict=True):
                carry(one, other)
                other.advertised(CLIENT_ADVERTISED, START_MS)
            answers = [other.data_to_send() for other in listening]
            dialling[0].receive_data(answers[answer_from], START_MS)
            dialling[1].receive_data(answers[1], START_MS)
            proofs = [one.data_to_send() for one in dialling]
            if answer_from == 1:
                assert closed_with(dialling[0]) == "AUTHENTICATION_FAILED"
                assert proofs[0] == b""
                continue
            listening[0].receive_data(proofs[proof_from], START_MS)
            listening[0].advertised(CLIENT_ADVERTISED, START_MS)
            assert listening[0].is_open == (proof_from == 0)


@pytest.mark.clause("S10")
def test_proof_for_another_server_is_refused() -> None:
    """A server that a client dialled cannot use the client's proof at a third root."""
    middle_key = PrivateKey.generate(b"\x03" * 32)
    dialling = client(expected=Advertised("middle", middle_key.public))
    middle = server(instance="middle", key=middle_key, nonce=SERVER_NONCE)
    victim = server()
    hello = dialling.data_to_send()
    for one in (middle, victim):
        one.receive_data(hello, START_MS)
        one.advertised(CLIENT_ADVERTISED, START_MS)
    carry(middle, dialling)
    victim.receive_data(dialling.data_to_send(), START_MS)
    victim.advertised(CLIENT_ADVERTISED, START_MS)
    assert closed_with(victim) == "AUTHENTICATION_FAILED"


def test_nonce_of_ours_used_twice_is_our_own_defect() -> None:
    """Two links of one root never begin with the same nonce."""
    memory = NonceMemory()
    server(nonces=memory)
    with pytest.raises(AssertionError):
        server(nonces=memory)
    with pytest.raises(AssertionError):
        server(nonce=b"short")
    with pytest.raises(AssertionError):
        Connection("client", **arguments_without_expected())


def arguments_without_expected() -> dict[str, Any]:
    """Return what a client is made of, but for whom it dials."""
    return {
        "instance": CLIENT,
        "key": CLIENT_KEY,
        "capabilities": (),
        "nonce": CLIENT_NONCE,
        "nonces": NonceMemory(),
        "limits": LIMITS,
        "now_ms": START_MS,
    }


@pytest.mark.clause("native-55")
def test_stranger_fills_no_nonce_memory() -> None:
    """The nonce of an instance that is not advertised is not remembered."""
    memory = NonceMemory()
    listening = server(nonces=memory)
    carry(client(), listening)
    listening.advertised(None, START_MS)
    assert len(memory) == 1


# --- order -------------------------------------------------------------------------------------------

FRAME_OF_KIND = {
    Kind.HELLO: jsonrpc.encode_request("x", "peer.hello", {}),
    Kind.AUTHENTICATE: jsonrpc.encode_request("x", "peer.authenticate", {}),
    Kind.REQUEST: jsonrpc.encode_request("x", "peer.send", {}),
    Kind.NOTIFICATION: jsonrpc.encode_notification("peer.send", {}),
    Kind.RESPONSE: jsonrpc.encode_result("x", {}),
}


def in_phase(phase: Phase) -> Connection:
    """Return an end that is in `phase`, its events and bytes drained."""
    one: Connection
    match phase:
        case Phase.AWAIT_HELLO:
            one = server()
        case Phase.LOOKUP:
            one = at_lookup()[1]
        case Phase.AWAIT_PROOF:
            one = at_proof()[1]
        case Phase.RECHECK:
            one = at_recheck()[1]
        case Phase.HELLO_SENT:
            one = client()
        case Phase.PROOF_SENT:
            one = at_proof()[0]
        case Phase.OPEN:
            one = opened()[0]
        case Phase.CLOSED:
            one = opened()[0]
            one.close()
    one.events_received()
    one.data_to_send()
    assert one.phase is phase
    return one


def test_table_of_steps_holds_every_pair() -> None:
    """Every phase with every kind of frame has exactly one step."""
    assert set(STEPS) == {(phase, kind) for phase in Phase for kind in Kind}


@pytest.mark.clause("native-54", "I45", "S13", "native-81")
@pytest.mark.parametrize(("phase", "kind"), list(STEPS))
def test_every_frame_in_every_phase_does_what_the_table_says(phase: Phase, kind: Kind) -> None:
    """Only the frame that is due counts; any other closes the link, and nothing is served early."""
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
            assert codes == ["AUTHENTICATION_FAILED"]
            assert json.loads(output)["id"] == "x"
            assert json.loads(output)["error"]["data"]["code"] == "AUTHENTICATION_FAILED"
        case Step.HANG_UP:
            assert (codes, output) == (["AUTHENTICATION_FAILED"], b"")
        case Step.EXCHANGE:
            assert codes == []
            assert len(events) == (kind is not Kind.RESPONSE)
        case Step.CHECK_HELLO | Step.CHECK_PROOF | Step.TAKE_HELLO_ANSWER | Step.TAKE_PROOF_ANSWER:
            # The frame is due, but empty: it is looked at and refused.
            assert codes == ["AUTHENTICATION_FAILED"]
    assert not any(
        isinstance(event, RequestReceived | NotificationReceived)
        for event in events
        if phase is not Phase.OPEN
    )


@pytest.mark.clause("I45", "S13")
def test_application_frame_pipelined_behind_the_proof_is_not_served() -> None:
    """A request that comes before the proof was taken closes the link instead of waiting for it."""
    dialling, listening = at_proof()
    listening.receive_data(dialling.data_to_send() + FRAME_OF_KIND[Kind.REQUEST], START_MS)
    assert closed_with(listening) == "AUTHENTICATION_FAILED"
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    assert listening.events_received() == []


@pytest.mark.clause("native-160", "S13")
def test_handshake_dripped_byte_by_byte_ends_in_its_budget() -> None:
    """The budget is for the whole handshake: bytes that keep coming do not extend it."""
    listening = server()
    hello = client().data_to_send()
    listening.receive_data(hello[:1], START_MS + 1_900)
    assert listening.deadline_ms == START_MS + 2_000
    listening.receive_data(hello[1:2], START_MS + 1_999)
    assert listening.events_received() == []
    listening.receive_data(hello[2:], START_MS + 2_000)
    assert closed_with(listening) == "AUTHENTICATION_FAILED"
    assert listening.deadline_ms is None


@pytest.mark.clause("native-160")
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.OPEN, Phase.CLOSED)])
def test_handshake_out_of_time_closes_in_every_phase(phase: Phase) -> None:
    """No phase of the handshake outlives the budget, and a lookup that comes late changes nothing."""
    one = in_phase(phase)
    one.expire(START_MS + 1_999)
    assert one.phase is phase
    assert one.deadline_ms == START_MS + 2_000
    one.expire(START_MS + 2_000)
    assert closed_with(one) == "AUTHENTICATION_FAILED"
    one.advertised(CLIENT_ADVERTISED, START_MS + 2_000)
    assert one.events_received() == []


def test_lookup_answer_that_comes_late_opens_nothing() -> None:
    """An advertisement that arrives after the budget is of no use."""
    _, listening = at_recheck()
    listening.advertised(CLIENT_ADVERTISED, START_MS + 2_000)
    assert closed_with(listening) == "AUTHENTICATION_FAILED"


def test_lookup_answer_nobody_asked_for_is_our_own_defect() -> None:
    """The caller answers a lookup once."""
    with pytest.raises(AssertionError):
        server().advertised(CLIENT_ADVERTISED, START_MS)


@pytest.mark.clause("I49")
def test_bytes_before_the_proof_are_held_up_to_one_frame() -> None:
    """An end that has not proved itself makes the other keep at most one frame."""
    listening = server()
    listening.receive_data(b"x" * LIMITS.frame_bytes, START_MS)
    assert listening.phase is Phase.AWAIT_HELLO
    listening.receive_data(b"x", START_MS)
    assert only_error(listening) == (None, "FRAME_TOO_LARGE")
    assert closed_with(listening) == "FRAME_TOO_LARGE"


# --- an open link --------------------------------------------------------------------------------------


def test_requests_both_ways_after_the_handshake_are_served() -> None:
    """Either end may ask once both are proved."""
    dialling, listening = opened()
    for asking, answering in ((dialling, listening), (listening, dialling)):
        attempt = asking.request("peer.directory", {"version": 1}, START_MS)
        assert isinstance(attempt, str)
        carry(asking, answering)
        assert answering.events_received() == [RequestReceived(attempt, "peer.directory", {"version": 1})]
        assert answering.respond(attempt, {"peers": []}) is None
        carry(answering, asking)
        assert asking.events_received() == [ResponseReceived(attempt, {"peers": []})]


def test_request_before_the_handshake_is_refused() -> None:
    """Nothing of a message leaves before both ends are proved."""
    for one in (client(), server(), in_phase(Phase.PROOF_SENT)):
        refusal = one.request("peer.send", {}, START_MS)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "PEER_OFFLINE"


@pytest.mark.clause("native-161")
def test_request_without_answer_is_lost_after_the_acknowledgement_time() -> None:
    """A request's outcome is unknown after its time: the link's, or the one given."""
    dialling, _ = opened()
    first = dialling.request("peer.send", {}, START_MS)
    second = dialling.request("peer.send", {}, START_MS, timeout_ms=10)
    assert dialling.deadline_ms == START_MS + 10
    dialling.expire(START_MS + 999)
    assert dialling.events_received() == [RequestLost(str(second), "timeout")]
    dialling.expire(START_MS + 1_000)
    assert dialling.events_received() == [RequestLost(str(first), "timeout")]
    assert dialling.is_open


def test_refusal_with_a_local_code_travels_as_a_wire_code() -> None:
    """Peers are sent only the thirty codes they know."""
    dialling, listening = opened()
    for code in ("NO_ROOT", "SCOPE_DENIED"):
        attempt = dialling.request("peer.send", {}, START_MS)
        carry(dialling, listening)
        listening.refuse(str(attempt), Refusal(code, "no"))
    assert [frame["error"]["data"]["code"] for frame in frames(listening)] == ["INVALID_RPC", "SCOPE_DENIED"]


@pytest.mark.clause("native-66")
def test_close_on_purpose_loses_what_was_asked() -> None:
    """Closing settles our requests and is told once."""
    dialling, _ = opened()
    attempt = dialling.request("peer.send", {}, START_MS)
    dialling.close()
    assert dialling.events_received() == [RequestLost(str(attempt), "closed"), Closed("", "closed here")]
    assert dialling.phase is Phase.CLOSED


@pytest.mark.clause("native-60", "native-61", "native-62", "K8")
def test_whole_dialogue_cut_at_every_byte_is_the_same() -> None:
    """The server's bytes, delivered in two pieces at any cut, open the link and serve the same request."""
    dialling, listening = at_lookup()
    listening.advertised(CLIENT_ADVERTISED, START_MS)
    answer = listening.data_to_send()
    for cut in range(0, len(answer), 7):
        one = client()
        one.data_to_send()
        one.receive_data(answer[:cut], START_MS)
        one.receive_data(answer[cut:], START_MS)
        assert one.phase is Phase.PROOF_SENT
    dialling, listening = opened()
    request = jsonrpc.encode_request("a", "peer.send", {"content": "čaj ☕ 𝄞"})
    for cut in range(len(request)):
        dialling.receive_data(request[:cut], START_MS)
        dialling.receive_data(request[cut:], START_MS)
        assert dialling.events_received() == [RequestReceived("a", "peer.send", {"content": "čaj ☕ 𝄞"})]
        dialling.respond("a", {})
        dialling.data_to_send()
