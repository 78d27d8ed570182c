"""Requests and answers in both directions over one link; the bookkeeping that every JSON-RPC door shares.

Rule 1: a request of ours ends exactly once: answered, or lost. A request of theirs is answered at most once.
Rule 2: all that waits is bounded: our requests, theirs, and the frames not yet taken by the link.
Rule 3: what passes a bound is refused or ends the link visibly; nothing that asks for an answer is dropped.
Rule 4: this module knows neither methods nor handshakes nor who is at the other end; time is told to it.

Source: reference/native.md 1F, 2.6, 4.4; reference/reliability.md K8, I49.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, assert_never

import msgspec

from tieline.errors import Refusal
from tieline.wire import jsonrpc
from tieline.wire.jsonrpc import Body, Frame, Notification, Request, RequestId, Response

__all__ = [
    "Closed",
    "Counts",
    "Exchange",
    "NotificationReceived",
    "RequestLost",
    "RequestReceived",
    "ResponseReceived",
]

WRITES_PER_REQUEST: Final = 2
"""A full window of answers and a full window of requests may wait for the link at once."""


class RequestReceived(msgspec.Struct, frozen=True):
    """The far end asks; answer once with `respond` or `refuse` under the same `id`."""

    id: RequestId
    method: str
    params: dict[str, Any]


class NotificationReceived(msgspec.Struct, frozen=True):
    """The far end tells; there is no answer."""

    method: str
    params: dict[str, Any]


class ResponseReceived(msgspec.Struct, frozen=True):
    """Our request `attempt` was answered: exactly one of `result` and `refusal` is not None.

    `details` are the members of the error's data besides its code: foreign content.
    """

    attempt: str
    result: dict[str, Any] | None = None
    refusal: Refusal | None = None
    details: dict[str, Any] = {}


class RequestLost(msgspec.Struct, frozen=True):
    """Our request `attempt` will never be answered here; whether it was carried out is not known."""

    attempt: str
    reason: Literal["timeout", "closed"]


class Closed(msgspec.Struct, frozen=True):
    """The conversation is over; comes exactly once and last. Write what is left, then close the link.

    `code` is a key of `errors.CODES`, or the empty string where this end closed on purpose.
    """

    code: str
    text: str


ExchangeEvent = RequestReceived | NotificationReceived | ResponseReceived | RequestLost | Closed


class Counts(msgspec.Struct):
    """What was not carried out, for diagnosis."""

    requests_refused: int = 0
    notifications_dropped: int = 0
    responses_ignored: int = 0


class Exchange:
    """The two windows of requests over one link, its outgoing frames, and its events."""

    def __init__(
        self, *, frame_bytes_max: int, pending_max: int, codes: Collection[str], is_own: bool
    ) -> None:
        """Start with nothing asked.

        Args:
            frame_bytes_max: Bound of one outgoing line, its end not counted.
            pending_max: Requests that each end may have unanswered at once, and notifications kept
                between two drains of the events.
            codes: The codes that an answer may carry; any other is taken as `INVALID_RPC`.
            is_own: The far end is this product, for the same user: its sentence is kept for the person.
        """
        self.counts = Counts()
        self.is_closed = False
        self._frame_bytes_max = frame_bytes_max
        self._pending_max = pending_max
        self._output_frames_max = WRITES_PER_REQUEST * pending_max
        self._codes = codes
        self._is_own = is_own
        self._notifications_held = 0
        self._attempt_count = 0
        self._asked: dict[str, int | None] = {}
        self._asking: set[RequestId] = set()
        self._output: list[bytes] = []
        self._events: list[Any] = []

    # --- what the link does -----------------------------------------------------------------------

    def drain_events(self) -> list[Any]:
        """Return the events since the last call, oldest first."""
        events, self._events = self._events, []
        self._notifications_held = 0
        return events

    def drain_output(self) -> bytes:
        """Return all waiting frames as one buffer, empty when none waits."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    @property
    def output_bytes(self) -> int:
        """Bytes that the link has not taken yet."""
        return sum(map(len, self._output))

    @property
    def is_paused(self) -> bool:
        """Whether half of the room for outgoing frames is used: read no more from the link for now."""
        return 2 * len(self._output) >= self._output_frames_max

    @property
    def deadline_ms(self) -> int | None:
        """The monotonic instant at which the next request of ours is lost, None when none can be."""
        return min((deadline for deadline in self._asked.values() if deadline is not None), default=None)

    def expire(self, now_ms: int) -> None:
        """Lose the requests whose deadline has come."""
        for attempt, deadline_ms in list(self._asked.items()):
            if deadline_ms is not None and deadline_ms <= now_ms:
                del self._asked[attempt]
                self.tell(RequestLost(attempt, "timeout"))

    # --- what this end does -----------------------------------------------------------------------

    def tell(self, event: object) -> None:
        """Queue an event for this end's caller."""
        self._events.append(event)

    def request(self, method: str, params: Body, deadline_ms: int | None) -> str | Refusal:
        """Return the name of a new attempt whose frame waits to be sent, or why there is none.

        A refusal means that not one byte of it leaves: `PEER_OFFLINE` once closed, `QUEUE_FULL` while a
        window or the room for frames is full, `FRAME_TOO_LARGE`, `INVALID_PARAMS` for what JSON cannot say.
        """
        if self.is_closed:
            return Refusal("PEER_OFFLINE", "the link is closed", is_retryable=True)
        if len(self._asked) >= self._pending_max:
            text = f"{self._pending_max} requests on this link wait for an answer"
            return Refusal("QUEUE_FULL", text, is_retryable=True)
        attempt = f"rpc-{self._attempt_count + 1}"
        frame = self._encoded(jsonrpc.encode_request, attempt, method, params)
        refusal = frame if isinstance(frame, Refusal) else self._put(frame)
        if refusal is not None:
            return refusal
        self._attempt_count += 1
        self._asked[attempt] = deadline_ms
        return attempt

    def notify(self, method: str, params: Body) -> Refusal | None:
        """Queue a notification; return why it was not queued, with the codes of `request`."""
        if self.is_closed:
            return Refusal("PEER_OFFLINE", "the link is closed", is_retryable=True)
        frame = self._encoded(jsonrpc.encode_notification, method, params)
        return frame if isinstance(frame, Refusal) else self._put(frame)

    def respond(self, request_id: RequestId, result: Body) -> Refusal | None:
        """Answer a request of theirs with `result`.

        Returns:
            None when the answer waits to be sent; else why the far end will not see this result. Too
            large or unsayable a result is answered with that refusal; a closed link with nothing.
        """
        if not self._settle(request_id):
            return Refusal("PEER_OFFLINE", "the link is closed", is_retryable=True)
        frame = self._encoded(jsonrpc.encode_result, request_id, result)
        if isinstance(frame, Refusal):
            self._put_or_close(jsonrpc.encode_error(request_id, frame.code, frame.text))
            return frame
        return self._put_or_close(frame)

    def refuse(
        self, request_id: RequestId, refusal: Refusal, details: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a request of theirs with a refusal; on a closed link nothing happens."""
        if self._settle(request_id):
            data = {**(details or {}), "retryable": True} if refusal.is_retryable else details
            frame = self._encoded(jsonrpc.encode_error, request_id, refusal.code, refusal.text, data)
            if isinstance(frame, Refusal):
                frame = jsonrpc.encode_error(request_id, refusal.code, "refused")
            self._put_or_close(frame)

    def put_unasked(self, frame: bytes) -> None:
        """Queue a frame that belongs to no window: a handshake's, or the one error before a close."""
        if not self.is_closed:
            self._output.append(frame)

    def new_attempt(self) -> str:
        """Return a fresh attempt name for a handshake's request, which this exchange does not follow."""
        self._attempt_count += 1
        return f"rpc-{self._attempt_count}"

    def close(self, code: str, text: str) -> None:
        """End the conversation: lose what was asked, then tell `Closed`; a second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        for attempt in self._asked:
            self.tell(RequestLost(attempt, "closed"))
        self._asked.clear()
        self._asking.clear()
        self.tell(Closed(code, text))

    # --- what the far end does --------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """Turn one frame of an open conversation into an event, an answer, or a count."""
        match frame:
            case Request():
                self._take_request(frame)
            case Notification():
                self._take_notification(frame)
            case Response():
                self._take_response(frame)
            case _:
                assert_never(frame)

    def _take_request(self, frame: Request) -> None:
        if frame.id in self._asking:
            # Two answers under one id could not be told apart, and refusing one settles the other.
            text = "an id was used again before its answer"
            self.put_unasked(jsonrpc.encode_error(None, "INVALID_RPC", text))
            self.close("INVALID_RPC", text)
        elif len(self._asking) >= self._pending_max:
            self.counts.requests_refused += 1
            text = f"{self._pending_max} requests of this link are being answered"
            self._put_or_close(jsonrpc.encode_error(frame.id, "QUEUE_FULL", text))
        else:
            self._asking.add(frame.id)
            self.tell(RequestReceived(frame.id, frame.method, frame.params))

    def _take_notification(self, frame: Notification) -> None:
        if self._notifications_held >= self._pending_max:
            self.counts.notifications_dropped += 1
            return
        self._notifications_held += 1
        self.tell(NotificationReceived(frame.method, frame.params))

    def _take_response(self, frame: Response) -> None:
        # A number never names an attempt of ours; ids are compared with their types.
        attempt = frame.id if isinstance(frame.id, str) else ""
        if attempt not in self._asked:
            self.counts.responses_ignored += 1
            return
        del self._asked[attempt]
        self.tell(answer_of(attempt, frame, self._codes, is_own=self._is_own))

    # --- bounds -----------------------------------------------------------------------------------

    def _settle(self, request_id: RequestId) -> bool:
        """Free the window's place of `request_id`; False when the link closed meanwhile."""
        if self.is_closed:
            return False
        assert request_id in self._asking, "an answer to a request that is not open"
        self._asking.remove(request_id)
        return True

    def _encoded(self, encode: Any, *values: Any) -> bytes | Refusal:
        """Return the frame, or the refusal for one that is too large or holds what JSON cannot say."""
        try:
            frame: bytes = encode(*values)
        except (TypeError, ValueError, RecursionError):
            return Refusal("INVALID_PARAMS", "a value has no form in JSON")
        # The line end is not counted.
        if len(frame) - 1 > self._frame_bytes_max:
            return Refusal("FRAME_TOO_LARGE", f"the frame is longer than {self._frame_bytes_max} bytes")
        return frame

    def _put(self, frame: bytes) -> Refusal | None:
        if len(self._output) >= self._output_frames_max:
            text = f"{self._output_frames_max} frames wait for the far end to read"
            return Refusal("QUEUE_FULL", text, is_retryable=True)
        self._output.append(frame)
        return None

    def _put_or_close(self, frame: bytes) -> Refusal | None:
        """Queue an answer; where there is no room the far end must see that it will not come."""
        refusal = self._put(frame)
        if refusal is not None:
            self.close(refusal.code, refusal.text)
        return refusal


RETRYABLE_CODES: Final = frozenset({"QUEUE_FULL", "RATE_LIMITED"})
"""Refusals that say "not now": nothing was taken, and the same message id may be sent again."""


def answer_of(attempt: str, frame: Response, codes: Collection[str], *, is_own: bool) -> ResponseReceived:
    """Return the event for an answer to `attempt`.

    A code outside `codes` becomes `INVALID_RPC`, "outcome not known", and so does a result that is no
    object; a foreign end's own sentence is not repeated.
    """
    if frame.error is None:
        if isinstance(frame.result, dict):
            return ResponseReceived(attempt, frame.result)
        return ResponseReceived(attempt, None, Refusal("INVALID_RPC", "the answer is no object"))
    data = frame.error.data if isinstance(frame.error.data, dict) else {}
    code = frame.error.typed_code
    details = {name: value for name, value in data.items() if name not in ("code", "retryable")}
    if code not in codes:
        return ResponseReceived(attempt, None, Refusal("INVALID_RPC", "the far end refused untyped"), details)
    is_retryable = code in RETRYABLE_CODES
    text = "the far end refused"
    if is_own:
        text = frame.error.message
        is_retryable = data.get("retryable") is True
    return ResponseReceived(attempt, None, Refusal(code, text, is_retryable), details)
