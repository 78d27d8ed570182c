"""The proxy as a process between two pipes: bytes through, and how it ends."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.adapters.fake_root import FakeReply, FakeRoot
from tieline.adapters.acp import proxy
from tieline.adapters.acp.agent import CANNOT_EXECUTE, NOT_FOUND
from tieline.adapters.acp.proxy import Proxy
from tieline.errors import Refused

pytestmark = pytest.mark.asyncio
SECONDS_MAX = 20.0
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


async def test_line_of_many_megabytes_passes_although_nobody_reads_before_its_end() -> None:
    """In both directions, at a pipe's pace."""
    line = json.dumps({"id": 1, "method": "session/prompt", "params": {"text": "\u00fc" * 1_500_000}})
    given = b"\xff" * 8_388_608 + b"\r\n" + line.encode()
    inner, outer = os.pipe(), os.pipe()

    def write() -> None:
        with open(inner[1], "wb") as client:
            client.write(given)

    def read() -> bytes:
        with open(outer[0], "rb") as client:
            return client.read()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(write))
        found = group.create_task(asyncio.to_thread(read))
        assert await Proxy(inner[0], outer[1], ECHO, "", "", FakeRoot().open).run() == 3
        os.close(outer[1])
    os.close(inner[0])
    assert found.result() == given


async def test_errors_of_the_agent_go_where_ours_go(capfd: pytest.CaptureFixture[str]) -> None:
    """Its stream of errors is not looked at."""
    words = "import sys; sys.stderr.write('told\\n'); sys.exit(7)"
    assert await run([sys.executable, "-c", words], b"", FakeRoot()) == (7, b"")
    assert capfd.readouterr().err == "told\n"


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


# --- a client and an agent in conversation ----------------------------------------------------

TALKER = """
import json, sys
held, count = [], 0
def tell(**frame):
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    method, params = frame.get("method"), frame.get("params") or {}
    result = {"_meta": {"heard": params}}
    if method in ("session/new", "session/fork"):
        count += 1
        result["sessionId"] = f"s-{count}"
    if method == "session/prompt":
        tell(method="told", params={"prompt": params["prompt"][0]["text"]})
        held.append(frame["id"])
    elif method == "release":
        tell(id=held.pop(0), result={"stopReason": "end_turn"})
    elif method == "ask":
        tell(id=70, method="session/request_permission", params={"sessionId": params["sessionId"]})
    elif "id" in frame and method:
        tell(id=frame["id"], result=result)
    elif method:
        tell(method="told", params={"notified": method})
"""


class Client:
    """A client of the protocol, and the roots of its sessions."""

    def __init__(self, source: int, sink: int) -> None:
        self._to, self._from, self._rest, self._count = source, sink, b"", 0
        self.roots: list[FakeRoot] = []
        self.failure: BaseException | None = None

    async def open(self, options: Any) -> FakeRoot:
        """Open one root more."""
        root = FakeRoot()
        if self.failure is not None:
            root.failures.append(self.failure)
        root.mail = []  # type: ignore[attr-defined]

        async def boundary(_params: object) -> FakeReply:
            text = root.mail.pop(0) if root.mail else ""  # type: ignore[attr-defined]
            return FakeReply({"text": text, "token": "t" if text else None})

        root.operations.answers["host.boundary"] = boundary
        root.operations.gives("host.state", {})
        self.roots.append(root)
        return await root.open(options)

    def wake(self, number: int, text: str) -> None:
        """Let mail come to one of the roots."""
        self.roots[number].mail.append(text)  # type: ignore[attr-defined]
        for callback in list(self.roots[number].operations.callbacks):
            callback("wake", {})

    def say(self, method: str, *, request_id: object = None, **params: Any) -> None:
        """Write one line."""
        frame = {"jsonrpc": "2.0", "method": method, "params": params}
        os.write(
            self._to, json.dumps(frame | ({} if request_id is None else {"id": request_id})).encode() + b"\n"
        )

    async def next(self) -> dict[str, Any]:
        """Return the next line."""
        while b"\n" not in self._rest:
            self._rest += await asyncio.to_thread(os.read, self._from, 65_536)
        line, self._rest = self._rest.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request whose answer is the next line."""
        self._count += 1
        self.say(method, request_id=self._count, **params)
        frame = await self.next()
        assert frame["id"] == self._count, frame
        found: dict[str, Any] = frame["result"]
        return found

    async def told(self, **params: str) -> None:
        """Take the next line, in which the agent says what it was told."""
        assert (await self.next()).get("params") == params

    def states(self, number: int) -> list[Any]:
        """Return what one of the roots was told of its host."""
        asked = self.roots[number].operations.asked
        return [params for _actor, name, params, _call in asked if name == "host.state"]


@asynccontextmanager
async def conversation() -> AsyncIterator[Client]:
    """Give a client that talks to an agent; the agent ends with it."""
    inner, outer = os.pipe(), os.pipe()
    client = Client(inner[1], outer[0])
    words = [sys.executable, "-c", TALKER]
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        group.create_task(Proxy(inner[0], outer[1], words, "", "", client.open).run())
        yield client
        os.close(inner[1])
    for number in (inner[0], *outer):
        os.close(number)


def prompt(text: str) -> dict[str, Any]:
    """Return the params of a prompt."""
    return {"sessionId": "s-1", "prompt": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("servers", [{"mcpServers": []}, {"mcpServers": [{"name": "tieline"}]}, {}])
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume", "session/fork"])
async def test_every_way_to_make_a_session_gets_the_server_once_and_a_root_of_its_own(
    method: str, servers: dict[str, Any]
) -> None:
    """A session that is resumed or forked may name no list of servers; then there is ours alone."""
    async with conversation() as client:
        name = {} if method == "session/new" else {"sessionId": "old"}
        result = await client.ask(method, cwd="/w", **name, **servers)
        (added,) = result["_meta"]["heard"]["mcpServers"]
        assert (added["name"], added["args"][-1]) == ("tieline", "mcp")
        await client.ask("anything")
        (root,) = client.roots
        assert root.options[0].workspace == "/w"
        assert root.published == ["old" if method in ("session/load", "session/resume") else "s-1"]
        second = await client.ask(method, cwd="/w", **name, **servers)
        assert len(second["_meta"]["heard"]["mcpServers"]) == 1
        await client.ask("anything")
        assert [one.is_closed for one in client.roots] == [
            method in ("session/load", "session/resume"),
            False,
        ]
    assert all(one.is_closed for one in client.roots)


@pytest.mark.parametrize(
    "params",
    [{"mcpServers": None}, {"mcpServers": {}}, {"cwd": "/a\0b", "mcpServers": []}, {"cwd": "\ud800"}],
)
async def test_session_that_no_root_can_serve_is_the_agents_affair(params: dict[str, Any]) -> None:
    """What is no list, and a folder that no name can be of, go on as they came."""
    async with conversation() as client:
        client.failure = ValueError("embedded null byte") if "cwd" in params else None
        result = await client.ask("session/new", **params)
        assert result["_meta"]["heard"] == params


async def test_answer_to_a_prompt_of_ours_is_never_the_clients() -> None:
    """Also where the session was closed before it came."""
    async with conversation() as client:
        await client.ask("session/new", mcpServers=[])
        await client.ask("anything")
        client.wake(0, "mail")
        await client.told(prompt="mail")
        await client.ask("session/close", sessionId="s-1")
        client.say("release")
        assert "sessionId" not in await client.ask("anything")


async def test_session_loaded_again_while_it_works_is_not_prompted() -> None:
    """Its mail comes when the turn that goes on has ended."""
    async with conversation() as client:
        await client.ask("session/new", mcpServers=[])
        client.say("session/prompt", request_id="p", **prompt("work"))
        await client.told(prompt="work")
        await client.ask("session/load", sessionId="s-1", mcpServers=[])
        await client.ask("anything")
        client.wake(1, "mail")
        await client.ask("anything")
        assert client.states(1)[-1]["busy"] is True
        client.say("release")
        assert (await client.next())["id"] == "p"
        await client.told(prompt="mail")


@pytest.mark.parametrize("method", ["$/cancel_request", "session/cancel", "session/close", "session/delete"])
async def test_prompt_that_waits_behind_ours_is_answered_whatever_ends_it(method: str) -> None:
    """The agent has never heard of it, so the answer is said here, once."""
    async with conversation() as client:
        await client.ask("session/new", mcpServers=[])
        await client.ask("anything")
        client.wake(0, "mail")
        await client.told(prompt="mail")
        client.say("session/prompt", request_id="p", **prompt("work"))
        is_request = method in ("session/close", "session/delete")
        client.say(method, request_id="c" if is_request else None, sessionId="s-1", requestId="p")
        lines = [await client.next() for _ in range(1 if method == "$/cancel_request" else 2)]
        answers = {one["id"]: one["result"] for one in lines if "id" in one}
        assert answers.pop("p") == {"stopReason": "cancelled"}
        assert list(answers) == (["c"] if is_request else [])
        client.say("release")
        await client.ask("anything")


async def test_request_of_another_kind_that_is_withdrawn_is_the_agents_affair() -> None:
    """Only what waits here is answered here."""
    async with conversation() as client:
        await client.ask("session/new", mcpServers=[])
        client.say("$/cancel_request", requestId=99)
        await client.told(notified="$/cancel_request")


async def test_permission_pauses_until_the_client_has_answered() -> None:
    """An agent that waits for its person is not at work, and not to be woken."""
    async with conversation() as client:
        await client.ask("session/new", mcpServers=[])
        client.say("session/prompt", request_id="p", **prompt("work"))
        await client.told(prompt="work")
        client.say("ask", sessionId="s-1")
        assert (await client.next())["method"] == "session/request_permission"
        await client.ask("anything")
        assert client.states(0)[-1] == {"busy": True, "paused": "permission"}
        os.write(client._to, b'{"id":70,"result":{"outcome":{"outcome":"cancelled"}}}\n')
        await client.ask("anything")
        assert client.states(0)[-1] == {"busy": True, "resumed": True}
        client.say("release")
        await client.next()


# --- ends -------------------------------------------------------------------------------------


async def test_agent_whose_client_reads_no_more_finds_that_out() -> None:
    """As without us: its next line fails. Its code is passed on."""
    words = "try:\n  while True: print(1, flush=True)\nexcept BrokenPipeError:\n  import os; os._exit(9)"
    inner, outer = os.pipe(), os.pipe()
    os.close(outer[0])
    async with asyncio.timeout(SECONDS_MAX):
        assert (
            await Proxy(inner[0], outer[1], [sys.executable, "-c", words], "", "", FakeRoot().open).run() == 9
        )
    for number in (*inner, outer[1]):
        os.close(number)


async def test_last_lines_wait_for_a_client_that_reads_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent wrote before it ended is the client's, however late it reads."""
    monkeypatch.setattr(proxy, "LAST_LINES_S", 0.2)
    words = (
        "import sys; sys.stdout.write(('x' * 99 + '\\n') * 1_500); sys.stdout.flush(); print(file=sys.stderr)"
    )
    inner, outer, ended = os.pipe(), os.pipe(), os.pipe()
    former = os.dup(2)
    os.dup2(ended[1], 2)  # the agent's word, behind its last line
    try:
        async with asyncio.timeout(SECONDS_MAX):
            agent = [sys.executable, "-c", words]
            task = asyncio.create_task(Proxy(inner[0], outer[1], agent, "", "", FakeRoot().open).run())
            await asyncio.to_thread(os.read, ended[0], 1)
            await asyncio.sleep(1)
            assert not task.done()
            found = b""
            while len(found) < 150_000:
                found += await asyncio.to_thread(os.read, outer[0], 65_536)
            assert await task == 0
    finally:
        os.dup2(former, 2)
    for number in (*inner, *outer, *ended, former):
        os.close(number)


async def test_signal_ends_the_proxy_although_its_client_reads_nothing() -> None:
    """Nothing that waits for the client holds up the end."""
    words = (
        "import sys, time; sys.stdout.write(('x' * 99 + '\\n') * 9_000); sys.stdout.flush(); time.sleep(60)"
    )
    inner, outer = os.pipe(), os.pipe()
    task = asyncio.create_task(
        Proxy(inner[0], outer[1], [sys.executable, "-c", words], "", "", FakeRoot().open).run()
    )
    await asyncio.to_thread(os.read, outer[0], 10)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(SECONDS_MAX):
        assert await task == 128 + signal.SIGTERM
    for number in (*inner, *outer):
        os.close(number)


async def test_agent_is_not_left_behind_by_a_fault_of_ours() -> None:
    """A defect ends both."""
    root = FakeRoot()
    root.failures.append(RuntimeError("a defect"))
    inner, outer = os.pipe(), os.pipe()
    words = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    async with asyncio.timeout(SECONDS_MAX):
        task = asyncio.create_task(Proxy(inner[0], outer[1], words, "", "", root.open).run())
        pid = int(await asyncio.to_thread(os.read, outer[0], 100))
        os.write(inner[1], asked(1, "session/new", mcpServers=[]))
        with pytest.raises(ExceptionGroup):
            await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    for number in (*inner, *outer):
        os.close(number)
