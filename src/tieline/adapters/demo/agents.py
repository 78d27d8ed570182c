"""Processes that play the agents, each reached by lines of JSON-RPC on its standard streams.

Rule 1: an answer is handed on as it came; a refusal, a silence and an end are told as failures.
Rule 2: a process is ended by whoever started it, in order first, then harder.

Source: DESIGN.md 3; reference/harnesses.md 4.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from tieline.text.terminal import printable

__all__ = ["ANSWER_S", "START_S", "TIELINE", "Agent", "McpAgent", "StepFailed", "shown"]

ANSWER_S: Final = 5.0
START_S: Final = 8.0
END_S: Final = 3.0
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
COLUMNS_MAX: Final = 100
TIELINE: Final = (sys.executable, "-m", "tieline.adapters.cli.main")


class StepFailed(Exception):
    """A step is not what it says; the text is for a person."""


def shown(text: object) -> str:
    """Return any text as one line that a terminal may show."""
    return printable(" ".join(str(text).split()), COLUMNS_MAX)


class Agent:
    """One agent's process, whose root is reached by lines of JSON-RPC on its standard streams."""

    door = "tieline attach"

    def __init__(self, name: str, words: Sequence[str], environment: dict[str, str], folder: str) -> None:
        self.name = name
        self.instance = ""
        self._errors_path = os.path.join(folder, f"{name}.stderr")
        with open(self._errors_path, "ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own words
                [*TIELINE, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end it in order
            )
        self._rest = bytearray()
        self._last_number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._told: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def start(self) -> None:
        """Return when its root is open and its instance is known."""
        self.instance = str(self.told("attached", lambda _params: True, START_S)["instanceId"])

    def begin(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; return its number for `finish`."""
        self._last_number += 1
        self._put({"jsonrpc": "2.0", "id": self._last_number, "method": method, "params": params})
        return self._last_number

    def finish(self, number: int, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return the result of a request that was begun.

        Raises:
            StepFailed: it was refused, or no answer came in time.
        """
        deadline = time.monotonic() + timeout_s
        while number not in self._answers:
            self._read(deadline)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise StepFailed(f"{self.name} was refused: {shown(answer['error'].get('message'))}")
        result: dict[str, Any] = answer["result"]
        return result

    def is_answered(self, number: int) -> bool:
        """Return whether the answer to a request that was begun has been read already."""
        return number in self._answers

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        return self.finish(self.begin(method, params))

    def told(
        self, method: str, fits: Callable[[dict[str, Any]], bool], timeout_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """Return the params of the first notification of that kind that fits; it is told once."""
        deadline = time.monotonic() + timeout_s
        while True:
            for place, item in enumerate(self._told):
                params: dict[str, Any] = item.get("params", {})
                if item["method"] == method and fits(params):
                    del self._told[place]
                    return params
            self._read(deadline)

    def kill(self) -> int:
        """End it as `kill -9` does; return its exit status, minus the signal's number."""
        self.process.kill()
        return self.process.wait(END_S)

    def end(self) -> int:
        """Let it end in order, or end it; return its exit status."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue  # it went away with a line unread; it ends by itself
        for harder in (None, self.process.terminate, self.process.kill):
            if harder is not None:
                harder()
            try:
                return self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                continue
        return self.process.wait()

    def last_words(self) -> str:
        """Return the last line of what it wrote to standard error, "" when there is none."""
        with open(self._errors_path, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or [""])[-1]

    def _put(self, frame: dict[str, Any]) -> None:
        assert self.process.stdin is not None, "it was started with a pipe"
        try:
            self.process.stdin.write(json.dumps(frame).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self._gone()

    def _gone(self) -> NoReturn:
        words = self.last_words()
        raise StepFailed(f"{self.name} ended by itself" + (f": {shown(words)}" if words else ""))

    def _read(self, deadline: float) -> None:
        """Take in what it wrote; wait for some until `deadline`."""
        assert self.process.stdout is not None, "it was started with a pipe"
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([self.process.stdout], [], [], left_s)[0]:
            raise StepFailed(f"{self.name} did not answer in time")
        data = os.read(self.process.stdout.fileno(), 65_536)
        if not data or len(self._rest) > LINE_BYTES_MAX:
            self._gone()
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            frame = json.loads(line)
            if "method" in frame:
                self._told.append(frame)
            else:
                self._answers[frame["id"]] = frame


class McpAgent(Agent):
    """An agent whose harness speaks MCP, as most coding agents do."""

    door = "tieline mcp"

    def start(self) -> None:
        """Say the opening of MCP, and ask the root who it is."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "demo", "version": "1"},
        }
        super().finish(super().begin("initialize", params), START_S)
        self._put({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed = super().finish(super().begin("tools/list", {}))
        if "send_peer_message" not in {tool["name"] for tool in listed["tools"]}:
            raise StepFailed("the MCP door does not offer send_peer_message")
        self.instance = str(self.finish(self.begin("list_peers", {}), START_S)["self"]["instanceId"])

    def begin(self, method: str, params: dict[str, Any]) -> int:
        """Call a tool; return its number for `finish`."""
        return super().begin("tools/call", {"name": method, "arguments": params})

    def finish(self, number: int, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return what the tool answered, as structured content."""
        result = super().finish(number, timeout_s)
        content: dict[str, Any] = result["structuredContent"]
        if result.get("isError"):
            raise StepFailed(f"{self.name}'s tool call failed: {shown(content.get('text'))}")
        return content
