"""Looking at resources, and answering for what nothing proves: for the command line and a root alike.

Rule 1: a look takes time and proof into account, as any command does, and changes nothing else.
Rule 2: recovery is a person's act: it shows what was seen, refuses while any of it lives, records who
    answered and why, and signals nobody.

Source: reference/native.md 2.13, 3.5 "operator recovery", 195 to 197; reference/reliability.md I34, I40.
"""

import os
from collections.abc import Mapping
from typing import Any

from tieline.engine import coordination
from tieline.engine.coordination import Facts, Recover, Status
from tieline.errors import RecoveryRequired, Refused
from tieline.model.identity import Capability, Peer, Principal
from tieline.model.process import Liveness
from tieline.model.resource import Document, Launch, Ledger, ResourceKey, Snapshot, TicketState
from tieline.runtime.resources import shapes
from tieline.runtime.resources.coordinator import Coordinator, now
from tieline.shell.process import probe
from tieline.store.resources import Damage

__all__ = ["damaged", "events", "evidence", "glimpse", "local_viewer", "recover", "status", "status_of_all"]

_USED = frozenset({TicketState.STARTING, TicketState.RUNNING})


def local_viewer() -> Principal:
    """Return this OS user outside every root: may claim an open resource, and is enrolled nowhere."""
    return Principal(Peer(f"local-user-{os.getuid()}"), frozenset({Capability.REQUEST.value}), alias="you")


def status(
    coordinator: Coordinator,
    key: ResourceKey,
    caller: Principal,
    peers: Mapping[str, Liveness] | None = None,
) -> dict[str, Any]:
    """Return one resource as the caller may see it.

    Raises:
        Refused, RecoveryRequired: as `Coordinator.decide`.
    """
    outcome = coordinator.decide([key], Status(caller, key), peers=peers)
    assert outcome.snapshot is not None, "a status has a snapshot"
    return _shape(coordinator, outcome.snapshot)


def status_of_all(coordinator: Coordinator, caller: Principal) -> list[dict[str, Any]]:
    """Return every resource that was ever used, as the caller may see it; a damaged one as such.

    Raises:
        Refused, RecoveryRequired: as `Coordinator.known_keys`; the ledger is damaged.
    """
    return [_status_or_damage(coordinator, key, caller) for key in coordinator.known_keys()]


def _status_or_damage(coordinator: Coordinator, key: ResourceKey, caller: Principal) -> dict[str, Any]:
    try:
        return status(coordinator, key, caller)
    except RecoveryRequired:
        damage = coordinator.store.damage(key)
        if damage is None:
            raise
        return damaged(coordinator, damage, caller)


def damaged(coordinator: Coordinator, damage: Damage, caller: Principal) -> dict[str, Any]:
    """Return a resource whose record cannot be believed, as the caller may see it."""
    named = {caller.peer.id, caller.peer.root.id}
    is_enrolled = damage.policy is None or not named.isdisjoint(damage.enrolment)
    living = [one for one in damage.launches if coordinator.probe(one).state == "alive"]
    return shapes.damaged(damage, living, is_enrolled=is_enrolled)


def glimpse(coordinator: Coordinator, key: ResourceKey, caller: Principal) -> dict[str, Any]:
    """Return one resource as it is stored now, without a lock and without storing what time has done."""
    return _glimpse(coordinator, coordinator.store.read(key), caller)


def _glimpse(coordinator: Coordinator, document: Document, caller: Principal) -> dict[str, Any]:
    facts = Facts(boot_id=coordinator.boot_id)
    _, outcome = coordination.handle(document, Status(caller, document.resource), facts, now())
    assert outcome.snapshot is not None, "a status has a snapshot"
    return _shape(coordinator, outcome.snapshot)


def _shape(coordinator: Coordinator, item: Snapshot) -> dict[str, Any]:
    life: dict[str, Any] = {}
    holder = item.holder
    if holder is not None and holder.state in _USED and holder.launch_id is not None:
        launch = coordinator.store.read_ledger().launch(holder.launch_id)
        life = _life(coordinator, launch)
    return shapes.snapshot(item, now().wall_ms, life)


def _life(coordinator: Coordinator, launch: Launch | None) -> dict[str, Any]:
    """Return what is seen of a holder's processes."""
    if launch is None:
        return {"canEnd": False}
    if launch.supervisor is not None and probe(launch.supervisor) == "alive":
        starter = probe(launch.claimant.starter)
        return {
            "supervisor": launch.supervisor.pid,
            "isOrphan": True if "gone" in (starter, probe(launch.claimant.owner)) else None,
        }
    seen = coordinator.probe(launch)
    return {"canEnd": None if seen.state != "unknown" else False, "evidence": list(seen.evidence)}


def events(
    document: Document, peer_ids: frozenset[str], sequence: int, caller: Principal
) -> tuple[list[dict[str, Any]], bool]:
    """Return the events after `sequence` that the caller may see, and whether some are no longer kept.

    On an open resource whoever may claim it sees them all; under a policy each sees its own, and the
    controller, who is told of every one, all.
    """
    if document.policy is None and caller.may(Capability.REQUEST):
        found = tuple(one for one in document.events if one.sequence > sequence)
        return [shapes.event(one) for one in found], sequence < document.events_dropped
    page = coordination.events_after(document, peer_ids, sequence)
    return [shapes.event(one) for one in page.events], page.has_gap


def evidence(coordinator: Coordinator, key: ResourceKey, launch_id: str) -> list[str]:
    """Return what is known of a launch that holds or blocks a resource, a sentence each.

    Raises:
        Refused: INVALID_PARAMS: it does neither.
    """
    document, ledger = coordinator.store.read(key), coordinator.store.read_ledger()
    holder = document.holder
    blocker = next((one for one in document.blockers if one.launch_id == launch_id), None)
    is_holder = holder is not None and holder.launch_id == launch_id and holder.state in _USED
    if not is_holder and blocker is None:
        raise Refused("INVALID_PARAMS", f"no command of this launch id holds or blocks {key}")
    launch = ledger.launch(launch_id)
    lines = [f"launch {launch_id} {'holds' if is_holder else 'blocks'} {key}"]
    if launch is None:
        return [*lines, "the ledger has no record of it: its start was never confirmed"]
    lines.append(f"program {launch.executable}, claimed by :{launch.claimant.alias}")
    lines.append(f"root process {launch.claimant.owner.pid}: {probe(launch.claimant.owner)}")
    if not launch.processes:
        lines.append("its start was never confirmed: which processes it had is not known")
    seen = coordinator.probe(launch)
    return [*lines, *seen.evidence, f"together: {seen.state}"]


def recover(
    coordinator: Coordinator, key: ResourceKey, launch_id: str, text: str, caller: Principal
) -> dict[str, Any]:
    """End a holder or blocker on the operator's word; return the resource afterwards.

    Raises:
        Refused: RESOURCE_BUSY while anything of it is seen alive; INVALID_PARAMS.
    """
    launch = coordinator.store.read_ledger().launch(launch_id)
    keys = {key} | ({one for one, _ in launch.resources} if launch is not None else set())

    def change(ledger: Ledger, _documents: object) -> Ledger:
        return coordination.answer_for_launch(ledger, launch_id)

    coordinator.decide(keys, Recover(caller, launch_id, text), change=change)
    return glimpse(coordinator, key, caller)
