"""A terminal for a command of its own, and the relay between it and the person's.

Rule 1: the person's terminal is raw only while the relay runs in the foreground, and gets back what it
had on every way out. In the background its settings are neither changed nor taken over: they are then the
shell's own.
Rule 2: bytes pass as they are. Ctrl-C and Ctrl-Z are bytes too: the command's terminal makes signals of them.
Rule 3: no more is read than can be written: a program that does not read, and a screen that is held,
hold back the other end.
Rule 4: a command in the background stands in the background of its own terminal: it is stopped when it
reads, as on the person's.

Source: reference/native.md 2.14 "PTY"; DESIGN.md 4 (`tieline run`).
"""

import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
import tty
from collections.abc import Callable
from typing import Any

__all__ = [
    "Relay",
    "attributes_of",
    "has_foreground",
    "move_foreground",
    "open_terminal",
    "restore_attributes",
    "settings_in",
    "settings_of",
]

INPUT_BYTES = 4_096
OUTPUT_BYTES = 65_536
WRITE_BYTES = 4_096
"""A terminal takes this much in one piece; a longer write would wait and let signals wait."""
LAST_OUTPUT_S = 1.0
"""So long the last output of a command that has ended may take to come through."""
QUIET_MS = 50
"""A terminal that is still open elsewhere and says nothing for so long has said all of it."""


def open_terminal(like: int, *, is_foreground: bool = True) -> tuple[int, int]:
    """Return master and slave of a new terminal with the size, in the foreground the settings, of another.

    The calling process leads a session without a terminal; this one becomes its own.
    """
    master, slave = os.openpty()
    settings = termios.tcgetattr(like if is_foreground else slave)
    if not is_foreground:
        settings[1] &= ~termios.OPOST  # the person's terminal, not raw, adds what is to be added
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    copy_size(like, master)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    return master, slave


def copy_size(source: int, target: int) -> None:
    """Give one terminal the size of another; the programs in it are told by the kernel."""
    try:
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, struct.pack("4H", 0, 0, 0, 0))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    except OSError:
        return  # hung up: nobody looks at it any more


def attributes_of(terminal: int) -> list[Any] | None:
    """Return a terminal's settings, None when it is none or was hung up."""
    try:
        return termios.tcgetattr(terminal)
    except (termios.error, OSError):
        return None


def restore_attributes(terminal: int, attributes: list[Any] | None) -> None:
    """Give a terminal its settings back; one that was hung up needs none."""
    if attributes is None:
        return
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)  # a held screen must not hold us
    except (termios.error, OSError):
        return


def settings_in(attributes: list[Any] | None) -> tuple[int, ...] | None:
    """Return a terminal's settings as numbers alone, None for none."""
    if attributes is None:
        return None
    letters = (one if isinstance(one, int) else one[0] for one in attributes[6])
    return (*attributes[:6], *letters)


def settings_of(numbers: tuple[int, ...] | None) -> list[Any] | None:
    """Return what `settings_in` was given."""
    return None if numbers is None else [*numbers[:6], list(numbers[6:])]


def has_foreground(terminal: int) -> bool | None:
    """Return whether this process may read from a terminal; None where it is not its controlling one."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return None


def move_foreground(terminal: int, group: int) -> int | None:
    """Put a process group into the foreground of this session's terminal; return who was there before."""
    # From the background this would stop us, unless the signal for it is blocked.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        before = os.tcgetpgrp(terminal)
        os.tcsetpgrp(terminal, group)
    except OSError:
        return None  # hung up, or the group has ended
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return before


class Relay:
    """Carries bytes between the person's terminal and the command's.

    Attributes:
        is_raw: Whether keys go to the command as they are.
        is_open: False once the command's terminal is closed and all it said was written.
    """

    def __init__(
        self,
        master: int,
        source: int = 0,
        sink: int | None = None,
        *,
        is_adopting: bool = False,
        announce: Callable[[list[Any]], None] = lambda _settings: None,
    ) -> None:
        """Begin without touching anything.

        Args:
            master: Of the command's terminal; it is closed at the end.
            source: The person's terminal, for keys.
            sink: The person's terminal, for output.
            is_adopting: The command began in the background, with settings of nobody: the person's become
                its own the first time it comes to the foreground, unless it has set some meanwhile.
            announce: Told the person's settings before each time that they are changed.
        """
        self.is_open = True
        self._master = master
        self._source = source
        self._sink = sink if sink is not None else next((one for one in (1, 2) if os.isatty(one)), source)
        self._attributes = attributes_of(source)
        self._announce = announce
        self._has_plain_output = is_adopting
        self._adopted_from = attributes_of(master) if is_adopting else None
        if self._adopted_from is not None:
            self._adopted_from[1] |= termios.OPOST
        self._input = b""
        self._output = b""
        self.is_raw = False
        self._has_source = True
        os.set_blocking(master, False)

    def resume(self, *, was_stopped: bool = False) -> None:
        """Go raw when this process is in the foreground, and take over the size.

        Args:
            was_stopped: The shell has set the terminal meanwhile.
        """
        if was_stopped:
            self.is_raw = False
        copy_size(self._source, self._master)
        if self._attributes is None or self.is_raw:
            return
        if not self.is_foreground():
            self._plain_output()
            return
        self._formed_output()
        self._attributes = attributes_of(self._source) or self._attributes
        if self._adopted_from is not None:
            if attributes_of(self._master) == self._adopted_from:
                restore_attributes(self._master, self._attributes)
            self._adopted_from = None
        self._announce(self._attributes)
        try:
            tty.setraw(self._source, termios.TCSANOW)
        except (termios.error, OSError):
            return
        self.is_raw = True

    def restore(self) -> None:
        """Give the person's terminal back as it was."""
        if self.is_raw:
            self.is_raw = False
            if self.is_foreground():  # in the background the shell has it, in the shell's own order
                restore_attributes(self._source, self._attributes)

    def _plain_output(self) -> None:
        """Let the command's terminal add no carriage returns: the person's, not raw, adds its own."""
        settings = attributes_of(self._master)
        if settings is not None and settings[1] & termios.OPOST:
            self._has_plain_output = True
            settings[1] &= ~termios.OPOST
            restore_attributes(self._master, settings)

    def _formed_output(self) -> None:
        """Take `_plain_output` back."""
        settings = attributes_of(self._master) if self._has_plain_output else None
        if settings is not None:
            self._has_plain_output = False
            settings[1] |= termios.OPOST
            restore_attributes(self._master, settings)

    def is_foreground(self) -> bool:
        """Return whether this process may read from the person's terminal."""
        return has_foreground(self._source) is True

    def resize(self) -> None:
        """Tell the command's terminal the size of the person's."""
        copy_size(self._source, self._master)

    def interest(self) -> dict[int, int]:
        """Return what to wait for, as `poll` takes it; empty when nothing can come."""
        wanted: dict[int, int] = {}
        if not self.is_open:
            return wanted
        if self.is_raw and self._has_source and len(self._input) < INPUT_BYTES:
            wanted[self._source] = select.POLLIN
        if self._output:
            wanted[self._sink] = wanted.get(self._sink, 0) | select.POLLOUT
        else:
            wanted[self._master] = select.POLLIN
        if self._input:
            wanted[self._master] = wanted.get(self._master, 0) | select.POLLOUT
        return wanted

    def serve(self, descriptor: int, events: int) -> None:
        """Carry what can be carried at one descriptor of `interest`."""
        if descriptor == self._master:
            if events & select.POLLOUT and self._input:
                self._write_master()
            if not self._output and events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read_master()
            return
        if descriptor == self._sink and self._output and events & ~select.POLLIN:
            self._write_sink()
        if descriptor == self._source and self.is_raw and events & ~select.POLLOUT:
            self._read_source()

    def finish(self) -> None:
        """Write the last of what the command said, then give the person's terminal back."""
        # No more input: nobody reads it now.
        self._has_source, self._input = False, b""
        self.show()
        self.restore()

    def show(self) -> None:
        """Write what the command has said so far; a screen that is held is waited for, not for ever."""
        deadline = time.monotonic() + LAST_OUTPUT_S
        while self.is_open and time.monotonic() < deadline:
            poller = select.poll()
            if self._output:
                poller.register(self._sink, select.POLLOUT)
            else:
                poller.register(self._master, select.POLLIN)
            ready = poller.poll(QUIET_MS)
            if not ready and not self._output:
                break
            for descriptor, events in ready:
                self.serve(descriptor, events)

    def close(self) -> None:
        """Leave: the person's terminal is as it was, ours is closed here."""
        self.restore()
        if self.is_open:
            self.is_open = False
        os.close(self._master)

    def _read_source(self) -> None:
        try:
            data = os.read(self._source, INPUT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._has_source = bool(data)  # at its end the terminal was hung up; SIGHUP says the rest
        self._input += data

    def _write_master(self) -> None:
        try:
            self._input = self._input[os.write(self._master, self._input) :]
        except BlockingIOError:
            return
        except OSError:
            self._input = b""

    def _read_master(self) -> None:
        try:
            self._output = os.read(self._master, OUTPUT_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.is_open = False  # nobody has the other side open
        else:
            self.is_open = bool(self._output)

    def _write_sink(self) -> None:
        try:
            self._output = self._output[os.write(self._sink, self._output[:WRITE_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            self._output = b""  # hung up: what the command says goes nowhere, as on any closed terminal
