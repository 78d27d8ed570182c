"""What runs of one launch, and what is proven of its end."""

from tieline.shell.tree.belonging import is_inside
from tieline.shell.tree.launch import (
    MARKS_VARIABLE,
    CompletionProof,
    LaunchEvidence,
    LaunchProbe,
    LaunchSpec,
    LedgerPort,
    Ownership,
    SpawnFailure,
    child_environment,
)
from tieline.shell.tree.limits import bear_mark
from tieline.shell.tree.proof import cgroup_state, probe_launch
from tieline.shell.tree.table import descendants, is_descendant, strays

__all__ = [
    "MARKS_VARIABLE",
    "CompletionProof",
    "LaunchEvidence",
    "LaunchProbe",
    "LaunchSpec",
    "LedgerPort",
    "Ownership",
    "SpawnFailure",
    "bear_mark",
    "cgroup_state",
    "child_environment",
    "descendants",
    "is_descendant",
    "is_inside",
    "probe_launch",
    "strays",
]
