"""A program in a terminal of its own: what it drew, and keys typed into it.

Rule 1: the program is the leader of a session whose controlling terminal is this one, as in a person's
window; ending it ends the session's foreground.
Rule 2: what is looked for on the screen is compared without white space and without control sequences,
because programs move the cursor where a person sees a space.
Rule 3: the questions that programs ask their terminal before they draw (cursor, colours, what it is)
are answered, as a plain terminal would.

Source: ECMA-48; the controls that xterm documents; reference/harnesses.md 0, "interactive TUI".
"""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

__all__ = ["Terminal", "picture", "plain"]

ROWS, COLUMNS = 50, 160
READ_BYTES = 65_536
POLL_SECONDS = 0.05
TYPED_SECONDS = 0.3
KEPT_BYTES = 4 * 1024 * 1024
SHOWN_CHARACTERS = 3_000

# The child makes the terminal its own before it becomes the program: its pid is the program's.
_BECOME = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
_CONTROL = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-~]"
)
_ANSWERS = (
    (re.compile(rb"\x1b\[0?c"), b"\x1b[?62;22c"),
    (re.compile(rb"\x1b\[>0?c"), b"\x1b[>0;276;0c"),
    (re.compile(rb"\x1b\[>0?q"), b"\x1bP>|plain(1)\x1b\\"),
    (re.compile(rb"\x1b\[6n"), b"\x1b[1;1R"),
    (re.compile(rb"\x1b\[5n"), b"\x1b[0n"),
    (re.compile(rb"\x1b\[\?u"), b"\x1b[?0u"),
    (re.compile(rb"\x1b\]10;\?(?:\x07|\x1b\\)"), b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (re.compile(rb"\x1b\]11;\?(?:\x07|\x1b\\)"), b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
)


def plain(data: bytes) -> str:
    """Return what `data` draws, without control sequences and white space."""
    return "".join(_CONTROL.sub(b"", data).decode(errors="replace").split())


def picture(data: bytes, rows: int, columns: int, title: str) -> str:
    """Return the screen of that size that `data` drew, as SVG text that asks no other place for a font."""
    screen = pyte.Screen(columns, rows)
    pyte.ByteStream(screen).feed(data)
    console = Console(record=True, width=columns, height=rows, file=io.StringIO(), color_system="truecolor")
    for number in range(rows):
        line = Text(end="\n")
        cells = [screen.buffer[number][column] for column in range(columns)]
        for style, alike in groupby(cells, _style):
            line.append("".join(cell.data for cell in alike), style)
        console.print(line, no_wrap=True, crop=True)
    text = console.export_svg(title=title, unique_id="desk")
    text = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", text, flags=re.DOTALL)
    return text.replace("Fira Code", "ui-monospace")


def _style(cell: Any) -> Style:
    colours = [f"#{one}" if re.fullmatch("[0-9a-f]{6}", one) else one for one in (cell.fg, cell.bg)]
    return Style(color=colours[0], bgcolor=colours[1], bold=cell.bold, reverse=cell.reverse)


class Terminal:
    """One program in its terminal; use it by `with`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        rows: int = ROWS,
        columns: int = COLUMNS,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BECOME, *command],
                cwd=folder,
                env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
            )
        finally:
            os.close(theirs)
        self._drawn = bytearray()
        self._thread = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        print(self.story())
        self.end()

    def _read(self) -> None:
        answered = 0
        while True:
            try:
                data = os.read(self._ours, READ_BYTES)
            except OSError:  # Linux says so when the last one who had the terminal open is gone
                return
            if not data:
                return
            self._drawn += data
            answered = self._answer(answered)
            if len(self._drawn) > KEPT_BYTES:
                cut = len(self._drawn) - KEPT_BYTES
                del self._drawn[:cut]
                answered = max(0, answered - cut)

    def _answer(self, start: int) -> int:
        """Answer the questions asked from `start` on; return where the next look begins."""
        found = [
            (match.end(), answer)
            for pattern, answer in _ANSWERS
            for match in pattern.finditer(bytes(self._drawn), start)
        ]
        for _end, answer in sorted(found):
            os.write(self._ours, answer)
        return max((end for end, _answer in found), default=max(start, len(self._drawn) - 64))

    def drawn(self) -> bytes:
        """Return all that the program wrote, as it wrote it, at most the last `KEPT_BYTES`."""
        return bytes(self._drawn)

    def mark(self) -> int:
        """Return a place in what was drawn, for `until`."""
        return len(self._drawn)

    def until(self, *texts: str, seconds: float = 60.0, since: int = 0) -> str:
        """Return the first of `texts` that was drawn behind the mark `since`.

        Raises:
            AssertionError: none was drawn in time, or the program ended; the error holds the end of it.
        """
        give_up = time.monotonic() + seconds
        while True:
            is_ended = self.process.poll() is not None
            seen = plain(bytes(self._drawn[since:]))
            for text in texts:
                if "".join(text.split()) in seen:
                    return text
            if is_ended or time.monotonic() > give_up:
                why = f"ended with {self.process.returncode}" if is_ended else f"drew none in {seconds} s"
                raise AssertionError(f"the program {why}, looked for {texts}; {self.story()}")
            time.sleep(POLL_SECONDS)

    def story(self) -> str:
        """Return the end of what was drawn, for the person who reads a failure."""
        return f"drawn: {plain(self.drawn())[-SHOWN_CHARACTERS:]}"

    def type(self, text: str) -> None:
        """Type `text`; a final return is pressed apart, as a person does, else it counts as pasted."""
        body = text.rstrip("\r")
        if body:
            os.write(self._ours, body.encode())
            time.sleep(TYPED_SECONDS)
        for key in text[len(body) :]:
            os.write(self._ours, key.encode())

    def end(self, seconds: float = 10.0) -> None:
        """End the program: hang up, then kill what is left of its process group."""
        if self.process.poll() is None:
            self._signal(signal.SIGHUP)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self.process.wait()
        self._thread.join(5)
        if (
            not self._thread.is_alive()
        ):  # a grandchild may hold the terminal: then nobody may reuse the number
            os.close(self._ours)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            self.process.send_signal(number)
