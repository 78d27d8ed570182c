"""What doors show of shared resources: snapshots, tickets and events, and the next action of who looks.

Rule 1: who is not enrolled is shown free or busy, and nothing that stands beside it.
Rule 2: every state has a next action; none of them is to end somebody else's process or to remove a file.
Rule 3: an id that somebody chose stands in a command to type as one word of a shell, whatever is in it.
Rule 4: names are camel case, times ISO-8601 UTC; absent facts are absent.

Source: reference/native.md 2.13 "Snapshot", "Events", 3.5 "status visibility"; docs/json-shapes.md.
"""

from collections.abc import Sequence
from shlex import quote
from typing import Any

from tieline.model.moment import to_iso
from tieline.model.resource import Launch, ResourceEvent, ResourceKey, Snapshot, Ticket, TicketState
from tieline.store.resources import Damage

__all__ = ["advice", "damaged", "enrolment_advice", "event", "headline", "next_action", "snapshot", "ticket"]

ADVICE = {
    "AMBIGUOUS_TARGET": "name one ticket: `tieline resource status {key}` shows them",
    "CAPABILITY_DENIED": "let its controller do it: `tieline resource status {key}` names it",
    "QUEUE_FULL": "wait until some of those in line have ended; `tieline resource status {key}` shows them",
    "RECOVERY_REQUIRED": "`tieline resource recover {key}` shows the evidence, and who may answer for it",
    "SCOPE_DENIED": (
        "use a ticket of your own, or ask the controller to enrol you; `tieline resource status {key}` shows"
        " both"
    ),
    "TARGET_ENDED": "request it again; `tieline resource status {key}` shows who waits",
}
"""What helps at a resource where the code's own next action speaks of messages."""


def advice(code: str, key: ResourceKey) -> str:
    """Return what helps at a resource, empty where the code says it well enough."""
    return ADVICE.get(code, "").format(key=key)


def _without_none(shape: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shape.items() if value is not None}


def snapshot(item: Snapshot, now_ms: int, life: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a resource as its viewer may see it.

    Args:
        item: What the engine shows this viewer.
        now_ms: Wall time.
        life: What was seen of the holder's processes: `supervisor`, `isOrphan`, `canEnd`, `evidence`.
    """
    shape: dict[str, Any] = {
        "resource": item.resource,
        "state": item.state,
        "configured": item.is_configured,
        "enrolled": item.is_enrolled,
        "epoch": item.epoch,
        "fence": item.fence,
        "controller": item.controller,
        "controllerAlias": item.controller_alias or None,
        "controllerLife": item.controller_life,
        "profile": item.profile,
        "requestId": item.request_id,
    }
    if item.holder is not None:
        holder = item.holder
        shape["holder"] = _without_none(
            {
                "requestId": holder.request_id,
                "peerId": holder.peer_id,
                "alias": holder.alias,
                "state": str(holder.state),
                "fence": holder.fence,
                "since": to_iso(holder.since_ms),
                "heldMs": max(0, now_ms - holder.since_ms),
                "reference": holder.reference,
                "launchId": holder.launch_id,
                "executable": holder.executable or None,
                "ownership": holder.ownership,
                "expiresInMs": holder.expires_in_ms,
                **(life or {}),
            }
        )
    if item.is_enrolled:
        shape["queue"] = [
            {
                "requestId": one.request_id,
                "peerId": one.peer_id,
                "alias": one.alias,
                "reason": one.reason,
                "waitMs": one.wait_ms,
            }
            for one in item.queue
        ]
        shape["blockers"] = [
            {
                "launchId": one.launch_id,
                "peerId": one.peer_id,
                "alias": one.alias,
                "executable": one.executable,
                "adoptedAt": to_iso(one.adopted_ms),
                "hasEvidence": one.has_evidence,
            }
            for one in item.blockers
        ] or None
    shape["nextAction"] = next_action(item, life or {})
    return _without_none(shape)


def damaged(item: Damage, living: Sequence[Launch], *, is_enrolled: bool) -> dict[str, Any]:
    """Return a resource whose record cannot be believed; `living` are its commands that are seen alive."""
    shape: dict[str, Any] = {
        "resource": item.resource,
        "state": "damaged",
        "configured": item.policy is not None,
        "enrolled": is_enrolled,
        "fault": item.text,
        "recordId": item.record_id,
        "nextAction": item.action,
    }
    if living:
        shape["nextAction"] = f"a command of it still runs: wait for its end; then {item.action}"
    if is_enrolled:
        shape["living"] = [
            {
                "launchId": one.launch_id,
                "alias": one.claimant.alias,
                "executable": one.executable,
                "supervisor": None if one.supervisor is None else one.supervisor.pid,
            }
            for one in living
        ] or None
    return _without_none(shape)


def next_action(item: Snapshot, life: dict[str, Any]) -> str:
    """Return what helps next, one sentence without a full stop."""
    if not item.is_enrolled:
        if item.state == "busy":
            return "wait, or ask its controller to enrol you"
        return "ask its controller to enrol you: `tieline resource policy` is how it does"
    if not item.may_claim:
        is_led = item.controller_life != "gone"
        return enrolment_advice(item.resource, item.controller_alias, item.viewer_alias, is_led=is_led)
    if item.controller_life == "gone" and (item.queue or item.holder is None):
        return replacement_advice(item)
    if item.blockers:
        first = item.blockers[0].launch_id
        return (
            "wait until the commands from before the policy have ended; where that cannot be proven,"
            f" `tieline resource recover {item.resource} --launch {quote(first)}`"
        )
    holder = item.holder
    if holder is None:
        return _of_free(item)
    if holder.state is TicketState.RESERVED:
        return "its owner starts within 30 s, or the right lapses and the next in line is due"
    if life.get("canEnd") is False:
        return (
            "nothing proves the end of its command:"
            f" `tieline resource recover {item.resource} --launch {quote(holder.launch_id or '')}` shows the"
            " evidence"
        )
    if life.get("isOrphan"):
        supervisor = life.get("supervisor")
        return f"its agent has ended and its command goes on; `kill -TERM {supervisor}` asks that to stop"
    return f"wait in line: `tieline run --resource {item.resource} -- COMMAND` starts when it is free"


def enrolment_advice(
    key: ResourceKey, controller_alias: str, alias: str, *, is_gated: bool = True, is_led: bool = True
) -> str:
    """Return what helps a peer that a policy leaves out: what only its controller can do.

    Args:
        key: The resource.
        controller_alias: Of its controller, empty when it is not known.
        alias: Of the peer, likewise.
        is_gated: Whether the peer's commands still need the resource.
        is_led: Whether the controller is not proven to have ended.
    """
    name = f":{controller_alias}" if controller_alias else "its controller"
    peer = f":{alias}" if alias else "PEER"
    if not is_led:
        return (
            f"{name} has ended: an agent with allow_resource_control takes it over with"
            f" `tieline resource policy {key} --controller me`, and lets you claim it with"
            f" `tieline resource policy {key} --enrol {peer}`"
        )
    said = f"ask {name} to let you claim it, `tieline resource policy {key} --enrol {peer}`"
    if not is_gated:
        return said
    return (
        f"{said}, or to let your commands go on without it, `tieline resource policy {key} --unenrol {peer}`"
    )


def replacement_advice(item: Snapshot) -> str:
    """Return what helps when the controller is proven to have ended; who waits keeps the place in line."""
    name = f" :{item.controller_alias}" if item.controller_alias else ""
    return (
        f"its controller{name} has ended, and nobody grants it: an agent with allow_resource_control takes it"
        f" over with `tieline resource policy {item.resource} --controller me --auto-grant`, and who waits"
        f" keeps the place; `tieline resource policy {item.resource} --open` ends the policy instead"
    )


def _of_free(item: Snapshot) -> str:
    if item.queue and item.is_configured:
        name = f":{item.controller_alias}" if item.controller_alias else "its controller"
        doubt = "" if item.controller_life != "unknown" else "; whether it lives is not known"
        return f"{name} grants it: `tieline resource grant {quote(item.queue[0].request_id)}`{doubt}"
    if item.queue:
        return "the oldest in line is about to get it"
    if item.is_configured:
        name = f":{item.controller_alias}" if item.controller_alias else "its controller"
        doubt = "" if item.controller_life != "unknown" else "; whether it lives is not known"
        return (
            f"nobody holds it, and {name} grants it:"
            f" `tieline run --resource {item.resource} -- COMMAND` asks for that and waits{doubt}"
        )
    return f"it is free: `tieline run --resource {item.resource} -- COMMAND`"


def headline(shape: dict[str, Any]) -> str:
    """Return one line that says who has a resource, from a snapshot's shape."""
    state = shape["state"]
    holder = shape.get("holder")
    parts = [f"{shape['resource']}: {state}"]
    if shape.get("controllerLife") == "gone":
        parts.append("its controller has ended")
    if holder is not None:
        what = holder.get("executable") or "a command"
        parts.append(f"held by :{holder['alias']} ({what}) since {holder['since']}, fence {holder['fence']}")
    blockers = shape.get("blockers") or ()
    if blockers:
        parts.append(f"{len(blockers)} commands from before the policy still run")
    queue = shape.get("queue") or ()
    if queue:
        parts.append("waiting: " + ", ".join(f":{one['alias']}" for one in queue[:8]))
    return "; ".join(parts)


def ticket(key: ResourceKey, item: Ticket) -> dict[str, Any]:
    """Return one claim as its owner sees it."""
    right = item.reservation
    return _without_none(
        {
            "resource": key,
            "requestId": item.request_id,
            "state": str(item.state),
            "peerId": item.claimant.peer_id,
            "alias": item.claimant.alias,
            "reason": item.reason,
            "requestedAt": to_iso(item.requested_ms),
            "launchId": item.launch_id,
            "reservationId": None if right is None else right.reservation_id,
            "fence": None if right is None else right.fence,
            "epoch": None if right is None else right.epoch,
            "grantedAt": None if right is None else to_iso(right.granted_ms),
            "finishedAt": None if item.finished_ms is None else to_iso(item.finished_ms),
        }
    )


def event(item: ResourceEvent, cursor: int | None = None) -> dict[str, Any]:
    """Return one change of a resource; (resource, sequence) names it for good.

    Args:
        item: The event.
        cursor: Where the reader's own history stood when it was told.
    """
    return _without_none(
        {
            "type": "resource",
            "cursor": None if cursor is None else str(cursor),
            "resource": item.resource,
            "sequence": item.sequence,
            "epoch": item.epoch,
            "state": item.state,
            "requestId": item.request_id,
            "principal": item.principal,
            "controller": item.controller,
            "fence": item.fence,
            "note": item.note or None,
            "at": to_iso(item.at_ms),
        }
    )
