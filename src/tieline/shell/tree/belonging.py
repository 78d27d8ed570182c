"""Whether a process is proven to run in a launch's tree.

Rule 1: an environment is copied as easily as read: a mark in it is a claim, and this is the proof.
Rule 2: what descends from a process of the tree is of the tree; the kernel says who descends from whom.
Rule 3: no proof is no membership. Nothing here signals a process.

While the supervisor lives it is above every process of its tree, because it takes over what the others
leave behind: then nothing else is asked, and a copied number of the launch proves nothing. After it was
killed the session, the group's first process, the recorded processes and the launch's number among the
limits are what is left.

Source: reference/native.md 3.5 "nested gated commands"; reference/reliability.md I31, I35, I36.
"""

import os

from tieline.model.process import ProcessIdentity
from tieline.shell.process import identify
from tieline.shell.tree.launch import LaunchEvidence
from tieline.shell.tree.limits import borne_mark
from tieline.shell.tree.table import ANCESTORS_MAX, entry_of

__all__ = ["is_inside"]

WALKS_MAX = 8
"""A parent that ends while the chain is followed makes it another chain: it is followed again."""


def is_inside(evidence: LaunchEvidence, pid: int) -> bool:
    """Return whether a process is proven to run in the launch's tree; False proves nothing."""
    here = identify(os.getpid())
    supervisor = evidence.supervisor
    if here is None or not here.boot_id or not here.pid_namespace:
        return False
    if (here.platform, here.boot_id, here.pid_namespace) != (
        supervisor.platform,
        supervisor.boot_id,
        supervisor.pid_namespace,
    ):
        return False
    for _ in range(WALKS_MAX):
        found = _walk(evidence, pid, here)
        if found is not None:
            return found
    return False


def _walk(evidence: LaunchEvidence, pid: int, here: ProcessIdentity) -> bool | None:
    """Return whether a process or one above it is the launch's; None when one ended meanwhile."""
    known = {
        one.pid: one
        for one in (*evidence.members, evidence.command, evidence.supervisor)
        if one is not None and one.boot_id == here.boot_id
    }
    is_led = evidence.ownership != "group" and _is_now(evidence.supervisor)
    for _ in range(ANCESTORS_MAX):
        if pid == 0:
            return False
        entry = entry_of(pid)
        if entry is None:
            return None
        if pid in known and _is_now(known[pid]):
            return True
        if not is_led and evidence.limit_mark and borne_mark(pid) == evidence.limit_mark:
            return True
        if entry.session == evidence.supervisor.pid and not _is_taken(evidence.supervisor):
            return True
        pid = entry.parent
    return False


def _is_now(identity: ProcessIdentity) -> bool:
    """Return whether the process that bears the number at this moment is that very one."""
    now = identify(identity.pid)
    return now is not None and now == identity


def _is_taken(identity: ProcessIdentity) -> bool:
    """Return whether the number belongs to another process: then no session of the old one is left."""
    entry = entry_of(identity.pid)
    return entry is not None and entry.start_ticks != identity.start_ticks
