"""Policies: who controls, who may claim, whose commands are gated.

Rule 1: every policy has an epoch of its own, one higher than any before; rights given under an earlier
one and not used are void.
Rule 2: what runs is not touched: it becomes a blocker, and nothing is granted until all have ended.
Rule 3: enrolment only grows, so that leaving a member out does not free its commands; taking it out is
an act of its own.
Rule 4: a controller that is not proven gone is replaced by itself, or by the local user's word.

Source: reference/native.md 2.13 "Policy change", 2.14, 3.5 "who may replace a controller"; 188, 189, 194;
reference/reliability.md I33, I38.
"""

import msgspec

from tieline.engine.coordination.commands import PARTICIPANTS_MAX, SetPolicy, Unenrol
from tieline.engine.coordination.turn import Turn, controls, is_enrolled
from tieline.errors import Refusal
from tieline.machine.ticket import Step
from tieline.model.identity import Capability, is_peer_id
from tieline.model.resource import Blocker, Document, Launch, Policy, TicketState

__all__ = ["is_gated", "set_policy", "unenrol"]


def is_gated(document: Document, peer_ids: frozenset[str], classes: frozenset[str]) -> bool:
    """Return whether a command must hold this resource because of its policy.

    Args:
        document: The resource.
        peer_ids: The peer that runs the command, and its root.
        classes: What kind of command it is.
    """
    if document.policy is None or peer_ids.isdisjoint(document.enrolment):
        return False
    return document.policy.profile == "strict" or "build" in classes


def set_policy(turn: Turn, command: SetPolicy) -> Refusal | None:
    """Install the policy and adopt what runs; return why not, or None."""
    refusal = _may_set(turn, command)
    if refusal is not None:
        return refusal
    if command.controller is None:
        _install(turn, None)
        return None
    present = turn.document.policy
    kept = present.participants if present is not None else ()
    participants = tuple(sorted(set(kept if command.participants is None else command.participants)))
    profile = command.profile or (present.profile if present is not None else "strict")
    policy = Policy(
        command.controller, participants, profile, command.controller_alias, command.controller_owner
    )
    enrolment = tuple(sorted({*turn.document.enrolment, *participants, command.controller}))
    turn.change(enrolment=enrolment)
    _install(turn, policy)
    return None


def unenrol(turn: Turn, command: Unenrol) -> Refusal | None:
    """Take peers out of policy and enrolment; return why not, or None."""
    policy = turn.document.policy
    if policy is None or not controls(turn.document, command.caller):
        return Refusal("CAPABILITY_DENIED", "only the controller of the resource takes a peer out")
    leaving = frozenset(command.peer_ids)
    if policy.controller in leaving:
        return Refusal("INVALID_PARAMS", "the controller stays enrolled: install another one first")
    turn.change(enrolment=tuple(peer for peer in turn.document.enrolment if peer not in leaving))
    participants = tuple(peer for peer in policy.participants if peer not in leaving)
    _install(
        turn,
        msgspec.structs.replace(policy, participants=participants),
        also_told=leaving,
    )
    return None


def _may_set(turn: Turn, command: SetPolicy) -> Refusal | None:
    document = turn.document
    if command.epoch is not None and command.epoch != document.epoch:
        return Refusal("STALE_POLICY", "the policy of the resource has changed")
    if not command.caller.may(Capability.CONTROL):
        return Refusal("CAPABILITY_DENIED", "this peer may not control resources")
    participants = command.participants or ()
    if len(participants) > PARTICIPANTS_MAX:
        return Refusal("INVALID_PARAMS", f"a policy has at most {PARTICIPANTS_MAX} participants")
    if not all(map(is_peer_id, (*participants, command.controller or command.caller.peer.id))):
        return Refusal("INVALID_PARAMS", "controller and participants are peer ids")
    present = document.policy
    if (
        present is not None
        and present.controller != command.caller.peer.id
        and turn.controller_life() != "gone"
        and not command.is_takeover
    ):
        return Refusal(
            "CAPABILITY_DENIED",
            "the present controller is not proven gone: let it do so, or confirm the takeover yourself",
        )
    if command.controller is not None and turn.facts.peers.get(command.controller) != "alive":
        return Refusal("CONTROLLER_UNAVAILABLE", "the new controller does not answer")
    return None


def _install(turn: Turn, policy: Policy | None, also_told: frozenset[str] = frozenset()) -> None:
    """Put the policy in force under the next epoch."""
    told = turn.everyone() | also_told | ({policy.controller} if policy else set())
    turn.change(epoch=turn.document.epoch + 1, policy=policy)
    turn.emit("policy_changed", told)
    for ticket in turn.document.tickets:
        is_outside = ticket.state is TicketState.QUEUED and not is_enrolled(turn.document, ticket.claimant)
        if ticket.state is TicketState.RESERVED or is_outside:
            turn.move(ticket, Step.SUPERSEDE)
    _adopt(turn)


def _adopt(turn: Turn) -> None:
    """Make every running command that the policy asks for, and that does not hold, a blocker."""
    launches = turn.facts.launches
    assert launches is not None, "a policy is installed with the ledger in hand"
    holder = turn.document.holder
    known = {blocker.launch_id for blocker in turn.document.blockers}
    adopted = [
        _blocker(launch, turn.now.wall_ms)
        for launch in launches.values()
        if launch.launch_id not in known
        and (holder is None or holder.launch_id != launch.launch_id)
        and _concerns(turn.document, launch)
    ]
    if adopted:
        turn.change(blockers=(*turn.document.blockers, *adopted))


def _concerns(document: Document, launch: Launch) -> bool:
    """Return whether a command of the ledger would need this resource now.

    One that names the resource and is not its holder was left by an operator's act, and still counts.
    """
    claimant = launch.claimant
    peers = frozenset({claimant.peer_id, claimant.enrollment_peer_id or claimant.peer_id})
    is_named = any(key == document.resource for key, _ in launch.resources)
    return is_named or is_gated(document, peers, frozenset(launch.classes))


def _blocker(launch: Launch, now_wall_ms: int) -> Blocker:
    return Blocker(
        launch_id=launch.launch_id,
        peer_id=launch.claimant.peer_id,
        alias=launch.claimant.alias,
        executable=launch.executable,
        boot_id=launch.boot_id,
        adopted_ms=now_wall_ms,
        has_evidence=bool(launch.processes),
        supervisor=launch.supervisor,
    )
