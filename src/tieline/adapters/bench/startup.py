"""What a person pays at every start: the MCP door, the command line, and an idle root's memory.

Rule 1: each is measured against an interpreter of the same environment that does nothing, in turn.
Rule 2: the door is the real one, spoken to as a host does.
Rule 3: a root lets nobody look into its process, so the door's own process tells what it uses: a thread
of it waits for that one question.

Source: DESIGN.md 7; reference/substrate.md 6, 7.
"""

import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Final

from tieline.adapters.bench.crew import BenchFailed, Crew
from tieline.adapters.bench.machine import kib_of

__all__ = ["TIELINE", "mcp_start", "start_up"]

ANSWER_S: Final = 20.0
IDLE_S: Final = 2.5
"""After this the door has published its presence and rests."""
TIELINE: Final = (sys.executable, "-m", "tieline.adapters.cli.main")
INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
FIRST_CALL: Final = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "list_peers", "arguments": {}},
}
TELLING: Final = """
import os, sys, _thread
asked, told = int(sys.argv[1]), int(sys.argv[2])
def tell():
    while os.read(asked, 1):
        with open("/proc/self/smaps_rollup", "rb") as file:
            os.write(told, file.read())
_thread.start_new_thread(tell, ())
from tieline.adapters.cli.main import main
sys.exit(main(["mcp", *sys.argv[3:]]))
"""


def _run_ms(words: list[str], environment: dict[str, str], folder: str) -> float:
    """Return how long a command takes from its start to its end, in milliseconds."""
    begun = time.monotonic_ns()
    done = subprocess.run(  # noqa: S603 - our own interpreter
        words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    took_ms = (time.monotonic_ns() - begun) / 1e6
    if done.returncode != 0:
        raise BenchFailed(f"{' '.join(words[-2:])} failed: {done.stderr.decode(errors='replace')[-200:]}")
    return took_ms


def _command(*words: str) -> list[str]:
    """Return how the command is called in this environment: its script, or its module."""
    script = os.path.join(os.path.dirname(sys.executable), "tieline")
    return [script, *words] if os.access(script, os.X_OK) else [*TIELINE, *words]


def _answer(process: "subprocess.Popen[bytes]", rest: bytes, number: int) -> bytes:
    """Return what was read behind the answer to request `number`."""
    assert process.stdout is not None, "it was started with a pipe"
    deadline = time.monotonic() + ANSWER_S
    while True:
        while b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            frame = json.loads(line)
            if frame.get("id") == number:
                if "result" not in frame or frame["result"].get("isError"):
                    raise BenchFailed(f"the MCP door refused: {line[:200]!r}")
                return rest
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
            raise BenchFailed("the MCP door does not answer")
        data = os.read(process.stdout.fileno(), 1 << 16)
        if not data:
            raise BenchFailed("the MCP door ended by itself")
        rest += data


def mcp_start(crew: Crew, *, is_weighed: bool = False) -> dict[str, float]:
    """Start the MCP door; return ms to its first answer and its first tool call, and its idle PSS in MiB."""
    words = _command("mcp", "--workspace", crew.workspace)
    passed: tuple[int, ...] = ()
    question = answer = (-1, -1)
    if is_weighed:
        question, answer = os.pipe(), os.pipe()
        passed = (question[0], answer[1])
        words = [
            sys.executable,
            "-c",
            TELLING,
            str(question[0]),
            str(answer[1]),
            "--workspace",
            crew.workspace,
        ]
    begun = time.monotonic_ns()
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=crew.environment,
        bufsize=0,
        pass_fds=passed,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None, "it was started with a pipe"
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        rest = _answer(process, b"", 1)
        found = {"initialize": (time.monotonic_ns() - begun) / 1e6}
        process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        process.stdin.write(json.dumps(FIRST_CALL).encode() + b"\n")
        _answer(process, rest, 2)
        found["firstCall"] = (time.monotonic_ns() - begun) / 1e6
        if is_weighed:
            time.sleep(IDLE_S)
            os.write(question[1], b"?")
            pss_kib = kib_of(os.read(answer[0], 1 << 16).decode("ascii"), "Pss")
            found["pssMib"] = (pss_kib or 0) / 1024
        process.stdin.close()
        process.wait(ANSWER_S)
    except BrokenPipeError:
        raise BenchFailed("the MCP door ended by itself") from None
    finally:
        for end in (*question, *answer):
            if end >= 0:
                os.close(end)
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
    return found


def start_up(crew: Crew, rounds: int) -> dict[str, list[float]]:
    """Return samples by name, in ms and, for `mcp_pss`, in MiB; every round takes one of each in turn."""
    names = ("python_pass", "mcp_initialize", "mcp_first_call", "cli_peers", "mcp_pss")
    taken: dict[str, list[float]] = {name: [] for name in names}
    nothing = [sys.executable, "-c", "pass"]
    for number in range(rounds + 1):
        one: dict[str, Any] = {"python_pass": _run_ms(nothing, crew.environment, crew.workspace)}
        started = mcp_start(crew)
        one |= {"mcp_initialize": started["initialize"], "mcp_first_call": started["firstCall"]}
        one["cli_peers"] = _run_ms(_command("peers"), crew.environment, crew.workspace)
        if number:  # the first round writes the compiled files
            for name, sample in one.items():
                taken[name].append(sample)
    if sys.platform.startswith("linux"):
        taken["mcp_pss"].append(mcp_start(crew, is_weighed=True)["pssMib"])
    return taken
