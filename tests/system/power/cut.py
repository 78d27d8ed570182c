#!/usr/bin/env python3
"""Cut the power of a real file system, again and again, and look for what was lost.

An ext4 image on a loop device with direct I/O holds one root's journal. The writer, another user without
rights, is stopped in the middle of its work; the image is copied as it lies on the disk, and the writer is
killed. The copy is mounted, its journal replayed by the kernel, and the store read as `tieline recover`
reads it. What the writer had acknowledged must be there.

Rule 1: only this harness is root; what it tests runs as an ordinary user.
Rule 2: whatever it mounted or attached is gone when it ends.
Rule 3: it prints how many cuts it made, what it lost, and what that proves.

Usage: cut.py [CUTS] [--weaker]; `--weaker` shows that the same cuts convict a journal with less syncs.

Source: reference/reliability.md F1, F14, K2.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[3]
IMAGE_BYTES = 24 * 1_048_576
INSTANCE = "ended-1"
USER = 58_777
TOOLS = ("mkfs.ext4", "losetup", "mount", "umount", "setpriv")

WRITER = """
import os, sys
from tests.faults.rows import message, move
from tieline.store.journal import database
from tieline.store.journal.journal import Journal
if sys.argv[2] == "weaker":
    database.SYNCHRONOUS, database.SYNCHRONOUS_LEVEL_MIN = "NORMAL", 1
journal = Journal.open(sys.argv[1] + "/peer-messages/ended-1", "ended-1", "s")
number = 0
while True:
    number += 1
    cursor = 2 * number
    rows = [message(cursor, size=200 + number * 137 % 6_000)]
    if number > 2:
        rows.append(move(cursor + 1, cursor - 4))
    journal.commit(rows, admits=True, reserve_bytes=65_536)
    os.write(1, b"%d\\n" % number)
    if number % 40 == 0:
        journal.checkpoint()
"""

READER = """
import json, sys
from tieline.errors import TielineError
from tieline.store.recovery import recover
try:
    found = recover(sys.argv[1], "ended-1")
    print(json.dumps({"count": found.message_count, "unread": [one.cursor for one in found.unread]}))
except TielineError as error:
    print(json.dumps({"error": repr(error)}))
"""


class Cut(NamedTuple):
    """One cut: how many commits were acknowledged, and what is wrong, "" for nothing."""

    acknowledged: int
    wrong: str


def missing() -> str:
    """Return what this machine lacks for the harness, "" for nothing."""
    if os.geteuid() != 0:
        return "loop devices need root"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices here"
    with tempfile.TemporaryDirectory(prefix="cut") as folder:
        for command in (
            ("losetup", "--find"),
            ("mount", "-t", "tmpfs", "-o", "size=1m", "none", folder),
            ("umount", folder),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{command[0]} is not allowed here: {done.stderr.strip()}"
    return ""


def run(*command: str) -> str:
    """Return what a command prints; it must succeed."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def as_user(code: str, *arguments: str, stdout: int) -> "subprocess.Popen[bytes]":
    """Start Python code as an ordinary user."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(TOP / "src"), str(TOP), *[path for path in sys.path if path]]),
    }
    command = [*_SETPRIV, sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, stdout=stdout, stderr=subprocess.PIPE)


_SETPRIV = ("setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups")


class Disk:
    """An ext4 image, attached and mounted."""

    def __init__(self, image: Path, mount: Path) -> None:
        mount.mkdir(exist_ok=True)
        self.image, self.mount = image, mount
        self.device = run("losetup", "--find", "--show", "--direct-io=on", str(image))
        run("mount", "-t", "ext4", "-o", "commit=1", self.device, str(mount))

    def detach(self) -> None:
        """Unmount and detach; the image stays."""
        run("umount", str(self.mount))
        run("losetup", "--detach", self.device)


def cut_once(folder: Path, seed: int, kind: str) -> Cut:
    """Make a file system, write, cut, mount the copy, read."""
    chance = random.Random(seed)
    image, copy = folder / "image", folder / "copy"
    with image.open("wb") as stream:
        stream.truncate(IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
    live = Disk(image, folder / "live")
    told: list[bytes] = []
    try:
        os.chown(live.mount, USER, USER)
        live.mount.chmod(0o700)
        os.sync()
        writer = as_user(WRITER, str(live.mount), kind, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        try:
            first = writer.stdout.readline()
            time.sleep(0.02 + chance.random() * 0.2)
        finally:
            os.kill(writer.pid, signal.SIGSTOP)
        # Stopped between two instructions; what the disk has now is what a cut would leave.
        time.sleep(0.005)
        shutil.copyfile(image, copy)
        os.kill(writer.pid, signal.SIGKILL)
        told = (first + writer.stdout.read()).split()
        writer.stdout.close()
        says = writer.stderr.read().decode() if writer.stderr is not None else ""
        writer.wait()
        if not told:
            return Cut(0, f"the writer did not start: {says}")
    finally:
        live.detach()
    return Cut(int(told[-1]), _read(copy, folder / "dead", int(told[-1])))


def _read(copy: Path, mount: Path, acknowledged: int) -> str:
    """Return what is wrong with the store on the copied image, "" for nothing."""
    dead = Disk(copy, mount)
    try:
        reader = as_user(READER, str(dead.mount), stdout=subprocess.PIPE)
        printed, says = reader.communicate()
    finally:
        dead.detach()
    if reader.returncode:
        return f"the reader failed: {says.decode()}"
    answer = json.loads(printed)
    if "error" in answer:
        return str(answer["error"])
    count = answer["count"]
    if not acknowledged <= count <= acknowledged + 1:
        return f"{acknowledged} were acknowledged, {count} are there"
    expected = [2 * number for number in range(max(1, count - 1), count + 1)]
    return "" if answer["unread"] == expected else f"unread are {answer['unread']}, not {expected}"


def main(arguments: list[str]) -> int:
    """Make the cuts; return 0 when nothing was lost, or with `--weaker` when something was."""
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    is_weaker = "--weaker" in arguments
    numbers = [argument for argument in arguments if argument.isdigit()]
    cuts = int(numbers[0]) if numbers else 50
    folder = Path(tempfile.mkdtemp(prefix="cut"))
    folder.chmod(0o711)
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    acknowledged, wrong = 0, []
    begun = time.monotonic()
    try:
        for number in range(cuts):
            result = cut_once(folder, seed + number, "weaker" if is_weaker else "full")
            acknowledged += result.acknowledged
            if result.wrong:
                wrong.append(f"cut {number}: {result.wrong}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in wrong[:10]:
        print(line)
    seconds = time.monotonic() - begun
    print(f"{cuts} cuts, {acknowledged} acknowledged commits, {len(wrong)} with a loss, {seconds:.0f} s")
    if not wrong:
        print(f"below {3 / cuts:.3f} per cut at 95 %")
    return int(bool(wrong) != is_weaker)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
