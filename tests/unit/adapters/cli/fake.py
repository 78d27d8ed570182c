"""A root's control endpoint as the commands see it: a thread that answers what a test tells it to."""

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

INSTANCE = "11111111-1111-4111-8111-111111111111"
PEER = "peer-00000000000000000000000000000001"
ESCAPE = "\x1b]0;title\x07\u202e"
"""What a peer must not get onto a terminal: a title and a reversal of the reading order."""

Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


class ErrorAnswer(Exception):
    """Raised in an answer: the request is refused with a typed code."""

    def __init__(self, code: str, text: str, **details: object) -> None:
        super().__init__(text)
        self.data = {"code": code, **details}


class Result(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        document: dict[str, Any] = json.loads(self.out)
        return document


class FakeRoot:
    """Listens at a control endpoint, records every request, answers from a table."""

    def __init__(self, path: Path, answers: dict[str, Answer]) -> None:
        self.path = path
        self.answers = answers
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen(8)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def methods(self) -> list[str]:
        """The names of the requests so far."""
        return [method for method, _ in self.requests]

    def params(self, method: str) -> dict[str, Any]:
        """Return the params of the last request of this name."""
        return [params for name, params in self.requests if name == method][-1]

    def close(self) -> None:
        """Stop listening, and wait for every thread."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5.0)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: socket.socket) -> None:
        with suppress(ConnectionResetError), link, link.makefile("rb") as lines:
            for text in lines:
                request = json.loads(text)
                frame: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
                if request["method"] == "control.hello":
                    answer: dict[str, Any] | None = {**frame, "result": {"version": 1, "product": "fake"}}
                else:
                    self.requests.append((request["method"], request["params"]))
                    answer = self._answer(frame, request)
                if answer is None:
                    return
                try:
                    link.sendall(json.dumps(answer).encode() + b"\n")
                except (BrokenPipeError, ConnectionResetError):
                    return  # who asked did not wait

    def _answer(self, frame: dict[str, Any], request: dict[str, Any]) -> dict[str, Any] | None:
        answer = self.answers.get(request["method"])
        if answer is None:
            error = {"code": -32601, "message": "no such method", "data": {"code": "METHOD_NOT_FOUND"}}
            return {**frame, "error": error}
        try:
            result = answer(request["params"]) if callable(answer) else answer
        except ErrorAnswer as refused:
            return {**frame, "error": {"code": -32000, "message": str(refused), "data": refused.data}}
        except ConnectionAbortedError:
            return None  # hang up without an answer
        return {**frame, "result": result}


def own_life(pid: int | None = None) -> dict[str, Any]:
    """Return this process's (or another's) identity in the form of an owner file."""
    number = os.getpid() if pid is None else pid
    fields = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "pid": number,
        "start_ticks": int(fields[19]),
        "pidfd_inode": None,
        "platform": "linux",
    }


def write_owner(
    home: Path, instance: str, *, owner: dict[str, Any], host: dict[str, Any] | None = None
) -> None:
    """Write an owner file as a root does."""
    path = home / "peer-runtime" / f"{instance}.owner"
    control = str(home / "peer-runtime" / f"{instance}.control")
    record = {
        "version": 1,
        "instance": instance,
        "owner": owner,
        "host": host,
        "sockets": {".control": control},
    }
    path.write_text(json.dumps(record), encoding="utf-8")
    path.chmod(0o600)


def receipt(state: str = "accepted", **changes: Any) -> dict[str, Any]:
    """Return a receipt in the doors' shape."""
    shape = {
        "messageId": "m-1",
        "from": PEER,
        "to": PEER[:-1] + "2",
        "state": state,
        "cursor": "12",
        "durability": "synced",
        "expiresAt": "2026-11-30T20:00:00.000Z",
        "wire": "native",
        "target": {"peerId": PEER[:-1] + "2", "alias": "api"},
    }
    return {**shape, **changes}


def message(**changes: Any) -> dict[str, Any]:
    """Return a received message in the doors' shape."""
    shape = {
        "messageId": "m-9",
        "from": PEER,
        "fromAlias": "web",
        "fromProject": "shop",
        "to": PEER[:-1] + "2",
        "sequence": 3,
        "automaticDepth": 0,
        "delivery": "steer",
        "ask": False,
        "createdAt": "2026-11-30T19:50:00.000Z",
        "expiresAt": "2026-11-30T20:00:00.000Z",
        "receivedAt": "2026-11-30T19:50:00.000Z",
        "content": "one\ntwo",
        "state": "accepted",
        "prepared": False,
        "exposureCount": 0,
        "authority": "external",
    }
    return {**shape, **changes}
