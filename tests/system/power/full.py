#!/usr/bin/env python3
"""Fill a real file system to its last byte, and let all accepted mail end on it.

On a tmpfs and on an ext4 image, an ordinary user's journal accepts 32 messages; then a file takes every
free byte. All 32 are prepared, recorded, consumed and replied, each step its own commit; new mail is
refused and taken again when the file is gone.

Rule: only this harness is root; whatever it mounted or attached is gone when it ends.

Usage: full.py

Source: reference/reliability.md F5, K5, K6, I8.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.system.power.cut import USER, Disk, as_user, missing, run

PROGRAM = """
import os, sys
from tests.faults.rows import AT_MS, message, move
from tieline.engine.contract import ContextRow
from tieline.model.receipt import State
from tieline.store.journal.journal import Journal, StoreFull
from tieline.store.recovery import recover

def fill(path):
    with open(path, "ab", buffering=0) as stream:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    stream.write(bytes(size))
                    os.fsync(stream.fileno())
            except OSError:
                pass

home = sys.argv[1]
journal = Journal.open(home + "/peer-messages/ended-1", "ended-1", "s")
for number in range(1, 33):
    journal.commit([message(number, size=8_000)], admits=True, reserve_bytes=number * 2_048)
fill(home + "/fill")
assert os.statvfs(home).f_bavail == 0
cursor = 100
for number in range(1, 33):
    cursor += 5
    journal.commit([move(cursor, number, State.ACCEPTED, "prepared")], admits=False)
    record = ContextRow(cursor + 1, number, "r" * 64, "t", AT_MS)
    journal.commit([record, move(cursor + 2, number)], admits=False)
    journal.commit([move(cursor + 3, number, State.REPLIED)], admits=False)
refused = 0
try:
    for number in range(1_000, 2_000):
        journal.commit([message(number, size=8_000)], admits=True, reserve_bytes=4_096)
except StoreFull:
    refused = number
rows = journal.load()
assert journal.reopen() == rows
os.unlink(home + "/fill")
journal.commit([message(3_000, size=8_000)], admits=True, reserve_bytes=4_096)
assert refused and journal.doubt == ""
journal.close()
found = recover(home, "ended-1")
assert {one.cursor for one in found.unread} == {*range(1_000, refused), 3_000}
print(f"32 of 32 ended on a full disk, {refused - 1_000} more accepted in the room held, then refused")
"""


def attempt(mount: Path, name: str) -> int:
    """Run the program on a mounted file system; return its exit code."""
    os.chown(mount, USER, USER)
    mount.chmod(0o700)
    program = as_user(PROGRAM, str(mount), stdout=subprocess.PIPE)
    printed, says = program.communicate()
    print(f"{name}: {printed.decode().strip() or says.decode().strip()}")
    return program.returncode


def main() -> int:
    """Return 0 when nothing was lost and nothing failed, 77 when this machine cannot show it."""
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 77
    folder = Path(tempfile.mkdtemp(prefix="full"))
    folder.chmod(0o711)
    mount = folder / "tmpfs"
    mount.mkdir()
    try:
        run("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(mount))
        try:
            failed = attempt(mount, "tmpfs")
        finally:
            run("umount", str(mount))
        image = folder / "image"
        with image.open("wb") as stream:
            stream.truncate(16 * 1_048_576)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        disk = Disk(image, folder / "ext4")
        try:
            failed |= attempt(disk.mount, "ext4")
        finally:
            disk.detach()
    finally:
        shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    sys.exit(main())
