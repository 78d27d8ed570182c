"""`tieline demo`: three agents in three processes find each other, talk, and one of them dies.

Rule 1: every fact that is printed came from an answer or a store in this run; what a step says is
checked before it is said, and the first that does not hold ends the demo with its name.
Rule 2: it works in a private folder of its own, and reaches no root but those that it started.
Rule 3: it ends only processes that it started, all of them, also on Ctrl-C; then the folder goes.
Rule 4: the agents are reached through the doors that everybody has: MCP and `attach` over stdio, the
control endpoint, the command line.

Source: DESIGN.md 3, 4, 5; reference/native.md 1Q (182 to 185), 2.8.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Final

from tieline.adapters.demo import desk, steps
from tieline.adapters.demo.agents import StepFailed, shown
from tieline.adapters.demo.stage import Interrupts, Stage

__all__ = ["main", "parser"]

VERSION: Final = 1
"""Of the JSON shape."""
SHORT_FOLDER: Final = "/tmp"  # noqa: S108 - mkdtemp makes a 0700 folder in it; a socket's path has 107 bytes


def parser() -> argparse.ArgumentParser:
    """Return the parser of `tieline demo`, with its full help."""
    made = argparse.ArgumentParser(
        prog="tieline demo",
        description="Start three agents in three processes and show them at work: who is there, a message, a "
        "question and its reply, a kill -9 right after a message was accepted, and its recovery. All of it "
        "happens in a private folder, which is removed at the end.",
        epilog="Exit codes: 0 every step was as it says; 1 one was not, and is named; 130 interrupted.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--desk",
        action="store_true",
        help="show the agents at a desk instead, with a question for you and a ring of waits to break",
    )
    made.add_argument("--json", action="store_true", help="print the facts as one JSON object")
    made.add_argument("--keep", action="store_true", help="keep the folder, to look into it afterwards")
    return made


def main(argv: list[str]) -> int:
    """Run the demo and print it.

    Args:
        argv: The words after `tieline demo`.

    Returns:
        0 when every step was as it says; 1 when one was not, named on standard error.
    """
    given = parser().parse_args(argv)
    begun = time.monotonic()
    failure = ""
    with Interrupts() as interrupts:
        folder, stage = "", None
        try:
            with interrupts.held():
                folder = tempfile.mkdtemp(prefix="tieline-demo-", dir=_short_folder())
            stage = Stage(folder, interrupts, is_silent=given.json or given.desk)
            failure = _at_desk(stage) if given.desk else _play(stage)
        finally:
            interrupts.hold()
            if stage is not None:
                stage.end()
            if folder and not given.keep:
                shutil.rmtree(folder, ignore_errors=True)
    failure = failure or _end(stage, folder, is_kept=given.keep, took_s=time.monotonic() - begun)
    if given.json:
        body = {"version": VERSION, "command": "demo", "ok": not failure, "failure": failure or None}
        sys.stdout.write(json.dumps({**body, **stage.facts}) + "\n")
    if failure:
        sys.stderr.write(f"tieline demo: {failure}\n")
    return 1 if failure else 0


def _short_folder() -> str | None:
    return SHORT_FOLDER if os.access(SHORT_FOLDER, os.W_OK | os.X_OK) else None


def _at_desk(stage: Stage) -> str:
    """Show the desk; return "" or why it was not shown."""
    try:
        code = desk.play(stage)
    except StepFailed as error:
        return str(error)
    return "" if code == 0 else f"the desk ended with {code}; it said why above"


def _play(stage: Stage) -> str:
    """Play the steps; return "" or which one failed and why."""
    for number, (name, step) in enumerate(steps.STEPS):
        try:
            step(stage)
        except StepFailed as error:
            return f"step {number} ({name}): {error}"
        except BrokenPipeError:
            raise  # nobody reads the story any more
        except (LookupError, TypeError, ValueError, OSError, subprocess.TimeoutExpired) as error:
            what = f"{type(error).__name__}: {shown(error)}"
            return f"step {number} ({name}): an answer is not what it should be: {what}"
    return ""


def _end(stage: Stage, folder: str, *, is_kept: bool, took_s: float) -> str:
    """Tell what is left, as it was looked up; return "" or what should not be there."""
    left = [agent.pid for agent in stage.started if agent.process.poll() is None]
    is_there = os.path.exists(folder)
    stage.facts["end"] = {
        "processesStarted": len(stage.started),
        "processesLeft": len(left),
        "folderLeft": is_there,
        "tookS": round(took_s, 2),
    }
    if left or is_there != is_kept:
        return f"the end: {len(left)} processes are left; {folder} is {'left' if is_there else 'gone'}"
    where = f"the folder is kept: {folder}" if is_there else "the folder is gone"
    stage.say(
        f"\n{len(stage.started)} processes were started, {len(left)} are left; {where}  ({took_s:.1f} s)"
    )
    return ""
