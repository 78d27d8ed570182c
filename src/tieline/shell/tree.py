"""What runs of one launch, and what is proven of its end.

Rule 1: the proof follows the whole tree: the supervisor, its session, the command's process group, the
control group, processes seen outside of those, and the launch's mark in every environment of this user.
Rule 2: what cannot be read makes the answer `unknown`, and that frees nothing. Zombies do not run.
Rule 3: nothing here signals a process, writes a file or removes one.
Rule 4: this module knows no resource and no store; what it needs of a launch stands in `LaunchEvidence`.

A number of /proc is a name for an instant. Processes come and go while it is read, so it is read until
one pass shows nobody new, and a process that is between two programs is looked at again.

Source: reference/native.md 2.14, 3.5, 3.6 items 8 and 9, 5; reference/reliability.md K11, K30, I34, I36,
I37; reference/open-bugs.md O36, O41, O42.
"""

import os
import time
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import msgspec

from tieline.model.process import Liveness, ProcessIdentity
from tieline.shell.process import identify, probe

__all__ = [
    "MARKS_VARIABLE",
    "CompletionProof",
    "LaunchEvidence",
    "LaunchProbe",
    "LaunchSpec",
    "LedgerPort",
    "Ownership",
    "SpawnFailure",
    "cgroup_state",
    "child_environment",
    "descendants",
    "is_descendant",
    "probe_launch",
    "strays",
]

Ownership = Literal["cgroup", "supervised", "group"]
"""How strong the proof of an end is: a control group, a reaping supervisor, a process group alone."""

MARKS_VARIABLE = "TIELINE_LAUNCH_MARKS"
"""Holds the nonces of every launch around a process, the outermost first, separated by spaces."""

PASSES_MAX = 20
"""A process table that shows somebody new in each of so many looks is not understood: `unknown`."""
PAUSE_S = 0.005
"""Before a process that is between two programs is looked at again."""
SHOWN_MAX = 8
"""So many surviving processes are named; the number of all is said."""
ANCESTORS_MAX = 4_096
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD."""


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
    """

    launch_id: str
    nonce: str
    supervisor: ProcessIdentity
    ownership: Ownership = "supervised"
    command: ProcessIdentity | None = None
    cgroup: str = ""
    members: tuple[ProcessIdentity, ...] = ()


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


class _Entry(NamedTuple):
    """One process in /proc at one moment."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    thread_count: int
    start_ticks: int
    name: str
    is_kernel_thread: bool

    @property
    def is_running(self) -> bool:
        # A leader that ended its own thread while others run is shown as a zombie and is not one.
        return self.state not in ("Z", "X", "x") or self.thread_count > 1


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
            new = [pid for pid in _listed() if pid not in self._judged]
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
        entry = _entry(pid)
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

    def _is_in_session(self, entry: _Entry) -> bool:
        command = self._evidence.command
        return (
            entry.session == self._evidence.supervisor.pid and not self._is_reused(self._evidence.supervisor)
        ) or (command is not None and entry.group == command.pid and not self._is_reused(command))

    def _is_reused(self, identity: ProcessIdentity) -> bool:
        """Return whether its number has gone to another process.

        The kernel gives a number away only when no process, group or session bears it any more: the old
        session and group have ended then.
        """
        now = _entry(identity.pid)
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

    def _look_inside(self, entry: _Entry) -> bool:
        """Look for the mark; return False when the process is to be looked at again."""
        if entry.pid == os.getpid():  # what holds keys is closed even to itself, and knows its own marks
            if self._evidence.nonce in os.environ.get(MARKS_VARIABLE, "").split():
                self._members[entry.pid] = entry.name
            return True
        try:
            with open(f"/proc/{entry.pid}/environ", "rb") as file:
                environment = file.read()
        except (FileNotFoundError, ProcessLookupError):
            return True
        except OSError:
            if _uids_of(entry.pid) & self._uids:
                self._unread.append(entry.pid)
            return True
        if self._evidence.nonce.encode() in environment:
            self._members[entry.pid] = entry.name
        # It reads as empty, too, while its process changes its program or ends; a busy machine may leave
        # one there for long. Of a process that really has none the kernel knows where it would be.
        elif not environment and not entry.is_kernel_thread:
            return _has_empty_environment(entry.pid)
        return True


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


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, parents before their children; zombies are among them.

    One that is started meanwhile may be missing.
    """
    if os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return _below(pid, _children)
    table: dict[int, list[int]] = {}
    for entry in (_entry(one) for one in _listed()):
        if entry is not None:
            table.setdefault(entry.parent, []).append(entry.pid)
    return _below(pid, lambda one: table.get(one, []))


def strays(pid: int) -> list[int]:
    """Return the running processes below `pid` that have left its session."""
    found = (_entry(one) for one in descendants(pid))
    return [one.pid for one in found if one is not None and one.is_running and one.session != pid]


def is_descendant(pid: int, ancestor: int) -> bool:
    """Return whether `pid` is below `ancestor` at this moment."""
    for _ in range(ANCESTORS_MAX):
        entry = _entry(pid)
        if entry is None:
            return False
        if entry.parent == ancestor:
            return True
        pid = entry.parent
    return False


def _below(pid: int, children: Callable[[int], list[int]]) -> list[int]:
    found: list[int] = []
    seen = {pid}
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop(0)):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            continue  # the thread ended: its children are another thread's now
    return found


def _listed() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _entry(pid: int) -> _Entry | None:
    """Return what /proc says of a process, None when it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold some itself: the fields follow the last one.
    end = text.rfind(b")")
    fields = text[end + 2 :].split()
    if len(fields) < 20:
        return None
    parent, group, session = (int(fields[index]) for index in (1, 2, 3))
    name = text[text.find(b"(") + 1 : end].decode("utf-8", "replace")
    printable = "".join(letter if letter.isprintable() else "?" for letter in name)
    return _Entry(
        pid,
        fields[0].decode("ascii"),
        parent,
        group,
        session,
        int(fields[17]),
        int(fields[19]),
        printable,
        bool(int(fields[6]) & KERNEL_THREAD),
    )


def _has_empty_environment(pid: int) -> bool:
    """Return whether a process has an environment without a variable; False while it has none at all."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return True
    return len(fields) > 48 and fields[47] == fields[48] != b"0"


def _uids_of(pid: int) -> set[int]:
    """Return the real, effective, saved and file user of a process; empty when it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return set()
    return {int(word) for line in lines if line.startswith(b"Uid:") for word in line.split()[1:]}
