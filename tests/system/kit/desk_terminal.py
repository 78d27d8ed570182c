"""A real pseudo-terminal, and a model of a terminal that is larger than the program believes.

Rule 1: whatever is written outside the program's columns and rows, or changes what is not the program's to
    change, is counted.
Rule 2: every sequence that reaches the terminal is looked at; a kind that is not in the list is an offence.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Self

import pyte

CHECKOUT = Path(__file__).resolve().parents[3]
BESIDE = 20
SENTINEL = "\N{MIDDLE DOT}"
ALLOWED = re.compile(
    rb"\x1b\[[0-9;]*m"  # colours and bold
    rb"|\x1b\[[0-9]+;[0-9]+H"  # the cursor, within the screen
    rb"|\x1b\[\?(?:7|25|1000|1002|1003|1004|1006|1015|1049|2004|2026|2048)[hl]"  # modes, set and put back
    rb"|\x1b\[\?(?:2026|2048)\$p"  # which modes there are
    rb"|\x1b\[[<>][0-9;]*u"  # the keyboard's protocol
    rb"|\x1b\]22;[a-z-]*(?:\x1b\\|\x07)?"  # the shape of the mouse pointer: words of the screen's package
    rb"|\x1b\\"
    rb"|\x1b\[[0-9]*[ABCD]"
)
ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_].*?\x1b\\|.)?", re.DOTALL
)


class Model(pyte.Screen):
    """A terminal of `columns` and `lines`, with room beside and below that is nobody's."""

    def __init__(self, columns: int, lines: int) -> None:
        self.inner = columns, lines
        self.replies: list[str] = []
        super().__init__(columns + BESIDE, lines + BESIDE)
        for y in range(lines + BESIDE):
            for x in range(columns + BESIDE):
                if x >= columns or y >= lines:
                    self.buffer[y][x] = self.default_char._replace(data=SENTINEL)

    def write_process_input(self, data: str) -> None:
        """Remember what a terminal would have answered."""
        self.replies.append(data)

    def outside_count(self) -> int:
        """Return how many cells outside the program's region are not what they were."""
        columns, lines = self.inner
        return sum(
            self.buffer[y][x].data != SENTINEL
            for y in range(lines + BESIDE)
            for x in range(columns + BESIDE)
            if x >= columns or y >= lines
        )

    def text(self) -> str:
        """Return the program's region as lines."""
        columns, lines = self.inner
        return "\n".join(
            "".join(self.buffer[y][x].data for x in range(columns)).rstrip() for y in range(lines)
        )


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(
        self,
        words: list[str],
        *,
        columns: int = 80,
        lines: int = 24,
        environment: dict[str, str] | None = None,
    ) -> None:
        own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        variables = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": os.environ["PATH"],
                     "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT}/src",
                     **(environment or {})}  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=other, stdout=other, stderr=other, env=variables, cwd=CHECKOUT,
            start_new_session=True,
        )  # fmt: skip
        os.close(other)
        self._own = own
        self.model = Model(columns, lines)
        self._stream = pyte.ByteStream(self.model)
        self.raw = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # it ends what it started
            try:
                self.ended()
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(10)
        os.close(self._own)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._own, keys.encode())

    def pump(self, seconds: float) -> bool:
        """Take in what comes for so long; return whether anything came."""
        if not select.select([self._own], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._own, 65_536)
        except OSError:
            return False
        self.raw += data
        # The mouse pointer's sequence has no end that this model knows.
        self._stream.feed(
            re.sub(rb"\x1b\]22;[a-z-]*(\x1b\\|\x07)?|\x1b\[[<>][0-9;]*u|\x1b\[\?[0-9]+\$p", b"", data)
        )
        return bool(data)

    def until(self, wanted: str, seconds: float = 20.0) -> str:
        """Return the screen once it shows `wanted` and has come to rest."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.pump(0.3) and wanted in self.model.text():
                return self.model.text()
            if self.process.poll() is not None:
                break
        raise AssertionError(f"{wanted!r} is not shown:\n{self.model.text()}\n{bytes(self.raw[-400:])!r}")

    def ended(self, seconds: float = 15.0) -> int:
        """Return the exit status, once the program has ended."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            self.pump(0.1)
        return self.process.wait(1)

    def offences(self) -> list[bytes]:
        """Return every sequence that is not in the list, and every control byte outside of one."""
        found = [one for one in ESCAPE.findall(bytes(self.raw)) if not ALLOWED.fullmatch(one)]
        rest = ESCAPE.sub(b"", bytes(self.raw)).decode("utf-8", "replace")
        found += [
            repr(one).encode()
            for one in rest
            if (ord(one) < 32 and one not in "\r\n") or 127 <= ord(one) < 160
        ]
        return found


def shape_of(model: Any) -> tuple[Any, ...]:
    """Return what of a terminal is not its cells: title and modes."""
    return model.title, model.icon_name, sorted(model.mode - {pyte.modes.DECTCEM, pyte.modes.DECAWM})
