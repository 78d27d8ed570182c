"""What a front end and its supervisor say to each other."""

import os
import socket
from collections.abc import Iterator

import pytest

from tieline.shell.supervisor.lines import Ended, Foreground, Gone, Line, Signal, go, spec_of
from tieline.shell.tree import LaunchSpec


@pytest.fixture
def pair() -> Iterator[tuple[Line, Line]]:
    """Give both ends of a line."""
    one, other = (Line(sock) for sock in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def test_word_said_is_the_word_heard(pair: tuple[Line, Line]) -> None:
    """Words arrive whole and in order, several at once as well."""
    one, other = pair
    one.send(Signal(2))
    one.send(Ended(3, has_survivors=True))
    one.send(Foreground(is_foreground=True, settings=(1, 2)))
    assert other.receive() == [
        Signal(2),
        Ended(3, has_survivors=True),
        Foreground(is_foreground=True, settings=(1, 2)),
    ]


def test_word_that_is_not_utf8_reaches_the_supervisor(pair: tuple[Line, Line]) -> None:
    """A command's words arrive as the caller has them, byte for byte."""
    one, other = pair
    spec = LaunchSpec("l", "n", ("printf", os.fsdecode(b"\xff\xfe\n")))
    one.send(go(spec))
    (word,) = other.receive()
    assert spec_of(word) == spec  # type: ignore[arg-type]


def test_long_word_is_put_together(pair: tuple[Line, Line]) -> None:
    """A word longer than one read arrives whole."""
    import threading

    one, other = pair
    spec = LaunchSpec("l", "n", ("x" * 300_000,))
    sender = threading.Thread(target=one.send, args=(go(spec),))
    sender.start()
    words = []
    while not words:
        words = other.receive()
    sender.join()
    assert spec_of(words[0]) == spec  # type: ignore[arg-type]


def test_descriptor_comes_with_its_word_and_is_not_inherited(pair: tuple[Line, Line]) -> None:
    """A descriptor arrives beside the word it was sent with, closed to programs that are started."""
    one, other = pair
    reading, writing = os.pipe()
    one.send(Gone(), writing)
    os.close(writing)
    assert other.receive() == [Gone()]
    assert other.descriptor is not None
    assert not os.get_inheritable(other.descriptor)
    os.write(other.descriptor, b"x")
    assert os.read(reading, 1) == b"x"
    os.close(other.descriptor)
    os.close(reading)


def test_word_to_nobody_is_dropped_and_noticed(pair: tuple[Line, Line]) -> None:
    """Speaking to an end that has left raises nothing; the line is known to be closed."""
    one, other = pair
    other.close()
    one.send(Gone())
    assert not one.is_open


def test_end_of_the_line_is_noticed_when_it_is_read(pair: tuple[Line, Line]) -> None:
    """The other end's death is the end of the line."""
    one, other = pair
    one.close()
    assert other.receive() == []
    assert not other.is_open


def test_words_that_wait_are_taken_first(pair: tuple[Line, Line]) -> None:
    """Words that were read with another one and laid back are not lost."""
    one, _ = pair
    one.waiting = [Signal(15)]
    assert one.receive() == [Signal(15)]
    assert one.waiting == []
