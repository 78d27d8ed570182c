"""pi and oh-my-pi without a window, over lines of JSON: what a person chooses from lists in a window.

Source: pi's reference of its RPC mode.
"""

import json
import queue
import subprocess
import threading
from typing import Any, Self

from tests.harness.programs import Program

__all__ = ["Rpc"]

ANSWER_SECONDS_MAX = 60.0


class Rpc:
    """One session in RPC mode; use it by `with`."""

    def __init__(self, program: Program) -> None:
        self.process = subprocess.Popen(
            [*program.command, "--mode", "rpc", *program.interactive()],
            cwd=program.place.work,
            env=program.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, name="rpc", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                frame = json.loads(line)
                if frame.get("type") == "response":
                    self._answers.put(frame)

    def ask(self, kind: str, **members: Any) -> Any:
        """Return what a command is answered.

        Raises:
            AssertionError: the command was refused.
            queue.Empty: no answer came in time.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"type": kind, **members}).encode() + b"\n")
        self.process.stdin.flush()
        while (answer := self._answers.get(timeout=ANSWER_SECONDS_MAX)).get("command") != kind:
            pass
        assert answer["success"], answer
        return answer.get("data")

    def end(self, seconds: float = 10.0) -> None:
        """End the session as its caller does, by the end of its input; kill it where it stays."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
