"""Reassembly of lines: bounded, linear, and indifferent to how bytes were cut."""

import time

import pytest

from tieline.wire.buffer import FrameTooLarge, LengthBuffer, LineBuffer


@pytest.mark.clause("native-60")
def test_line_split_across_reads_comes_out_whole() -> None:
    """A line that came in three pieces comes out once, when its end came."""
    buffer = LineBuffer(64)
    assert buffer.feed(b'{"a"') == []
    assert buffer.feed(b":1}") == []
    assert buffer.rest_bytes == 7
    assert buffer.feed(b"\n") == [b'{"a":1}']
    assert buffer.rest_bytes == 0


@pytest.mark.clause("native-61")
def test_lines_in_one_read_come_out_in_order() -> None:
    """Several lines in one read come out together and in order; blank ones do not."""
    assert LineBuffer(64).feed(b"one\n\n \t\r\ntwo\nthree") == [b"one", b"two"]


@pytest.mark.clause("native-62", "K8")
def test_multibyte_character_split_across_reads_is_whole() -> None:
    """A character cut between its bytes is whole again in its line."""
    data = "č☕𝄞\n".encode()
    for cut in range(len(data)):
        buffer = LineBuffer(64)
        assert buffer.feed(data[:cut]) + buffer.feed(data[cut:]) == [data[:-1]]


@pytest.mark.clause("K24", "mutant-25")
def test_line_ends_of_unicode_end_no_line() -> None:
    """Only the byte 0x0A ends a line: U+2028, U+2029, U+0085, CR, VT and FF do not."""
    line = "a\u2028b\u2029c\u0085d\re\x0bf\x0cg\x1ch".encode()
    assert LineBuffer(64).feed(line + b"\n") == [line]


@pytest.mark.clause("native-153", "native-63")
@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000])
def test_line_of_exactly_the_bound_is_taken_and_one_more_refused(piece_bytes: int) -> None:
    """The bound counts the bytes before the line end."""
    buffer = LineBuffer(100)
    data = b"x" * 100 + b"\n"
    lines = [line for at in range(0, 101, piece_bytes) for line in buffer.feed(data[at : at + piece_bytes])]
    assert lines == [b"x" * 100]
    for _ in range(100 // piece_bytes):
        buffer.feed(b"y" * min(piece_bytes, 100))
    with pytest.raises(FrameTooLarge) as error:
        buffer.feed(b"y" * piece_bytes)
    assert error.value.code == "FRAME_TOO_LARGE"


@pytest.mark.clause("native-63", "I49")
def test_stream_without_line_end_is_refused_at_the_bound() -> None:
    """Ten million bytes without a line end are refused at the first byte past the bound and kept nowhere."""
    buffer = LineBuffer(65_536)
    assert buffer.feed(b"x" * 65_536) == []
    with pytest.raises(FrameTooLarge):
        buffer.feed(b"x")
    assert buffer.rest_bytes == 0
    with pytest.raises(FrameTooLarge):
        buffer.feed(b"\n")


def test_long_line_after_good_ones_keeps_the_good_ones() -> None:
    """The lines completed before the one that is too long are not lost with it."""
    with pytest.raises(FrameTooLarge) as error:
        LineBuffer(4).feed(b"one\ntwo\nthree\nfour\n")
    assert error.value.lines_before == [b"one", b"two"]
    with pytest.raises(FrameTooLarge) as error:
        LineBuffer(4).feed(b"one\nthree")
    assert error.value.lines_before == [b"one"]


@pytest.mark.clause("I49")
def test_bytes_fed_one_at_a_time_cost_the_same_each() -> None:
    """The cost of a byte does not grow with the bytes already waiting."""

    def seconds(count: int) -> float:
        buffer, started = LineBuffer(count + 1), time.perf_counter()
        for _ in range(count):
            buffer.feed(b"x")
        return time.perf_counter() - started

    seconds(1_000)
    # Linear is 8, quadratic 64; the best of three keeps a busy machine from deciding.
    assert min(seconds(160_000) for _ in range(3)) < 24 * min(seconds(20_000) for _ in range(3))


@pytest.mark.clause("intercom-1", "intercom-2", "intercom-3")
def test_frames_with_a_length_come_out_whole_however_they_were_cut() -> None:
    """Payloads come out in order, empty ones too, also when they come byte by byte."""
    data = b"\x00\x00\x00\x03one" + bytes(4) + b"\x00\x00\x00\x05three\x00\x00"
    buffer = LengthBuffer(8)
    assert buffer.feed(data) == [b"one", b"", b"three"]
    assert buffer.rest_bytes == 2
    buffer = LengthBuffer(8)
    found = [frame for byte in data for frame in buffer.feed(bytes([byte]))]
    assert found == [b"one", b"", b"three"]


@pytest.mark.clause("intercom-4", "intercom-5", "intercom-6")
def test_length_over_the_bound_is_refused_from_its_four_bytes() -> None:
    """Nothing of such a frame is awaited; what was whole before it is given, later calls raise."""
    buffer = LengthBuffer(8)
    assert buffer.feed(b"\x00\x00\x00\x08" + b"x" * 8) == [b"x" * 8]
    assert buffer.feed(b"\x00\x00\x00") == []
    with pytest.raises(FrameTooLarge) as caught:
        buffer.feed(b"\x01x\x00\x00\x00\x09")
    assert caught.value.lines_before == [b"x"]
    assert "frame is longer than 8" in str(caught.value)
    with pytest.raises(FrameTooLarge):
        buffer.feed(b"")


def test_cost_of_a_large_frame_byte_by_byte_is_linear() -> None:
    """A frame at its bound that trickles in costs what its bytes cost."""
    buffer = LengthBuffer(100_000)
    data = (100_000).to_bytes(4, "big") + b"x" * 100_000
    began = time.perf_counter()
    assert sum(len(buffer.feed(data[at : at + 1])) for at in range(len(data))) == 1
    assert time.perf_counter() - began < 2
