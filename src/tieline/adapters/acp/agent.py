"""The agent as a process: in a group of its own, and ended with all of that group.

Rule 1: an agent that ends by itself leaves what it started alone; one that was killed, or that does not end
when its client has left, takes its group with it.
Rule 2: that holds although this process is killed outright: a guard in the shell, in a session of its own,
waits for our end and then ends the group.
Rule 3: it is told who serves its sessions, so that no other door of ours opens for them.

Source: reference/harnesses.md 6, 9; docs/harnesses/acp.md.
"""

import asyncio
import os
import signal
import subprocess
from typing import Final

from tieline.runtime.proxied import PROXY_VARIABLE

__all__ = ["CANNOT_EXECUTE", "KILLED", "NOT_FOUND", "Agent"]

CANNOT_EXECUTE, NOT_FOUND = 126, 127
KILLED: Final = 128
"""Added to the signal's number, as in sh."""
TERM_S: Final = 2.0
"""What an agent gets between being asked to end and being ended."""
BUFFER_BYTES: Final = 65_536
GUARD: Final = 'read -r _; kill -s TERM -- "-$1"; sleep 2; kill -s KILL -- "-$1"'


class _Streams(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells a process's end at once: asyncio's own wait goes on while a child of it holds a pipe."""

    def __init__(self) -> None:
        super().__init__(limit=BUFFER_BYTES, loop=asyncio.get_running_loop())
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.ended.set()


class Agent:
    """One agent that runs."""

    def __init__(self, transport: asyncio.SubprocessTransport, streams: _Streams) -> None:
        """Guard a process that leads a group."""
        process = asyncio.subprocess.Process(transport, streams, asyncio.get_running_loop())
        assert process.stdin is not None, "it was started with a pipe"
        assert process.stdout is not None, "it was started with a pipe"
        self._process, self._transport, self._ended = process, transport, streams.ended
        self._input, self.output = process.stdin, process.stdout
        self._lock = asyncio.Lock()
        self._guard = subprocess.Popen(  # noqa: S603 - words of ours and a number
            ["/bin/sh", "-c", GUARD, "guard", str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @classmethod
    async def start(cls, words: list[str]) -> "Agent":
        """Return the agent that these words start.

        Raises:
            OSError: they start nothing.
        """
        pipe, loop = asyncio.subprocess.PIPE, asyncio.get_running_loop()
        # A session, for its group: uvloop cannot make a group alone.
        environment = {**os.environ, PROXY_VARIABLE: str(os.getpid())}
        transport, streams = await loop.subprocess_exec(
            _Streams, *words, stdin=pipe, stdout=pipe, stderr=None, start_new_session=True, env=environment
        )
        return cls(transport, streams)

    async def write(self, data: bytes) -> None:
        """Write to its input, in the order of the calls; nothing where it reads no more."""
        async with self._lock:
            try:
                self._input.write(data)
                await self._input.drain()
            except (OSError, RuntimeError):  # the one from a pipe, the other from a loop that closed it
                return  # it ends: `wait` says so

    def close_input(self) -> None:
        """Tell it that its client has left."""
        self._input.close()

    def close_output(self) -> None:
        """Let it find that nobody reads it any more."""
        pipe = self._transport.get_pipe_transport(1)
        if pipe is not None:
            pipe.close()

    async def wait(self) -> int:
        """Return its exit code; of one that a signal ended, as in sh."""
        await self._ended.wait()
        code = self._process.returncode
        assert code is not None, "it has ended"
        if code < 0:
            self._signal(signal.SIGKILL)
        return code if code >= 0 else KILLED - code

    async def end(self, patience_s: float) -> None:
        """See it end: within `patience_s` by itself, else asked to, else made to, with all of its group."""
        for seconds, number in ((patience_s, signal.SIGTERM), (TERM_S, signal.SIGKILL)):
            try:
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
            except TimeoutError:
                self._signal(number)
        await self._ended.wait()

    def release(self) -> None:
        """Take the guard away, once the agent has ended."""
        self._guard.kill()
        self._guard.wait()
        assert self._guard.stdin is not None, "it was started with a pipe"
        self._guard.stdin.close()
        self._transport.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # all of it is gone; macOS says the latter of zombies
            return
