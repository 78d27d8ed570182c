"""The processes of a measurement, as the process that leads it sees them.

Rule 1: only processes that were started here are ended here, and all of them are.
Rule 2: everything is in one private folder: journals on a file system that syncs where there is one.
Rule 3: raised limits are named, so that the output can print them; a worker without them has the defaults.

Source: DESIGN.md 7; reference/native.md 204; reference/substrate.md 4.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any, Final, Self

__all__ = ["RAISED", "BenchFailed", "Crew", "Member"]

RAISED: Final = {
    "inbox_messages": 1_000_000,
    "pending_requests": 1_024,
    "storage_bytes": 1 << 36,
    "rate_per_second": 1_000_000,
    "rate_burst": 1_000_000,
    "agent_sends_max": 1_000_000,
    "events_kept": 10_000_000,
    "expiry_ms": 3_600_000,
}
"""Limits of the roots that are measured; the defaults would measure the defaults."""
ANSWER_S: Final = 120.0
END_S: Final = 5.0
FOLDERS: Final = ("/var/tmp", "/tmp")  # noqa: S108 - mkdtemp makes a 0700 folder in one of them
SHARED_BYTES_MAX: Final = 50
"""Longest folder whose sockets still have short enough paths."""


class BenchFailed(Exception):
    """The measurement cannot go on; the text is for a person."""


class Member:
    """One worker process."""

    def __init__(self, name: str, folder: str, environment: dict[str, str]) -> None:
        self.name = name
        self.instance = ""
        self.peer_id = ""
        self.loop = ""
        self._rest = b""
        with open(os.path.join(folder, f"{name}.stderr"), "ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tieline.adapters.bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self._errors_path = errors.name

    def begin(self, do: str, **params: object) -> None:
        """Tell it to do something; `finish` has the result."""
        assert self.process.stdin is not None, "it was started with a pipe"
        try:
            self.process.stdin.write(json.dumps({"do": do, **params}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def finish(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return the result of what was begun.

        Raises:
            BenchFailed: it could not do it, ended, or did not answer in time.
        """
        assert self.process.stdout is not None, "it was started with a pipe"
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self.process.stdout], [], [], left_s)[0]:
                raise BenchFailed(f"{self.name} did not answer within {timeout_s:g} s")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise self._ended()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchFailed(f"{self.name}: {answer['error']}")
        return answer

    def do(self, do: str, **params: object) -> dict[str, Any]:
        """Tell it to do something and return the result."""
        self.begin(do, **params)
        return self.finish()

    def end(self) -> None:
        """Let it end in order, or end it."""
        assert self.process.stdin is not None, "it was started with a pipe"
        try:
            self.process.stdin.close()
        except OSError:
            self.process.terminate()
        for harder in (self.process.terminate, self.process.kill, lambda: None):
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                harder()
            else:
                break
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _ended(self) -> BenchFailed:
        with open(self._errors_path, encoding="utf-8", errors="replace") as file:
            words = (file.read().strip().splitlines() or ["no reason given"])[-1]
        return BenchFailed(f"{self.name} ended by itself: {words}")


class Crew:
    """A private folder and the workers in it; a context that leaves neither behind."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.raised = {
            **RAISED,
            "message_bytes": max(8_000, size_bytes),
            "frame_bytes": max(65_536, 2 * size_bytes + 8_192),
        }
        self.folder = ""
        self.members: list[Member] = []
        self.accepted: dict[str, list[str]] = {}
        self.failures: Counter[str] = Counter()

    def __enter__(self) -> Self:
        given = os.environ.get("TMPDIR", "")
        places = [place for place in (given, *FOLDERS) if place and os.access(place, os.W_OK | os.X_OK)]
        short = [place for place in places if len(os.fsencode(place)) <= SHARED_BYTES_MAX]
        self.folder = tempfile.mkdtemp(prefix="tieline-bench-", dir=short[0] if short else None)
        for name in ("home", "project"):
            os.mkdir(os.path.join(self.folder, name), 0o700)
        self.home = os.path.join(self.folder, "home")
        self.workspace = os.path.join(self.folder, "project")
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("TIELINE_")},
            "TIELINE_HOME": self.home,
            "TIELINE_COORDINATION_DIRECTORY": self.home,
        }
        return self

    def __exit__(self, *_: object) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must leave nothing behind
        try:
            for member in self.members:
                member.end()
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            signal.signal(signal.SIGINT, before)

    def start(self, name: str, *, is_default: bool = False) -> Member:
        """Start a worker with an open root: with raised limits, or with the defaults."""
        member = Member(name, self.folder, self.environment)
        self.members.append(member)
        opened = member.do(
            "open",
            alias=name,
            home=self.home,
            coordination=self.home,
            workspace=self.workspace,
            limits={} if is_default else self.raised,
        )
        member.instance, member.peer_id, member.loop = opened["instance"], opened["peerId"], opened["loop"]
        return member

    def end(self, *members: Member) -> None:
        """End workers that are not needed any more."""
        for member in members:
            member.end()
            self.members.remove(member)

    def note(self, recipient: Member, result: dict[str, Any]) -> dict[str, Any]:
        """Remember what a result says was accepted and what failed; return the result."""
        self.accepted.setdefault(recipient.instance, []).extend(result["accepted"])
        self.failures.update(result["failures"])
        return result
