"""One JSON-RPC link without I/O: bytes in, events and bytes out; what every line-based door does alike.

Rule 1: the same bytes give the same events and answers, however they are cut.
Rule 2: a broken grammar is answered once, under the id null, and ends the link: where the next frame
begins is no longer certain.
Rule 3: what a frame means while the link is young is the subclass's to say, in its table; this module
knows no handshake, no method, no clock and no socket.

Source: reference/native.md 1F, 2.6, 4.4.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tieline.errors import ProtocolError, Refusal
from tieline.wire import jsonrpc
from tieline.wire.buffer import FrameTooLarge, LineBuffer
from tieline.wire.exchange import Counts, Exchange
from tieline.wire.jsonrpc import Body, Frame, RequestId

__all__ = ["Conversation"]


class Conversation:
    """The base of one link's protocol.

    After every call that may change something the caller drains `events_received`, writes
    `data_to_send`, and arms a timer for `deadline_ms`. After the event `Closed` it writes what is left
    and closes the link.
    """

    def __init__(
        self,
        *,
        frame_bytes_max: int,
        pending_max: int,
        codes: Collection[str],
        is_own: bool,
        opening_deadline_ms: int,
    ) -> None:
        """Start; `opening_deadline_ms` is when an opening that is not done fails, the rest `Exchange`'s."""
        self._buffer = LineBuffer(frame_bytes_max)
        self._exchange = Exchange(
            frame_bytes_max=frame_bytes_max, pending_max=pending_max, codes=codes, is_own=is_own
        )
        self._opening_deadline_ms = opening_deadline_ms
        self._is_opened = False

    # --- what the subclass says -------------------------------------------------------------------

    def _take(self, frame: Frame, now_ms: int) -> None:
        """Do what the table says with one frame."""
        raise NotImplementedError

    def _opening_expired(self) -> None:
        """Close a link whose opening is out of its time."""
        raise NotImplementedError

    # --- what the link tells ----------------------------------------------------------------------

    def receive_data(self, data: bytes, now_ms: int) -> None:
        """Take bytes as they came, cut anywhere; bytes after the end are ignored."""
        self.expire(now_ms)
        if not self.is_closed:
            self._receive(data, now_ms)

    def _receive(self, data: bytes, now_ms: int) -> None:
        broken: ProtocolError | None = None
        try:
            lines = self._buffer.feed(data)
        except FrameTooLarge as error:
            lines, broken = error.lines_before, error
        for line in lines:
            try:
                frame = jsonrpc.decode(line)
            except ProtocolError as error:
                self._close_broken(error)
                return
            self._take(frame, now_ms)
            if self.is_closed:
                return
        if broken is not None:
            self._close_broken(broken)

    def receive_eof(self) -> None:
        """Take the end of the far end's bytes: nothing more will be answered."""
        cut = ", within a frame" if self._buffer.rest_bytes else ""
        self._exchange.close("PEER_OFFLINE", f"the far end closed the link{cut}")

    def expire(self, now_ms: int) -> None:
        """Let time pass: lose late requests, end an opening that is out of its time."""
        if not self._is_opened and now_ms >= self._opening_deadline_ms:
            self._opening_expired()
        self._exchange.expire(now_ms)

    # --- what this end does -----------------------------------------------------------------------

    def _ask(self, method: str, params: Body, deadline_ms: int | None) -> str | Refusal:
        if not self.is_open:
            return Refusal("PEER_OFFLINE", "the link is not open", is_retryable=True)
        return self._exchange.request(method, params, deadline_ms)

    def respond(self, request_id: RequestId, result: Body) -> Refusal | None:
        """Answer a request of theirs; return why the far end will not see this result, else None."""
        return self._exchange.respond(request_id, result)

    def refuse(
        self, request_id: RequestId, refusal: Refusal, details: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a request of theirs with a refusal; `details` become more members of its data."""
        self._exchange.refuse(request_id, refusal, details)

    def close(self) -> None:
        """End the link on purpose: what we asked is lost, `Closed` has an empty code."""
        self._exchange.close("", "closed here")

    def _close_broken(self, error: ProtocolError) -> None:
        self._exchange.put_unasked(jsonrpc.encode_error(None, error.code, str(error)))
        self._exchange.close(error.code, str(error))

    # --- what the caller drains -------------------------------------------------------------------

    def events_received(self) -> list[Any]:
        """Return the events since the last call, oldest first."""
        return self._exchange.drain_events()

    def data_to_send(self) -> bytes:
        """Return everything that waits, as one buffer for one write; empty when nothing does."""
        return self._exchange.drain_output()

    @property
    def output_bytes(self) -> int:
        """Bytes not yet drained."""
        return self._exchange.output_bytes

    @property
    def paused(self) -> bool:
        """Whether the link should read no more until `data_to_send` was drained."""
        return self._exchange.is_paused

    @property
    def deadline_ms(self) -> int | None:
        """The monotonic instant to call `expire` at, None when nothing can run out."""
        if self._exchange.is_closed:
            return None
        return self._exchange.deadline_ms if self._is_opened else self._opening_deadline_ms

    @property
    def is_open(self) -> bool:
        """Whether the opening is done and the link has not ended."""
        return self._is_opened and not self._exchange.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the link has ended."""
        return self._exchange.is_closed

    @property
    def counts(self) -> Counts:
        """What was refused, dropped and ignored on this link."""
        return self._exchange.counts
