"""A command on a terminal of its own: it behaves as on the person's."""

import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.launches import CHECKOUT, PROGRAM, wait_until
from tieline.shell.terminal import (
    Relay,
    attributes_of,
    copy_size,
    has_foreground,
    move_foreground,
    open_terminal,
    restore_attributes,
    settings_in,
    settings_of,
)
from tieline.shell.tree.table import descendants, entry_of

needs_setsid = pytest.mark.skipif(
    shutil.which("setsid") is None, reason="setsid gives a process its terminal"
)
SIZE = (33, 77)


class Screen:
    """A person's terminal, and what runs on it."""

    def __init__(self, command: list[str]) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        self.process = subprocess.Popen(
            ["setsid", "-c", *command],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'src'}", "PS1": "$ ", "TERM": "dumb"},
        )

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def read(self) -> str:
        """Return all that was shown so far."""
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65_536).decode()
        return self.text

    def wait_for(self, pattern: str, seconds: float = 20) -> None:
        """Return once something is shown; forget it and what stood before."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.read())) is None:
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.text!r}"
            time.sleep(0.01)
        self.text = self.text[found.end() :]

    def close(self) -> None:
        """End what runs here, as closing the window does."""
        os.close(self.slave)
        os.close(self.master)
        self.process.wait(20)


def launch_command(ledger: Path, *command: str) -> list[str]:
    """Return the command line of a front end."""
    return [sys.executable, "-m", PROGRAM, str(ledger), "{}", *command]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Callable[..., Screen]]:
    """Give what opens a terminal with a launch on it."""
    opened: list[Screen] = []

    def open_screen(*command: str) -> Screen:
        opened.append(Screen(launch_command(tmp_path / "l.jsonl", *command)))
        return opened[-1]

    yield open_screen
    for one in opened:
        one.close()


@needs_setsid
def test_command_on_a_terminal_has_one_with_its_size(screen: Callable[..., Screen]) -> None:
    """All three streams are a terminal of the person's size, and so is the controlling one."""
    shown = screen("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size < /dev/tty && exit 6")
    shown.wait_for("33 77\r\n")
    assert shown.process.wait(20) == 6
    assert termios.tcgetattr(shown.slave) == shown.before


@needs_setsid
def test_keys_reach_the_command_and_its_echo_the_screen(screen: Callable[..., Screen]) -> None:
    """A line that is typed is echoed once, by the command's terminal, and read by the command."""
    shown = screen("sh", "-c", "echo ready; read line; echo got:$line")
    shown.wait_for("ready\r\n")
    wait_until(lambda: termios.tcgetattr(shown.slave) != shown.before)
    shown.type(b"hello\r")
    shown.wait_for("^hello\r\ngot:hello\r\n")
    assert shown.process.wait(20) == 0


@needs_setsid
def test_interrupt_key_reaches_the_command_alone(screen: Callable[..., Screen]) -> None:
    """Ctrl-C is the command's: it may handle it, and the front end stays until the command ends."""
    shown = screen("sh", "-c", "trap 'echo caught; exit 8' INT; echo ready; while :; do sleep 0.05; done")
    shown.wait_for("ready\r\n")
    wait_until(lambda: termios.tcgetattr(shown.slave) != shown.before)
    shown.type(b"\x03")
    shown.wait_for("caught\r\n")
    assert shown.process.wait(20) == 8
    assert termios.tcgetattr(shown.slave) == shown.before


@needs_setsid
def test_new_size_reaches_the_command(screen: Callable[..., Screen]) -> None:
    """A window that changes tells the command, with the new size."""
    shown = screen("sh", "-c", "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done")
    shown.wait_for("ready\r\n")
    fcntl.ioctl(shown.master, termios.TIOCSWINSZ, struct.pack("4H", 40, 100, 0, 0))
    shown.wait_for("40 100\r\n")
    assert shown.process.wait(20) == 0


@needs_setsid
def test_large_output_arrives_whole(screen: Callable[..., Screen]) -> None:
    """All that a command writes before it ends is shown."""
    shown = screen(sys.executable, "-c", "print('x' * 300000 + 'end')")
    shown.wait_for("x{300000}end\r\n")
    assert shown.process.wait(20) == 0


@needs_setsid
def test_terminal_is_restored_when_the_front_end_is_killed(
    screen: Callable[..., Screen], tmp_path: Path
) -> None:
    """A front end killed with -9 leaves the person's terminal as it was; the command is not held up."""
    mark = tmp_path / "mark"
    shown = screen("sh", "-c", f"echo ready; sleep 0.7; head -c 300000 /dev/zero; touch {mark}")
    shown.wait_for("ready\r\n")
    wait_until(lambda: termios.tcgetattr(shown.slave) != shown.before)
    shown.process.kill()  # setsid became the front end
    wait_until(lambda: termios.tcgetattr(shown.slave) == shown.before)
    wait_until(mark.exists)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash has job control")
@needs_setsid
def test_stop_key_stops_the_job_and_the_shell_continues_it(tmp_path: Path) -> None:
    """Ctrl-Z gives the shell back with its terminal in order; `fg` goes on where it was."""
    shell = Screen(["bash", "--norc", "--noediting", "-i"])
    try:
        shell.wait_for(r"\$ ")
        script = "echo ready; read line; echo got:$line; exit 4"
        words = launch_command(tmp_path / "l.jsonl", "sh", "-c", script)
        shell.type((" ".join(f"'{word}'" for word in words) + "\r").encode())
        shell.wait_for("\nready\r\n")
        wait_until(lambda: not termios.tcgetattr(shell.slave)[3] & termios.ICANON)
        shell.type(b"\x1a")
        shell.wait_for("Stopped")
        shell.wait_for(r"\$ ")
        assert termios.tcgetattr(shell.slave)[3] & termios.ICANON
        shell.type(b"fg\r")
        wait_until(lambda: not termios.tcgetattr(shell.slave)[3] & termios.ICANON)
        shell.type(b"again\r")
        shell.wait_for("got:again\r\n")
        shell.wait_for(r"\$ ")
        shell.type(b"echo code:$?\r")
        shell.wait_for("code:4\r\n")
        shell.type(b"exit\r")
        assert shell.process.wait(20) == 0
    finally:
        shell.close()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash has job control")
@needs_setsid
def test_launch_in_the_background_takes_no_keys(tmp_path: Path) -> None:
    """A launch started with & does not stop, does not touch the terminal, and shows its output."""
    shell = Screen(["bash", "--norc", "--noediting", "-i"])
    try:
        shell.wait_for(r"\$ ")
        words = launch_command(tmp_path / "l.jsonl", "sh", "-c", "sleep 0.3; echo back''ground")
        shell.type(
            (" ".join(f"'{word}'" if "'" not in word else f'"{word}"' for word in words) + " &\r").encode()
        )
        shell.wait_for(r"[ \n]background\r\n")
        shell.type(b"echo fore''ground\r")
        shell.wait_for(r"[ \n]foreground\r\n")
        shell.type(b"wait; exit\r")
        assert shell.process.wait(20) == 0
    finally:
        shell.close()


class Shell(Screen):
    """A person's interactive shell, which edits its own line: between commands its terminal is not cooked."""

    def __init__(self, *options: str) -> None:
        super().__init__(["bash", "--norc", *options, "-i"])
        self.wait_for(r"\$ ")

    def start(self, folder: Path, script: str, end: str = "") -> None:
        """Type the command line of a launch of a shell script, which has no single quote."""
        (folder / "script").write_text(script)
        words = launch_command(folder / "l.jsonl", "sh", str(folder / "script"))
        self.type((" ".join(f"'{word}'" for word in words) + f"{end}\r").encode())

    def settle(self) -> list[Any]:
        """Return the settings that the terminal has while the shell waits for a line."""
        wait_until(lambda: not termios.tcgetattr(self.slave)[3] & termios.ICANON)
        return termios.tcgetattr(self.slave)

    def is_stopped(self) -> bool:
        """Return whether its job is stopped."""
        entry = entry_of(descendants(self.process.pid)[0])
        return entry is not None and entry.state == "T"


@pytest.fixture
def shell() -> Iterator[Shell]:
    """Give a shell with job control that edits its line."""
    if shutil.which("bash") is None or shutil.which("setsid") is None:
        pytest.skip("bash has job control, and setsid gives it a terminal")
    made = Shell()
    yield made
    made.close()


def test_launch_in_the_background_neither_takes_over_nor_changes_the_shells_settings(
    shell: Shell, tmp_path: Path
) -> None:
    """Its command has a cooked terminal, the shell's own stays as it edits, at the start and at the end."""
    editing = shell.settle()
    shell.start(tmp_path, "sleep 1; stty -a; echo do''ne", " &")
    shell.wait_for(r"\$ ")
    assert shell.settle() == editing
    shell.wait_for(r" icanon .* echo (?s:.*)done\r\n")
    assert termios.tcgetattr(shell.slave) == editing
    shell.type(b"wait; exit\r")
    assert shell.process.wait(20) == 0


def test_launch_killed_in_the_background_changes_no_settings(shell: Shell, tmp_path: Path) -> None:
    """What the supervisor restores is what its front end changed, and that was nothing."""
    shell.start(tmp_path, "echo ready; sleep 60", " &")
    shell.wait_for("ready\r\n")
    wait_until(lambda: (tmp_path / "l.jsonl").read_text().count("started") == 1)
    shell.type(b"stty ixany\r")
    wait_until(lambda: bool(termios.tcgetattr(shell.slave)[0] & termios.IXANY))
    settings = shell.settle()
    front, supervisor = descendants(shell.process.pid)[:2]
    os.kill(front, signal.SIGKILL)
    time.sleep(0.7)
    assert termios.tcgetattr(shell.slave) == settings
    os.kill(supervisor, signal.SIGTERM)
    shell.type(b"exit\r")
    assert shell.process.wait(20) == 0


def test_launch_that_reads_in_the_background_is_stopped_until_it_is_brought_forward(
    shell: Shell, tmp_path: Path
) -> None:
    """As any program it stops for terminal input, again after `bg`, and reads after `fg`."""
    shell.start(tmp_path, "echo ready; read line; echo got:$line; exit 4", " &")
    shell.wait_for("ready\r\n")
    wait_until(shell.is_stopped)
    shell.type(b"jobs\r")
    shell.wait_for("Stopped")
    shell.type(b"bg\r")
    time.sleep(0.3)
    wait_until(shell.is_stopped)
    shell.type(b"fg\r")
    wait_until(lambda: not termios.tcgetattr(shell.slave)[1] & termios.OPOST)
    shell.type(b"hello\r")
    shell.wait_for("got:hello\r\n")
    shell.wait_for(r"\$ ")
    shell.type(b"echo code:$?\r")
    shell.wait_for("code:4\r\n")
    shell.type(b"exit\r")
    assert shell.process.wait(20) == 0


def test_launch_brought_forward_while_it_runs_takes_the_keys(shell: Shell, tmp_path: Path) -> None:
    """`fg` without a stop before gives the command the terminal, with the person's settings and echo."""
    shell.start(tmp_path, "echo ready; sleep 1.5; read line; echo got:$line", " &")
    shell.wait_for("ready\r\n")
    shell.type(b"stty susp undef; fg\r")
    wait_until(lambda: not termios.tcgetattr(shell.slave)[1] & termios.OPOST)
    shell.type(b"hello\r")
    shell.wait_for("hello\r\n(?s:.*)got:hello\r\n")
    shell.wait_for(r"\$ ")
    shell.type(b"exit\r")
    assert shell.process.wait(20) == 0


def test_launch_that_went_to_the_background_is_stopped_when_it_reads(shell: Shell, tmp_path: Path) -> None:
    """Ctrl-Z and `bg`: it goes on, and stops at the terminal like any other."""
    shell.start(tmp_path, "echo ready; sleep 1; read line; echo got:$line")
    shell.wait_for("ready\r\n")
    wait_until(lambda: not termios.tcgetattr(shell.slave)[1] & termios.OPOST)
    shell.type(b"\x1a")
    shell.wait_for("Stopped")
    shell.type(b"bg\r")
    wait_until(lambda: not shell.is_stopped())
    wait_until(shell.is_stopped)
    shell.type(b"fg\r")
    wait_until(lambda: not termios.tcgetattr(shell.slave)[1] & termios.OPOST)
    shell.type(b"hello\r")
    shell.wait_for("got:hello\r\n")
    shell.type(b"exit\r")
    assert shell.process.wait(20) == 0


@needs_setsid
def test_command_that_reads_where_no_shell_could_bring_it_forward_is_not_stopped_for_ever(
    tmp_path: Path,
) -> None:
    """In a group that no shell watches it waits for input, and costs nothing."""
    code = (
        "import os, subprocess, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    if os.fork(): os._exit(0)\n"  # its parent ends: the group is an orphan's
        "    time.sleep(0.2)\n"
        "    os.execv(sys.argv[1], sys.argv[1:])\n"
        "os.waitpid(child, 0); time.sleep(8)\n"
    )
    script = f"echo $$ > {tmp_path}/pid; read x"
    command = launch_command(tmp_path / "l.jsonl", "sh", "-c", script)
    shown = Screen([sys.executable, "-c", code, *command])
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        entry = entry_of(int((tmp_path / "pid").read_text()))
        assert entry is not None
        wait_until(lambda: getattr(entry_of(entry.pid), "state", "") == "S")
        time.sleep(0.5)
        assert getattr(entry_of(entry.pid), "state", "") == "S"
    finally:
        (line,) = (one for one in (tmp_path / "l.jsonl").read_text().splitlines() if '"started"' in one)
        os.kill(json.loads(line)["value"]["supervisor"]["pid"], signal.SIGTERM)
        shown.close()


# ---------------------------------------------------------------- the parts


@pytest.fixture
def terminals() -> Iterator[tuple[int, int, int, int]]:
    """Give two terminals: master and slave of the person's, master and slave of the command's."""
    pairs = (*os.openpty(), *os.openpty())
    yield pairs
    for descriptor in pairs:
        try:
            os.close(descriptor)
        except OSError:
            continue


def serve_until(relay: Relay, holds: Callable[[], bool]) -> None:
    """Run a relay until something holds."""
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        poller = select.poll()
        for descriptor, events in relay.interest().items():
            poller.register(descriptor, events)
        for descriptor, events in poller.poll(20):
            relay.serve(descriptor, events)


def test_relay_in_the_background_reads_no_keys(terminals: tuple[int, int, int, int]) -> None:
    """Without the foreground the person's terminal keeps its settings and its keys; output is shown."""
    screen, source, master, slave = terminals
    before = termios.tcgetattr(source)
    relay = Relay(master, source, source)
    relay.resume()
    assert not relay.is_raw
    assert termios.tcgetattr(source) == before
    os.write(screen, b"key\r")
    os.write(slave, b"shown")
    serve_until(relay, lambda: bool(select.select([screen], [], [], 0)[0]))
    assert source not in {fd for fd, events in relay.interest().items() if events & select.POLLIN}
    relay.close()


def test_relay_ends_when_the_commands_terminal_is_closed(terminals: tuple[int, int, int, int]) -> None:
    """What was written before the close is shown, then the relay is over."""
    screen, source, master, slave = terminals
    relay = Relay(master, source, source)
    os.write(slave, b"last words")
    os.close(slave)
    relay.finish()
    assert not relay.is_open
    assert b"last words" in os.read(screen, 100)
    relay.close()


def test_relay_does_not_wait_for_a_terminal_that_stays_open(terminals: tuple[int, int, int, int]) -> None:
    """A process that outlives the command and keeps its terminal does not hold the front end."""
    _, source, master, slave = terminals
    relay = Relay(master, source, source)
    began = time.monotonic()
    relay.finish()
    assert time.monotonic() - began < 0.9
    assert relay.is_open
    relay.close()
    assert slave


def test_settings_as_numbers_are_the_settings(terminals: tuple[int, int, int, int]) -> None:
    """What was made numbers for the way can be restored, in raw and in cooked order."""
    _, source, _, slave = terminals
    for change in (tty.setcbreak, tty.setraw):
        before = termios.tcgetattr(source)
        numbers = settings_in(before)
        change(source)
        restore_attributes(source, settings_of(numbers))
        assert termios.tcgetattr(source) == before
        change(slave)
        assert settings_in(attributes_of(slave)) == settings_in(
            settings_of(settings_in(attributes_of(slave)))
        )
    assert (settings_in(None), settings_of(None)) == (None, None)


def test_settings_of_what_is_no_terminal_are_none() -> None:
    """A file has no settings and no foreground, and restoring none changes nothing."""
    with open(os.devnull, "rb") as file:
        assert has_foreground(file.fileno()) is None
        assert move_foreground(file.fileno(), os.getpgrp()) is None
        assert attributes_of(file.fileno()) is None
        restore_attributes(file.fileno(), None)
        restore_attributes(file.fileno(), [0, 0, 0, 0, 0, 0, []])
        copy_size(file.fileno(), file.fileno())


def test_terminal_opened_is_like_the_other_and_controls_the_session(
    terminals: tuple[int, int, int, int],
) -> None:
    """A new terminal has the settings and the size of the person's."""
    _, source, _, _ = terminals
    settings = termios.tcgetattr(source)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(source, termios.TCSANOW, settings)
    fcntl.ioctl(source, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
    child = os.fork()
    if child == 0:
        os.setsid()
        master, slave = open_terminal(source)
        is_like = termios.tcgetattr(slave) == settings and os.get_terminal_size(slave) == (77, 33)
        os.close(os.open("/dev/tty", os.O_RDWR))
        os._exit(0 if is_like and os.tcgetpgrp(slave) == os.getpgrp() and master else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
