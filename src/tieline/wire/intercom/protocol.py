"""One socket of the broker: bytes in, commands out; the hub's outputs in, bytes of its dialect out; no I/O.

Rule 1: how a socket registers picks its dialect; nothing is sent to it that it did not announce.
Rule 2: what breaks the framing, the form of a registration or presence, or the legal order closes exactly
    this socket, without a word; commands that were whole before it still count.
Rule 3: this module knows no other socket, no clock and no chance: moments and fresh tokens are told to it.

Source: reference/intercom.md 1.1 to 1.8.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tieline.engine.brokering.contract import BusRefused, Command, Output
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.engine.brokering.pacing import Bucket
from tieline.errors import ProtocolError
from tieline.model.moment import Moment
from tieline.wire.buffer import FrameTooLarge, LengthBuffer
from tieline.wire.intercom.framing import FRAME_BYTES_MAX, fields_of, framed, payload
from tieline.wire.intercom.hearing import Broken, Heard, Unheard, command_of, join_of
from tieline.wire.intercom.saying import FrameCodec

__all__ = ["BrokerLink"]

HEALTH: Final = {"protocol": "pi-intercom", "version": 1}
"""Whom a socket reaches, for one that asks before it registers."""


class BrokerLink:
    """The broker's end of one socket.

    Per read: `receive_data`, hand its commands to the hub, give each output for this link to `send`, write
    `data_to_send()`. When `is_closed`: write what is left, close the socket, tell the hub `Lost`.
    """

    __slots__ = (
        "_bucket",
        "_buffer",
        "_codec",
        "_features",
        "_is_closed",
        "_is_registered",
        "_link",
        "_mint",
        "_out",
    )

    def __init__(self, link: int, mint: Callable[[], str], codec: FrameCodec) -> None:
        """Wait for the registration.

        Args:
            link: The number that commands bear; never used again for another socket.
            mint: Returns a fresh random UUID v4 at each call.
            codec: The one that the hub of this broker has too.
        """
        self._link = link
        self._mint = mint
        self._codec = codec
        self._buffer = LengthBuffer(FRAME_BYTES_MAX)
        self._bucket = Bucket()
        self._features: Features | None = None  # of its dialect, from its first registration on
        self._is_registered = False
        self._is_closed = False
        self._out: list[bytes] = []

    @property
    def is_closed(self) -> bool:
        """Whether the far end broke the rules: nothing more is read from it."""
        return self._is_closed

    def receive_data(self, data: bytes, now: Moment) -> list[Command]:
        """Return what the far end said with these bytes, in order; nothing once closed. Never raises."""
        commands: list[Command] = []
        if self._is_closed:
            return commands
        is_oversize = False
        try:
            payloads = self._buffer.feed(data)
        except FrameTooLarge as error:
            payloads, is_oversize = error.lines_before, True
        for one in payloads:
            try:
                command = self._heard(fields_of(one), now)
            except Unheard as refusal:
                self._say(refusal.answer)
            except (Broken, ProtocolError):
                self._is_closed = True
                return commands
            else:
                if command is not None:
                    commands.append(command)
        self._is_closed = is_oversize
        return commands

    def send(self, output: Output) -> None:
        """Say `output` in this socket's dialect; nothing where it has no frame for it.

        What answers a command that came whole before an offence is said still.
        """
        self._say(output)

    def data_to_send(self) -> bytes:
        """Return the bytes to write, in order, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _heard(self, frame: Mapping[str, Any], now: Moment) -> Command | None:
        kind = frame["type"]
        self._pace(now)
        if kind == "health" and (self._features is None or not self._features.needs_plain):
            self._answer_health(frame)
            return None
        if not self._is_registered:
            if kind != "register":
                raise Broken
            return self._register(frame)
        assert self._features is not None, "who is registered has a dialect"
        command = command_of(frame, Heard(self._link, self._features, self._mint()))
        self._is_registered = kind != "unregister"
        return command

    def _register(self, frame: Mapping[str, Any]) -> Command:
        join = join_of(frame, Heard(self._link, self._features or DIRECT, self._mint()), self._mint())
        self._features, self._is_registered = join.features, True
        return join

    def _pace(self, now: Moment) -> None:
        """Count a frame against what this dialect may say; one of unknown dialect counts too."""
        if self._features is not None and self._features.needs_plain:
            return
        if not self._bucket.take(now.mono_ms):
            if self._features is not None:
                self._say(BusRefused("rate limit exceeded"))
            raise Broken

    def _answer_health(self, frame: Mapping[str, Any]) -> None:
        request_id = frame.get("requestId")
        if not isinstance(request_id, str):
            raise Broken
        self._out.append(framed(payload({"type": "health_ok", "requestId": request_id, **HEALTH})))

    def _say(self, output: Output) -> None:
        features = self._features or RECORDED
        data = self._codec.payload(features, output)
        if data is not None and len(data) > FRAME_BYTES_MAX:
            data = self._codec.smaller(features, output)
        if data is not None:
            self._out.append(framed(data))
