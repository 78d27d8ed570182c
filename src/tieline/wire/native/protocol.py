"""One native link: its handshake, its legal order, and requests in both directions; both roles, no I/O.

Theory. A client dials a root that presence advertised. Both ends add a fresh nonce; the server signs
the nine transcript fields first, then the client signs the same fields under its own role. Only after
both proofs does anything else count, and then both ends may ask. The whole handshake has one budget
from the creation of the connection, however its bytes are dripped.

Rule 1: who the far end is comes from its advertisement, never from a frame. This module does not read
presence: it says `LookupWanted` and is told, once at the hello and again before the proof is taken, so
that a key withdrawn in between does not pass. A caller that sees another process behind the socket
than presence names answers None, and the relay is refused.
Rule 2: capabilities are the advertisement's; those in a hello are for show and grant nothing.
Rule 3: what may come when is the table `STEPS`; every pair of phase and frame is in it.
Rule 4: a handshake that fails is answered once, then the link closes.
Rule 5: this module knows no method but the handshake's two, no clock and no chance.

Source: reference/native.md 1D to 1G, 2.5, 2.6, 3.2, 3.4; reference/reliability.md S8 to S13, I45, I46, I49.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, Literal, NamedTuple, assert_never

import msgspec

from tieline.errors import WIRE_CODES, Refusal
from tieline.keys import PrivateKey, decode_base64, encode_base64, public_key, verify
from tieline.model.identity import is_instance
from tieline.wire import jsonrpc
from tieline.wire.conversation import Conversation
from tieline.wire.exchange import Closed, NotificationReceived, RequestLost, RequestReceived, ResponseReceived
from tieline.wire.jsonrpc import Body, Frame, Notification, Request, RequestId, Response
from tieline.wire.native.handshake import (
    DOMAIN,
    NONCE_BYTES,
    PROTOCOL,
    Advertised,
    Hello,
    HelloAnswer,
    NonceMemory,
    Proof,
    ProofAnswer,
    transcript,
)

__all__ = [
    "DOMAIN",
    "NONCE_BYTES",
    "PROTOCOL",
    "STEPS",
    "Advertised",
    "Authenticated",
    "Closed",
    "Connection",
    "Event",
    "Kind",
    "LookupWanted",
    "NativeLimits",
    "NonceMemory",
    "NotificationReceived",
    "Phase",
    "RequestLost",
    "RequestReceived",
    "ResponseReceived",
    "Step",
    "transcript",
]

HELLO: Final = "peer.hello"
AUTHENTICATE: Final = "peer.authenticate"

HANDSHAKE_REFUSALS: Final = frozenset(
    {"AUTHENTICATION_FAILED", "UNSUPPORTED_PROTOCOL", "QUEUE_FULL", "COMMUNICATION_DISABLED"}
)
"""Codes believed from an end that has not proved who it is; any other is `AUTHENTICATION_FAILED`."""


# --- values and events ----------------------------------------------------------------------------


class NativeLimits(msgspec.Struct, frozen=True):
    """The four limits of one native link: bytes of a line, requests each way, milliseconds."""

    frame_bytes: int = 65_536
    pending_requests: int = 32
    handshake_ms: int = 2_000
    acknowledgement_ms: int = 2_000


class LookupWanted(msgspec.Struct, frozen=True):
    """Read the presence of `instance` now and hand it in with `Connection.advertised`."""

    instance: str


class Authenticated(msgspec.Struct, frozen=True):
    """Both proofs verified; the far end is `instance`, with its advertisement's capabilities."""

    instance: str
    capabilities: tuple[str, ...]


Event = (
    LookupWanted
    | Authenticated
    | RequestReceived
    | NotificationReceived
    | ResponseReceived
    | RequestLost
    | Closed
)


# --- tables ---------------------------------------------------------------------------------------


class Phase(Enum):
    """Where one link stands."""

    AWAIT_HELLO = auto()
    """Server: nothing came yet."""
    LOOKUP = auto()
    """Server: the hello is in, its sender is being looked up."""
    AWAIT_PROOF = auto()
    """Server: has proved itself, waits for the client's proof."""
    RECHECK = auto()
    """Server: the proof is in, its sender is being looked up again."""
    HELLO_SENT = auto()
    """Client: waits for the server's proof."""
    PROOF_SENT = auto()
    """Client: the server is proved; waits for its word that our proof passed."""
    OPEN = auto()
    """Both are proved."""
    CLOSED = auto()


class Kind(Enum):
    """What kind of frame came."""

    HELLO = auto()
    AUTHENTICATE = auto()
    REQUEST = auto()
    NOTIFICATION = auto()
    RESPONSE = auto()


class Step(Enum):
    """What is done with a frame."""

    CHECK_HELLO = auto()
    CHECK_PROOF = auto()
    TAKE_HELLO_ANSWER = auto()
    TAKE_PROOF_ANSWER = auto()
    EXCHANGE = auto()
    """An application frame of an open link."""
    REFUSE = auto()
    """Answer `AUTHENTICATION_FAILED`, close."""
    HANG_UP = auto()
    """Close without an answer: the frame must not be answered."""
    IGNORE = auto()
    """The link is closed."""


class _Row(NamedTuple):
    hello: Step
    authenticate: Step
    request: Step
    notification: Step
    response: Step


_R, _H, _X, _I = Step.REFUSE, Step.HANG_UP, Step.EXCHANGE, Step.IGNORE
_ROWS: Final = {
    # phase                   hello             authenticate      request  notification  response
    Phase.AWAIT_HELLO: _Row(Step.CHECK_HELLO, _R, _R, _H, _H),
    Phase.LOOKUP: _Row(_R, _R, _R, _H, _H),
    Phase.AWAIT_PROOF: _Row(_R, Step.CHECK_PROOF, _R, _H, _H),
    Phase.RECHECK: _Row(_R, _R, _R, _H, _H),
    Phase.HELLO_SENT: _Row(_R, _R, _R, _H, Step.TAKE_HELLO_ANSWER),
    Phase.PROOF_SENT: _Row(_R, _R, _R, _H, Step.TAKE_PROOF_ANSWER),
    # A second handshake on an open link would change who the far end is.
    Phase.OPEN: _Row(_R, _R, _X, _X, _X),
    Phase.CLOSED: _Row(_I, _I, _I, _I, _I),
}
STEPS: Final[dict[tuple[Phase, Kind], Step]] = {
    (phase, kind): step for phase, row in _ROWS.items() for kind, step in zip(Kind, row, strict=True)
}
"""Every pair of phase and frame, and what is done with it."""

_KIND_OF_METHOD: Final = {HELLO: Kind.HELLO, AUTHENTICATE: Kind.AUTHENTICATE}


def _kind(frame: Frame) -> Kind:
    match frame:
        case Request():
            return _KIND_OF_METHOD.get(frame.method, Kind.REQUEST)
        case Notification():
            return Kind.NOTIFICATION
        case Response():
            return Kind.RESPONSE
        case _:
            assert_never(frame)


# --- the few lines that run them ------------------------------------------------------------------


class Connection(Conversation):
    """One native link's protocol; see `Conversation` for how it is driven."""

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        instance: str,
        key: PrivateKey,
        capabilities: tuple[str, ...],
        nonce: bytes,
        nonces: NonceMemory,
        limits: NativeLimits,
        now_ms: int,
        expected: Advertised | None = None,
    ) -> None:
        """Start the handshake; a client's hello waits in `data_to_send` at once.

        Who dialled is the client, and only a client knows whom it expects. `instance`, `key` and
        `capabilities` are what our own presence says of us. `nonce` is 32 fresh random bytes used for
        nothing else, `nonces` the root's memory, shared by all its links. The handshake's budget
        begins at `now_ms`, which is monotonic.
        """
        super().__init__(
            frame_bytes_max=limits.frame_bytes,
            pending_max=limits.pending_requests,
            codes=WIRE_CODES,
            is_own=False,
            opening_deadline_ms=now_ms + limits.handshake_ms,
        )
        assert len(nonce) == NONCE_BYTES, "a nonce is 32 bytes"
        assert (expected is None) == (role == "server"), "a client knows whom it dials, a server does not"
        assert nonces.take(nonce, now_ms), "our own nonce was used before"
        self.role = role
        self.far_end: Advertised | None = expected
        """Who is at the other end: proved once `is_open`; before that whom a client expects, or None."""
        self._instance, self._key, self._capabilities = instance, key, capabilities
        self._nonce, self._nonces, self._limits = encode_base64(nonce), nonces, limits
        self._phase = Phase.AWAIT_HELLO if role == "server" else Phase.HELLO_SENT
        self._hello: Hello | None = None
        self._proof = ""
        self._handshake_id: RequestId = ""
        if role == "client":
            self._ask_handshake(
                HELLO,
                {"version": PROTOCOL, "instanceId": instance, "publicKey": key.public, "nonce": self._nonce},
            )

    # --- what the caller tells -------------------------------------------------------------------

    def advertised(self, answer: Advertised | None, now_ms: int) -> None:
        """Take the answer to `LookupWanted`; None where no live record can be trusted.

        A late answer, after the handshake's budget or the end of the link, changes nothing.
        """
        self.expire(now_ms)
        if self.is_closed:
            return
        phase = self._phase
        assert phase in (Phase.LOOKUP, Phase.RECHECK), "nothing was asked"
        assert self._hello is not None, "a lookup follows a hello"
        hello = self._hello
        if answer is None or answer.instance != hello.instance or answer.public_key != hello.public_key:
            self._refuse("AUTHENTICATION_FAILED", "the instance is not advertised with this key")
        elif phase is Phase.LOOKUP:
            self._answer_hello(hello, now_ms)
        else:
            self._answer_proof(hello, answer)

    # --- what this end asks -----------------------------------------------------------------------

    def request(self, method: str, params: Body, now_ms: int, timeout_ms: int | None = None) -> str | Refusal:
        """Return the attempt's name, told again with its answer or its loss; or why nothing was sent.

        After `timeout_ms`, or the link's `acknowledgement_ms` where it is None, the outcome is not known.
        """
        timeout = self._limits.acknowledgement_ms if timeout_ms is None else timeout_ms
        return self._ask(method, params, now_ms + timeout)

    def refuse(
        self, request_id: RequestId, refusal: Refusal, details: Mapping[str, Any] | None = None
    ) -> None:
        """Refuse a request of theirs; a code that peers do not know travels as `INVALID_RPC`."""
        if refusal.code not in WIRE_CODES:
            refusal = Refusal("INVALID_RPC", refusal.text)
        super().refuse(request_id, refusal, details)

    @property
    def phase(self) -> Phase:
        """Where the link stands."""
        return Phase.CLOSED if self.is_closed else self._phase

    # --- steps ------------------------------------------------------------------------------------

    def _opening_expired(self) -> None:
        self._exchange.close("AUTHENTICATION_FAILED", "the handshake took too long")

    def _take(self, frame: Frame, now_ms: int) -> None:
        step = STEPS[self.phase, _kind(frame)]
        if isinstance(frame, Request) and step is not Step.EXCHANGE:
            self._handshake_id = frame.id
        match step:
            case Step.EXCHANGE:
                self._exchange.take(frame)
            case Step.CHECK_HELLO | Step.CHECK_PROOF:
                assert isinstance(frame, Request), "the table sends requests here"
                check = self._check_hello if step is Step.CHECK_HELLO else self._check_proof
                check(frame.params)
            case Step.TAKE_HELLO_ANSWER | Step.TAKE_PROOF_ANSWER:
                assert isinstance(frame, Response), "the table sends answers here"
                self._take_handshake_answer(frame, step, now_ms)
            case Step.REFUSE:
                self._refuse("AUTHENTICATION_FAILED", "this frame is not due in the handshake")
            case Step.HANG_UP:
                self._exchange.close("AUTHENTICATION_FAILED", "a frame came before both ends were proved")
            case Step.IGNORE:
                return
            case _:
                assert_never(step)

    def _refuse(self, code: str, text: str) -> None:
        """Answer the handshake's request, then close."""
        self._exchange.put_unasked(jsonrpc.encode_error(self._handshake_id, code, text))
        self._exchange.close(code, text)

    def _ask_handshake(self, method: str, params: dict[str, Any]) -> None:
        attempt = self._exchange.new_attempt()
        self._handshake_id = attempt
        self._exchange.put_unasked(jsonrpc.encode_request(attempt, method, params))

    # --- server -----------------------------------------------------------------------------------

    def _check_hello(self, params: dict[str, Any]) -> None:
        version = params.get("version")
        if type(version) is int and version != PROTOCOL:
            self._refuse("UNSUPPORTED_PROTOCOL", f"only peer protocol {PROTOCOL} is spoken here")
            return
        try:
            hello = msgspec.convert(params, Hello)
            decode_base64(hello.nonce, NONCE_BYTES)
            public_key(hello.public_key)
        except (msgspec.ValidationError, ValueError):
            self._refuse("AUTHENTICATION_FAILED", "the hello is malformed")
            return
        if not is_instance(hello.instance) or self._is_ourselves(hello):
            self._refuse("AUTHENTICATION_FAILED", "the hello does not name another instance")
            return
        self._hello = hello
        self._phase = Phase.LOOKUP
        self._exchange.tell(LookupWanted(hello.instance))

    def _answer_hello(self, hello: Hello, now_ms: int) -> None:
        # Remembered only now: an instance that is not advertised must not be able to fill the memory.
        if not self._nonces.take(decode_base64(hello.nonce, NONCE_BYTES), now_ms):
            self._refuse("AUTHENTICATION_FAILED", "the nonce was used before")
            return
        result = {
            "version": PROTOCOL,
            "instanceId": self._instance,
            "publicKey": self._key.public,
            "nonce": self._nonce,
            "proof": self._key.sign(self._transcript("server", hello)),
            "capabilities": list(self._capabilities),
        }
        self._phase = Phase.AWAIT_PROOF
        self._exchange.put_unasked(jsonrpc.encode_result(self._handshake_id, result))

    def _check_proof(self, params: dict[str, Any]) -> None:
        assert self._hello is not None, "a proof is due after a hello"
        try:
            self._proof = msgspec.convert(params, Proof).proof
        except msgspec.ValidationError:
            self._refuse("AUTHENTICATION_FAILED", "the proof is malformed")
            return
        self._phase = Phase.RECHECK
        self._exchange.tell(LookupWanted(self._hello.instance))

    def _answer_proof(self, hello: Hello, answer: Advertised) -> None:
        if not verify(hello.public_key, self._transcript("client", hello), self._proof):
            self._refuse("AUTHENTICATION_FAILED", "the proof does not verify")
            return
        result = {"authenticated": True, "version": PROTOCOL}
        self._exchange.put_unasked(jsonrpc.encode_result(self._handshake_id, result))
        self._open(answer)

    # --- client -----------------------------------------------------------------------------------

    def _take_handshake_answer(self, frame: Response, step: Step, now_ms: int) -> None:
        code = ""
        if frame.error is not None:
            code = frame.error.typed_code
            code = code if code in HANDSHAKE_REFUSALS else "AUTHENTICATION_FAILED"
        elif frame.id != self._handshake_id:
            code = "AUTHENTICATION_FAILED"
        if code:
            self._exchange.close(code, "the far end refused the handshake")
        elif step is Step.TAKE_HELLO_ANSWER:
            self._take_hello_answer(frame.result, now_ms)
        else:
            self._take_proof_answer(frame.result)

    def _take_hello_answer(self, result: object, now_ms: int) -> None:
        expected = self.far_end
        assert expected is not None, "a client knows whom it dials"
        version = result.get("version") if isinstance(result, dict) else None
        if type(version) is int and version != PROTOCOL:
            self._exchange.close("UNSUPPORTED_PROTOCOL", "the far end speaks another peer protocol")
            return
        try:
            answer = msgspec.convert(result, HelloAnswer)
            nonce = decode_base64(answer.nonce, NONCE_BYTES)
        except (msgspec.ValidationError, ValueError):
            self._exchange.close("AUTHENTICATION_FAILED", "the far end's hello is malformed")
            return
        is_expected = answer.instance == expected.instance and answer.public_key == expected.public_key
        if not is_expected or self._is_ourselves(answer) or not self._nonces.take(nonce, now_ms):
            self._exchange.close("AUTHENTICATION_FAILED", "the far end is not who presence says")
            return
        if not verify(answer.public_key, self._transcript("server", answer), answer.proof):
            self._exchange.close("AUTHENTICATION_FAILED", "the far end's proof does not verify")
            return
        self._phase = Phase.PROOF_SENT
        self._ask_handshake(AUTHENTICATE, {"proof": self._key.sign(self._transcript("client", answer))})

    def _take_proof_answer(self, result: object) -> None:
        assert self.far_end is not None, "a client knows whom it dials"
        try:
            answer = msgspec.convert(result, ProofAnswer)
        except msgspec.ValidationError:
            self._exchange.close("AUTHENTICATION_FAILED", "the far end's answer is malformed")
            return
        if not answer.authenticated or answer.version != PROTOCOL:
            self._exchange.close("AUTHENTICATION_FAILED", "the far end did not take the proof")
            return
        self._open(self.far_end)

    # --- both -------------------------------------------------------------------------------------

    def _open(self, far_end: Advertised) -> None:
        self.far_end = far_end
        self._phase = Phase.OPEN
        self._is_opened = True
        self._exchange.tell(Authenticated(far_end.instance, far_end.capabilities))

    def _is_ourselves(self, hello: Hello) -> bool:
        """Return whether our own identity is presented back to us."""
        return hello.instance == self._instance or hello.public_key == self._key.public

    def _transcript(self, signer: str, hello: Hello) -> bytes:
        """Return what `signer` signs, given what the far end said of itself."""
        ours = (self._instance, self._key.public, self._nonce)
        theirs = (hello.instance, hello.public_key, hello.nonce)
        client, server = (ours, theirs) if self.role == "client" else (theirs, ours)
        return transcript(signer, client[0], server[0], client[1], server[1], client[2], server[2])
