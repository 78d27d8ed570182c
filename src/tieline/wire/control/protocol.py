"""A root's local door: a version check, then requests in both directions; both roles, no I/O.

A command, a hook or a subagent's door dials its root's second socket. The kernel has already told the
link who is at the other end, the same user, so there is nothing to prove here; but the two programs
may be of different ages, and that is settled before anything else is said.

Rule 1: the first frame is `control.hello {version}`; another version is refused with `VERSION_SKEW`,
which names both products, before a request could be misread.
Rule 2: what may come when is the table `STEPS`; every pair of phase and frame is in it.
Rule 3: both ends are this product: codes that never go to peers, and our own sentences, pass here.
Rule 4: this module knows no other method, no clock and no socket.

Source: DESIGN.md sections 2 and 8; reference/native.md 2.6, 4.4.
"""

from enum import Enum, auto
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from tieline.errors import CODES, Refusal
from tieline.wire import jsonrpc
from tieline.wire.conversation import Conversation
from tieline.wire.exchange import Closed, NotificationReceived, RequestLost, RequestReceived, ResponseReceived
from tieline.wire.jsonrpc import Body, Frame, Notification, Request, RequestId, Response

__all__ = [
    "FRAME_BYTES_MAX",
    "HELLO_MS",
    "PENDING_MAX",
    "STEPS",
    "VERSION",
    "Closed",
    "ControlConnection",
    "Event",
    "Kind",
    "NotificationReceived",
    "Opened",
    "Phase",
    "RequestLost",
    "RequestReceived",
    "ResponseReceived",
    "Step",
]

VERSION: Final = 1
"""Version of what is said on this door."""
HELLO: Final = "control.hello"

FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
"""One line. The longest text of any wire is 1 MiB, and JSON writes a control character with six bytes:
6 MiB, and 2 MiB for the fields around it."""
PENDING_MAX: Final = 64
"""Requests each way: every waiting command of one session holds one, and a door that serves a host's
subagents holds one for each."""
HELLO_MS: Final = 2_000
"""Both ends are local and idle when they meet; a silent one must not keep the other's descriptor."""


class Opened(msgspec.Struct, frozen=True):
    """Both ends speak the same version; `product` is what the far end calls itself, for a person."""

    product: str


Event = Opened | RequestReceived | NotificationReceived | ResponseReceived | RequestLost | Closed


class _Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    product: str = ""


class Phase(Enum):
    """Where one link stands."""

    AWAIT_HELLO = auto()
    """Server: nothing came yet."""
    HELLO_SENT = auto()
    """Client: waits for the server's version."""
    OPEN = auto()
    """The versions agree."""
    CLOSED = auto()


class Kind(Enum):
    """What kind of frame came."""

    HELLO = auto()
    REQUEST = auto()
    NOTIFICATION = auto()
    RESPONSE = auto()


class Step(Enum):
    """What is done with a frame."""

    CHECK_HELLO = auto()
    TAKE_HELLO_ANSWER = auto()
    EXCHANGE = auto()
    """An ordinary frame of an open link."""
    REFUSE = auto()
    """Answer `INVALID_RPC`, close."""
    HANG_UP = auto()
    """Close without an answer: the frame must not be answered."""
    IGNORE = auto()
    """The link is closed."""


class _Row(NamedTuple):
    hello: Step
    request: Step
    notification: Step
    response: Step


_R, _H, _X, _I = Step.REFUSE, Step.HANG_UP, Step.EXCHANGE, Step.IGNORE
_ROWS: Final = {
    # phase                   hello          request  notification  response
    Phase.AWAIT_HELLO: _Row(Step.CHECK_HELLO, _R, _H, _H),
    Phase.HELLO_SENT: _Row(_R, _R, _H, Step.TAKE_HELLO_ANSWER),
    Phase.OPEN: _Row(_R, _X, _X, _X),
    Phase.CLOSED: _Row(_I, _I, _I, _I),
}
STEPS: Final[dict[tuple[Phase, Kind], Step]] = {
    (phase, kind): step for phase, row in _ROWS.items() for kind, step in zip(Kind, row, strict=True)
}
"""Every pair of phase and frame, and what is done with it."""


def _kind(frame: Frame) -> Kind:
    match frame:
        case Request():
            return Kind.HELLO if frame.method == HELLO else Kind.REQUEST
        case Notification():
            return Kind.NOTIFICATION
        case Response():
            return Kind.RESPONSE
        case _:
            assert_never(frame)


class ControlConnection(Conversation):
    """One local link's protocol; see `Conversation` for how it is driven."""

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        product: str,
        now_ms: int,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        pending_max: int = PENDING_MAX,
    ) -> None:
        """Start; a client's hello waits in `data_to_send` at once.

        `product` is name and version of this program, as `tieline 0.1.0`. The hello is due within
        `HELLO_MS` of `now_ms`, which is monotonic. Lines of up to `frame_bytes_max` bytes and
        `pending_max` unanswered requests go each way.
        """
        super().__init__(
            frame_bytes_max=frame_bytes_max,
            pending_max=pending_max,
            codes=CODES,
            is_own=True,
            opening_deadline_ms=now_ms + HELLO_MS,
        )
        self.role = role
        self._product = product
        self._phase = Phase.AWAIT_HELLO if role == "server" else Phase.HELLO_SENT
        self._hello_id: RequestId = ""
        if role == "client":
            self._hello_id = self._exchange.new_attempt()
            hello = {"version": VERSION, "product": product}
            self._exchange.put_unasked(jsonrpc.encode_request(self._hello_id, HELLO, hello))

    # --- what this end asks -----------------------------------------------------------------------

    def request(self, method: str, params: Body, now_ms: int, timeout_ms: int | None = None) -> str | Refusal:
        """Return the attempt's name, told again with its answer or its loss; or why nothing was sent.

        After `timeout_ms` the request is lost; None waits as long as the link lives.
        """
        return self._ask(method, params, None if timeout_ms is None else now_ms + timeout_ms)

    def notify(self, method: str, params: Body) -> Refusal | None:
        """Tell without an answer; return why it was not sent."""
        if not self.is_open:
            return Refusal("PEER_OFFLINE", "the link is not open", is_retryable=True)
        return self._exchange.notify(method, params)

    @property
    def phase(self) -> Phase:
        """Where the link stands."""
        return Phase.CLOSED if self.is_closed else self._phase

    # --- steps ------------------------------------------------------------------------------------

    def _opening_expired(self) -> None:
        self._exchange.close("VERSION_SKEW", "the far end did not say its version in time")

    def _take(self, frame: Frame, now_ms: int) -> None:  # noqa: ARG002 - nothing here depends on the time
        step = STEPS[self.phase, _kind(frame)]
        match step:
            case Step.EXCHANGE:
                self._exchange.take(frame)
            case Step.CHECK_HELLO:
                assert isinstance(frame, Request), "the table sends requests here"
                self._check_hello(frame)
            case Step.TAKE_HELLO_ANSWER:
                assert isinstance(frame, Response), "the table sends answers here"
                self._take_hello_answer(frame)
            case Step.REFUSE:
                assert isinstance(frame, Request), "only a request is answered"
                self._refuse_hello(frame.id, "INVALID_RPC", "control.hello comes once, and first")
            case Step.HANG_UP:
                self._exchange.close("INVALID_RPC", "a frame came before the versions were compared")
            case Step.IGNORE:
                return
            case _:
                assert_never(step)

    def _refuse_hello(self, request_id: RequestId, code: str, text: str) -> None:
        ours = {"version": VERSION, "product": self._product}
        self._exchange.put_unasked(jsonrpc.encode_error(request_id, code, text, ours))
        self._exchange.close(code, text)

    def _check_hello(self, frame: Request) -> None:
        # The version is read first and alone: a later version may say more in its hello.
        version = frame.params.get("version")
        if type(version) is not int or version != VERSION:
            self._refuse_hello(frame.id, "VERSION_SKEW", f"{self._product} speaks version {VERSION} here")
            return
        try:
            hello = msgspec.convert(frame.params, _Hello)
        except msgspec.ValidationError:
            self._refuse_hello(frame.id, "INVALID_PARAMS", "control.hello has version and product")
            return
        ours = {"version": VERSION, "product": self._product}
        self._exchange.put_unasked(jsonrpc.encode_result(frame.id, ours))
        self._open(hello)

    def _take_hello_answer(self, frame: Response) -> None:
        if frame.error is not None:
            code = frame.error.typed_code
            code = code if code in CODES else "VERSION_SKEW"
            self._exchange.close(code, frame.error.message)
            return
        version = frame.result.get("version") if isinstance(frame.result, dict) else None
        if frame.id != self._hello_id or type(version) is not int or version != VERSION:
            self._exchange.close("VERSION_SKEW", "the root's answer to control.hello is of another version")
            return
        try:
            self._open(msgspec.convert(frame.result, _Hello))
        except msgspec.ValidationError:
            self._exchange.close("INVALID_RPC", "the root's answer to control.hello is malformed")

    def _open(self, hello: _Hello) -> None:
        self._phase = Phase.OPEN
        self._is_opened = True
        self._exchange.tell(Opened(hello.product))
