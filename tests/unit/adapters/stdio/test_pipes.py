"""Lines of a host's pipes: whole, bounded, and never anything else on the output."""

import os
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.adapters.stdio.pipes import LINES_MAX, TOO_LONG, Inlet, LineCutter, Outlet


@pytest.mark.clause("K8")
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_cutter_split_anywhere_gives_same_lines(data: bytes, cuts: list[int]) -> None:
    """How bytes were cut into pieces changes no line."""
    data = data.replace(b"\x01", b"\n")
    whole = LineCutter(16).feed(data)
    cutter = LineCutter(16)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert [line for piece in pieces for line in cutter.feed(piece)] == whole


@pytest.mark.clause("I49", "O48")
def test_cutter_long_line_is_told_once_and_next_line_is_good() -> None:
    """A line beyond the bound costs itself only."""
    cutter = LineCutter(4)
    assert cutter.feed(b"ab\nabcdefgh") == [b"ab", TOO_LONG]
    assert cutter.feed(b"ijk" * 1000) == []
    assert cutter.feed(b"\nxyzw\n") == [b"xyzw"]


def test_cutter_line_ends_at_newline_only() -> None:
    """A carriage return, U+2028 and U+0085 end no line, and blank lines are none."""
    text = "a\rb\u2028c\u0085d".encode()
    assert LineCutter().feed(text + b"\n \r\n\n") == [text]


def test_inlet_unread_lines_stop_the_reading() -> None:
    """What waits for the loop is bounded: the pipe pushes back on the host."""
    source, write = os.pipe()
    inlet = Inlet(source, lambda _line: False)
    inlet.run()
    line = b"x" * 60_000 + b"\n"
    sent = 0

    def host() -> None:
        nonlocal sent
        for _ in range(200):
            os.write(write, line)
            sent += 1

    sender = threading.Thread(target=host, daemon=True)
    sender.start()
    time.sleep(0.3)
    assert sent < LINES_MAX + 8
    taken = 0
    deadline = time.monotonic() + 10
    while taken < 200 and time.monotonic() < deadline:
        if inlet.take() is None:
            time.sleep(0.001)
        else:
            taken += 1
    assert taken == 200
    os.close(write)


def test_inlet_end_of_input_is_told_after_the_last_line() -> None:
    """No line is lost at the end."""
    source, write = os.pipe()
    told = threading.Event()
    inlet = Inlet(source, lambda _line: False)
    inlet.connect(told.set)
    os.write(write, b"one\ntwo\nhalf")
    os.close(write)
    while inlet.step():
        pass
    assert inlet.is_ended
    assert [inlet.take(), inlet.take(), inlet.take()] == [b"one", b"two", None]
    assert told.is_set()


def test_inlet_answered_line_is_not_handed_over() -> None:
    """What the early answers took, nobody else sees."""
    source, write = os.pipe()
    inlet = Inlet(source, lambda line: line == b"mine")
    os.write(write, b"mine\nyours\n")
    inlet.step()
    assert inlet.has_waiting()
    assert [inlet.take(), inlet.take()] == [b"yours", None]
    os.close(write)


@pytest.mark.clause("K33")
def test_outlet_closed_in_the_middle_of_a_line_takes_nothing_more() -> None:
    """After half a line nothing follows it, and the line counts as not taken."""
    read, sink = os.pipe()
    outlet = Outlet(sink)
    assert outlet.write(b"whole\n")
    done: list[bool] = []
    writer = threading.Thread(target=lambda: done.append(outlet.write(b"x" * 1_000_000 + b"\n")))
    writer.start()
    time.sleep(0.1)
    os.close(read)
    writer.join(5)
    assert done == [False]
    assert outlet.is_broken
    assert not outlet.write(b"next\n")


def test_outlet_non_blocking_pipe_takes_whole_lines() -> None:
    """A host that made the shared pipe non-blocking still gets every byte."""
    read, sink = os.pipe()
    os.set_blocking(sink, False)
    outlet = Outlet(sink)
    got = bytearray()

    def reader() -> None:
        while len(got) < 300_001:
            got.extend(os.read(read, 65_536))

    thread = threading.Thread(target=reader)
    thread.start()
    assert outlet.write(b"y" * 300_000 + b"\n")
    thread.join(5)
    assert bytes(got) == b"y" * 300_000 + b"\n"


def test_take_over_stray_print_does_not_reach_the_host() -> None:
    """What a library prints goes to the log stream; the output is protocol only."""
    code = (
        "import os, sys\n"
        "from tieline.adapters.stdio.pipes import Outlet, take_over\n"
        "source, sink = take_over()\n"
        "print('stray', flush=True)\n"
        "os.system('echo from a child')\n"
        "assert sys.stdin.read() == ''\n"
        "Outlet(sink).write(os.read(source, 100))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], input=b"line\n", capture_output=True, check=True)
    assert ended.stdout == b"line\n"
    assert ended.stderr == b"stray\nfrom a child\n"
