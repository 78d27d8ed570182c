"""A launch as its supervisor, its ledger and its judges see it: values, and the environment of its command.

Rule 1: this module reads nothing and knows no resource and no store: what they need of a launch stands here.

Source: reference/native.md 2.14, 3.5; reference/reliability.md K30, I32, I34.
"""

import os
from typing import Literal, NamedTuple, Protocol

import msgspec

from tieline.model.process import Liveness, ProcessIdentity

__all__ = [
    "MARKS_VARIABLE",
    "CompletionProof",
    "LaunchEvidence",
    "LaunchProbe",
    "LaunchSpec",
    "LedgerPort",
    "Ownership",
    "SpawnFailure",
    "child_environment",
]

Ownership = Literal["cgroup", "supervised", "group"]
"""How strong the proof of an end is: a control group, a reaping supervisor, a process group alone."""

MARKS_VARIABLE = "TIELINE_LAUNCH_MARKS"
"""Holds the nonces of every launch around a process, the outermost first, separated by spaces."""


class LaunchSpec(msgspec.Struct, frozen=True):
    """One command as its supervisor is to run it.

    Attributes:
        launch_id: The launch's name in the ledger.
        nonce: 32 or more letters and digits of chance; marks this launch's processes and no others.
        command: Program and arguments as the caller has them; the program is searched in PATH.
        resources: The keys of what the command holds, in the order of `fences`.
        fences: The fencing token of each.
        on_orphan: When the front end dies: `keep` the command, or `stop` its tree.
        stop_grace_ms: Between asking the tree to end and ending it.
        quarantine_ms: How long a tree whose end was not orderly stays gone before that is told.
        terminal: `auto` gives the command a terminal of its own when there is one on stdin.
        context: What the supervisor's ledger needs to open itself; not read here.
    """

    launch_id: str
    nonce: str
    command: tuple[str, ...]
    resources: tuple[str, ...] = ()
    fences: tuple[int, ...] = ()
    on_orphan: Literal["keep", "stop"] = "keep"
    stop_grace_ms: int = 5_000
    quarantine_ms: int = 500
    terminal: Literal["auto", "never"] = "auto"
    context: str = ""


class LaunchEvidence(msgspec.Struct, frozen=True):
    """What another process needs to judge whether a launch still runs.

    Attributes:
        supervisor: The process that owns the tree; its pid is the session's number.
        command: The first process of the tree; its pid is the process group's number. None before it is
            started.
        cgroup: Directory of the launch's control group, empty for none.
        members: Processes of the tree that were seen outside of the session.
        limit_mark: The number that every process of the tree bears among its limits, 0 for none.
    """

    launch_id: str
    nonce: str
    supervisor: ProcessIdentity
    ownership: Ownership = "supervised"
    command: ProcessIdentity | None = None
    cgroup: str = ""
    members: tuple[ProcessIdentity, ...] = ()
    limit_mark: int = 0


class SpawnFailure(msgspec.Struct, frozen=True):
    """A command of which it is proven that it never ran.

    Attributes:
        exit_code: 127 no such program, 126 one that cannot be executed, 125 refused by the ledger.
        text: The reason, for a person.
    """

    exit_code: int
    text: str


class CompletionProof(msgspec.Struct, frozen=True):
    """How it is known that nothing of a launch runs any more.

    Attributes:
        exit_code: The command's, 128 and the signal's number when one ended it.
        is_orderly: The command ended by itself, nothing outlived it, and its front end was there.
        lines: The evidence, for a person.
    """

    exit_code: int
    ownership: Ownership
    is_orderly: bool
    lines: tuple[str, ...]


class LedgerPort(Protocol):
    """What a supervisor tells the ledger. Each call returns when it is durable, and holds no lock then.

    Each may raise `TielineError` or `OSError`: `record_started` to refuse the start, the others to be
    asked again.
    """

    def record_started(self, evidence: LaunchEvidence) -> None:
        """Record what was started; the command waits for it, and runs nothing when this refuses."""

    def record_members(self, evidence: LaunchEvidence) -> None:
        """Record the processes that left the session."""

    def spawn_failed(self, failure: SpawnFailure) -> None:
        """Record that the command never ran."""

    def complete(self, proof: CompletionProof) -> None:
        """Record that nothing of the launch runs any more."""


class LaunchProbe(NamedTuple):
    """What one look at a launch has shown.

    Attributes:
        lines: The evidence, for a person.
        pids: Processes of the launch that were seen alive; the supervisor's comes first.
    """

    state: Liveness
    lines: tuple[str, ...]
    pids: tuple[int, ...]


def child_environment(spec: LaunchSpec, environment: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the caller's environment with what a command may know of its launch.

    `TIELINE_FENCE` and `TIELINE_RESOURCE` have one word for each resource, in the same order.
    """
    marks = f"{environment.get(MARKS_VARIABLE.encode(), b'').decode('ascii', 'ignore')} {spec.nonce}".strip()
    added = {
        "TIELINE_FENCE": " ".join(str(fence) for fence in spec.fences),
        "TIELINE_LAUNCH_ID": spec.launch_id,
        "TIELINE_RESOURCE": " ".join(spec.resources),
        MARKS_VARIABLE: marks,
    }
    return environment | {name.encode(): os.fsencode(value) for name, value in added.items()}
