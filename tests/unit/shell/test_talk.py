"""Conversations: at a socket that is proven, and with a program that is started for one."""

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tieline.shell.process import ProcessIdentity, identify
from tieline.shell.talk import Conversation, is_listening, talk_at, talk_to

SECONDS = 3.0
HANDSHAKE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"

Answer = Callable[[dict[str, Any]], list[bytes]]


@pytest.fixture
def own() -> ProcessIdentity:
    """Give this process, which listens in these tests."""
    found = identify(os.getpid())
    assert found is not None
    return found


def frame(text: str, head: int = 0x81) -> bytes:
    """Return one frame of a server."""
    data = text.encode()
    if len(data) < 126:
        return bytes([head, len(data)]) + data
    if len(data) < 65_536:
        return struct.pack(">BBH", head, 126, len(data)) + data
    return struct.pack(">BBQ", head, 127, len(data)) + data


def unmasked(link: socket.socket) -> dict[str, Any]:
    """Return the next object that a client sent."""
    reader = link.makefile("rb", 0)

    def take(count: int) -> bytes:
        held = b""
        while len(held) < count:
            data = reader.read(count - len(held))
            if not data:
                raise ConnectionResetError
            held += data
        return held

    first, second = take(2)
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", take(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", take(8))
    mask, data = take(4), take(size)
    assert second & 0x80, "a client masks"
    text = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return {"pong": text.decode()} if first & 0x0F == 10 else dict(json.loads(text))


@contextmanager
def serving(folder: Path, answer: Answer, handshake: bytes = HANDSHAKE) -> Iterator[tuple[str, list[Any]]]:
    """Serve one client at a socket; give its path and what the client sent."""
    path, took = str(folder / "s"), []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        server.settimeout(SECONDS)

        def serve() -> None:
            try:
                link, _ = server.accept()
                with link:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += link.recv(4096)
                    link.sendall(handshake)
                    while True:
                        took.append(unmasked(link))
                        for data in answer(took[-1]):
                            link.sendall(data)
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path, took
        thread.join(SECONDS)


def echo(asked: dict[str, Any]) -> list[bytes]:
    """Answer with the parameters, behind a ping, a notice and in two parts."""
    if "id" not in asked:
        return []
    text = json.dumps({"id": asked["id"], "result": asked["params"]})
    notice = frame(json.dumps({"method": "news", "id": asked["id"]}))
    return [frame("p", 0x89), notice, frame(text[:5], 0x01), frame(text[5:], 0x80)]


@pytest.mark.parametrize("size", [1, 300, 70_000])
def test_conversation_at_a_socket_gets_the_answer_to_its_question(
    private_home: Path, own: ProcessIdentity, size: int
) -> None:
    """Long and short, in parts, with notices between."""
    answers: list[Any] = []

    def talk(one: Conversation) -> bool:
        answers.append(one.ask("first", {"text": "x" * size}))
        one.tell("done")
        answers.append(one.ask("second", {}))
        return True

    with serving(private_home, echo) as (path, took):
        os.symlink(path, private_home / "link")
        assert talk_at(str(private_home / "link"), own.pid, own.start_ticks, SECONDS, talk)
    assert answers == [{"id": 1, "result": {"text": "x" * size}}, {"id": 2, "result": {}}]
    assert {"pong": "p"} in took
    assert [one.get("method") for one in took if "pong" not in one] == ["first", "done", "second"]


def test_socket_of_another_process_hears_nothing(private_home: Path, own: ProcessIdentity) -> None:
    """Who listens is proven before the first byte."""
    with serving(private_home, echo) as (path, took):
        assert not talk_at(path, own.pid, own.start_ticks + 1, SECONDS, lambda _one: True)
        assert not is_listening(path, os.getppid(), own.start_ticks)
        assert not is_listening(str(private_home / "none"), own.pid, own.start_ticks)
    assert took == []


def test_listener_is_known(private_home: Path, own: ProcessIdentity) -> None:
    """The very process."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(private_home / "s"))
        server.listen()
        assert is_listening(str(private_home / "s"), own.pid, own.start_ticks)


@pytest.mark.parametrize(
    ("handshake", "answer", "is_begun"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", echo, False),
        (b"x" * 20_000, echo, False),
        (HANDSHAKE, lambda _asked: [frame("", 0x88)], True),
        (HANDSHAKE, lambda _asked: [frame("no JSON")], True),
        (HANDSHAKE, lambda _asked: [b"\x81\xff" + b"\xff" * 8], True),
        (HANDSHAKE, lambda _asked: [], True),
    ],
)
def test_far_end_that_does_not_answer_is_no_answer_in_time(
    private_home: Path, own: ProcessIdentity, handshake: bytes, answer: Answer, *, is_begun: bool
) -> None:
    """Refused, closed, not understood, silent: None, and by the deadline."""
    answers: list[Any] = []

    def talk(one: Conversation) -> bool:
        answers.append(one.ask("first", {}))
        return True

    begun = time.monotonic()
    with serving(private_home, answer, handshake) as (path, _):
        assert talk_at(path, own.pid, own.start_ticks, 0.5, talk) is is_begun
        assert time.monotonic() - begun < 2
    assert answers == ([None] if is_begun else [])


PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "end":
        break
    if "id" in asked:
        print(json.dumps({"method": "news"}), flush=True)
        print(json.dumps({"id": asked["id"], "result": asked["params"]}), flush=True)
"""


def test_conversation_with_a_program_is_lines_and_ends_with_it() -> None:
    """It gets its words on its input; one that ended gives no answer."""
    answers: list[Any] = []

    def talk(one: Conversation) -> bool:
        answers.extend((one.ask("first", {"text": "x"}), one.ask("end", {}), one.ask("second", {})))
        return True

    assert talk_to([sys.executable, "-I", "-S", "-c", PROGRAM], {}, SECONDS, talk)
    assert answers == [{"id": 1, "result": {"text": "x"}}, None, None]


def test_program_that_cannot_be_started_or_says_nothing_costs_no_more_than_the_deadline() -> None:
    """The conversation is over then."""
    assert not talk_to(["/nonexistent/program"], {}, SECONDS, lambda _one: True)
    answers: list[Any] = []
    begun = time.monotonic()

    def talk(one: Conversation) -> bool:
        answers.append(one.ask("first", {}))
        return False

    sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    assert not talk_to(sleeper, {}, 0.3, talk)
    assert answers == [None]
    assert time.monotonic() - begun < 5
