"""A message from one MCP server to another, both started as a harness starts them.

Rule 1: it happens in a private folder, which is removed; no running agent sees it.
Rule 2: it ends in `SECONDS_MAX`, whatever the servers do, and leaves no process.

Source: DESIGN.md 4 "doctor"; docs/mcp.md.
"""

import functools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from typing import Any, Final, Self

__all__ = ["SECONDS_MAX", "round_trip"]

SECONDS_MAX: Final = 20.0
_LOOK_SECONDS: Final = 0.1
_TEXT: Final = "tieline doctor: does this arrive?"


@functools.cache
def round_trip(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], path: str) -> str:
    """Return why a message did not get through, or ""; the same question is asked once in a process.

    Args:
        command: The words that start the server.
        variables: What the harness's file adds to its environment.
        path: PATH.
    """
    folder = tempfile.mkdtemp(prefix="td")
    environment = {**dict(variables), "PATH": path, "HOME": folder, "TIELINE_HOME": folder + "/t"}
    environment.pop("TIELINE_COORDINATION_DIRECTORY", None)
    until = time.monotonic() + SECONDS_MAX
    try:
        with (
            _Server(command, environment, folder, "one", until) as one,
            _Server(command, environment, folder, "two", until) as two,
        ):
            return _exchanged(one, two, until)
    except _Failed as failed:
        return str(failed)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exchanged(one: "_Server", two: "_Server", until: float) -> str:
    for server in (one, two):
        server.greet()
    while True:
        me = two.call("list_peers", {}).get("self", {}).get("peerId", "")
        peers = one.call("list_peers", {}).get("peers", [])
        if me and any(peer.get("peerId") == me for peer in peers):
            break
        if time.monotonic() > until:
            return "the two did not find each other"
        time.sleep(_LOOK_SECONDS)
    one.call("send_peer_message", {"to": me, "content": _TEXT})
    messages = two.call("peer_messages", {"waitMs": 5_000}).get("messages", [])
    return "" if any(_TEXT in str(one.get("content")) for one in messages) else "the message did not arrive"


class _Failed(Exception):
    """A server ended, said nothing in time, or refused."""


class _Server:
    """One server and the answers it gives."""

    def __init__(
        self, command: tuple[str, ...], environment: dict[str, str], folder: str, session: str, until: float
    ) -> None:
        self._until = until
        self._count = 0
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._errors = f"{folder}/{session}"
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - what the harness itself starts
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env={**environment, "TIELINE_SESSION": f"doctor-{session}-{os.getpid()}"},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def greet(self) -> None:
        """Shake hands.

        Raises:
            _Failed: it is no MCP server, or nothing came in time.
        """
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "tieline-doctor", "version": "1"},
        }
        self._ask("initialize", hello)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __exit__(self, *_: object) -> None:
        if not self._left():
            self._process.kill()
        self._process.wait()
        self._reader.join(1.0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what a tool answers.

        Raises:
            _Failed: it refused, or nothing came in time.
        """
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise _Failed(f"{tool}: {str(result.get('content'))[:300]}")
        return dict(result.get("structuredContent", {}))

    def _left(self) -> bool:
        """Close its input, and return whether it went by itself."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(3.0)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return True

    def _why(self) -> str:
        """Return that it ended, and the first line that it said of it."""
        with open(self._errors, encoding="utf-8", errors="replace") as errors:
            said = errors.readline(300).strip()
        return f"the server ended: {said}" if said else "the server ended"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _write(self, document: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(document).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise _Failed(self._why()) from None

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        self._write({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, self._until - time.monotonic()))
            except queue.Empty:
                raise _Failed(f"no answer to {method} in {SECONDS_MAX:.0f} s") from None
            if not line:
                raise _Failed(self._why())
            try:
                held = json.loads(line)
            except ValueError:
                raise _Failed("the server does not speak MCP") from None
            if held.get("id") == self._count:
                if "error" in held:
                    raise _Failed(str(held["error"].get("message"))[:300])
                return dict(held.get("result", {}))
