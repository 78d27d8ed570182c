"""The server: four protocols on one port of 127.0.0.1, and the log of every request.

Rule 1: it listens on loopback only, at a port that the system picks, and asks for no key.
Rule 2: the log is the proof: a request is in it before it is answered, with the moment it came; what a
test waits for is a request, never a time.
Rule 3: what is no request for an answer (lists of models, counts, probes, telemetry that a program
sends all the same) is answered shortly and kept apart, in `others`.

Source: reference/harnesses.md 1.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.harness.model import streams
from tests.harness.model.conversation import Conversation, read
from tests.harness.model.script import Scripts, Step

__all__ = ["ModelServer", "Request"]

BODY_BYTES_MAX = 64 * 1024 * 1024
SHOWN_CHARACTERS = 300
WAIT_SECONDS_MAX = 90.0


class Request(NamedTuple):
    """One request for an answer.

    Attributes:
        at: Monotonic seconds of its arrival.
        path: Of the URL, without the query.
        model: The model's name as the program asked for it.
        seen: What it shows the model.
        body: As it came.
    """

    at: float
    path: str
    model: str
    seen: Conversation
    body: dict[str, Any]


class ModelServer:
    """A scripted model; use it by `with`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.others: list[str] = []
        self.wrongs: list[str] = []
        self.scripts = Scripts()
        self._news = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="model", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Return the address, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, token: str, *steps: Step) -> None:
        """From now on a text of the user that holds `token` starts these steps."""
        self.scripts.add(token, *steps)

    def took(self, request: Request) -> None:
        """Log a request for an answer."""
        with self._news:
            self.requests.append(request)
            self._news.notify_all()

    def went_wrong(self, text: str) -> None:
        """Log that a script could not go on; who waits for a request is told at once."""
        with self._news:
            self.wrongs.append(text)
            self._news.notify_all()

    def wait(self, fits: Callable[[Conversation], bool], seconds: float = WAIT_SECONDS_MAX) -> Request:
        """Return the first request that shows what `fits` asks for.

        Raises:
            AssertionError: none came within `seconds`, or a script could not go on.
        """
        give_up = time.monotonic() + seconds
        with self._news:
            while True:
                for request in self.requests:
                    if fits(request.seen):
                        return request
                left = give_up - time.monotonic()
                if self.wrongs:
                    raise AssertionError(f"{self.wrongs[0]}")
                if left <= 0:
                    raise AssertionError(
                        f"no such request within {seconds} s; captured output says what was shown"
                    )
                self._news.wait(left)

    def with_result(self, text: str, seconds: float = WAIT_SECONDS_MAX) -> Request:
        """Return the first request in which a tool's result holds `text`."""
        return self.wait(lambda seen: seen.count(text, "result") > 0, seconds)

    def with_text(self, text: str, seconds: float = WAIT_SECONDS_MAX) -> Request:
        """Return the first request that shows `text` as the user's or as a tool's result."""
        return self.wait(lambda seen: seen.count(text, "user", "result") > 0, seconds)

    def story(self) -> str:
        """Return what every request showed last, for the person who reads a failure."""
        lines = []
        for number, request in enumerate(self.requests):
            lines.append(
                f"request {number} at {request.at:.1f} {request.path} model {request.model}, "
                f"{len(request.seen.items)} items, {len(request.seen.tools)} tools"
            )
            lines += [
                f"    {item.kind} {item.name} {item.text[:SHOWN_CHARACTERS]!r}"
                for item in request.seen.items[-4:]
            ]
        return "\n".join([*lines, f"others: {self.others[-20:]}"])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, model: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class calls it so
        """Keep quiet: the log is `requests`."""

    def do_HEAD(self) -> None:
        self._others({})

    def do_GET(self) -> None:
        self._others({"data": [], "object": "list", "models": []})

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), BODY_BYTES_MAX)
        path = self.path.partition("?")[0]
        try:
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError:
            self._others({})
            return
        if path.endswith(("/count_tokens", ":countTokens")):
            self._others({"input_tokens": 100, "totalTokens": 100})
            return
        protocol = _protocol(path)
        if protocol is None or not isinstance(body, dict):
            self._others({})
            return
        model = body.get("model") or path.rpartition("/")[2].partition(":")[0]
        seen = read(protocol, body)
        self.server.model.took(Request(time.monotonic(), path, model, seen, body))
        reply = self.server.model.scripts.next(seen)
        if reply.is_wrong:
            self.server.model.went_wrong(reply.text)
        try:
            if body.get("stream") or "streamGenerateContent" in path:
                self._stream(protocol, model, reply)
            else:
                self._whole(streams.whole(protocol, model, reply))
        except (BrokenPipeError, ConnectionResetError):
            return  # the program did not wait for the answer; its request is logged

    def _others(self, document: dict[str, Any]) -> None:
        self.server.model.others.append(f"{self.command} {self.path}")
        self._whole(document)

    def _whole(self, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, protocol: str, model: str, reply: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in streams.events(protocol, model, reply):
            self.wfile.write(event)
        self.close_connection = True


def _protocol(path: str) -> str | None:
    """Return which of the four protocols a path belongs to."""
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    return None
