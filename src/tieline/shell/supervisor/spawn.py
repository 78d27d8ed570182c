"""A command forked, held before its program until it may run, and told apart from one that cannot.

Rule 1: the child runs nothing of its program before the gate is opened; a supervisor that dies first
closes the gate, and the child leaves.
Rule 2: the child gets the caller's standard streams, or a terminal in place of each that is one; the
caller's working directory, signal mask and ignored signals; no descriptor of ours.
Rule 3: a program that cannot be executed is a proven failure, with the code that a shell gives it.

The fork is plain: this process has one thread and holds no lock, and a child that must wait between
its fork and its program cannot be had otherwise.

Source: reference/native.md 190, 191, 3.5; reference/reliability.md I32, K30; DESIGN.md 4 (exit codes).
"""

import errno
import os
import signal
from typing import NamedTuple

from tieline.shell.tree import SpawnFailure

__all__ = ["Child", "abandon", "fork_command", "release"]

DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
# The interpreter ignores these for itself; a command expects them as they are.
RESTORED = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name))
NOT_EXECUTABLE = 126
NOT_FOUND = 127
REFUSED = 125
NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
NAME_BYTES_MAX = 256


class Child(NamedTuple):
    """A forked child that waits before its program.

    Attributes:
        gate: Written to let it run, closed to let it leave.
        failure: Says why the program could not be executed; ends when it is.
    """

    pid: int
    gate: int
    failure: int


def fork_command(
    command: tuple[str, ...],
    environment: dict[bytes, bytes],
    *,
    ignored: frozenset[int],
    terminal: int | None,
    is_foreground: bool = True,
) -> Child:
    """Return a child in a process group of its own that waits for `release` or `abandon`.

    Args:
        command: Program, searched in the PATH of `environment`, and arguments.
        environment: All that the program gets.
        ignored: Numbers of the signals that the caller ignores.
        terminal: Slave of a terminal for each standard stream that is one.
        is_foreground: Whether the command may read from that terminal; else it is stopped when it does.
    """
    gate_reading, gate = os.pipe()
    failure, failure_writing = os.pipe()
    # No handler of ours may run in the child: it would write into our pipes.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()  # noqa: TID251 - see the header
        if pid == 0:
            try:
                os.close(gate)
                _prepare(ignored, terminal, mask, is_foreground=is_foreground)
                if os.read(gate_reading, 1):
                    _execute(command, environment, failure_writing)
            except OSError as error:
                _tell(failure_writing, error.errno or errno.EIO, os.fsencode(command[0]))
            except ValueError:  # an empty name, or a word with a zero byte
                _tell(failure_writing, errno.ENOENT, os.fsencode(command[0]))
            finally:
                os._exit(REFUSED)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(gate_reading)
        os.close(failure_writing)
    os.setpgid(pid, pid)  # the child does so as well; whoever is first, the group is there
    return Child(pid, gate, failure)


def release(child: Child) -> SpawnFailure | None:
    """Let the program run; return None once it was executed, or why it could not be."""
    with open(child.failure, "rb") as file, open(child.gate, "wb", buffering=0) as gate:
        try:
            gate.write(b"g")
            has_left = False
        except BrokenPipeError:
            has_left = True
        told = file.read()
    if not told:
        return (
            SpawnFailure(NOT_EXECUTABLE, "the forked process left before its program") if has_left else None
        )
    number, _, name = told.partition(b" ")
    code = NOT_FOUND if int(number) in NOT_THERE else NOT_EXECUTABLE
    return SpawnFailure(code, f"{os.fsdecode(name)}: {os.strerror(int(number))}")


def abandon(child: Child) -> None:
    """Let the child leave without having run anything of its program."""
    os.close(child.gate)
    os.close(child.failure)


def _prepare(
    ignored: frozenset[int], terminal: int | None, mask: set[int | signal.Signals], *, is_foreground: bool
) -> None:
    """Make this forked child what the program expects to be."""
    signal.set_wakeup_fd(-1)
    os.setpgid(0, 0)
    if terminal is not None:
        if is_foreground:
            os.tcsetpgrp(terminal, os.getpid())  # SIGTTOU is blocked here, as everything is
        for stream in (0, 1, 2):
            if os.isatty(stream):
                os.dup2(terminal, stream)
    for number in signal.valid_signals():
        if number in ignored:
            signal.signal(number, signal.SIG_IGN)
        elif number in RESTORED or callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _execute(command: tuple[str, ...], environment: dict[bytes, bytes], failure: int) -> None:
    """Become the program, or say why not."""
    words = [os.fsencode(word) for word in command]
    number = errno.ENOENT
    for path in _candidates(words[0], environment):
        try:
            os.execve(path, words, environment)  # noqa: S606 - the caller's command, as it is
        except OSError as error:
            # A program that was found and may not run tells more than the folders without one.
            if error.errno not in NOT_THERE:
                number = error.errno or errno.EIO
        if number == errno.ENOEXEC:  # a script without its first line, as execvp(3) has it
            os.execve("/bin/sh", [b"/bin/sh", path, *words[1:]], environment)  # noqa: S606 - the same
        if number not in (errno.ENOENT, errno.EACCES):
            break
    _tell(failure, number, words[0])


def _tell(failure: int, number: int, program: bytes) -> None:
    os.write(failure, b"%d %s" % (number, program[:NAME_BYTES_MAX]))


def _candidates(program: bytes, environment: dict[bytes, bytes]) -> list[bytes]:
    """Return the paths under which a program may be, in the order of PATH."""
    if b"/" in program or not program:
        return [program]
    folders = environment.get(b"PATH", DEFAULT_PATH).split(b":")
    return [os.path.join(folder or b".", program) for folder in folders]
