"""Process numbers given away again on purpose, inside a process namespace of its own.

`python -m tests.faults.reuse COUNT` is the first process of such a namespace and prints what it decided of
each reuse, as JSON. Root of that namespace says which number the next process gets.
"""

import json
import os
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path

from tieline.model.process import ProcessIdentity
from tieline.shell.process import identify, probe
from tieline.shell.supervisor.holding import become_reaper
from tieline.shell.supervisor.stopping import signal_tree
from tieline.shell.tree import LaunchEvidence, probe_launch

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
ATTEMPTS_MAX = 50
EVIDENCE_EVERY = 5
"""Each so many reuses are judged as a launch, too."""


def child() -> int:
    """Return the number of a child that leads a session and waits to be killed."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
        os._exit(0)
    return pid


def end(pid: int) -> None:
    """Kill a child and reap it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def reused(pid: int) -> bool:
    """Start a child under a number that was given back; return whether it got that number."""
    for _ in range(ATTEMPTS_MAX):
        LAST_PID.write_text(str(pid - 1))
        got = child()
        if got == pid:
            return True
        end(got)
    return False


def identity_of(pid: int) -> ProcessIdentity:
    """Return the identity of a child that lives."""
    identity = identify(pid)
    assert identity is not None
    return identity


def judge(number: int, counts: Counter[str], wrong: list[str]) -> None:
    """Reuse one number, and count what is decided of both processes."""
    pid = child()
    before = identity_of(pid)
    end(pid)
    if not reused(pid):
        counts["not forced"] += 1
        return
    now = identity_of(pid)
    counts["reused"] += 1
    counts["equal start"] += before.start_ticks == now.start_ticks
    counts["numbered"] += before.pidfd_inode is not None
    old = probe(before)
    if old == "alive" or (before.pidfd_inode is not None and old != "gone"):
        wrong.append(f"{number}: the ended process is {old}")
    if probe(now) != "alive":
        wrong.append(f"{number}: the living process is {probe(now)}")
    if number % EVIDENCE_EVERY == 0:
        nonce = uuid.uuid4().hex
        launch = probe_launch(LaunchEvidence("l", nonce, before, command=before, members=(before,))).state
        if launch == "alive" or (before.pidfd_inode is not None and launch != "gone"):
            wrong.append(f"{number}: the ended launch is {launch}")
        if probe_launch(LaunchEvidence("l", nonce, now)).state != "alive":
            wrong.append(f"{number}: the living launch is not alive")
        counts["launches"] += 1
    # What is not below us is never hit, whatever numbers it has: this child is below, and gets it.
    if signal_tree(0) != 1:
        wrong.append(f"{number}: a signal went astray")
    end(pid)


def main(count: int) -> None:
    """Reuse so many numbers and print what came of it."""
    become_reaper()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(count):
        judge(number, counts, wrong)
    print(json.dumps({"counts": counts, "wrong": wrong}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
