"""Where the demo happens: its folder, its agents, what has been told, and what an interrupt does.

Rule 1: it works in a private folder of its own, and reaches no root but those that it started.
Rule 2: every process that was started is in the list before anything can interrupt.

Source: DESIGN.md 3, 4; reference/native.md 2.8.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from tieline.adapters.demo.agents import ANSWER_S, Agent, StepFailed
from tieline.runtime.client import Client
from tieline.runtime.locate import survey

__all__ = ["Interrupts", "Stage", "columns", "without_settings"]


def without_settings(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables without those that configure or identify a root of the caller's."""
    names = ("CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID", "GEMINI_SESSION_ID", "PI_SESSION_ID")
    return {
        name: text
        for name, text in environment.items()
        if not name.startswith("TIELINE_") and name not in names
    }


class Interrupts:
    """Ctrl-C and its like end the demo in order; between a start and its entry in the list they wait."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _come(self, number: int, _frame: object) -> None:
        if self._is_held:
            self._waiting = number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(128 + number)

    def hold(self) -> None:
        """From here on nothing interrupts any more: what was started is being ended."""
        self._is_held = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let an interrupt wait until the end of the block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._waiting:
            self._come(self._waiting, None)


class Stage:
    """Where the demo happens: its folder, its agents, and what has been told so far."""

    def __init__(self, folder: str, interrupts: Interrupts, *, is_silent: bool) -> None:
        self.folder = folder
        self.agents: dict[str, Agent] = {}
        self.started: list[Agent] = []
        self.facts: dict[str, Any] = {}
        self.workspace = os.path.join(folder, "project")
        os.mkdir(self.workspace, 0o700)
        self.environment = {
            **without_settings(dict(os.environ)),
            "TIELINE_HOME": folder,
            "TIELINE_COORDINATION_DIRECTORY": folder,
        }
        self._interrupts = interrupts
        self._is_silent = is_silent

    def begin_agent(self, name: str, kind: type[Agent] = Agent) -> None:
        """Start an agent's process; it takes the place of an earlier one of that name."""
        word = kind.door.split()[-1]
        words = [word, "--alias", name, "--workspace", self.workspace, "--scope", "workspace"]
        with self._interrupts.held():
            agent = kind(name, words, self.environment, self.folder)
            self.started.append(agent)
            self.agents[name] = agent

    def say(self, text: str = "") -> None:
        """Put a line of the story on standard output."""
        if not self._is_silent:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def status(self, name: str, message_id: str, *states: str) -> list[tuple[str, str]]:
        """Return (state, time) of a sent message from the sender's store, once `states` are all there.

        Raises:
            StepFailed: they were not within `ANSWER_S`.
        """
        roots = {root.instance: root for root in survey(self.folder).roots}
        deadline = time.monotonic() + ANSWER_S
        with Client(roots[self.agents[name].instance].control) as client:
            while True:
                sent = client.call("local.status", {"messageId": message_id})["sent"]
                moves = [(str(move["state"]), str(move["at"])) for move in sent[0]["history"]]
                found = [state for state, _ in moves if state != "unknown"]
                if found == list(states):
                    return moves
                if time.monotonic() > deadline:
                    raise StepFailed(f"{name}'s store says {', '.join(found)}, not {', '.join(states)}")
                time.sleep(0.01)

    def end(self) -> None:
        """End every process that was started and has not ended."""
        for agent in self.started:
            if agent.process.stdin is not None:
                try:
                    agent.process.stdin.close()  # all of them first: they end side by side
                except OSError:
                    continue
        for agent in self.started:
            agent.end()


def columns(rows: Sequence[Sequence[str]], indent: str = "   ") -> str:
    """Return rows of equal length as aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)
