"""The two pipes of a host: whole lines in, whole lines out, by plain blocking calls in threads.

Rule 1: one line has one end, the byte 0x0A; a line beyond its bound is told once and skipped, because
the pipe is the host's own and the next line is still good.
Rule 2: what waits is bounded: with `LINES_MAX` lines waiting for the loop nothing more is read, and the
pipe pushes back on the host.
Rule 3: only protocol leaves through the output: `take_over` moves both pipes away from the numbers 0
and 1, so that a stray print goes to the log stream and a child process reads nothing of the host's.
Rule 4: nothing is imported here but what the interpreter has loaded already; the host is waiting.

Source: reference/reliability.md 3.3, K8, K33; open-bugs.md O33, O48; reference/substrate.md 6.
"""

import _thread
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

__all__ = ["LINE_BYTES_MAX", "TOO_LONG", "Inlet", "LineCutter", "Outlet", "end_within", "take_over"]

LINE_BYTES_MAX: "Final" = 8 * 1024 * 1024
"""One line of a host: the largest text that a limit may admit (1 MiB), every character escaped."""
LINES_MAX: "Final" = 16
"""Lines read and not yet looked at by the loop."""
TOO_LONG: "Final" = b""
"""Stands for a line that passed its bound; a real line is never empty."""

_CHUNK_BYTES: "Final" = 65_536
_BLANK: "Final" = b" \t\r"
_RETRY_S: "Final" = 0.005


def take_over() -> tuple[int, int]:
    """Return the host's (input, output) under new numbers that no child process inherits.

    After this, number 0 reads nothing and number 1 writes to where number 2 does.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # the host gave no log stream
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
    os.close(nothing)
    return source, sink


def end_within(seconds: float, code: int) -> None:
    """End the process with `code` after `seconds`, whatever still runs then.

    A host that left must not leave a process behind; the store is safe against this at any moment.
    """

    def watch() -> None:
        time.sleep(seconds)
        os._exit(code)

    _thread.start_new_thread(watch, ())


class LineCutter:
    """Bytes in any pieces in, complete lines out, `TOO_LONG` in the place of one beyond the bound."""

    __slots__ = ("_bytes_max", "_is_skipping", "_rest")

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        """Keep lines of up to `bytes_max` bytes, the end not counted."""
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completed, in order, blank ones left out."""
        pieces = data.split(b"\n")
        last = pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            self._keep(piece, lines)
            if not self._is_skipping and self._rest.strip(_BLANK):
                lines.append(bytes(self._rest))
            self._is_skipping = False
            self._rest.clear()
        self._keep(last, lines)
        return lines

    def _keep(self, piece: bytes, lines: list[bytes]) -> None:
        if self._is_skipping:
            return
        if len(self._rest) + len(piece) > self._bytes_max:
            self._is_skipping = True
            self._rest = bytearray()
            lines.append(TOO_LONG)
            return
        self._rest += piece


class Outlet:
    """The host's end of the output: whole lines, from any thread, in the order of the calls."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = _thread.allocate_lock()
        self.is_broken = False
        self.has_spoken = False
        """Whether any line was taken whole."""

    def write(self, line: bytes) -> bool:
        """Write all of `line`, waiting for a host that reads slowly.

        Returns:
            Whether every byte was taken. After one failure the pipe is broken for good: half a line
            has no end, so nothing may follow it.
        """
        with self._lock:
            rest = memoryview(line)
            while rest and not self.is_broken:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # a host may have made the pipe it shares with us non-blocking
                    time.sleep(_RETRY_S)
                except OSError:
                    self.is_broken = True
            self.has_spoken |= bool(line) and not self.is_broken
            return not self.is_broken


class Inlet:
    """The host's end of the input; `step` reads once, `run` goes on in a thread until the end."""

    def __init__(
        self, descriptor: int, answer: "Callable[[bytes], bool]", bytes_max: int = LINE_BYTES_MAX
    ) -> None:
        """Read from `descriptor`; a line for which `answer` is false waits for `take`."""
        self._descriptor = descriptor
        self._answer = answer
        self._cutter = LineCutter(bytes_max)
        self._lines: list[bytes] = []
        self._lock = _thread.allocate_lock()
        self._room = _thread.allocate_lock()  # held; released once for each wait of the reading thread
        self._room.acquire()
        self._is_waiting = False
        self._wake: Callable[[], None] | None = None
        self.is_ended = False

    def step(self) -> bool:
        """Read once and deal with the lines that are complete then; false at the end of the input."""
        try:
            data = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            time.sleep(_RETRY_S)
            return True
        except OSError:
            data = b""
        if not data:
            self.is_ended = True
            self._tell()
            return False
        for line in self._cutter.feed(data):
            if not self._answer(line):
                with self._lock:
                    self._lines.append(line)
                self._tell()
        return True

    def run(self) -> None:
        """Read until the end of the input, in a thread that does not keep the process alive."""

        def go_on() -> None:
            while self.step():
                with self._lock:
                    self._is_waiting = len(self._lines) >= LINES_MAX
                    is_full = self._is_waiting
                if is_full:  # not reading is what pushes back on the host
                    self._room.acquire()

        _thread.start_new_thread(go_on, ())

    def connect(self, wake: "Callable[[], None]") -> None:
        """From now on call `wake`, from the reading thread, when there is something to `take`."""
        self._wake = wake
        wake()

    def has_waiting(self) -> bool:
        """Return whether a line waits for `take`."""
        return bool(self._lines)

    def take(self) -> bytes | None:
        """Return the next line that waits, or None; reading goes on when there is room again."""
        with self._lock:
            if not self._lines:
                return None
            line = self._lines.pop(0)
            if self._is_waiting and len(self._lines) < LINES_MAX:
                self._is_waiting = False
                self._room.release()
            return line

    def _tell(self) -> None:
        if self._wake is not None:
            self._wake()
