"""The agent as a process: its code, and that nothing of its group is left."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tieline.adapters.acp.agent import Agent

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 10.0
DEAF = "import signal, time; [signal.signal(one, signal.SIG_IGN) for one in (15, 1)]; time.sleep(60)"
PARENT = (
    "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]]).pid, flush=True); "
)
STAYS = "import time; time.sleep(60)"


def is_gone(pid: int) -> bool:
    """Return whether nothing runs under this number within a while."""
    give_up = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # nobody waits for it here
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


async def parent(words: str, child: str = STAYS) -> tuple[Agent, int]:
    """Return an agent that has started a child, and the child's number."""
    agent = await Agent.start([sys.executable, "-c", PARENT + words, child])
    return agent, int(await agent.output.readline())


@pytest.mark.parametrize(
    ("words", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", 128 + signal.SIGTERM)],
)
async def test_code_is_what_a_shell_would_say(words: str, code: int) -> None:
    """Also of an agent that a signal ended."""
    agent = await Agent.start([sys.executable, "-c", words])
    assert await agent.wait() == code
    agent.release()


async def test_killed_agent_leaves_no_child() -> None:
    """Its group goes with it."""
    agent, child = await parent("import os; os.kill(os.getpid(), 9)")
    assert await agent.wait() == 128 + signal.SIGKILL
    agent.release()
    assert is_gone(child)


async def test_agent_that_ended_by_itself_leaves_what_it_started() -> None:
    """A server that a person let it start goes on, as without us."""
    agent, child = await parent("")
    assert await agent.wait() == 0
    agent.release()
    await asyncio.sleep(0.3)
    os.kill(child, signal.SIGKILL)


async def test_agent_that_hears_neither_its_client_nor_a_request_is_ended() -> None:
    """With its children, that hear nothing either."""
    agent, child = await parent(DEAF, DEAF)
    agent.close_input()
    await agent.end(0.2)
    assert await agent.wait() == 128 + signal.SIGKILL
    agent.release()
    assert is_gone(child)


async def test_writing_to_an_agent_that_is_gone_is_no_fault() -> None:
    """Its end is told by its code, once."""
    agent = await Agent.start([sys.executable, "-c", ""])
    await agent.wait()
    for _ in range(3):
        await agent.write(b"x\n")
    agent.release()
