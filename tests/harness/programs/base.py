"""What all harnesses have in common: private folders, a model on loopback, one MCP server.

Rule 1: every file that a harness reads or writes is below the test's own folder; of the caller's
environment nothing but the path and the language comes along.
Rule 2: telemetry, updates and lists of models are off; a harness is told one address, the model's.
Rule 3: the MCP server is `tieline mcp`, started as a person's configuration starts it.

Source: reference/harnesses.md 1, "Mock wiring" and "Telemetry off".
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from tests.harness.terminal import Terminal

__all__ = ["Place", "Program", "Ran", "Run"]

SERVER = "tieline"
RUN_SECONDS_MAX = 150.0


class Place(NamedTuple):
    """Where one session of a harness runs.

    Attributes:
        home: The harness's own home and configuration.
        work: Its working directory.
        shared: `TIELINE_HOME` of all sessions that are to see each other.
        model_url: Address of the scripted model, without a slash at its end.
    """

    home: Path
    work: Path
    shared: Path
    model_url: str


class Ran(NamedTuple):
    """How a headless run ended."""

    code: int
    output: str
    errors: str


class Run:
    """One headless run, in a process group of its own."""

    def __init__(self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> None:
        # Files, not pipes: nobody reads while the test looks at the model.
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            print(f"ended by the test: {self.ended()}")
        self._output.close()
        self._errors.close()

    def ended(self, seconds: float = RUN_SECONDS_MAX) -> Ran:
        """Wait for the end; return how it was.

        Raises:
            subprocess.TimeoutExpired: it did not end within `seconds`.
        """
        code = self.process.wait(seconds)
        told = []
        for file in (self._output, self._errors):
            file.seek(0)
            told.append(file.read().decode(errors="replace"))
        return Ran(code, *told)


class Program:
    """One harness in one place; each kind says how it is configured and started."""

    name: ClassVar[str]

    def __init__(self, command: Sequence[str], place: Place) -> None:
        self.command, self.place = tuple(command), place
        self.more: Mapping[str, str] = {}  # variables of the person who starts it
        place.home.mkdir(parents=True, exist_ok=True)
        place.work.mkdir(parents=True, exist_ok=True)

    # What each kind says

    def configure(self, server: Mapping[str, Any] | None) -> None:
        """Write the harness's configuration; `server` is `mcp_server()` or None for no MCP server."""
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """Return the environment that this harness needs beside the common one."""
        raise NotImplementedError

    def headless(self, prompt: str) -> list[str]:
        """Return the words behind the command for one prompt without a terminal."""
        raise NotImplementedError

    def interactive(self) -> list[str]:
        """Return the words behind the command for a window."""
        return []

    ready: ClassVar[tuple[str, ...]] = ()
    """What a window shows once it takes a prompt: any of these texts."""

    # What is the same for all

    def mcp_server(self, *options: str) -> dict[str, Any]:
        """Return the MCP server that the tests configure: `tieline mcp` with a home of the tests."""
        tieline = shutil.which("tieline")
        assert tieline is not None, "the tests' environment has the command"
        environment = {"TIELINE_HOME": str(self.place.shared)}
        return {"command": tieline, "args": ["mcp", "--scope", "machine", *options], "env": environment}

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the harness."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.place.home),
            "SHELL": "/bin/sh",
            "NO_PROXY": "127.0.0.1,localhost",
            **self.variables(),
            **self.more,
        }

    def started(self, prompt: str, *words: str) -> "Run":
        """Give one prompt without a terminal; use it by `with`, it is ended behind it."""
        return Run(
            [*self.command, *self.headless(prompt), *words],
            folder=self.place.work,
            environment=self.environment(),
        )

    def run(self, prompt: str, *words: str, seconds: float = RUN_SECONDS_MAX) -> Ran:
        """Give one prompt without a terminal; return how it ended.

        Raises:
            subprocess.TimeoutExpired: it did not end within `seconds`.
        """
        with self.started(prompt, *words) as run:
            return run.ended(seconds)

    def window(self, *words: str) -> Terminal:
        """Open a window; use it by `with`, it is ended behind it."""
        return Terminal(
            [*self.command, *self.interactive(), *words],
            folder=self.place.work,
            environment=self.environment(),
        )
