"""A hook's command asks its root, which asks the door that serves the harness."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call, two
from tests.unit.runtime.test_control import Local
from tieline.errors import Refused, UsageError
from tieline.runtime.hooked import HookAnswer

pytestmark = pytest.mark.asyncio


class Door:
    """A door that a test holds."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.told: list[Any] = []

    async def take(self, harness: str, event: str, document: dict[str, Any], actor: Any) -> HookAnswer:
        self.told.append((harness, event, document, actor.is_host))
        return HookAnswer("{}", self.token)

    def carried(self, token: str) -> None:
        self.told.append(token)


async def test_hook_reaches_the_door_and_its_answer_comes_back(private_home: Path) -> None:
    """Both ways as hexadecimal digits; what is no object is refused."""
    async with two(private_home) as (alice, _bob):
        with pytest.raises(Refused):
            await call(alice, "host.hook", harness="gemini", event="x")
        door = Door("t")
        alice.hook_by(door)
        asked = {"harness": "gemini", "event": "AfterTool"}
        answer = await call(alice, "host.hook", **asked, input=b'{"a": 1}'.hex())
        assert answer == {"output": b"{}".hex(), "token": "t"}
        await call(alice, "host.carried", token="t")
        assert door.told == [("gemini", "AfterTool", {"a": 1}, True), "t"]
        for wrong in ("zz", b"[]".hex(), b"{".hex()):
            with pytest.raises(Refused):
                await call(alice, "host.hook", **asked, input=wrong)


async def test_mail_of_a_command_that_dies_is_given_back(private_home: Path) -> None:
    """Only the word that the answer was written keeps it; then the door knows."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "x")
        for is_written in (False, True):
            shown = await call(bob, "host.boundary", kind="tool")
            bob.hook_by(Door(shown["token"]))
            local = await Local.dial(bob.who()["control"])
            await local.ask("host.hook", harness="gemini", event="AfterTool")
            if is_written:
                await local.ask("host.carried", token=shown["token"])
            local.end()
            await asyncio.sleep(0.2)
            again = await call(bob, "host.boundary", kind="tool")
            assert bool(again["token"]) is not is_written
            if again["token"]:
                await call(bob, "host.refused", token=again["token"])


async def test_command_is_judged_by_the_rules_for_the_session_of_this_root_alone(private_home: Path) -> None:
    """What cannot be judged here is refused, so that the command judges by itself."""

    def told(**more: Any) -> str:
        held = {"session_id": "s-1", "cwd": str(private_home), "tool_name": "Bash", **more}
        return json.dumps(held).encode().hex()

    committing = {"tool_input": {"command": "git commit -m x"}}
    async with two(private_home) as (alice, _bob):
        await alice.publish("s-1")
        (private_home / "h" / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
        answer = await call(alice, "host.judge", input=told(**committing))
        output = json.loads(bytes.fromhex(answer["output"]))["hookSpecificOutput"]
        assert (answer["judged"], output["permissionDecision"]) == (True, "deny")
        assert "-- git commit -m x" in output["permissionDecisionReason"]
        for free in ({"tool_input": {"command": "git log"}}, {"tool_name": "Read"}):
            assert await call(alice, "host.judge", input=told(**free)) == {"judged": True, "output": ""}
        for wrong in ({"session_id": "s-2"}, {"cwd": "here"}):
            with pytest.raises(Refused):
                await call(alice, "host.judge", input=told(**{**committing, **wrong}))
        (private_home / "h" / "config.toml").write_text("[resource]\nrule_sets = 7\n")
        with pytest.raises(UsageError):
            await call(alice, "host.judge", input=told(**committing))
