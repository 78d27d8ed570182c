"""Sessions of the intercom as a test has them: a blocking socket that speaks frames, of either old form.

Source: reference/intercom.md 1.1, 1.2, 1.5.
"""

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Broker", "Session"]

ANSWER_S = 20.0


class Session:
    """One socket at a broker."""

    def __init__(self, path: str, *, receive_bytes: int = 0) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(ANSWER_S)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
        self._rest = b""

    def say(self, **frame: Any) -> None:
        """Send one frame."""
        data = json.dumps(frame).encode()
        self.sock.sendall(struct.pack(">I", len(data)) + data)

    def hear(self, kind: str = "") -> dict[str, Any]:
        """Return the next frame, or the next of this kind; an end of the socket fails."""
        while True:
            length = struct.unpack(">I", self._take(4))[0]
            frame: dict[str, Any] = json.loads(self._take(length))
            if kind in ("", frame["type"]):
                return frame

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError
            self._rest += data
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def is_ended(self) -> bool:
        """Return whether the broker closed the socket, after what it still said."""
        try:
            while self.sock.recv(1 << 20):
                continue
        except ConnectionError:
            return True
        return True

    def join(self, name: str) -> str:
        """Register in the middle revision's form; return the id."""
        self.say(type="register", session={"cwd": "/srv", "model": "m", "name": name})
        return str(self.hear("registered")["sessionId"])

    def join_recorded(self, name: str, session_id: str) -> None:
        """Register in the ancestor's form, under this id."""
        session = {"cwd": "/srv", "model": "m", "name": name, "pid": 1, "startedAt": 1, "lastActivity": 1}
        self.say(type="register", sessionId=session_id, session=session)
        self.hear("registered")

    def send(self, to: str, message_id: str, text: str = "x", **extra: Any) -> dict[str, Any]:
        """Send one message and return the broker's answer."""
        message = {"id": message_id, "timestamp": 1, "content": {"text": text}, **extra}
        self.say(type="send", to=to, message=message)
        while True:
            frame = self.hear()
            if frame["type"].startswith("deliver") and frame.get("messageId") == message_id:
                return frame

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


class Broker:
    """One `tieline broker` of a test, in a place of its own."""

    PROGRAM: tuple[str, ...] = ("tieline", "broker")

    def __init__(self, home: Path, *words: str, **variables: str) -> None:
        self.home = home
        self.environment: Mapping[str, str] = {
            **os.environ,
            "TIELINE_HOME": str(home / "t"),
            "PI_INTERCOM_RUNTIME_DIR": str(home / "i"),
            **variables,
        }
        self.process = subprocess.Popen(
            [*self.PROGRAM, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def socket(self) -> str:
        """Where a broker of the shared place answers."""
        return str(self.home / "i" / "broker.sock")

    def started(self) -> str:
        """Return its first line; empty when it ended without one."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ended(self, seconds: float = 30) -> int:
        """Wait for its end and return its code."""
        code = self.process.wait(seconds)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def kill(self) -> None:
        """Make sure that it is gone."""
        if self.process.returncode is None:
            self.process.kill()
            self.ended()

    def memory_bytes(self) -> int:
        """Return its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def seconds_since(start: float) -> float:
    """Return how long ago `start` was, on the monotonic clock."""
    return time.monotonic() - start
