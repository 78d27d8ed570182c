"""The caller's side of a launch: it stands where the command would stand, and passes everything on.

Rule 1: the supervisor is there, named and waiting, before the ledger is told of the launch, and it
starts nothing before the ledger was told.
Rule 2: streams, working directory, descriptors and ignored signals are the caller's own; nothing of the
command's output passes through here, save where it has a terminal of its own.
Rule 3: the command's exit code is the caller's, 128 and the signal's number when one ended it.
Rule 4: this side may be killed at any instant; the supervisor holds on.
Rule 5: to the caller's shell it is a job like the command itself: it changes the terminal's settings in the
foreground alone, and is stopped when its command is.

Source: DESIGN.md 2, 4; reference/native.md 2.14, 190, 191, 3.5; reference/reliability.md I32.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

from tieline.errors import ProtocolError
from tieline.shell.process import identify
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
    Word,
    go,
)
from tieline.shell.terminal import Relay, has_foreground, settings_in
from tieline.shell.tree import LaunchEvidence, LaunchSpec

__all__ = ["LaunchEnd", "Supervisor", "run_under_supervisor"]

BOOT = (
    "import sys, importlib; sys.path[:] = sys.argv[3:]; "
    "sys.exit(importlib.import_module(sys.argv[2]).main(int(sys.argv[1])))"
)
OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)).removesuffix("/tieline/shell/supervisor")
GONE_WAIT_S = 3.0
"""So long the end of the tree may take to reach the ledger when nothing outlived the command."""
FOREGROUND_LOOK_S = 0.5
"""How often a front end in the background looks whether it was brought to the foreground."""
LOST = 125
RELAYED = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGUSR1", "SIGUSR2")
)

# Supervisors of this process that it has not reaped; the next one that is started sees to it.
_left: list[int] = []


class LaunchEnd(NamedTuple):
    """What came of a launch, as far as its front end saw it.

    Attributes:
        exit_code: For the caller: the command's; 126 or 127 for one that cannot be executed; 125 refused, or
            not known because the supervisor was killed.
        outcome: `not_started` is proven; `lost` says that the tree may still run.
        code: The ledger's typed code when it refused the start, else empty.
        text: The reason, for a person.
        is_tree_gone: Whether the ledger knows that nothing of it runs any more. False while processes
            outlive the command: the supervisor holds on.
        evidence: What was started.
    """

    exit_code: int
    outcome: Literal["ended", "not_started", "lost"]
    code: str
    text: str
    is_tree_gone: bool
    evidence: LaunchEvidence


def run_under_supervisor(
    spec: LaunchSpec, *, program: str, admit: Callable[[LaunchEvidence], None]
) -> LaunchEnd:
    """Run one command under a supervisor of its own and return when the command has ended.

    It is called in the main thread: signals are relayed meanwhile.

    Args:
        spec: The command, and how it is to be held.
        program: Module whose `main(descriptor)` calls `holding.serve` with the ledger's door.
        admit: Makes the launch durable in the ledger, with its supervisor, before anything is started;
            what it raises is raised, and nothing has been started.
    """
    with Supervisor.start(program) as supervisor:
        admit(supervisor.evidence(spec))
        return supervisor.run(spec)


class Supervisor:
    """A supervisor that waits for its launch. Left without one it ends and has done nothing."""

    def __init__(self, pid: int, line: Line) -> None:
        self._pid = pid
        self._line = line

    @classmethod
    def start(cls, program: str) -> Self:
        """Start one; it takes its time to load while the caller asks and waits for its grant.

        Raises:
            OSError: No process or descriptor is to be had.
        """
        _reap_left()
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            folders = [OWN_FOLDER, *(os.path.abspath(one) for one in sys.path if one)]
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", BOOT, str(number), program, *folders],
                os.environ,
                # Onto itself: it stays open there, and never was inheritable here.
                file_actions=[(os.POSIX_SPAWN_DUP2, number, number)],
                setsid=True,
            )
        _left.append(pid)
        return cls(pid, Line(ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave it: without a launch it ends, with one it holds on."""
        self._line.close()
        _reap_left()

    def evidence(self, spec: LaunchSpec) -> LaunchEvidence:
        """Return what the ledger records of a launch before it is started.

        Raises:
            ProcessLookupError: The supervisor has ended already.
        """
        identity = identify(self._pid)
        if identity is None:
            raise ProcessLookupError(f"the supervisor {self._pid} ended before its launch")
        return LaunchEvidence(spec.launch_id, spec.nonce, identity)

    def run(self, spec: LaunchSpec) -> LaunchEnd:
        """Start the command and return when it has ended; signals and terminal are relayed meanwhile."""
        return _Watch(self._line, self.evidence(spec)).run(spec)


class _Watch:
    """One launch, watched from its start to its end."""

    def __init__(self, line: Line, evidence: LaunchEvidence) -> None:
        self._line = line
        self._evidence = evidence
        self._relay: Relay | None = None
        self._end: LaunchEnd | None = None
        self._give_up_at: float | None = None
        # Where the terminal has no job control for us, nobody could bring a command to the foreground.
        self._is_foreground = has_foreground(0) is not False
        self._was_continued = False

    def run(self, spec: LaunchSpec) -> LaunchEnd:
        before = self._take_signals()
        try:
            # No signal's word may come to stand inside this one.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)
            self._line.send(go(spec, is_foreground=self._is_foreground))
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            while not self._is_over():
                self._turn()
            if self._relay is not None:
                self._relay.finish()
        finally:
            if self._relay is not None:
                self._relay.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._end or LaunchEnd(
            LOST,
            "lost",
            "",
            "the supervisor ended before the command did",
            False,
            self._evidence,
        )

    def _take_signals(self) -> dict[int, Any]:
        """Have the command get our signals; one that the caller ignores, it ignores as well."""
        before: dict[int, Any] = {}
        for number in (*RELAYED, signal.SIGCONT, signal.SIGWINCH):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, self._on_signal)
        return before

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._relay is not None and number == signal.SIGWINCH:
            self._relay.resize()
            return
        if number == signal.SIGCONT:
            self._was_continued = True
            self._come_back(was_stopped=True)
        self._line.send(Signal(number))

    def _is_over(self) -> bool:
        if not self._line.is_open or (self._end is not None and self._end.is_tree_gone):
            return True
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _turn(self) -> None:
        """Wait for a word or for bytes, and pass on what has come."""
        poller = select.poll()
        poller.register(self._line, select.POLLIN)
        wanted = self._relay.interest() if self._relay is not None else {}
        for descriptor, events in wanted.items():
            poller.register(descriptor, events)
        for descriptor, events in poller.poll(self._patience_ms()):
            if descriptor in wanted and self._relay is not None:
                self._relay.serve(descriptor, events)
            else:
                for word in self._line.receive():
                    self._take(word)
        if self._relay is not None and not self._relay.is_raw:
            self._come_back()

    def _come_back(self, *, was_stopped: bool = False) -> None:
        """Take the terminal when it is ours, and have the command read from it when it may."""
        if self._relay is None:
            return
        self._relay.resume(was_stopped=was_stopped)
        if has_foreground(0) is not None and self._relay.is_raw != self._is_foreground:
            self._is_foreground = self._relay.is_raw
            if not self._is_foreground:
                self._line.send(Foreground(is_foreground=False))

    def _give_back(self) -> None:
        """Give the terminal back; from now on its settings are the shell's, and nobody restores them."""
        if self._relay is not None and self._relay.is_raw:
            self._relay.restore()
            self._is_foreground = False
            self._line.send(Foreground(is_foreground=False))

    def _announce(self, settings: list[Any]) -> None:
        """Tell what the terminal had, before it is changed: the supervisor restores it when we are killed."""
        self._line.send(Foreground(is_foreground=True, settings=settings_in(settings)))

    def _patience_ms(self) -> float | None:
        if self._give_up_at is not None:
            return max(0.0, self._give_up_at - time.monotonic()) * 1_000
        if self._relay is not None and not self._relay.is_foreground():
            return FOREGROUND_LOOK_S * 1_000
        return None

    def _take(self, word: Word) -> None:
        match word:
            case Started():
                self._evidence = word.evidence
                if self._line.descriptor is not None:
                    self._relay = Relay(
                        self._line.descriptor,
                        is_adopting=not self._is_foreground,
                        announce=self._announce,
                    )
                    self._come_back()
            case Stopped():
                self._stop_as_well(word.number)
            case Ended():
                self._end = LaunchEnd(word.exit_code, "ended", "", "", False, self._evidence)
                self._give_up_at = time.monotonic() + (0.0 if word.has_survivors else GONE_WAIT_S)
            case Failed():
                self._end = LaunchEnd(
                    word.exit_code,
                    "not_started",
                    word.code,
                    word.text,
                    True,
                    self._evidence,
                )
            case Gone():
                if self._end is not None:
                    self._end = self._end._replace(is_tree_gone=True)
            case Go() | Foreground() | Signal():
                raise ProtocolError(
                    "INVALID_RPC", f"a supervisor said {type(word).__name__}, which is said to it"
                )

    def _stop_as_well(self, number: int) -> None:
        """Stop with the command, by the same signal, for the shell that has to see it; go on together."""
        if not _has_terminal():
            return
        wants_terminal = number in (signal.SIGTTIN, signal.SIGTTOU)
        if not (wants_terminal and has_foreground(0)):  # else it was brought to the foreground meanwhile
            if self._relay is not None:
                self._relay.show()
            self._give_back()
            self._was_continued = False
            _stop_job(number if wants_terminal else signal.SIGTSTP)
            if wants_terminal and not self._was_continued:
                # No shell was there that could continue it: it may read, and waits for what never comes.
                self._line.send(Foreground(is_foreground=True))
        self._come_back()
        self._line.send(Signal(signal.SIGCONT))


def _stop_job(number: int) -> None:
    """Stop the whole job, as the terminal does it; return when it was continued.

    Where no shell could continue it, the kernel ignores this.
    """
    handler = signal.signal(number, signal.SIG_DFL)
    os.killpg(0, number)
    signal.signal(number, handler)


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal, and so perhaps a shell with job control."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _reap_left() -> None:
    """Take the ends of supervisors that have ended."""
    for pid in list(_left):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            _left.remove(pid)
