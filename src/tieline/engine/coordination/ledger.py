"""The launch ledger: every command that was admitted and whose end is not proven.

Rule 1: a command enters only while it holds, in `starting`, every resource that it needs; the record is
made durable before it is started.
Rule 2: a record leaves by proof or by an operator's act. What is proven of a resource's holder is
stored there first, and its record leaves after that: the other order would forget a running command.
Rule 3: every step presents the launch's nonce.

Source: reference/native.md 2.14, 3.5, 189 to 193; reference/reliability.md I32 to I34, I36.
"""

from collections.abc import Iterable, Mapping

import msgspec

from tieline.engine.coordination.commands import LAUNCHES_MAX, Facts
from tieline.engine.coordination.observing import gone_since, is_seen_long_enough
from tieline.errors import Refusal
from tieline.machine.launch import Step, identify, is_proven_gone, step
from tieline.model.moment import Moment
from tieline.model.process import ProcessIdentity
from tieline.model.resource import (
    Document,
    Launch,
    LaunchState,
    Ledger,
    Ownership,
    Probe,
    ResourceKey,
    TicketState,
)

__all__ = [
    "admit",
    "answer_for_launch",
    "drain_launch",
    "drop_launch",
    "identify_launch",
    "sweep",
]


def admit(
    ledger: Ledger,
    launch: Launch,
    documents: Mapping[ResourceKey, Document],
    required: Iterable[ResourceKey] = (),
) -> Ledger | Refusal:
    """Return the ledger with the launch in it: after this is durable the command may start.

    Args:
        ledger: As it was read under its lock.
        launch: The command, with the fence of each resource that it holds.
        documents: Those resources, as they are about to be stored in the same transaction.
        required: The resources that present policies and rules ask of it.
    """
    known = ledger.launch(launch.launch_id)
    if known is not None:
        is_same = known.digest == launch.digest and known.nonce == launch.nonce
        return ledger if is_same else Refusal("REQUEST_ID_CONFLICT", "this launch id was used before")
    held = dict(launch.resources)
    if not held.keys() >= frozenset(required):
        return Refusal("STALE_POLICY", "a policy asks for a resource that the command does not hold")
    if not all(_is_starting(documents.get(key), launch, fence) for key, fence in held.items()):
        return Refusal("STALE_POLICY", "a right of the command has ended before its start")
    if len(ledger.launches) >= LAUNCHES_MAX:
        return Refusal("QUEUE_FULL", f"{LAUNCHES_MAX} commands are in the ledger", is_retryable=True)
    return msgspec.structs.replace(ledger, launches=(*ledger.launches, launch))


def identify_launch(
    ledger: Ledger,
    launch_id: str,
    nonce: str,
    processes: tuple[ProcessIdentity, ...],
    ownership: Ownership,
    cgroup: str = "",
    limit_mark: int = 0,
) -> Ledger | Refusal:
    """Return the ledger with the processes of a launch published, and what else they are known by."""
    launch = _of(ledger, launch_id, nonce)
    if isinstance(launch, Refusal):
        return launch
    after = identify(launch, processes, ownership, cgroup, limit_mark)
    return ledger if after is None else _put(ledger, after)


def drain_launch(ledger: Ledger, launch_id: str, nonce: str, proof: Probe) -> Ledger | Refusal:
    """Return the ledger without the launch, on its own supervisor's proof that its tree has ended."""
    if ledger.launch(launch_id) is None:
        return ledger
    launch = _of(ledger, launch_id, nonce)
    if isinstance(launch, Refusal):
        return launch
    if proof.state != "gone":
        return Refusal("RESOURCE_BUSY", "the end of the command is not proven")
    return _step(ledger, launch, Step.DRAIN)


def drop_launch(ledger: Ledger, launch_id: str, nonce: str) -> Ledger | Refusal:
    """Return the ledger without a launch of which nothing was started."""
    if ledger.launch(launch_id) is None:
        return ledger
    launch = _of(ledger, launch_id, nonce)
    if isinstance(launch, Refusal):
        return launch
    if (after := step(launch, Step.SPAWN_FAILED)) is None:
        return Refusal("RESOURCE_BUSY", "the start was published: the launch ends with its processes")
    return _put(ledger, after)


def answer_for_launch(ledger: Ledger, launch_id: str) -> Ledger:
    """Return the ledger without a launch for which an operator answered: see `Recover`."""
    launch = ledger.launch(launch_id)
    return ledger if launch is None else _step(ledger, launch, Step.RECOVER)


def sweep(ledger: Ledger, facts: Facts, now: Moment, held: frozenset[str]) -> Ledger:
    """Return the ledger after proof had its effect on every launch.

    Args:
        ledger: As it was read under its lock.
        facts: What was observed; `launches` is not used.
        now: The moment of this look.
        held: Launch ids that a document still names as holder: those leave after their document.
    """
    for launch in ledger.launches:
        after = _observed(launch, facts, now)
        is_over = is_proven_gone(None, launch.boot_id, facts.boot_id, has_evidence=False) or (
            launch.launch_id in facts.probes and is_seen_long_enough(after.gone_since_mono_ms, now.mono_ms)
        )
        if is_over and launch.launch_id not in held:
            ledger = _step(ledger, launch, Step.DRAIN)
        elif after != launch:
            ledger = _put(ledger, after)
    return ledger


def _observed(launch: Launch, facts: Facts, now: Moment) -> Launch:
    """Return the launch as this look leaves it; one without its supervisor is a blocker."""
    probe = facts.probes.get(launch.launch_id)
    is_gone = is_proven_gone(probe, launch.boot_id, facts.boot_id, has_evidence=bool(launch.processes))
    since = gone_since(launch.gone_since_mono_ms, probe, now.mono_ms, is_gone=is_gone)
    if since != launch.gone_since_mono_ms:
        launch = msgspec.structs.replace(launch, gone_since_mono_ms=since)
    if launch.supervisor is not None and facts.process(launch.supervisor) == "gone":
        return step(launch, Step.LOSE) or launch
    return launch


def _is_starting(document: Document | None, launch: Launch, fence: int) -> bool:
    """Return whether the launch holds this resource by this grant, under the present policy."""
    holder = document.holder if document is not None else None
    if document is None or holder is None or holder.reservation is None:
        return False
    right = holder.reservation
    return (
        holder.launch_id == launch.launch_id
        and holder.digest == launch.digest
        and holder.state is TicketState.STARTING
        and right.fence == fence
        and right.epoch == document.epoch
        and right.nonce == launch.nonce
    )


def _of(ledger: Ledger, launch_id: str, nonce: str) -> Launch | Refusal:
    launch = ledger.launch(launch_id)
    if launch is None:
        return Refusal("INVALID_PARAMS", "the ledger has no such launch")
    if launch.nonce != nonce:
        return Refusal("SCOPE_DENIED", "the launch belongs to somebody else")
    return launch


def _step(ledger: Ledger, launch: Launch, taken: Step) -> Ledger:
    after = step(launch, taken)
    assert after is not None, "what is in the ledger has not drained"
    return _put(ledger, after)


def _put(ledger: Ledger, launch: Launch) -> Ledger:
    """Replace a launch by what it has become; a drained one leaves."""
    return msgspec.structs.replace(
        ledger,
        launches=tuple(
            launch if other.launch_id == launch.launch_id else other
            for other in ledger.launches
            if other.launch_id != launch.launch_id or launch.state is not LaunchState.DRAINED
        ),
    )
