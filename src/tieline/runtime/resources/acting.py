"""What a root does for its peers with shared resources: status, request, grant, release, cancel, policy.

Rule 1: who acts is what the door proved; controller and participants are exact peers, resolved here.
Rule 2: a grant and a policy rest on answers that were just given by the peers they are about.
Rule 3: what only a person may say, a takeover, is refused to everybody else.

Source: reference/native.md 136, 139, 2.13, 3.5; DESIGN.md 4.
"""

import asyncio
import uuid
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from tieline.engine.contract import Act
from tieline.engine.coordination import Cancel, Grant, Release, Request, SetPolicy, Unenrol
from tieline.engine.coordination.commands import RESERVATION_MS
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Peer, Principal, is_peer_id
from tieline.model.moment import to_iso
from tieline.model.process import ProcessIdentity
from tieline.model.resource import FINISHED, Claimant, Document, ResourceKey, Ticket
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.coordination_tools import CoordinateResource, ListResources, SetResourcePolicy
from tieline.runtime.resources import liveness, shapes, viewing
from tieline.runtime.resources.claims import full_key
from tieline.runtime.resources.coordinator import Coordinator
from tieline.shell.endpoint import hosts
from tieline.shell.process import self_identity

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["claimant_of_peer", "coordinate", "list_all", "policy"]

CONTROL_ADVICE = (
    "set allow_resource_control = true under [communication] in config.toml, or start what shall control (the"
    " agent, or this command outside every agent) with TIELINE_ALLOW_RESOURCE_CONTROL=1; it is read at the"
    " start"
)
RUN_CONTROL_ADVICE = "let this run's root do it, or have it delegate resource.control when it begins a run"
TAKEOVER_ADVICE = (
    "run `tieline resource policy` with --takeover yourself, in a terminal that no agent has started"
)
OPEN_ADVICE = "start it as it is: `tieline run --resource {key} -- COMMAND` gets its turn without a grant"
REPLACE_ADVICE = (
    "let the present controller do it, which `tieline resource status {key}` names, or add --takeover in a"
    " terminal that no agent has started"
)


async def coordinate(node: "Node", actor: Actor, asked: CoordinateResource) -> Reply:
    """Carry out one operation of `coordinate_resource`, whose fields were checked."""
    peer = node.acting_peer(actor, asked.run)
    principal = node.desk.principal(peer)
    match asked.operation:
        case "status":
            key = await _key(node, asked.resource)
            return await _reply(node, principal, key)
        case "request":
            node.require(peer, Capability.REQUEST)
            return await _request(node, principal, asked)
        case "grant":
            _require_control(node, peer, principal)
            key, document = await _holding(node, asked.request_id or "")
            peers = await liveness.of_claimants(node, [document])
            grant = Grant(principal, asked.request_id or "", asked.epoch)
            return await _decided(node, principal, key, grant, peers)
        case "release" | "cancel_request":
            node.require(peer, Capability.REQUEST)
            key, _ = await _holding(node, asked.request_id or "")
            shape = Release if asked.operation == "release" else Cancel
            return await _decided(node, principal, key, shape(principal, asked.request_id or ""), {})
        case "set_controller":
            _require_control(node, peer, principal)
            wish = SetResourcePolicy(
                resource=asked.resource or "",
                controller=asked.controller,
                participants=asked.participants or (),
                profile=asked.profile or "strict",
                epoch=asked.epoch,
            )
            return await _install_anew(node, principal, wish)


async def list_all(node: "Node", actor: Actor, asked: ListResources) -> Reply:
    """Return every resource that was ever used here, as the acting peer may see it."""
    principal = node.desk.principal(node.acting_peer(actor, asked.run))
    found = await node.desk.run(lambda coordinator: viewing.status_of_all(coordinator, principal))
    return Reply({"resources": found})


async def policy(node: "Node", actor: Actor, asked: SetResourcePolicy) -> Reply:
    """Install a policy, open the resource again, or take peers out."""
    peer = node.acting_peer(actor, asked.run)
    principal = node.desk.principal(peer)
    _require_control(node, peer, principal)
    if asked.is_takeover and (actor.act is not Act.PERSON or actor.is_in_tree):
        refused = Refused("CAPABILITY_DENIED", "a takeover is a person's word, given outside every agent")
        raise refused.advising(TAKEOVER_ADVICE)
    chosen = (asked.is_open, bool(asked.unenrol), bool(asked.enrol), asked.controller is not None)
    if sum(chosen) != 1:
        raise Refused("INVALID_PARAMS", "give one of controller, isOpen, enrol and unenrol")
    key = await _key(node, asked.resource)
    if asked.enrol:
        return await _install(node, principal, await _enrolling(node, key, asked))
    if not asked.unenrol:
        return await _install_anew(node, principal, asked)
    leaving = tuple([await _peer_id(node, name) for name in asked.unenrol])
    return await _decided(node, principal, key, Unenrol(principal, key, leaving), {})


async def _enrolling(node: "Node", key: ResourceKey, asked: SetResourcePolicy) -> SetResourcePolicy:
    """Return the wish for the present policy with more participants."""
    present = (await node.desk.run(lambda coordinator: coordinator.store.read(key))).policy
    if present is None:
        raise Refused("INVALID_PARAMS", f"{key} has no policy: everybody may claim it")
    participants = (*present.participants, *asked.enrol)
    return msgspec.structs.replace(asked, controller=present.controller, participants=participants, enrol=())


def _require_control(node: "Node", peer: Peer, principal: Principal) -> None:
    """Refuse who may not control resources, and say what would change that."""
    try:
        node.require(peer, Capability.CONTROL)
    except Refused as refused:
        if refused.code == "CAPABILITY_DENIED":
            refused.advising(CONTROL_ADVICE if principal.peer.run is None else RUN_CONTROL_ADVICE)
        raise


async def _request(node: "Node", principal: Principal, asked: CoordinateResource) -> Reply:
    key = await _key(node, asked.resource)
    request_id = asked.request_id or str(uuid.uuid4())
    claimant = claimant_of_peer(principal)
    command = Request(principal, claimant, key, request_id, asked.reason or "")
    await node.desk.run(lambda coordinator: coordinator.decide([key], command))
    document = await node.desk.run(lambda coordinator: coordinator.store.read(key))
    if document.policy is None or node.desk.grants_in_order(key):
        await node.desk.observe([key])
    return await _reply(node, principal, key, request_id)


async def _install_anew(node: "Node", principal: Principal, asked: SetResourcePolicy) -> Reply:
    """Put a policy in force that says anew whether it is granted in order."""
    reply = await _install(node, principal, asked)
    node.desk.grant_in_order(await _key(node, asked.resource), is_wanted=asked.is_auto_grant)
    node.desk.look()
    return reply


async def _install(node: "Node", principal: Principal, asked: SetResourcePolicy) -> Reply:
    """Put a policy in force; what runs becomes a blocker."""
    key = await _key(node, asked.resource)
    controller = None if asked.controller is None else await _peer_id(node, asked.controller)
    if asked.is_auto_grant and controller != Peer(node.instance).id:
        raise Refused(
            "INVALID_PARAMS", "autoGrant is the controlling root's own setting: set it where that root runs"
        )
    document = await node.desk.run(lambda coordinator: coordinator.store.read(key))
    concerned = {one for one in (controller,) if one is not None}
    if document.policy is not None:
        concerned.add(document.policy.controller)
    peers = await liveness.of_peers(node, concerned)
    command = SetPolicy(
        caller=principal,
        resource=key,
        controller=controller,
        participants=None
        if asked.participants is None
        else tuple([await _peer_id(node, name) for name in asked.participants]),
        profile=asked.profile,
        controller_alias="" if controller is None else _alias_of(node, controller),
        controller_owner=None if controller is None else await _owner_of(node, controller),
        epoch=asked.epoch,
        is_takeover=asked.is_takeover,
    )
    reply = await _decided(node, principal, key, command, peers)
    node.desk.look()
    return reply


async def _decided(
    node: "Node", principal: Principal, key: ResourceKey, command: Any, peers: dict[str, Any]
) -> Reply:
    try:
        await node.desk.run(lambda coordinator: coordinator.decide([key], command, peers=peers))
    except Refused as refused:
        if refused.code == "CAPABILITY_DENIED":
            document = await node.desk.run(lambda coordinator: coordinator.store.read(key))
            if isinstance(command, SetPolicy):
                refused.advising(REPLACE_ADVICE.format(key=key))
            elif document.policy is None:
                refused.advising(OPEN_ADVICE.format(key=key))
        raise
    return await _reply(node, principal, key, getattr(command, "request_id", None))


async def _reply(
    node: "Node", principal: Principal, key: ResourceKey, request_id: str | None = None
) -> Reply:
    """Return the resource as the caller sees it now, and the ticket that this was about."""

    def look(coordinator: Coordinator) -> tuple[dict[str, Any], Ticket | None]:
        shape = viewing.status(coordinator, key, principal)
        found = None if request_id is None else coordinator.store.read(key).ticket(request_id)
        return shape, found

    shape, ticket = await node.desk.run(look)
    result: dict[str, Any] = {"resource": shape}
    text = shapes.headline(shape)
    if ticket is not None:
        result["ticket"] = shapes.ticket(key, ticket)
        text = f"Ticket {ticket.request_id} is {ticket.state}. {text}"
    result["text"] = f"{text}. Next: {_next(shape, ticket)}."
    return Reply(result)


def _next(shape: dict[str, Any], ticket: Ticket | None) -> str:
    if ticket is not None and ticket.state == "reserved" and ticket.reservation is not None:
        lapses = to_iso(ticket.reservation.granted_ms + RESERVATION_MS)
        return (
            f"start the command before {lapses}:"
            f" `tieline run --resource {shape['resource']} --ticket {quote(ticket.request_id)} -- COMMAND`"
        )
    if ticket is not None and ticket.state == "queued" and shape.get("controllerLife") != "gone":
        return "wait for the grant; peer_messages tells it as an event of this resource"
    return str(shape["nextAction"])


# ---------------------------------------------------------------- names


def claimant_of_peer(principal: Principal) -> Claimant:
    """Return a local peer as a claimant whose root is this process."""
    peer = principal.peer
    return Claimant(
        peer_id=peer.id,
        instance_id=peer.instance,
        alias=principal.alias,
        owner=self_identity(),
        run_id=peer.run,
        enrollment_peer_id=None if peer.run is None else peer.root.id,
    )


async def _key(node: "Node", text: str | None) -> ResourceKey:
    """Return the key that is meant; `repository/NAME` is completed for this root's workspace."""
    folder = node.place.workspace
    return await node.desk.run(lambda _coordinator: full_key(text or "", folder))


async def _peer_id(node: "Node", name: str) -> str:
    """Return the peer id that a name means: itself, `me`, or an alias that exactly one peer has."""
    if is_peer_id(name):
        return name
    if name == "me":
        return Peer(node.instance).id
    found = await node.book.resolve(name.removeprefix(":"), None)
    if isinstance(found, Refusal):
        raise Refused.of(found)
    return found.peer.id


async def _owner_of(node: "Node", peer_id: str) -> ProcessIdentity | None:
    """Return the process of a peer's root, None where no owner file names it."""
    if node.engine.own_peer(peer_id) is not None:
        return self_identity()
    roots = node.book.roots()
    instances = {Peer(root.instance, run.run).id: root.instance for root in roots for run in root.runs}
    runtime = node.places.runtime
    found = await asyncio.get_running_loop().run_in_executor(None, hosts, runtime)
    return next(
        (
            one.owner
            for one in found
            if peer_id == Peer(one.instance).id or instances.get(peer_id) == one.instance
        ),
        None,
    )


def _alias_of(node: "Node", peer_id: str) -> str:
    own = node.engine.own_peer(peer_id)
    if own is not None:
        return str(node.acting(own)["alias"])
    return next((one.alias for one in node.book.roots() if Peer(one.instance).id == peer_id), "")


async def _holding(node: "Node", request_id: str) -> tuple[ResourceKey, Document]:
    """Return the one resource that has a ticket of this request.

    Raises:
        Refused: INVALID_PARAMS when none has; AMBIGUOUS_TARGET when several have a live one.
    """

    def find(coordinator: Coordinator) -> list[Document]:
        documents = coordinator.readable(coordinator.known_keys())
        return [one for one in documents if one.ticket(request_id) is not None]

    found = await node.desk.run(find)
    live = [
        one
        for one in found
        if (ticket := one.ticket(request_id)) is not None and ticket.state not in FINISHED
    ]
    chosen = live or found
    if not chosen:
        refused = Refused("INVALID_PARAMS", "no resource has a ticket of this requestId")
        raise refused.advising("take the id from `tieline resource status`, where who waits is shown with it")
    if len(chosen) > 1:
        keys = ", ".join(one.resource for one in chosen[:8])
        refused = Refused("AMBIGUOUS_TARGET", f"several resources have a ticket of this requestId: {keys}")
        raise refused.advising("request each under an id of its own; `tieline resource status` shows them")
    return chosen[0].resource, chosen[0]
