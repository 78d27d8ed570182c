"""The control endpoint, over its real socket."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call, two
from tieline.engine.contract import Act
from tieline.runtime import control
from tieline.shell.process import PeerCredentials, identify

pytestmark = pytest.mark.asyncio


class Local:
    """A local process's line to a root, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.number = reader, writer, 0

    @classmethod
    async def dial(cls, path: str, *, is_hello: bool = True) -> "Local":
        made = cls(*await asyncio.open_unix_connection(path, limit=1 << 24))
        if is_hello:
            told = await made.ask("control.hello", version=1, product="test/1")
            assert told["result"]["version"] == 1
        return made

    def say(self, method: str, **params: Any) -> str:
        self.number += 1
        name = f"q{self.number}"
        frame = {"jsonrpc": "2.0", "id": name, "method": method, "params": params}
        self.writer.write(json.dumps(frame).encode() + b"\n")
        return name

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        name = self.say(method, **params)
        async with asyncio.timeout(10):
            while (told := json.loads(await self.reader.readline()))["id"] != name:
                continue
        found: dict[str, Any] = told
        return found

    def end(self) -> None:
        self.writer.transport.abort()


@pytest.mark.clause("S7", "native-76")
async def test_control_serves_a_process_of_this_user(private_home: Path) -> None:
    """Any number of requests over one line, each with its answer or its typed refusal and next action."""
    async with two(private_home) as (alice, _bob):
        local = await Local.dial(alice.who()["control"])
        assert (await local.ask("local.who"))["result"]["alias"] == "alice"
        sent = await local.ask("local.send", to="bob", content="x")
        assert sent["result"]["receipts"][0]["state"] == "accepted"
        refused = (await local.ask("local.status", messageId="m-0"))["error"]["data"]
        assert (refused["code"], refused["retryable"]) == ("UNKNOWN_TARGET", False)
        assert refused["action"]
        local.end()


async def test_control_tells_what_else_may_have_been_meant(private_home: Path) -> None:
    """A name that two bear is refused with the exact ids of both."""
    async with two(private_home) as (alice, bob):
        for run in ("r-1", "r-2"):
            await call(bob, "host.run_begin", run=run, alias="kid")
        local = await Local.dial(alice.who()["control"])
        details = (await local.ask("local.last", to="kid"))["error"]["data"]
        assert details["code"] == "AMBIGUOUS_TARGET"
        assert {one["peerId"] for one in details["candidates"]} == {
            one["peerId"] for one in bob.who()["runs"]
        }
        local.end()


@pytest.mark.clause("S7")
async def test_control_hangs_up_on_another_user_before_a_byte(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's word comes first; nothing that the other user says is read."""
    async with two(private_home) as (alice, _bob):
        monkeypatch.setattr(
            control, "peer_credentials", lambda _sock: PeerCredentials(1, os.geteuid() + 1, 0)
        )
        local = await Local.dial(alice.who()["control"], is_hello=False)
        with contextlib.suppress(ConnectionError):
            local.say("local.who")
            assert await local.reader.read() == b""
        local.end()
        assert alice.node.control.links == set()


@pytest.mark.clause("native-76", "S13")
async def test_control_answers_nothing_before_hello_and_no_peer_method_after(private_home: Path) -> None:
    """A request before the version check ends the line; what peers speak is unknown here."""
    async with two(private_home) as (alice, _bob):
        early = await Local.dial(alice.who()["control"], is_hello=False)
        early.say("local.who")
        rest = await early.reader.read()
        assert b"instanceId" not in rest
        local = await Local.dial(alice.who()["control"])
        for method in ("peer.send", "peer.hello", "resource.grant"):
            assert (await local.ask(method))["error"]["data"]["code"] == "METHOD_NOT_FOUND"
        for one in (early, local):
            one.end()


@pytest.mark.clause("K33", "O01", "I9", "native-103")
async def test_control_gives_mail_back_when_its_reader_died(private_home: Path) -> None:
    """A token that the reading command did not settle is free again at the end of its line."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        reader = await Local.dial(bob.who()["control"])
        shown = (await reader.ask("local.inbox", consume=True))["result"]
        assert shown["token"]
        other = await Local.dial(bob.who()["control"])
        assert (await other.ask("local.inbox", consume=True))["result"]["messages"] == []
        reader.end()
        for _ in range(100):
            again = (await other.ask("local.inbox", consume=True))["result"]
            if again["messages"]:
                break
            await asyncio.sleep(0.01)
        assert [item["content"] for item in again["messages"]] == ["one"]
        assert (await other.ask("host.taken", token=again["token"]))["result"] == {"consumed": 1}
        other.end()
        assert await bob.inbox() == []


@pytest.mark.clause("K33", "I9", "O33")
async def test_control_consumes_nothing_for_a_reader_that_never_reads(private_home: Path) -> None:
    """A result whose bytes the kernel did not take when the reader died consumed nothing."""
    async with two(private_home, limits={"message_bytes": 60_000}) as (alice, bob):
        for number in range(8):
            await alice.send("bob", f"{number}" * 59_000)
        local = await Local.dial(bob.who()["control"])
        local.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(4):
            local.say("peer_messages")
            local.say("local.log")
        await asyncio.sleep(0.3)
        before = len(await bob.inbox())
        local.end()
        await asyncio.sleep(0.2)
        counts = await bob.inbox()
        assert len(counts) >= before
        for message in counts:
            assert message.state == "accepted"
        assert before > 0


async def test_control_wait_ends_with_its_line(private_home: Path) -> None:
    """A command that was ended waits for nothing: its work is cancelled."""
    async with two(private_home) as (_alice, bob):
        local = await Local.dial(bob.who()["control"])
        local.say("local.inbox", waitMs=600_000)
        await asyncio.sleep(0.05)
        (link,) = bob.node.control.links
        (work,) = link._work
        local.end()
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.timeout(2):
                await work
        assert work.cancelled()


@pytest.mark.clause("native-139", "S15", "O18")
async def test_control_process_below_the_host_acts_as_its_agent(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the host: its agent, who names a run by its token while runs live. Elsewhere: a person."""
    async with two(private_home) as (alice, _bob):
        assert alice.node.control.actor(os.getpid()).act is Act.PERSON
        alice.node.host_identity = identify(os.getpid())
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
        )
        actor = alice.node.control.actor(child.pid)
        assert (actor.act, actor.is_in_tree) == (Act.AGENT, True)
        child.terminate()
        await child.wait()
        run = await call(alice, "host.run_begin", run="r-1", alias="kid")
        monkeypatch.setattr(alice.node.control, "actor", lambda _pid: actor)  # for this very process
        local = await Local.dial(alice.who()["control"])
        refused = (await local.ask("local.send", to="bob", content="x"))["result"]["errors"][0]
        assert refused["code"] == "AMBIGUOUS_TARGET"
        assert "kid" in refused["text"]
        sent = await local.ask("local.send", to="bob", content="x", run=run["token"])
        assert sent["result"]["receipts"][0]["from"] == run["peerId"]
        local.end()
