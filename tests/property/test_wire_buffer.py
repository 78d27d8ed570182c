"""Laws of reassembly: the same bytes, cut anywhere, give the same lines and the same end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.wire.buffer import FrameTooLarge, LineBuffer

BOUND = 12
DATA = st.binary(max_size=80).map(lambda data: data.replace(b"\x07", b"\n").replace(b"\x08", b" "))


def fed(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    """Return the lines that came out, and whether the bound was passed."""
    buffer = LineBuffer(BOUND)
    lines: list[bytes] = []
    for piece in pieces:
        try:
            lines += buffer.feed(piece)
        except FrameTooLarge as error:
            return lines + error.lines_before, True
        assert buffer.rest_bytes <= BOUND
    return lines, False


def expected(data: bytes) -> tuple[list[bytes], bool]:
    """Return what should come out, worked out from the whole."""
    lines: list[bytes] = []
    parts = data.split(b"\n")
    for at, part in enumerate(parts):
        if len(part) > BOUND:
            return lines, True
        if at < len(parts) - 1 and part.strip(b" \t\r"):
            lines.append(part)
    return lines, False


@pytest.mark.clause("native-60", "native-61", "native-62", "K8")
@given(DATA, st.lists(st.integers(0, 80), max_size=12))
def test_bytes_cut_anywhere_give_what_the_whole_gives(data: bytes, cuts: list[int]) -> None:
    """No way of cutting changes a line, loses one, or moves the error."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert b"".join(pieces) == data
    assert fed(pieces) == fed([data]) == fed([bytes([byte]) for byte in data]) == expected(data)
