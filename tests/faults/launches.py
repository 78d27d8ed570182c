"""Launches with a ledger that is a file of lines, for tests of supervisors and of the proof of their end.

`main` is what a supervisor of a test runs; `python -m tests.faults.launches LEDGER OPTIONS COMMAND...` is a
front end. Each line of the ledger has the monotonic clock's seconds, which all processes share.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tieline.errors import Refused
from tieline.shell.supervisor.front import LaunchEnd, run_under_supervisor
from tieline.shell.supervisor.holding import serve
from tieline.shell.tree import CompletionProof, LaunchEvidence, LaunchSpec, SpawnFailure

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = "tests.faults.launches"


class FileLedger:
    """A ledger that refuses and fails as its context says."""

    def __init__(self, context: str) -> None:
        options = json.loads(context)
        self.path = options["path"]
        self.refuses = options.get("refuses", "")
        self.fails = int(options.get("fails", 0))
        self.waits_s = float(options.get("waits_s", 0))

    def write(self, kind: str, value: Any) -> None:
        """Add one line, or fail as often as was asked for."""
        if kind == "completed" and self.fails:
            self.fails -= 1
            raise OSError("the ledger is busy")
        record(self.path, kind, value)

    def record_started(self, evidence: LaunchEvidence) -> None:
        if self.refuses:
            raise Refused(self.refuses, "the ledger says no")
        time.sleep(self.waits_s)
        self.write("started", evidence)

    def record_members(self, evidence: LaunchEvidence) -> None:
        self.write("members", evidence)

    def spawn_failed(self, failure: SpawnFailure) -> None:
        self.write("failed", failure)

    def complete(self, proof: CompletionProof) -> None:
        self.write("completed", proof)


def record(path: str, kind: str, value: Any) -> None:
    """Add one line to a ledger."""
    line = {"at": time.monotonic(), "kind": kind, "value": msgspec.to_builtins(value)}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main(descriptor: int) -> int:
    """Be the supervisor."""
    return serve(descriptor, lambda spec: FileLedger(spec.context))


def launch(ledger: str, options: dict[str, Any], command: list[str]) -> LaunchEnd:
    """Be the front end of one launch, and return what came of it."""
    known = {name: options.pop(name) for name in list(options) if name in LaunchSpec.__struct_fields__}
    spec = LaunchSpec(
        launch_id=uuid.uuid4().hex,
        nonce=uuid.uuid4().hex,
        command=tuple(command),
        context=json.dumps({"path": ledger, **options}),
        **{"resources": ("machine/a", "machine/b"), "fences": (7, 9), **known},
    )
    return run_under_supervisor(
        spec, program=PROGRAM, admit=lambda evidence: record(ledger, "admitted", evidence)
    )


class Launched:
    """A front end that runs, and the ledger that its supervisor writes."""

    def __init__(self, folder: Path, command: list[str], **options: Any) -> None:
        self.ledger = folder / f"{uuid.uuid4().hex}.jsonl"
        given = {name: options.pop(name) for name in ("stdin", "stdout", "stderr") if name in options}
        self.front = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, str(self.ledger), json.dumps(options), *command],
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'src'}"},
            **{"stdin": subprocess.DEVNULL, **given},
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return what the ledger has; a line that is being written is left out."""
        if not self.ledger.exists():
            return []
        whole, _, _ = self.ledger.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def kinds(self) -> list[str]:
        """Return what the ledger was told, in order."""
        return [line["kind"] for line in self.lines()]

    def told(self, kind: str) -> dict[str, Any] | None:
        """Return the latest line of a kind."""
        found = [line for line in self.lines() if line["kind"] == kind]
        return found[-1] if found else None

    def wait_for(self, kind: str, seconds: float = 15) -> dict[str, Any]:
        """Return the line of a kind once it is there."""
        wait_until(lambda: self.told(kind) is not None, seconds)
        line = self.told(kind)
        assert line is not None
        return line

    def evidence(self) -> LaunchEvidence:
        """Return the latest evidence in the ledger."""
        found = [line for line in self.lines() if line["kind"] in ("admitted", "started", "members")]
        return msgspec.convert(found[-1]["value"], LaunchEvidence)


def wait_until(holds: Callable[[], bool], seconds: float = 15) -> None:
    """Return when something holds that another process brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


if __name__ == "__main__":
    end = launch(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:])
    record(sys.argv[1], "end", end._asdict())
    sys.exit(end.exit_code)
