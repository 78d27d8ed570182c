"""Launches of a host that starts its commands itself: what it asks before, between and after.

Theory. `tieline run` has a supervisor of its own; a host (or a teammate of one) that starts commands itself
tells its root each step instead, and the root publishes them: claim, wait, the last check, the ledger, what
was started, its end. The command leads its own process group and session and carries the launch's mark in
its environment, so that the root can prove the end itself: nobody's word frees a resource.

Rule 1: a launch belongs to the peer that claimed it.
Rule 2: the record is durable when `resource.beginLaunch` has answered; a start before that is a defect.
Rule 3: an end is looked at here, over the quarantine; `resource.complete` while something runs is refused.
Rule 4: the steps after a start are served also after the peer has ended.

Source: reference/native.md 142, 190 to 193, 2.14, 2.15; reference/reliability.md I32 to I34.
"""

import asyncio
import hashlib
import os
import secrets
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tieline.engine import coordination
from tieline.engine.coordination import Begin, Claim, Complete, SpawnFailed, Started
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Peer, Principal, is_plain_id
from tieline.model.process import ProcessIdentity
from tieline.model.resource import (
    FINISHED,
    Document,
    Launch,
    Ledger,
    Probe,
    ResourceKey,
    TicketState,
)
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.coordination_tools import (
    BeforeSpawn,
    ClaimLaunch,
    Command,
    OfLaunch,
    RecordSpawn,
    WaitForGrant,
)
from tieline.runtime.resources import shapes, viewing
from tieline.runtime.resources.acting import claimant_of_peer
from tieline.runtime.resources.claims import full_keys
from tieline.runtime.resources.coordinator import Coordinator, now
from tieline.runtime.resources.gating import Judgement, verdict_on
from tieline.runtime.resources.holders import has_no_controller
from tieline.runtime.resources.running import EXECUTABLE_CHARACTERS_MAX, command_digest, lost
from tieline.shell.process import identify
from tieline.shell.tree import MARKS_VARIABLE, LaunchEvidence, probe_launch

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = [
    "before_spawn",
    "begin_launch",
    "claim",
    "complete",
    "failed",
    "finish_launch",
    "publish_launch",
    "record_spawn",
    "requirements",
    "wait",
]

WAIT_MS_MAX = 300_000
LOOK_S = 1.0
PROOF_S_MAX = 2.0
PROOF_LOOK_S = 0.1
QUARANTINE_S = 0.5
LAUNCHES_MAX = 256


class Held(msgspec.Struct):
    """One launch that a host of this root makes; what the steps have learned of it."""

    launch_id: str
    peer: Peer
    nonce: str
    digest: str
    executable: str
    cwd: str
    classes: tuple[str, ...]
    keys: tuple[ResourceKey, ...]
    fences: dict[ResourceKey, int] = {}
    inherited: tuple[ResourceKey, ...] = ()
    process: ProcessIdentity | None = None
    is_admitted: bool = False
    is_complete: bool = False


async def requirements(node: "Node", actor: Actor, asked: Command) -> Reply:
    """Return what rules and policies ask of a command."""
    judged = await _judged(node, actor.peer, asked.command, asked.cwd)
    return Reply({"resources": list(judged.keys), "classes": list(judged.names), "reason": judged.reason})


async def claim(node: "Node", actor: Actor, asked: ClaimLaunch) -> Reply:
    """Queue for everything that a command needs, all or nothing."""
    node.require(actor.peer, Capability.REQUEST)
    if not is_plain_id(asked.launch_id):
        raise Refused("INVALID_PARAMS", "launchId is a text of 1 to 256 characters")
    _check_command(asked.command, asked.cwd)
    judged = await _judged(node, actor.peer, asked.command, asked.cwd)
    named = await node.desk.run(lambda _: full_keys(list(asked.resources or ()), asked.cwd))
    keys = tuple(sorted({*judged.keys, *named}))
    digest = command_digest(asked.command, asked.cwd)
    held = node.desk.launches.get(asked.launch_id)
    if held is None:
        if len(node.desk.launches) >= LAUNCHES_MAX:
            raise Refused("QUEUE_FULL", f"{LAUNCHES_MAX} launches of this root are open", is_retryable=True)
        held = Held(
            asked.launch_id, actor.peer, secrets.token_hex(16), digest,
            os.path.basename(asked.command[0])[:EXECUTABLE_CHARACTERS_MAX], asked.cwd, judged.names, keys,
        )  # fmt: skip
    elif held.peer != actor.peer:
        raise Refused("SCOPE_DENIED", "this launch belongs to another peer")
    elif held.digest != digest:
        raise Refused("REQUEST_ID_CONFLICT", "this launch id was used for another command")
    principal = node.desk.principal(actor.peer)
    command = Claim(
        caller=principal,
        claimant=claimant_of_peer(principal),
        launch_id=held.launch_id,
        digest=digest,
        executable=held.executable,
        reason=asked.reason or f"run {held.executable}",
        request_id=asked.request_id or str(uuid.uuid4()),
    )
    tickets: list[dict[str, Any]] = []
    if keys:
        await node.desk.run(lambda coordinator: coordinator.decide(keys, command))
        await node.desk.observe(keys)
        tickets = await node.desk.run(lambda coordinator: _tickets(coordinator, keys, asked.launch_id))
    node.desk.launches[held.launch_id] = held
    return Reply({"launchId": held.launch_id, "resources": list(keys), "tickets": tickets})


async def wait(node: "Node", actor: Actor, asked: WaitForGrant) -> Reply:
    """Wait until everything that a launch claimed was granted.

    Raises:
        Refused: RESOURCE_WAIT_TIMEOUT: it was not, and nothing may be started; CONTROLLER_UNAVAILABLE:
            likewise, and the controller has ended; STALE_POLICY, RESERVATION_EXPIRED, TARGET_ENDED: a ticket
            ended while it waited.
    """
    held = _held(node, actor, asked.launch_id)
    if not 0 <= asked.wait_ms <= WAIT_MS_MAX:
        raise Refused("INVALID_PARAMS", f"waitMs is a whole number from 0 to {WAIT_MS_MAX}")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + asked.wait_ms / 1000
    while True:
        arrival = node.arrival(actor.peer)
        if held.keys:
            await node.desk.observe(held.keys)
        fences = await node.desk.run(lambda coordinator: _fences(coordinator, held))
        if fences is not None:
            return Reply({"granted": True, "fences": dict(sorted(fences.items()))})
        left = deadline - loop.time()
        if left <= 0:
            break
        await arrival.wait(min(left, LOOK_S))
    raise await node.desk.run(
        lambda coordinator: _too_late(coordinator, held, node.desk.principal(actor.peer))
    )


def _too_late(coordinator: Coordinator, held: Held, caller: Principal) -> Refused:
    """Return why the grant did not come: nobody is left to give it, or it was not this one's turn."""
    for key in held.keys:
        if has_no_controller(coordinator.store.read(key)):
            shape = viewing.status(coordinator, key, caller)
            text = f"not granted, nothing may start; {shapes.headline(shape)}"
            return Refused("CONTROLLER_UNAVAILABLE", text).advising(str(shape["nextAction"]))
    first = viewing.glimpse(coordinator, held.keys[0], caller)
    text = f"not granted in time, nothing may start; {shapes.headline(first)}"
    return Refused("RESOURCE_WAIT_TIMEOUT", text)


async def before_spawn(node: "Node", actor: Actor, asked: BeforeSpawn) -> Reply:
    """Check everything once more and use the rights; the answer's `environment` goes to the command."""
    held = _held(node, actor, asked.launch_id)
    node.require(actor.peer, Capability.REQUEST)
    if command_digest(asked.command, asked.cwd) != held.digest:
        raise Refused("REQUEST_ID_CONFLICT", "the launch was claimed for another command")
    fences = await node.desk.run(lambda coordinator: _fences(coordinator, held))
    if fences is None:
        raise Refused("RESOURCE_BUSY", "the command needs more than was granted", is_retryable=True)
    held.fences = fences
    if fences:
        begin = Begin(node.desk.principal(held.peer), held.launch_id, held.nonce, held.digest, fences)
        await node.desk.run(lambda coordinator: coordinator.decide(fences, begin))
    marks = f"{os.environ.get(MARKS_VARIABLE, '')} {held.nonce}".strip()
    environment = {
        "TIELINE_FENCE": " ".join(str(fences[key]) for key in sorted(fences)),
        "TIELINE_LAUNCH_ID": held.launch_id,
        "TIELINE_RESOURCE": " ".join(sorted(fences)),
        MARKS_VARIABLE: marks,
    }
    return Reply({"fences": fences, "environment": environment})


async def begin_launch(node: "Node", actor: Actor, asked: OfLaunch) -> Reply:
    """Enter the command in the ledger: once this has answered it may be started."""
    held = _held(node, actor, asked.launch_id)
    if not held.fences and held.keys:
        raise Refused("RESOURCE_BUSY", "ask resource.beforeSpawn first", is_retryable=True)
    # A command that needs nothing is recorded as well: a later policy has to find it.
    principal = node.desk.principal(held.peer)

    def admit(coordinator: Coordinator) -> None:
        launch = Launch(
            launch_id=held.launch_id,
            nonce=held.nonce,
            digest=held.digest,
            executable=held.executable,
            directory_digest=hashlib.sha256(os.fsencode(held.cwd)).hexdigest(),
            claimant=claimant_of_peer(principal),
            created_ms=now().wall_ms,
            boot_id=coordinator.boot_id,
            classes=held.classes,
            resources=tuple(sorted(held.fences.items())),
        )

        def change(ledger: Ledger, documents: Mapping[ResourceKey, Document]) -> Ledger | Refusal:
            gated = coordinator.gated_by(_ids(held.peer), frozenset(held.classes))
            return coordination.admit(ledger, launch, documents, {*held.keys, *gated})

        begin = Begin(principal, held.launch_id, held.nonce, held.digest, held.fences)
        coordinator.decide(held.fences, begin, change=change)

    await node.desk.run(admit)
    held.is_admitted = True
    return Reply({"recorded": True})


async def record_spawn(node: "Node", actor: Actor, asked: RecordSpawn) -> Reply:
    """Take what was started: a process that runs and leads its own group and session.

    One that may end sooner is started held, behind a pipe or a stop, and let go when this has answered.
    """
    held = _held(node, actor, asked.launch_id)
    process = identify(asked.pid) if asked.pid > 1 else None
    try:
        leads = process is not None and os.getpgid(asked.pid) == os.getsid(asked.pid) == asked.pid
    except OSError:
        leads = False
    if process is None or not leads:
        raise Refused(
            "INVALID_PARAMS",
            "pid is a running process that leads its own session and group: start it so, and let it go on"
            " when this has answered",
        )
    held.process = process
    started = Started(held.launch_id, held.nonce, held.fences, (process,), "group")
    if held.fences:
        await node.desk.run(lambda coordinator: coordinator.decide(held.fences, started))
    return Reply({})


async def publish_launch(node: "Node", actor: Actor, asked: OfLaunch) -> Reply:
    """Publish what was started in the ledger."""
    held = _held(node, actor, asked.launch_id)
    process = held.process
    if process is None:
        raise Refused("INVALID_PARAMS", "nothing was recorded of its start: resource.recordSpawn comes first")
    started = Started(held.launch_id, held.nonce, held.fences, (process,), "group")

    def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
        return coordination.identify_launch(ledger, held.launch_id, held.nonce, (process,), "group")

    if held.is_admitted:
        await node.desk.run(lambda coordinator: coordinator.decide(held.fences, started, change=change))
    return Reply({})


async def complete(node: "Node", actor: Actor, asked: OfLaunch) -> Reply:
    """Let go of the resources once nothing of the command is seen to run, over the quarantine.

    Raises:
        Refused: RESOURCE_BUSY while something runs, or what runs cannot be seen.
    """
    held = _held(node, actor, asked.launch_id)
    if held.is_admitted:
        gone = await _proof(held)
        command = Complete(held.launch_id, held.nonce, held.fences, gone)
        await node.desk.run(lambda coordinator: coordinator.decide(held.fences, command))
    held.is_complete = True
    return Reply({"completed": True})


async def finish_launch(node: "Node", actor: Actor, asked: OfLaunch) -> Reply:
    """Take the ended command out of the ledger."""
    held = _held(node, actor, asked.launch_id)
    if not held.is_complete:
        raise Refused("RESOURCE_BUSY", "its end is not proven yet: resource.complete comes first")
    if held.is_admitted:
        gone = await _proof(held)
        command = Complete(held.launch_id, held.nonce, held.fences, gone)

        def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
            return coordination.drain_launch(ledger, held.launch_id, held.nonce, gone)

        await node.desk.run(lambda coordinator: coordinator.decide(held.fences, command, change=change))
    node.desk.launches.pop(held.launch_id, None)
    return Reply({"finished": True})


async def failed(node: "Node", actor: Actor, asked: OfLaunch) -> Reply:
    """Give the rights back: the command was never started."""
    held = _held(node, actor, asked.launch_id)
    if held.process is not None:
        raise Refused("RESOURCE_BUSY", "its start was recorded: it ends by resource.complete")
    if held.fences or held.is_admitted:
        command = SpawnFailed(held.launch_id, held.nonce, held.fences)

        def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
            return coordination.drop_launch(ledger, held.launch_id, held.nonce)

        await node.desk.run(lambda coordinator: coordinator.decide(held.fences, command, change=change))
    elif held.keys:
        await node.desk.run(lambda coordinator: _withdraw(coordinator, held, node.desk.principal(held.peer)))
    node.desk.launches.pop(held.launch_id, None)
    return Reply({"failed": True})


# ---------------------------------------------------------------- what they share


async def _judged(node: "Node", peer: Peer, command: tuple[str, ...], cwd: str) -> Judgement:
    """Return what rules ask of a command, and what policies do because this peer is enrolled."""
    _check_command(command, cwd)

    def judge(coordinator: Coordinator) -> Judgement:
        found = verdict_on(command, "", cwd, node.places.home)
        gated = coordinator.gated_by(_ids(peer), frozenset(found.names))
        return found._replace(keys=tuple(sorted({*found.keys, *gated})))

    return await node.desk.run(judge)


def _check_command(command: tuple[str, ...], cwd: str) -> None:
    if not command or not command[0] or not os.path.isabs(cwd):
        raise Refused("INVALID_PARAMS", "command is a program with its arguments, cwd an absolute path")


def _ids(peer: Peer) -> frozenset[str]:
    return frozenset({peer.id, peer.root.id})


def _held(node: "Node", actor: Actor, launch_id: str) -> Held:
    held: Held | None = node.desk.launches.get(launch_id)
    if held is None:
        raise Refused("INVALID_PARAMS", "this root knows no launch of this launchId: claim it first")
    if held.peer != actor.peer:
        raise Refused("SCOPE_DENIED", "this launch belongs to another peer")
    return held


def _tickets(coordinator: Coordinator, keys: tuple[ResourceKey, ...], launch_id: str) -> list[dict[str, Any]]:
    found = ((key, coordinator.store.read(key).launched(launch_id)) for key in keys)
    return [shapes.ticket(key, ticket) for key, ticket in found if ticket is not None]


def _fences(coordinator: Coordinator, held: Held) -> dict[ResourceKey, int] | None:
    """Return the fence of each right, or None while one is missing.

    Raises:
        Refused: a ticket has ended.
    """
    fences: dict[ResourceKey, int] = {}
    for key in held.keys:
        ticket = coordinator.store.read(key).launched(held.launch_id)
        if ticket is None or ticket.state in FINISHED:
            raise Refused.of(lost(ticket))
        right = ticket.reservation
        if ticket.state is TicketState.QUEUED or right is None:
            return None
        if ticket.state is TicketState.RESERVED and right.expires_mono_ms is None:
            return None
        fences[key] = right.fence
    return fences


def _withdraw(coordinator: Coordinator, held: Held, principal: Principal) -> None:
    for key in held.keys:
        ticket = coordinator.store.read(key).launched(held.launch_id)
        if ticket is not None and ticket.state in (TicketState.QUEUED, TicketState.RESERVED):
            coordinator.decide([key], coordination.Cancel(principal, ticket.request_id))


async def _proof(held: Held) -> Probe:
    """Return the proof that nothing of a launch runs, seen twice around the quarantine."""
    if held.process is None:
        raise Refused("RESOURCE_BUSY", "nothing was recorded of its start, so nothing proves its end")
    evidence = LaunchEvidence(held.launch_id, held.nonce, held.process, "group", held.process)
    loop = asyncio.get_running_loop()
    until = loop.time() + PROOF_S_MAX
    since: float | None = None
    while True:
        seen = await loop.run_in_executor(None, probe_launch, evidence)
        if seen.state != "gone":
            since = None
        elif since is None:
            since = loop.time()
        elif loop.time() - since >= QUARANTINE_S:
            return Probe("gone", evidence=seen.lines)
        if seen.state != "gone" and loop.time() >= until:
            text = f"its end is not proven: {'; '.join(seen.lines)}"
            raise Refused("RESOURCE_BUSY", text, is_retryable=True)
        await asyncio.sleep(PROOF_LOOK_S)
