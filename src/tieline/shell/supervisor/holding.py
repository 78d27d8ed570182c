"""The supervisor: it starts one command, owns its tree, and tells its proven end.

Rule 1: what was started is durable in the ledger before the program runs.
Rule 2: it counts as the holder and ends only when nothing of the tree runs: as the tree's reaper it
is told so by the kernel. The end of the command, of the front end or of the agent ends nothing.
Rule 3: it signals what it owns, and only on request: a signal handed on by its front end, `stop` for an
orphan, or SIGTERM to itself.
Rule 4: of the caller's streams it keeps none once the command has them, so that a reader sees the end
when the command's side ends.

It leads the session of the tree and, with a terminal, holds its master: a stopped command then has a
parent in its session and can be continued, which job control needs. While its front end is in the
background, this process and not the command has the foreground of that terminal.

A tree that ended in order is told at once; another one has to stay gone for `quarantine_ms` first.

Source: reference/native.md 190 to 192, 195 to 197, 3.5, 5; reference/reliability.md K30, I31 to I34, I37;
reference/open-bugs.md O42; DESIGN.md 2.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tieline.errors import Refused, TielineError
from tieline.shell.process import identify, self_identity
from tieline.shell.supervisor.control_group import end_group, make_group, remove_group
from tieline.shell.supervisor.lines import (
    Ended,
    Failed,
    Foreground,
    Go,
    Gone,
    Line,
    Signal,
    Started,
    Stopped,
    spec_of,
)
from tieline.shell.supervisor.spawn import Child, abandon, fork_command, release
from tieline.shell.supervisor.stopping import signal_group, signal_tree
from tieline.shell.terminal import move_foreground, open_terminal, restore_attributes, settings_of
from tieline.shell.tree import (
    CompletionProof,
    LaunchEvidence,
    LaunchSpec,
    LedgerPort,
    Ownership,
    SpawnFailure,
    bear_mark,
    cgroup_state,
    child_environment,
    strays,
)

__all__ = ["become_reaper", "serve", "supervise"]

LOOK_S = 1.0
"""How often processes that left the session are looked for."""
CLOSE_LOOK_S = 0.1
"""How often the tree's end is looked for where the kernel does not tell it, and a tree is ended again."""
TELL_ATTEMPTS_MAX = 60
TELL_PAUSE_S = 0.5
MEMBERS_MAX = 64
"""Processes outside the session that the ledger is told; the mark in their environment finds the others."""
SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER."""
WAIT_ALL = 0x40000000
"""__WALL: children that announce their end by another signal are children too."""
# What the front end's own process gets one at a time; the others a terminal would give to the group.
TO_COMMAND_ALONE = frozenset({signal.SIGUSR1, signal.SIGUSR2})
QUIET = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU")
)

# A variable, so that a type checker for one system still reads the branches of the others.
PLATFORM: str = sys.platform


def serve(descriptor: int, open_ledger: Callable[[LaunchSpec], LedgerPort]) -> int:
    """Wait for the front end's word, then supervise; return the exit code of this process.

    Args:
        descriptor: This end of the pair of sockets.
        open_ledger: Gives the ledger of a launch, from its `context`.

    Returns:
        0 when the ledger knows how it ended, or nothing was to be done; 1 when it could not be told.
    """
    line = Line(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    while line.is_open:
        words = line.receive()
        if words and isinstance(words[0], Go):
            line.waiting = words[1:]
            spec = spec_of(words[0])
            return supervise(spec, open_ledger(spec), line, is_foreground=words[0].is_foreground)
    return 0


def supervise(spec: LaunchSpec, ledger: LedgerPort, line: Line, *, is_foreground: bool = True) -> int:
    """Run one launch until nothing of its tree runs; return the exit code of this process.

    This process leads a session without a terminal and has no other thread and no other children.
    """
    holding = _Holding(spec, ledger, line, is_foreground=is_foreground)
    if holding.start():
        holding.hold()
    return holding.code


def become_reaper() -> bool:
    """Make this process the parent of all that its descendants leave behind; return whether it could be."""
    if PLATFORM != "linux":
        return False
    import ctypes  # noqa: PLC0415 - only a supervisor pays for it

    return bool(ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class _Holding:
    """One launch and its tree.

    Attributes:
        code: Exit code for this process.
    """

    def __init__(self, spec: LaunchSpec, ledger: LedgerPort, line: Line, *, is_foreground: bool) -> None:
        self.code = 0
        self._spec = spec
        self._ledger = ledger
        self._line = line
        # Read before any handler is set: what the caller ignores, the command ignores.
        self._ignored = frozenset(
            int(one) for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN
        ) - {int(signal.SIGPIPE), int(signal.SIGXFSZ)}
        self._ownership: Ownership = "group"
        self._evidence = LaunchEvidence(spec.launch_id, spec.nonce, self_identity())
        self._wakeup = -1
        self._is_asked_to_stop = False
        self._child: Child | None = None
        self._master: int | None = None
        self._is_foreground = is_foreground
        self._parked_group: int | None = None
        self._stopped_by = 0
        self._screen: int | None = None
        self._screen_settings: list[Any] | None = None
        self._exit_code: int | None = None
        self._has_children = True
        self._has_front_end = True
        self._is_orderly = True
        self._kill_at: float | None = None
        self._gone_since: float | None = None
        self._look_at = 0.0
        self._seen_astray: set[int] = set()

    # ------------------------------------------------------------ start

    def start(self) -> bool:
        """Start the command; return whether it runs. Whatever came of it is told."""
        inherited = _inherited(self._line.fileno())
        self._listen()
        self._ownership = "supervised" if become_reaper() else "group"
        # Before the fork, so that nothing of the tree is without it.
        limit_mark = bear_mark(self._spec.nonce)
        slave = self._open_terminal()
        self._child = child = fork_command(
            self._spec.command,
            child_environment(self._spec, dict(os.environb)),
            ignored=self._ignored,
            terminal=slave,
            is_foreground=self._is_foreground,
        )
        _let_go(inherited, slave)
        group = make_group(self._spec.nonce, child.pid)
        if group:
            self._ownership = "cgroup"
        self._evidence = msgspec.structs.replace(
            self._evidence,
            ownership=self._ownership,
            command=identify(child.pid),
            cgroup=group,
            limit_mark=limit_mark,
        )
        try:
            self._ledger.record_started(self._evidence)
        except (TielineError, OSError) as error:
            abandon(child)
            return self._give_up(SpawnFailure(125, str(error)), _code_of(error))
        failure = release(child)
        if failure is not None:
            return self._give_up(failure, "")
        self._line.send(Started(self._evidence), self._master)
        return True

    def _listen(self) -> None:
        """Have every signal wake the loop; none ends this process but SIGKILL and a defect."""
        self._wakeup, writing = os.pipe()
        for descriptor in (self._wakeup, writing):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *QUIET):
            signal.signal(number, _nothing)
        signal.signal(signal.SIGTERM, self._ask_to_stop)

    def _ask_to_stop(self, _number: int, _frame: object) -> None:
        self._is_asked_to_stop = True

    def _open_terminal(self) -> int | None:
        """Make the command's terminal when the caller's stdin is one; return its slave."""
        if self._spec.terminal == "never" or not os.isatty(0):
            return None
        self._master, slave = open_terminal(like=0, is_foreground=self._is_foreground)
        # A front end that is killed leaves the person's terminal raw: then it is for us to restore.
        self._screen = os.dup(0)
        return slave

    def _give_up(self, failure: SpawnFailure, code: str) -> bool:
        """Tell that the command never ran."""
        assert self._child is not None
        os.waitpid(self._child.pid, 0)
        self._tell(lambda: self._ledger.spawn_failed(failure))
        if self._evidence.cgroup:
            remove_group(self._evidence.cgroup)
        self._line.send(Failed(failure.exit_code, code, failure.text))
        return False

    # ------------------------------------------------------------ hold

    def hold(self) -> None:
        """Return when nothing of the tree runs and the ledger knows it."""
        while not self._is_over():
            self._wait()
            self._tend()
            self._reap()
        self._tell(lambda: self._ledger.complete(self._proof()))
        if self._evidence.cgroup:
            remove_group(self._evidence.cgroup)
        if self.code == 0:
            self._line.send(Gone())

    def _wait(self) -> None:
        """Wait for a signal, a word, output nobody reads, or the time to look again."""
        poller = select.poll()
        poller.register(self._wakeup, select.POLLIN)
        if self._line.waiting:
            self._listen_to_front_end()
        if self._line.is_open:
            poller.register(self._line, select.POLLIN)
        elif self._master is not None:
            poller.register(self._master, select.POLLIN)
        for descriptor, _ in poller.poll(self._patience_s() * 1_000):
            if descriptor == self._wakeup:
                os.read(self._wakeup, 4_096)
            elif descriptor == self._master:
                self._discard()
            else:
                self._listen_to_front_end()

    def _patience_s(self) -> float:
        if self._gone_since is not None:
            return max(0.0, self._gone_since + self._quarantine_s() - time.monotonic())
        if self._kill_at is not None or not self._has_children:
            return CLOSE_LOOK_S
        if self._exit_code is not None and self._ownership == "group":
            return CLOSE_LOOK_S
        return LOOK_S

    def _listen_to_front_end(self) -> None:
        for word in self._line.receive():
            if isinstance(word, Foreground):
                self._screen_settings = settings_of(word.settings)
                self._move_foreground(to_command=word.is_foreground)
            if isinstance(word, Signal) and self._child is not None:
                number = signal.Signals(word.number)
                if number in TO_COMMAND_ALONE:
                    os.kill(self._child.pid, number)  # not reaped: the number is its own
                else:
                    signal_group(self._child.pid, number)

    def _move_foreground(self, *, to_command: bool) -> None:
        """Let the command read from its terminal, or have it stopped when it does."""
        if self._master is None or self._child is None or to_command == self._is_foreground:
            return
        self._is_foreground = to_command
        if not to_command:
            self._parked_group = move_foreground(self._master, os.getpgrp())
            return
        # A shell among the commands had put one of its own jobs there.
        parked, self._parked_group = self._parked_group, None
        if parked in (None, os.getpgrp()) or move_foreground(self._master, parked) is None:
            move_foreground(self._master, self._child.pid)
        signal_group(self._child.pid, signal.SIGWINCH)  # a new size was told to whoever was there then

    def _miss_front_end(self) -> None:
        """Go on without the front end: it was killed, or it has left after the command's end."""
        self._has_front_end = False
        self._leave_screen(was_killed=self._exit_code is None)
        if self._exit_code is None:
            self._is_orderly = False
            self._move_foreground(to_command=True)  # nobody is left who could bring it there
            if self._child is not None and self._stopped_by in (signal.SIGTTIN, signal.SIGTTOU):
                signal_group(self._child.pid, signal.SIGCONT)
            if self._spec.on_orphan == "stop":
                self._stop()

    def _leave_screen(self, *, was_killed: bool) -> None:
        if self._screen is not None:
            if was_killed:
                restore_attributes(self._screen, self._screen_settings)
            os.close(self._screen)
            self._screen = None

    def _discard(self) -> None:
        """Take what the tree says to a terminal that nobody looks at, so that it does not wait for ever."""
        assert self._master is not None
        try:
            is_closed = not os.read(self._master, 65_536)
        except BlockingIOError:
            return
        except OSError:
            is_closed = True
        if is_closed:
            os.close(self._master)
            self._master = None

    def _reap(self) -> None:
        """Take the ends of all children; note whether any is left."""
        options = os.WNOHANG | os.WUNTRACED | (WAIT_ALL if PLATFORM == "linux" else 0)
        while True:
            try:
                pid, status = os.waitpid(-1, options)
            except ChildProcessError:
                self._has_children = False
                break
            if pid == 0:
                self._has_children = True
                break
            if self._child is not None and pid == self._child.pid:
                self._note(status)
        if self._exit_code is not None and self._child is not None:
            self._child = None
            if self._has_children:
                self._is_orderly = False
            self._line.send(Ended(self._exit_code, self._has_children))
            self._leave_screen(was_killed=False)

    def _note(self, status: int) -> None:
        """Note what became of the command."""
        if os.WIFSTOPPED(status):
            self._stopped_by = os.WSTOPSIG(status)
            self._line.send(Stopped(self._stopped_by))
            return
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            self._is_orderly = False
        self._exit_code = code if code >= 0 else 128 - code

    def _tend(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        # Noticed by reading or by writing, whichever came first.
        if self._has_front_end and not self._line.is_open:
            self._miss_front_end()
        if self._is_asked_to_stop and self._kill_at is None:
            self._stop()
        if self._kill_at is not None and now >= self._kill_at:
            self._signal_all(signal.SIGKILL)
        if self._ownership == "supervised" and now >= self._look_at:
            self._look_at = now + LOOK_S
            self._record_strays()

    def _stop(self) -> None:
        """Ask the whole tree to end; after the grace it is ended."""
        self._is_orderly = False
        self._kill_at = time.monotonic() + self._spec.stop_grace_ms / 1_000
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process cannot heed a request
            self._signal_all(number)

    def _signal_all(self, number: int) -> None:
        """Send a signal to all that is ours and can be hit without hitting another."""
        if self._ownership == "group":
            if self._child is not None:
                signal_group(self._child.pid, number)
        elif number != signal.SIGKILL or not (self._evidence.cgroup and end_group(self._evidence.cgroup)):
            signal_tree(number)

    def _record_strays(self) -> None:
        """Tell the ledger of processes that left the session and stay, to be found after our own death."""
        now_astray = set(strays(os.getpid()))
        staying = sorted(now_astray & self._seen_astray)[:MEMBERS_MAX]
        self._seen_astray = now_astray
        known = {one.pid for one in self._evidence.members}
        if known.issuperset(staying):
            return
        members = tuple(one for one in (identify(pid) for pid in staying) if one is not None)
        evidence = msgspec.structs.replace(self._evidence, members=members)
        with contextlib.suppress(TielineError, OSError):  # asked again at the next look
            self._ledger.record_members(evidence)
            self._evidence = evidence

    # ------------------------------------------------------------ end

    def _is_over(self) -> bool:
        """Return whether nothing of the tree has run for as long as has to be."""
        if not self._is_empty():
            self._gone_since = None
            return False
        now = time.monotonic()
        if self._gone_since is None:
            self._gone_since = now
        return now - self._gone_since >= self._quarantine_s()

    def _is_empty(self) -> bool:
        if self._exit_code is None or self._has_children:
            return False
        if self._ownership == "cgroup":
            return cgroup_state(self._evidence.cgroup) == "empty"
        if self._ownership == "group":
            assert self._evidence.command is not None
            try:
                os.killpg(self._evidence.command.pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                return False
            return False
        return True

    def _quarantine_s(self) -> float:
        return 0.0 if self._is_orderly else self._spec.quarantine_ms / 1_000

    def _proof(self) -> CompletionProof:
        assert self._exit_code is not None
        told = {
            "cgroup": ("every process below the supervisor was reaped", "the control group is empty"),
            "supervised": ("every process below the supervisor was reaped",),
            "group": ("the process group is empty",),
        }[self._ownership]
        return CompletionProof(self._exit_code, self._ownership, self._is_orderly, told)

    def _tell(self, tell: Callable[[], None]) -> None:
        """Tell the ledger, again while it cannot be told; after 30 s our own end is left to speak."""
        for _ in range(TELL_ATTEMPTS_MAX):
            try:
                tell()
            except (TielineError, OSError):
                time.sleep(TELL_PAUSE_S)
            else:
                return
        self.code = 1


def _nothing(_number: int, _frame: object) -> None:
    """Be woken, and do no more."""


def _code_of(error: Exception) -> str:
    return error.code if isinstance(error, Refused) else ""


def _inherited(own: int) -> list[int]:
    """Return the descriptors above the standard ones that the caller handed down to the command."""
    folder = "/proc/self/fd" if PLATFORM == "linux" else "/dev/fd"
    found = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # the one that the listing itself used
            if int(name) > 2 and int(name) != own and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _let_go(inherited: list[int], slave: int | None) -> None:
    """Close what is the command's: its streams, its terminal, its directory."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream, inheritable=False)
    for descriptor in (nowhere, *inherited, *(() if slave is None else (slave,))):
        os.close(descriptor)
    os.chdir("/")
