"""A short conversation in JSON frames: with a known process at its socket, or with a program started for it.

Theory. Some programs answer requests over WebSocket at a Unix socket, and the same requests as lines on
their standard input. One conversation is some requests, each answered before the next.

Rule 1: before the first byte the kernel says who listens: that very process, of this user. The path may be
a link: who is behind it is proven, so where it leads decides nothing.
Rule 2: no answer is None, and says nothing about what the far end did.
Rule 3: all of it ends by one deadline, and a program that was started for it ends with it.
Rule 4: words are given to a program on its input, never as arguments, which everybody can read.

Source: RFC 6455; reference/harnesses.md 5; reference/reliability.md S7.
"""

import base64
import json
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tieline.shell.process import identify, peer_credentials

__all__ = ["Conversation", "is_listening", "talk_at", "talk_to"]

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
HEAD_BYTES_MAX: Final = 16_384
TEXT, CONTINUED, CLOSE, PING, PONG = 1, 0, 8, 9, 10


class Conversation:
    """Requests over one pair of "write a frame" and "read a frame"."""

    def __init__(self, write: Callable[[bytes], None], read: Callable[[], bytes]) -> None:
        self._write, self._read = write, read
        self._last_id = 0

    def tell(self, method: str) -> None:
        """Send a notification."""
        self._put({"method": method})

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the frame of the answer, an error's too; None where none came."""
        self._last_id += 1
        try:
            self._put({"id": self._last_id, "method": method, "params": params})
            while True:
                frame = json.loads(self._read())
                if isinstance(frame, dict) and frame.get("id") == self._last_id and "method" not in frame:
                    return frame
        except (OSError, ValueError, RecursionError):
            return None

    def _put(self, frame: Mapping[str, Any]) -> None:
        self._write(json.dumps(frame).encode())


def is_listening(path: str, pid: int, start_ticks: int) -> bool:
    """Return whether that very process listens at the socket `path`."""
    link = _proven(path, pid, start_ticks, 1.0)
    if link is not None:
        link.close()
    return link is not None


def talk_at(
    path: str, pid: int, start_ticks: int, seconds: float, talk: Callable[[Conversation], bool]
) -> bool:
    """Carry out a conversation over WebSocket at the socket of a known process.

    Args:
        path: Absolute path of the socket, or of a link to it.
        pid: The process that must listen there.
        start_ticks: When it began, in clock ticks from boot.
        seconds: For all of it.
        talk: The conversation.

    Returns:
        What `talk` returns; False where nobody was talked to.
    """
    give_up = time.monotonic() + seconds
    link = _proven(path, pid, start_ticks, seconds)
    if link is None:
        return False
    with link:
        end = _WebSocket(link, give_up)
        try:
            end.open()
        except (OSError, ValueError):
            return False
        return talk(Conversation(end.write, end.read))


def talk_to(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    talk: Callable[[Conversation], bool],
) -> bool:
    """Carry out a conversation in lines with a program that is started for it, and ended behind it.

    Returns:
        What `talk` returns; False where it cannot be started.
    """
    give_up = time.monotonic() + seconds
    try:
        process = subprocess.Popen(  # noqa: S603 - the program of the host itself
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
        )
    except OSError:
        return False
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        writing, reading = process.stdin.fileno(), process.stdout.fileno()
        held = bytearray()

        def write(data: bytes) -> None:
            left = memoryview(data + b"\n")
            while left:
                left = left[os.write(writing, left) :]

        def read() -> bytes:
            while b"\n" not in held:
                _await(reading, give_up)
                data = os.read(reading, 65_536)
                if not data or len(held) > FRAME_BYTES_MAX:
                    raise ConnectionResetError
                held.extend(data)
            line, _, rest = bytes(held).partition(b"\n")
            held[:] = rest
            return line

        try:
            return talk(Conversation(write, read))
        except OSError:
            return False
        finally:
            process.kill()


def _proven(path: str, pid: int, start_ticks: int, seconds: float) -> socket.socket | None:
    """Return a socket connected to that process, or None."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(seconds)
    try:
        link.connect(path)
        owner = peer_credentials(link)
    except (OSError, ValueError):
        link.close()
        return None
    identity = identify(owner.pid)
    started = None if identity is None else identity.start_ticks
    if (owner.uid, owner.pid, started) == (os.geteuid(), pid, start_ticks):
        return link
    link.close()
    return None


def _await(descriptor: int, give_up: float) -> None:
    """Wait until there is something to read.

    Raises:
        TimeoutError: there was nothing in time.
    """
    left = give_up - time.monotonic()
    if left <= 0 or not select.select([descriptor], [], [], left)[0]:
        raise TimeoutError


class _WebSocket:
    """The client's end of a WebSocket, texts alone."""

    def __init__(self, link: socket.socket, give_up: float) -> None:
        self._link, self._give_up = link, give_up
        self._held = bytearray()

    def open(self) -> None:
        """Shake hands.

        Raises:
            ValueError: the far end does not speak it.
            OSError: it hung up, or was too slow.
        """
        key = base64.b64encode(os.urandom(16)).decode()
        self._link.sendall(
            "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._held:
            if len(self._held) > HEAD_BYTES_MAX:
                raise ValueError("no handshake")
            self._more()
        head, _, rest = bytes(self._held).partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] != [b"101"]:
            raise ValueError("refused")
        self._held[:] = rest

    def write(self, data: bytes, opcode: int = TEXT) -> None:
        """Send one text."""
        size = len(data)
        if size < 126:
            head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
        elif size < 65_536:
            head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = os.urandom(4)
        repeated = mask * (size // 4 + 1)
        number = int.from_bytes(data, "big") ^ int.from_bytes(repeated[:size], "big")
        self._link.settimeout(max(0.001, self._give_up - time.monotonic()))
        self._link.sendall(head + mask + number.to_bytes(size, "big"))

    def read(self) -> bytes:
        """Return the next text.

        Raises:
            OSError: there is none.
        """
        text = bytearray()
        while True:
            first, second = self._take(2)
            opcode, size = first & 0x0F, second & 0x7F
            if size == 126:
                (size,) = struct.unpack(">H", self._take(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self._take(8))
            if second & 0x80 or size + len(text) > FRAME_BYTES_MAX:
                raise ConnectionResetError
            data = self._take(size)
            if opcode == PING:
                self.write(data, PONG)
            elif opcode == CLOSE:
                raise ConnectionResetError
            elif opcode in (TEXT, CONTINUED):
                text += data
                if first & 0x80:
                    return bytes(text)

    def _take(self, count: int) -> bytes:
        while len(self._held) < count:
            self._more()
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    def _more(self) -> None:
        _await(self._link.fileno(), self._give_up)
        data = self._link.recv(65_536)
        if not data:
            raise ConnectionResetError
        self._held += data
