"""What the tests of process trees share: processes that stand where a supervisor would."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tieline.model.process import ProcessIdentity
from tieline.shell.process import identify
from tieline.shell.tree import LaunchEvidence

SLEEP = ["/bin/sleep", "60"]


class Stand:
    """A process that stands where a supervisor would: it leads a session and can be killed."""

    def __init__(self, script: str, nonce: str, *, environment: dict[str, str] | None = None) -> None:
        self.nonce = nonce
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            start_new_session=True,
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", **(environment or {})},
        )
        assert self.process.stdout is not None
        identity = identify(self.process.pid)
        assert identity is not None
        self.evidence = LaunchEvidence("launch", nonce, identity)
        self.pids = [int(word) for word in self.process.stdout.readline().split()]

    def end(self) -> None:
        """Kill the stand-in and reap it."""
        self.process.kill()
        self.process.wait()


def end_all(stands: list[Stand]) -> None:
    """End these stands with all that they named."""
    for stand in stands:
        stand.end()
        for pid in stand.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert stand.process.stdout is not None
        stand.process.stdout.close()


def gone_identity() -> ProcessIdentity:
    """Return the identity of a process that has ended and was reaped."""
    process = subprocess.Popen(SLEEP)
    identity = identify(process.pid)
    process.kill()
    process.wait()
    assert identity is not None
    return identity


@contextmanager
def python(
    code: str, *, new_session: bool = False, environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run some Python; it has said its first line when this gives it."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=new_session,
        env=os.environ | {"PYTHONPATH": "src"} | (environment or {}),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
