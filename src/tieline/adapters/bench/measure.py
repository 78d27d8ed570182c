"""One whole run: the folder, the echo servers, every part in its turn.

Rule: what was started ends with the run, however the run ends.

Source: DESIGN.md 7; reference/native.md 204 to 206.
"""

import contextlib
import os
import sys
from typing import Any

from tieline.adapters.bench.crew import Crew
from tieline.adapters.bench.limit import compiled_echo, echo_server
from tieline.adapters.bench.machine import machine
from tieline.adapters.bench.rounds import Paths, Plan, Run, parts
from tieline.adapters.bench.startup import start_up

__all__ = ["measure"]


def measure(plan: Plan, *, is_silent: bool) -> tuple[Run, dict[str, Any]]:
    """Return a finished run and what it ran on.

    Args:
        plan: How much is measured.
        is_silent: Say nothing on standard error of what goes on.

    Raises:
        BenchFailed: a process could not do its part.
        OSError: the folder or an echo server could not be made.
    """
    with Crew(plan.size_bytes) as crew, contextlib.ExitStack() as stack:
        where = machine(crew.folder)
        program = compiled_echo(crew.folder)
        where["echo"] = "in C" if program else "in blocking Python: there is no compiler here"
        paths = Paths(
            echo=os.path.join(crew.folder, "echo-c") if program else "",
            python_echo=os.path.join(crew.folder, "echo-python"),
            file=os.path.join(crew.folder, "synced"),
        )
        if program:
            stack.enter_context(echo_server(paths.echo, program))
        stack.enter_context(echo_server(paths.python_echo, None))
        run = Run(plan, crew, paths)
        for name, part in parts():
            _tell(f"measuring {name}", is_silent=is_silent)
            part(run)
        _tell("measuring start-up", is_silent=is_silent)
        for name, samples in start_up(crew, plan.rounds).items():
            run.put(name, samples, "MiB" if name == "mcp_pss" else "ms")
        where["loop"] = run.loop
    return run, where


def _tell(text: str, *, is_silent: bool) -> None:
    """Say what goes on beside the data, which stays alone on standard output."""
    if not is_silent:
        sys.stderr.write(f"{text} ...\n")
        sys.stderr.flush()
