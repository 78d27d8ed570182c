"""A host, or a teammate of one, that starts commands itself and tells its root each step."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import call, host_of, two
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor
from tieline.runtime.resources import hosted
from tieline.runtime.root import Root
from tieline.shell.tree import MARKS_VARIABLE

COMMAND = ["sleep", "60"]
KEYS = ["machine/build"]


class Teammate:
    """A child run, acting through its parent's root as the channel makes it."""

    def __init__(self, root: Root, run: str) -> None:
        self.root = root
        self.launch = f"launch-{root.node.instance}"
        self.cwd = root.node.place.workspace
        self.actor: Actor = host_of(root)._replace(peer=Peer(root.node.instance, run), is_host=False)

    async def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Call one operation as the child."""
        return await call(self.root, f"resource.{operation}", self.actor, launchId=self.launch, **fields)

    async def claim(self) -> dict[str, Any]:
        """Claim the build for the command."""
        return await self.ask("claim", command=COMMAND, cwd=self.cwd, resources=KEYS)

    async def code(self, operation: str, **fields: Any) -> str:
        """Return the code that an operation is refused with."""
        with pytest.raises(Refused) as caught:
            await self.ask(operation, **fields)
        return caught.value.code

    async def begun(self) -> dict[str, str]:
        """Go through all that comes before a start; return the command's environment."""
        await self.claim()
        await self.ask("wait", waitMs=2_000)
        checked = await self.ask("beforeSpawn", command=COMMAND, cwd=self.cwd)
        assert (await self.ask("beginLaunch"))["recorded"] is True
        environment: dict[str, str] = checked["environment"]
        return environment

    async def state(self) -> str:
        """Return the state of the build."""
        shape = await call(self.root, "coordinate_resource", operation="status", resource=KEYS[0])
        return str(shape["resource"]["state"])


@asynccontextmanager
async def teammates(home: Path) -> AsyncIterator[tuple[Teammate, Teammate]]:
    """Give a run of each of two roots."""
    async with two(home) as roots:
        for root in roots:
            await call(root, "host.run_begin", run="kid")
        yield Teammate(roots[0], "kid"), Teammate(roots[1], "kid")


@pytest.fixture
def children() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Keep what a test started, and end it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start(environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the command as a host does: its own session and group, under the launch's mark."""
    return subprocess.Popen(COMMAND, env={**os.environ, **environment}, start_new_session=True)


@pytest.mark.asyncio
@pytest.mark.clause("native-142", "native-190", "native-191", "I32", "I34")
async def test_launch_of_a_teammate_holds_from_the_ledger_to_the_proven_end(
    private_home: Path, children: list["subprocess.Popen[bytes]"]
) -> None:
    """Claim, wait, check, ledger, start, publish: held until the root itself has seen the end."""
    async with teammates(private_home) as (kid, other):
        environment = await kid.begun()
        assert (environment["TIELINE_FENCE"], environment["TIELINE_RESOURCE"]) == ("1", "machine/build")
        assert environment[MARKS_VARIABLE]
        process = start(environment)
        children.append(process)
        await kid.ask("recordSpawn", pid=process.pid)
        await kid.ask("publishLaunch")
        assert await kid.state() == "running"
        await other.claim()
        assert await other.code("wait", waitMs=300) == "RESOURCE_WAIT_TIMEOUT"
        assert await kid.code("finishLaunch") == "RESOURCE_BUSY"
        assert await kid.code("complete") == "RESOURCE_BUSY"
        assert await kid.code("failed") == "RESOURCE_BUSY"
        # The run ends while its command goes on: the command keeps what it holds, and is told to its end.
        await call(kid.root, "host.run_end", run="kid")
        assert await kid.state() == "running"
        process.send_signal(signal.SIGKILL)
        process.wait()
        begun = time.monotonic()
        await kid.ask("complete")
        assert time.monotonic() - begun >= 0.5  # seen gone over the quarantine
        await kid.ask("finishLaunch")
        assert (await other.ask("wait", waitMs=3_000))["fences"] == {"machine/build": 2}


@pytest.mark.asyncio
@pytest.mark.clause("native-141")
async def test_launch_belongs_to_its_teammate_and_its_command(private_home: Path) -> None:
    """Another run's launch, another command, an unknown launch: a code each, and nothing happens."""
    async with teammates(private_home) as (kid, _other):
        await kid.claim()
        await call(kid.root, "host.run_begin", run="twin")
        twin = Teammate(kid.root, "twin")
        assert await twin.code("wait") == "SCOPE_DENIED"
        fields = {"command": ["rm", "x"], "cwd": kid.cwd}
        assert await kid.code("claim", **fields) == "REQUEST_ID_CONFLICT"
        assert await kid.code("beforeSpawn", **fields) == "REQUEST_ID_CONFLICT"
        assert await kid.code("beginLaunch") == "RESOURCE_BUSY"  # the check comes first
        assert await kid.code("publishLaunch") == "INVALID_PARAMS"
        with pytest.raises(Refused) as caught:
            await call(kid.root, "resource.complete", kid.actor, launchId="unknown")
        assert caught.value.code == "INVALID_PARAMS"
        assert await kid.code("wait", waitMs=300_001) == "INVALID_PARAMS"
        assert await kid.code("claim", command=[], cwd=kid.cwd) == "INVALID_PARAMS"
        assert await kid.code("claim", command=COMMAND, cwd="relative") == "INVALID_PARAMS"


@pytest.mark.asyncio
async def test_command_that_was_never_started_gives_its_right_back(private_home: Path) -> None:
    """`failed` before and after the ledger frees the resource at once."""
    async with teammates(private_home) as (kid, _other):
        await kid.claim()
        assert await kid.state() == "reserved"
        await kid.ask("failed")
        assert await kid.state() == "unconfigured"
        await kid.begun()
        assert await kid.state() == "starting"
        await kid.ask("failed")
        assert await kid.state() == "unconfigured"


@pytest.mark.asyncio
@pytest.mark.clause("native-195", "I34")
async def test_start_that_was_never_told_stays_held(private_home: Path) -> None:
    """What may run and was not seen to is nobody's to free: its end is not proven."""
    async with teammates(private_home) as (kid, _other):
        await kid.begun()
        assert await kid.code("complete") == "RESOURCE_BUSY"
        assert await kid.state() == "starting"


@pytest.mark.asyncio
async def test_spawn_is_recorded_only_of_a_process_that_leads_its_session(private_home: Path) -> None:
    """Of another process the root could not prove the end."""
    async with teammates(private_home) as (kid, _other):
        await kid.begun()
        for pid in (0, 1, 2**22 + 1):
            assert await kid.code("recordSpawn", pid=pid) == "INVALID_PARAMS"
        plain = subprocess.Popen(COMMAND)  # noqa: ASYNC220 - it is over at once
        try:
            assert await kid.code("recordSpawn", pid=plain.pid) == "INVALID_PARAMS"
        finally:
            plain.kill()
            plain.wait()


@pytest.mark.asyncio
async def test_requirements_come_from_rules_and_policies(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule names a resource; a strict policy another, for who is enrolled; else nothing is needed."""
    monkeypatch.setenv("TIELINE_ALLOW_RESOURCE_CONTROL", "1")
    (private_home / "h").mkdir(mode=0o700)
    (private_home / "h" / "config.toml").write_text('[resource]\nrule_sets = ["git"]\n')
    async with teammates(private_home) as (kid, other):

        async def needs(who: Teammate, *command: str) -> list[str]:
            asked = {"command": list(command), "cwd": who.cwd}
            answer = await call(who.root, "resource.requirements", who.actor, **asked)
            return list(answer["resources"])

        (index,) = await needs(kid, "git", "commit")
        assert index.endswith("/git-index")
        assert await needs(kid, "git", "log") == []
        await call(kid.root, "resource.policy", resource="machine/all", controller="me")
        assert await needs(kid, "git", "commit") == ["machine/all", index]
        assert await needs(kid, "ls") == ["machine/all"]
        assert await needs(other, "ls") == []


@pytest.mark.asyncio
async def test_claim_of_the_controllers_own_run_waits_for_its_grant(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a person grants, looking does not: the controller's children get nothing by themselves."""
    monkeypatch.setenv("TIELINE_ALLOW_RESOURCE_CONTROL", "1")
    async with teammates(private_home) as (kid, _other):
        await call(kid.root, "resource.policy", resource=KEYS[0], controller="me")
        claimed = await kid.claim()
        assert [one["state"] for one in claimed["tickets"]] == ["queued"]
        assert await kid.code("wait", waitMs=100) == "RESOURCE_WAIT_TIMEOUT"
        await call(
            kid.root, "coordinate_resource", operation="grant", requestId=claimed["tickets"][0]["requestId"]
        )
        assert (await kid.ask("wait", waitMs=2_000))["granted"] is True


@pytest.mark.asyncio
@pytest.mark.clause("native-189", "mutant-17")
async def test_policy_that_came_after_the_grant_stops_the_start(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is checked again under the ledger's lock: what a new policy asks for is asked for."""
    monkeypatch.setenv("TIELINE_ALLOW_RESOURCE_CONTROL", "1")
    async with teammates(private_home) as (kid, _other):
        await kid.claim()
        await kid.ask("beforeSpawn", command=COMMAND, cwd=kid.cwd)
        await call(kid.root, "resource.policy", resource="machine/all", controller="me")
        assert await kid.code("beginLaunch") == "STALE_POLICY"
        await kid.ask("failed")


@pytest.mark.asyncio
@pytest.mark.clause("native-194")
async def test_wait_for_an_ended_controller_ends_with_its_own_code(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left to grant: the code says so, and the next action who can help."""
    monkeypatch.setenv("TIELINE_ALLOW_RESOURCE_CONTROL", "1")
    async with teammates(private_home) as (kid, _other):
        await call(kid.root, "resource.policy", resource=KEYS[0], controller="me")
        await kid.claim()
        monkeypatch.setattr(hosted, "has_no_controller", lambda _document: True)
        assert await kid.code("wait", waitMs=100) == "CONTROLLER_UNAVAILABLE"
