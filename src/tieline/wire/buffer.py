"""Bounded reassembly of lines, and of frames with a length before them, from bytes in any pieces.

Rule 1: a line ends at the byte 0x0A and nowhere else: text may hold U+2028, U+0085 or a carriage
return, and none of them ends a frame.
Rule 2: the bound is checked on bytes before anything looks inside them; no more than one bound of
unfinished line is ever kept.
Rule 3: how the bytes were cut into pieces changes neither the lines nor the error.
Rule 4: this module knows no grammar and no I/O.

Source: reference/native.md 1F and 2.6; reference/intercom.md 1.1; reference/reliability.md I49, K8, K24.
"""

from typing import Final

from tieline.errors import ProtocolError

__all__ = ["FrameTooLarge", "LengthBuffer", "LineBuffer"]

_LINE_END: Final = b"\n"
_BLANK: Final = b" \t\r"
_LENGTH_BYTES: Final = 4


class FrameTooLarge(ProtocolError):
    """A frame passed its bound; those that were complete before it, `lines_before`, are still good."""

    def __init__(self, frame_bytes_max: int, lines_before: list[bytes], kind: str = "line") -> None:
        super().__init__("FRAME_TOO_LARGE", f"a {kind} is longer than {frame_bytes_max} bytes")
        self.lines_before = lines_before


class LineBuffer:
    """Bytes in, complete lines out; at most `frame_bytes_max` bytes wait for their line end.

    Cost is linear in the bytes fed, also when they come one at a time.
    """

    __slots__ = ("_frame_bytes_max", "_is_poisoned", "_rest")

    def __init__(self, frame_bytes_max: int) -> None:
        """Keep lines of up to `frame_bytes_max` bytes, the line end not counted."""
        assert frame_bytes_max > 0, "a bound of no bytes admits no line"
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()
        self._is_poisoned = False

    @property
    def rest_bytes(self) -> int:
        """How many bytes wait for their line end, 0 to the bound."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completed, in order, without their ends and without blank ones.

        Raises:
            FrameTooLarge: more than the bound came without a line end. Its `lines_before` are the
                lines completed by this call before that; every later call raises too.
        """
        if self._is_poisoned:
            raise FrameTooLarge(self._frame_bytes_max, [])
        pieces = data.split(_LINE_END)
        last = pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            line = piece
            if self._rest:
                self._require_room(len(piece), lines)
                self._rest += piece
                line = bytes(self._rest)
                self._rest.clear()
            elif len(piece) > self._frame_bytes_max:
                self._require_room(len(piece), lines)
            if line.strip(_BLANK):
                lines.append(line)
        self._require_room(len(last), lines)
        self._rest += last
        return lines

    def _require_room(self, piece_bytes: int, lines: list[bytes]) -> None:
        if len(self._rest) + piece_bytes > self._frame_bytes_max:
            self._is_poisoned = True
            self._rest = bytearray()
            raise FrameTooLarge(self._frame_bytes_max, lines)


class LengthBuffer:
    """Bytes in, complete payloads out; each comes behind its length, four bytes with the highest first.

    Cost is linear in the bytes fed, also when they come one at a time.
    """

    __slots__ = ("_frame_bytes_max", "_is_poisoned", "_rest")

    def __init__(self, frame_bytes_max: int) -> None:
        """Take payloads of up to `frame_bytes_max` bytes, their lengths not counted."""
        assert frame_bytes_max > 0, "a bound of no bytes admits no frame"
        self._frame_bytes_max = frame_bytes_max
        self._rest = bytearray()
        self._is_poisoned = False

    @property
    def rest_bytes(self) -> int:
        """How many bytes wait for the rest of their frame, 0 to the bound and a length."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that `data` completed, in order; an empty one is one too.

        Raises:
            FrameTooLarge: a stated length is over the bound, known from its four bytes alone. Its
                `lines_before` are the payloads completed by this call before that; later calls raise too.
        """
        if self._is_poisoned:
            raise FrameTooLarge(self._frame_bytes_max, [], "frame")
        self._rest += data
        frames: list[bytes] = []
        start = 0
        while len(self._rest) - start >= _LENGTH_BYTES:
            begin = start + _LENGTH_BYTES
            length = int.from_bytes(self._rest[start:begin], "big")
            if length > self._frame_bytes_max:
                self._is_poisoned = True
                self._rest = bytearray()
                raise FrameTooLarge(self._frame_bytes_max, frames, "frame")
            if len(self._rest) - begin < length:
                break
            frames.append(bytes(self._rest[begin : begin + length]))
            start = begin + length
        del self._rest[:start]
        return frames
