"""A bridge of the tests from HTTP on loopback to the MCP door's standard input and output.

Rule 1: one session of a client is one process of `tieline mcp`; the bridge changes no message.
Rule 2: requests are answered as JSON, never as a stream of events, which the protocol leaves to a server.
Rule 3: it listens on loopback, and only while a test runs.

Source: Model Context Protocol 2025-11-25, "Transports".
"""

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

__all__ = ["Bridge"]

ANSWER_SECONDS_MAX = 20.0
SESSION_HEADER = "Mcp-Session-Id"


class Door:
    """One process of the door, and who waits for which answer."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self._answers: dict[str, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            frame = json.loads(line)
            with self._news:
                self._answers[json.dumps(frame.get("id"))] = frame
                self._news.notify_all()

    def tell(self, body: bytes) -> None:
        """Write one message as one line."""
        assert self.process.stdin is not None
        with self._lock:
            self.process.stdin.write(body.replace(b"\n", b" ") + b"\n")
            self.process.stdin.flush()

    def answer(self, request_id: object) -> dict[str, Any] | None:
        """Return the answer to a request; None where there is none in time."""
        key = json.dumps(request_id)
        with self._news:
            self._news.wait_for(lambda: key in self._answers, ANSWER_SECONDS_MAX)
            return self._answers.pop(key, None)

    def end(self) -> int:
        """End its input; return its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(ANSWER_SECONDS_MAX)
        self._thread.join(ANSWER_SECONDS_MAX)
        self.process.stdout.close()
        return code


class Bridge:
    """The bridge; use it by `with`: every door is ended behind it.

    Attributes:
        methods: What clients asked for, in order.
        codes: Exit codes of the doors that have ended.
    """

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._door = (command, folder, environment)
        self._doors: dict[str, Door] = {}
        self._count = 0
        self.methods: list[str] = []
        self.codes: list[int] = []
        bridge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_words: object) -> None:
                """Say nothing."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._reply(*bridge.posted(self.headers.get(SESSION_HEADER, ""), body))

            def do_GET(self) -> None:
                self._reply(405, {}, b"")

            def do_DELETE(self) -> None:
                self._reply(bridge.ended(self.headers.get(SESSION_HEADER, "")), {}, b"")

            def _reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name in list(self._doors):
            self.ended(name)

    def posted(self, name: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer to one message of the session `name`."""
        frame = json.loads(body)
        self.methods.append(frame.get("method", ""))
        if frame.get("method") == "initialize":
            self._count += 1
            name = f"session-{self._count}"
            self._doors[name] = Door(*self._door)
        door = self._doors.get(name)
        if door is None:
            return 404, {}, b""
        door.tell(body)
        if "id" not in frame or "method" not in frame:
            return 202, {}, b""
        answer = door.answer(frame["id"])
        if answer is None:
            return 504, {}, b""
        return 200, {SESSION_HEADER: name, "Content-Type": "application/json"}, json.dumps(answer).encode()

    def ended(self, name: str) -> int:
        """End a session; return the status."""
        door = self._doors.pop(name, None)
        if door is None:
            return 404
        self.codes.append(door.end())
        return 200
