"""The proxy as a process between two pipes: bytes through, and how it ends."""

import asyncio
import json
import os
import signal
import sys

import pytest

from tests.unit.adapters.fake_root import FakeRoot
from tieline.adapters.acp import proxy
from tieline.adapters.acp.agent import CANNOT_EXECUTE, NOT_FOUND
from tieline.adapters.acp.proxy import Proxy
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


AGENT = """
import json, sys
for line in sys.stdin:
    frame = json.loads(line)
    result = {"agentInfo": {"name": "Gemini CLI"}, "sessionId": "s-1"}
    print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}), flush=True)
"""


def asked(number: int, method: str, **params: object) -> bytes:
    """Return the line of a request."""
    return json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n"


async def test_agent_that_ignores_its_clients_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some go on without input for ever: who started the proxy is left with nothing."""
    monkeypatch.setattr(proxy, "END_S", 0.2)
    agent = [sys.executable, "-c", "import time; time.sleep(60)"]
    async with asyncio.timeout(10):
        assert (await run(agent, b"", FakeRoot()))[0] == 128 + 15


async def test_peer_bears_the_agents_own_name_until_its_session_is_closed() -> None:
    """It may be started by `npx` or by a runtime; its root ends with the session, not with the agent."""
    root = FakeRoot()
    inner, outer = os.pipe(), os.pipe()
    words = [sys.executable, "-c", AGENT]
    task = asyncio.create_task(Proxy(inner[0], outer[1], words, "", "", root.open).run())
    for line in (
        asked(0, "initialize"),
        asked(1, "session/new", mcpServers=[]),
        asked(2, "session/close", sessionId="s-1"),
        asked(3, "session/list"),
    ):
        os.write(inner[1], line)
        await asyncio.to_thread(os.read, outer[0], 65_536)
        assert root.is_closed <= (b"session/new" not in line)
    assert root.is_closed
    assert [one.harness for one in root.options] == ["gemini-cli"]
    os.close(inner[1])
    assert await task == 0
    for number in outer:
        os.close(number)


async def test_signal_ends_the_agent_and_gives_the_signals_code() -> None:
    """Who ends the proxy ends the agent."""
    inner, outer = os.pipe(), os.pipe()
    words = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"]
    task = asyncio.create_task(Proxy(inner[0], outer[1], words, "", "", FakeRoot().open).run())
    await asyncio.to_thread(os.read, outer[0], 10)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await task == 128 + signal.SIGTERM
    for number in (*outer, inner[1]):
        os.close(number)
