"""Rings of waits over real processes: each is told to all who are in it, and is gone when it breaks.

Two crossing questions, a ring of three, a question against a held resource, two resources in other orders.

Source: reference/reliability.md I30; docs/wire-native.md "Who waits for whom".
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.system.kit.attached import Attached

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

TOLD_S = 25.0


class Command:
    """One `tieline` command that waits, with what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.said = process, ""
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, home: Path, *words: str) -> "Command":
        """Start it in the home."""
        program = shutil.which("tieline")
        assert program is not None, "the tests' environment has the command"
        process = await asyncio.create_subprocess_exec(
            program, *words, cwd=home, env={**os.environ, "TIELINE_HOME": str(home)},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while text := await self.process.stderr.readline():
            self.said += text.decode()

    async def says(self, *texts: str) -> None:
        """Wait until all of these were said on its standard error."""
        async with asyncio.timeout(TOLD_S):
            while not all(text in self.said for text in texts):
                assert self.process.returncode is None, self.said
                await asyncio.sleep(0.05)

    async def ends(self) -> int:
        """Return its exit code."""
        async with asyncio.timeout(TOLD_S):
            await self._reading
            return await self.process.wait()

    async def discard(self) -> None:
        """End it whatever its state."""
        if self.process.returncode is None:
            self.process.kill()
        await self._reading
        await self.process.wait()


class Stage:
    """Some agents with a root each, and commands that act for them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.agents: dict[str, Attached] = {}
        self.commands: list[Command] = []

    async def command(self, name: str, verb: str, *words: str) -> Command:
        """Start a command that acts for one of the agents."""
        made = await Command.start(self.home, verb, *self.acting(name), *words)
        self.commands.append(made)
        return made

    def acting(self, name: str) -> tuple[str, str]:
        """Return the option that names an agent's root."""
        return "--instance", str(self.agents[name].who["instanceId"])

    async def rings(self, name: str) -> list[dict[str, Any]]:
        """Return the rings that stand as one agent's root shows them."""
        found: list[dict[str, Any]] = (await self.agents[name].call("local.waits"))["cycles"]
        return found

    async def no_ring(self) -> None:
        """Wait until no root shows any."""
        await until(self._has_no_ring)

    async def _has_no_ring(self) -> bool:
        return not any([await self.rings(name) for name in self.agents])

    async def question_for(self, name: str) -> str:
        """Wait for an unread message of an agent, and return its id."""
        found: list[dict[str, Any]] = []

        async def has_come() -> bool:
            found[:] = (await self.agents[name].call("local.inbox"))["messages"]
            return bool(found)

        await until(has_come)
        return str(found[0]["messageId"])

    async def holds(self, name: str, key: str) -> None:
        """Let an agent hold a resource for a minute."""
        await self.command(name, "run", "--resource", key, "--on-orphan", "stop", "--", "sleep", "60")

        async def is_running() -> bool:
            answer = await self.agents[name].call("coordinate_resource", operation="status", resource=key)
            return answer.get("state") == "running" or answer.get("resource", {}).get("state") == "running"

        await until(is_running)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds, for at most `TOLD_S`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + TOLD_S
    while not await holds():
        assert loop.time() < end, "it did not come to hold"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def stage(home: Path, *names: str) -> AsyncIterator[Stage]:
    """Give agents of these names; all that was started ends."""
    made = Stage(home)
    try:
        for name in names:
            made.agents[name] = await Attached.start(home, name)
        yield made
    finally:
        for command in made.commands:
            await command.discard()
        for agent in made.agents.values():
            await agent.discard()


@pytest.mark.clause("I30")
async def test_two_crossing_questions_are_told_to_both_ends(private_home: Path) -> None:
    """A command that asks and a model that waits for the same one's answer: both learn it, and both go on."""
    async with stage(private_home, "alice", "bob") as play:
        bob = play.agents["bob"]
        sent = await bob.call("send_peer_message", to="alice", content="which port?")
        asking = await play.command("alice", "ask", "bob", "which host?", "--timeout", "60")
        question = await play.question_for("bob")
        waiting = await bob.say("peer_messages", replyTo=sent["messageId"], waitMs=30_000)
        told = (await bob.answer(waiting))["result"]
        (event,) = [one for one in told["events"] if one["type"] == "wait_cycle"]
        assert {way["act"]: way["subject"] for way in event["ways"]} == {
            "answer": question,
            "give_up": sent["messageId"],
        }
        assert "timedOut" not in told
        assert ":alice waits for :bob" in told["text"]
        await asking.says("WAIT_CYCLE", "tieline reply " + sent["messageId"], "stop waiting for :bob")
        assert asking.said.count("WAIT_CYCLE") == 1
        notified = [one["params"]["event"] for one in bob.events if one.get("method") == "peer_update"]
        assert any(one["type"] == "wait_cycle" for one in notified)
        await bob.call("local.reply", messageId=question, content="localhost")
        assert await asking.ends() == 0
        await play.no_ring()


@pytest.mark.clause("I30")
async def test_ring_of_three_questions_is_told_to_all_three_and_one_answer_breaks_it(
    private_home: Path,
) -> None:
    """Nobody sees the whole ring; probes show it to each, by name, and an answer takes it away from all."""
    async with stage(private_home, "ann", "ben", "cat") as play:
        asked = {
            name: await play.command(name, "ask", other, "your part?", "--timeout", "60")
            for name, other in (("ann", "ben"), ("ben", "cat"), ("cat", "ann"))
        }
        for command in asked.values():
            await command.says(
                "WAIT_CYCLE", ":ann waits for :ben", ":ben waits for :cat", ":cat waits for :ann"
            )
        question = await play.question_for("ann")
        await play.agents["ann"].call("local.reply", messageId=question, content="the lexer")
        assert await asked["cat"].ends() == 0
        await play.no_ring()
        for name in ("ann", "ben"):
            assert asked[name].process.returncode is None
            assert asked[name].said.count("WAIT_CYCLE") == 1


@pytest.mark.clause("I30")
async def test_question_against_a_held_resource_is_told_to_both(private_home: Path) -> None:
    """One asks from within what it holds, the other waits for that: both commands say so, with ways out."""
    async with stage(private_home, "alice", "bob") as play:
        holding = await play.command(
            "alice", "run", "--resource", "machine/db", "--",
            "tieline", "ask", *play.acting("alice"), "bob", "may I migrate?", "--timeout", "60",
        )  # fmt: skip
        question = await play.question_for("bob")
        waiting = await play.command("bob", "run", "--resource", "machine/db", "--", "true")
        await holding.says("tieline ask: WAIT_CYCLE", "machine/db", "stop waiting for :bob")
        await waiting.says("tieline run: WAIT_CYCLE", f"tieline reply {question}", "tieline resource cancel")
        await play.agents["bob"].call("local.reply", messageId=question, content="yes")
        assert await holding.ends() == 0
        assert await waiting.ends() == 0
        await play.no_ring()


@pytest.mark.clause("I30")
async def test_two_resources_held_in_other_orders_are_told_to_both(private_home: Path) -> None:
    """Each holds one and waits for the other's: both commands name the ring; cancelling breaks it."""
    async with stage(private_home, "alice", "bob") as play:
        for name, key in (("alice", "machine/one"), ("bob", "machine/two")):
            await play.holds(name, key)
        first = await play.command("alice", "run", "--resource", "machine/two", "--", "true")
        second = await play.command("bob", "run", "--resource", "machine/one", "--", "true")
        for command in (first, second):
            await command.says("WAIT_CYCLE", "(machine/one)", "(machine/two)", "cancel the request for")
        (ring,) = await play.rings("alice")
        request = next(wait["request"] for wait in ring["waits"] if wait["subject"] == "machine/two")
        cancelling = await play.command("alice", "resource", "cancel", request)
        assert await cancelling.ends() == 0, cancelling.said
        assert await first.ends() == 125
        await play.no_ring()


@pytest.mark.clause("I30")
async def test_commands_outside_every_agent_are_told_of_their_ring(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command's own root, which lives for it alone, finds the ring as an agent's does."""
    host = private_home / "host"
    host.write_text(f'#!/bin/sh\n{shutil.which("tieline")} "$@"\nexit $?\n', encoding="utf-8")
    host.chmod(0o700)
    async with stage(private_home) as play:
        with monkeypatch.context() as patch:  # a host that is no ancestor of the commands
            patch.setattr(shutil, "which", lambda _name: str(host))
            play.agents["bob"] = await Attached.start(private_home, "bob")
        holding = await Command.start(
            private_home, "run", "--resource", "machine/db", "--",
            "tieline", "ask", "bob", "may I migrate?", "--timeout", "60",
        )  # fmt: skip
        play.commands.append(holding)
        question = await play.question_for("bob")
        waiting = await play.command("bob", "run", "--resource", "machine/db", "--", "true")
        await holding.says("tieline ask: WAIT_CYCLE", "machine/db")
        await waiting.says("tieline run: WAIT_CYCLE", f"tieline reply {question}")
        await play.agents["bob"].call("local.reply", messageId=question, content="yes")
        assert await holding.ends() == 0
        assert await waiting.ends() == 0
        await play.no_ring()
        await play.agents["bob"].leave()
