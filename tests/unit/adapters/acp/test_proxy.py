"""The proxy as a process between two pipes: bytes through, and how it ends."""

import asyncio
import os
import sys

import pytest

from tests.unit.adapters.fake_root import FakeRoot
from tieline.adapters.acp.proxy import CANNOT_EXECUTE, NOT_FOUND, Proxy
from tieline.errors import Refused

pytestmark = pytest.mark.asyncio
ECHO = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.exit(3)"]


async def run(agent: list[str], given: bytes, root: FakeRoot) -> tuple[int, bytes]:
    """Return the exit code and what the client read."""
    inner, outer = os.pipe(), os.pipe()
    os.write(inner[1], given)
    os.close(inner[1])
    code = await Proxy(inner[0], outer[1], agent, "", "", root.open).run()
    os.close(outer[1])
    with open(outer[0], "rb") as client:  # noqa: ASYNC230 - a pipe that holds all already
        return code, await asyncio.to_thread(client.read)


async def test_lines_that_concern_nobody_pass_byte_for_byte() -> None:
    """Blank lines, spaces, odd numbers, bad JSON, a last line without an end; the agent's code is ours."""
    given = b'\n{"method" : "a/b",\t"params": {"n": 1.50, "n": 2}}\r\n{"id":1e2}\nno json\n[1]\n{"id":5}'
    assert await run(ECHO, given, FakeRoot()) == (3, given)


async def test_session_without_a_root_goes_on_as_it_came(capfd: pytest.CaptureFixture[str]) -> None:
    """The agent is as it is without us; the person reads why."""
    root = FakeRoot()
    root.failures.append(Refused("PERMISSION_DENIED", "not here"))
    given = b'{"id": 1, "method": "session/new", "params": {"mcpServers": []}}\n'
    assert (await run(ECHO, given, root))[1] == given
    assert "not here" in capfd.readouterr().err


async def test_agent_that_does_not_start_ends_as_in_a_shell(tmp_path: os.PathLike[str]) -> None:
    """Not there, or no program."""
    assert (await run(["/no/such/agent"], b"", FakeRoot()))[0] == NOT_FOUND
    assert (await run([str(tmp_path)], b"", FakeRoot()))[0] == CANNOT_EXECUTE
