"""What runs of one launch, and what is proven of its end.

Rule 1: the proof follows the whole tree: the supervisor, its session, the command's process group, the
control group, processes seen outside of those, the launch's mark in every environment of this user, and
the launch's number among the limits of every process.
Rule 2: what cannot be read makes the answer `unknown`, unless something else proves that the process is of
no part of the tree; unknown frees nothing. Zombies do not run.
Rule 3: nothing here signals a process, writes a file or removes one.

A number of /proc is a name for an instant. Processes come and go while it is read, so it is read until
one pass shows nobody new, and a process that is between two programs is looked at again.

Source: reference/native.md 2.14, 3.5, 3.6 items 8 and 9, 5; reference/reliability.md K11, K30, I34, I36,
I37; reference/open-bugs.md O36, O41, O42.
"""

import os
import time
from typing import Literal

from tieline.model.process import Liveness, ProcessIdentity
from tieline.shell.process import identify, probe
from tieline.shell.tree.launch import MARKS_VARIABLE, LaunchEvidence, LaunchProbe
from tieline.shell.tree.limits import MARKS, borne_mark
from tieline.shell.tree.table import Entry, entry_of, has_empty_environment, listed, uids_of

__all__ = ["cgroup_state", "probe_launch"]

PASSES_MAX = 20
"""A process table that shows somebody new in each of so many looks is not understood: `unknown`."""
PAUSE_S = 0.005
"""Before a process that is between two programs is looked at again."""
SHOWN_MAX = 8
"""So many surviving processes are named; the number of all is said."""


def probe_launch(evidence: LaunchEvidence) -> LaunchProbe:
    """Return whether anything of a launch runs.

    Returns:
        `alive` when the supervisor or a process of the tree runs. `gone` only when that is proven:
        another boot, or the supervisor has ended and nothing of the tree is to be found by any
        mark. `unknown` in another container, on a system without /proc, and while a young process of this
        user cannot be looked into; an empty control group settles the last.

    Source: reference/native.md 3.5 "proof of death"; reference/reliability.md I34, I36.
    """
    supervisor = evidence.supervisor
    state = probe(supervisor)
    lines = [f"supervisor {supervisor.pid}: {state}"]
    if state == "alive":
        return LaunchProbe("alive", tuple(lines), (supervisor.pid,))
    here = identify(os.getpid())
    if here is None or not supervisor.boot_id or not here.boot_id:
        return LaunchProbe("unknown", (*lines, "this process cannot read who it is itself"), ())
    if supervisor.platform == here.platform and supervisor.boot_id != here.boot_id:
        return LaunchProbe("gone", (*lines, "it belongs to an earlier boot of this machine"), ())
    if (supervisor.platform, supervisor.pid_namespace) != (here.platform, here.pid_namespace):
        return LaunchProbe("unknown", (*lines, "it belongs to another container or system"), ())
    if here.platform != "linux":
        return LaunchProbe("unknown", (*lines, "this system does not show who left the process group"), ())
    return _judge(evidence, state, lines, has_same_clock=supervisor.time_namespace == here.time_namespace)


def _judge(
    evidence: LaunchEvidence, supervisor: Liveness, lines: list[str], *, has_same_clock: bool
) -> LaunchProbe:
    """Return what the tree's traces say, of which the supervisor is not one any more."""
    states = [supervisor]
    pids: list[int] = []
    for identity in (evidence.command, *evidence.members):
        if identity is not None:
            states.append(probe(identity))
            pids += [identity.pid] if states[-1] == "alive" else []
            lines.append(f"process {identity.pid}: {states[-1]}")
    group = cgroup_state(evidence.cgroup) if evidence.cgroup else None
    if group is not None:
        states.append({"empty": "gone", "populated": "alive", "unreadable": "unknown"}[group])  # type: ignore[arg-type]
        lines.append(f"control group {evidence.cgroup}: {group}")
    found = _Search(evidence, has_same_clock=has_same_clock).run()
    lines += found.lines
    pids += [pid for pid in found.pids if pid not in pids]
    if "alive" in states or found.state == "alive":
        return LaunchProbe("alive", tuple(lines), tuple(pids))
    if group == "empty" and "unknown" not in states:
        return LaunchProbe("gone", tuple(lines), ())
    return LaunchProbe("unknown" if "unknown" in (*states, found.state) else "gone", tuple(lines), ())


class _Search:
    """One search of /proc for the members of a launch whose supervisor has ended."""

    def __init__(self, evidence: LaunchEvidence, *, has_same_clock: bool) -> None:
        self._evidence = evidence
        # Only a process as young as the supervisor can be of its tree; of another clock nothing is known.
        self._oldest_ticks = evidence.supervisor.start_ticks if has_same_clock else 0
        self._has_same_clock = has_same_clock
        self._uids = set(os.getresuid())
        self._judged: set[int] = set()
        self._between: set[int] = set()
        self._members: dict[int, str] = {}
        self._unread: list[int] = []

    def run(self) -> LaunchProbe:
        """Look until one pass shows nobody new."""
        is_settled = False
        for _ in range(PASSES_MAX):
            new = [pid for pid in listed() if pid not in self._judged]
            if not new:
                is_settled = True
                break
            for pid in new:
                self._look(pid)
            if self._between:
                time.sleep(PAUSE_S)
        looked = f"{len(self._judged)} processes looked at"
        if self._members:
            named = ", ".join(f"{pid} ({name})" for pid, name in list(self._members.items())[:SHOWN_MAX])
            line = f"{len(self._members)} still running: {named}; {looked}"
            return LaunchProbe("alive", (line,), tuple(self._members))
        if not is_settled:
            return LaunchProbe("unknown", (f"still somebody new after {PASSES_MAX} looks; {looked}",), ())
        if self._unread:
            shown = ", ".join(str(pid) for pid in self._unread[:SHOWN_MAX])
            return LaunchProbe("unknown", (f"cannot look into {shown}; {looked}",), ())
        return LaunchProbe("gone", (f"nothing in its session, group or under its mark; {looked}",), ())

    def _look(self, pid: int) -> None:
        """Judge one process, or leave it for the next pass."""
        entry = entry_of(pid)
        is_done = True
        # One that ended before it was read may have left a child that the listing does not have: the
        # next pass lists again, because this one found somebody.
        if entry is not None and entry.is_running and entry.start_ticks >= self._oldest_ticks:
            if self._is_in_session(entry):
                self._members[pid] = entry.name
            else:
                is_done = self._look_inside(entry)
        if is_done:
            self._judged.add(pid)
            self._between.discard(pid)
        else:
            self._between.add(pid)

    def _is_in_session(self, entry: Entry) -> bool:
        command = self._evidence.command
        return (
            entry.session == self._evidence.supervisor.pid and not self._is_reused(self._evidence.supervisor)
        ) or (command is not None and entry.group == command.pid and not self._is_reused(command))

    def _is_reused(self, identity: ProcessIdentity) -> bool:
        """Return whether its number has gone to another process.

        The kernel gives a number away only when no process, group or session bears it any more: the old
        session and group have ended then.
        """
        now = entry_of(identity.pid)
        if now is None or not self._has_same_clock:
            return False
        if now.start_ticks != identity.start_ticks:
            return True
        other = identify(identity.pid)
        return (
            other is not None
            and None not in (other.pidfd_inode, identity.pidfd_inode)
            and other.pidfd_inode != identity.pidfd_inode
        )

    def _look_inside(self, entry: Entry) -> bool:
        """Look for a mark; return False when the process is to be looked at again."""
        limit_mark = self._evidence.limit_mark
        if limit_mark and borne_mark(entry.pid) == limit_mark:
            self._members[entry.pid] = entry.name
            return True
        if entry.pid == os.getpid():  # what holds keys is closed even to itself, and knows its own marks
            if self._evidence.nonce in os.environ.get(MARKS_VARIABLE, "").split():
                self._members[entry.pid] = entry.name
            return True
        try:
            environment = _environment_of(entry.pid)
        except (FileNotFoundError, ProcessLookupError):
            return True
        except OSError:
            if uids_of(entry.pid) & self._uids and not self._is_of_another_tree(entry):
                self._unread.append(entry.pid)
            return True
        if self._evidence.nonce.encode() in environment:
            self._members[entry.pid] = entry.name
        # It reads as empty, too, while its process changes its program or ends; a busy machine may leave
        # one there for long. Of a process that really has none the kernel knows where it would be.
        elif not environment and not entry.is_kernel_thread:
            return has_empty_environment(entry.pid)
        return True

    def _is_of_another_tree(self, entry: Entry) -> bool:
        """Return whether a process that shows no environment is proven not to be of the tree.

        One that bears no launch's number is of no launch that gave its processes one.
        """
        borne = borne_mark(entry.pid)
        if self._evidence.limit_mark and borne is not None and borne not in MARKS:
            return True
        return self._has_strange_session(entry)

    def _has_strange_session(self, entry: Entry) -> bool:
        """Return whether the leader of its session is proven not to be of the tree.

        The supervisor led a session of its own: each session of the tree was begun by a process of the tree,
        and nobody joins one but by descent. So a process is of the tree exactly when its session's leader
        was. A leader's number is not given away while its session lasts.
        """
        if self._evidence.ownership == "group":
            return False  # whether a host's own command led a session, and left none, is not known
        if entry.session == 0:
            return True  # begun outside of this container, in which the supervisor began its own
        leader = entry_of(entry.session) if entry.session != entry.pid else None
        if leader is None or not leader.is_running:
            return False
        if leader.start_ticks < self._oldest_ticks:
            return True
        try:
            environment = _environment_of(leader.pid)
        except OSError:
            return False
        return bool(environment) and self._evidence.nonce.encode() not in environment


def _environment_of(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def cgroup_state(directory: str) -> Literal["empty", "populated", "unreadable"]:
    """Return whether a control group has processes that run; zombies are none.

    A removed group was empty: the kernel removes no other. It counts as removed only where its parent
    can be seen to be a control group.
    """
    try:
        with open(f"{directory}/cgroup.events", encoding="ascii") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        is_here = os.path.exists(f"{os.path.dirname(directory)}/cgroup.procs") and not os.path.lexists(
            directory
        )
        return "empty" if is_here else "unreadable"
    except OSError:
        return "empty" if _is_removed(directory) else "unreadable"
    if "populated 0" in lines:
        return "empty"
    return "populated" if "populated 1" in lines else "unreadable"


def _is_removed(directory: str) -> bool:
    """Return whether a control group went away while it was read."""
    return os.path.exists(f"{os.path.dirname(directory)}/cgroup.procs") and not os.path.lexists(directory)
