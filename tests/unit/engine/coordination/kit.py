"""Peers, processes, documents and commands that the tests of coordination share."""

from collections.abc import Mapping

import msgspec

from tieline.engine.coordination import (
    AutoGrant,
    Begin,
    Claim,
    Complete,
    Facts,
    Grant,
    Outcome,
    Request,
    SetPolicy,
    Started,
    handle,
    handle_all,
)
from tieline.engine.coordination.commands import Command
from tieline.model.identity import Capability, Peer, Principal
from tieline.model.moment import Moment
from tieline.model.process import Liveness, ProcessIdentity
from tieline.model.resource import (
    Claimant,
    Document,
    Launch,
    Policy,
    Probe,
    ResourceKey,
    Ticket,
)

BOOT = "boot-1"
KEY = ResourceKey("machine/tests")
OTHER = ResourceKey("machine/web")
GONE = Probe("gone")
ALIVE = Probe("alive")
UNKNOWN = Probe("unknown")


def at(ms: int) -> Moment:
    return Moment(1_000_000 + ms, ms)


def process(pid: int, boot: str = BOOT) -> ProcessIdentity:
    return ProcessIdentity(boot, 1, pid, 10 * pid, None, "linux")


def principal(name: str, *, run: str | None = None, control: bool = False, request: bool = True) -> Principal:
    held = {Capability.REQUEST.value: request, Capability.CONTROL.value: control}
    return Principal(Peer(name, run), frozenset(one for one, is_held in held.items() if is_held), name)


def claimant(who: Principal, pid: int = 0) -> Claimant:
    """Return the claimant of a principal; its root is process 100, its waiter `pid` when given."""
    return Claimant(
        peer_id=who.peer.id,
        instance_id=who.peer.instance,
        alias=who.alias,
        owner=process(100),
        run_id=who.peer.run,
        enrollment_peer_id=who.peer.root.id if who.peer.run else None,
        waiter=process(pid) if pid else None,
    )


A = principal("a")
B = principal("b")
C = principal("c", control=True)
D = principal("d", control=True)
RUN = principal("a", run="r1")
STRANGER = principal("s")

PEERS: dict[str, Liveness] = {one.peer.id: "alive" for one in (A, B, C, D, RUN, STRANGER)}


def facts(
    *,
    boot: str = BOOT,
    peers: Mapping[str, Liveness] | None = None,
    processes: Mapping[ProcessIdentity, Liveness] | None = None,
    probes: Mapping[str, Probe] | None = None,
    launches: Mapping[str, Launch] | None = None,
    ancestors: tuple[str, ...] = (),
) -> Facts:
    return Facts(
        boot, processes or {}, {**PEERS, **(peers or {})}, probes or {}, launches, frozenset(ancestors)
    )


FACTS = facts(launches={})


def request(who: Principal, request_id: str, resource: ResourceKey = KEY, reason: str = "tests") -> Request:
    return Request(who, claimant(who), resource, request_id, reason)


def claim(who: Principal, launch_id: str, **fields: object) -> Claim:
    one = Claim(who, claimant(who), launch_id, f"digest-{launch_id}", "pytest", "pytest", f"q-{launch_id}")
    return msgspec.structs.replace(one, **fields)  # type: ignore[arg-type]


def begin(who: Principal, document: Document, launch_id: str, **fields: object) -> Begin:
    ticket = document.launched(launch_id)
    fence = ticket.reservation.fence if ticket is not None and ticket.reservation is not None else 0
    one = Begin(who, launch_id, f"nonce-{launch_id}", f"digest-{launch_id}", {document.resource: fence})
    return msgspec.structs.replace(one, **fields)  # type: ignore[arg-type]


def started(launch_id: str, fence: int = 1, key: ResourceKey = KEY, **fields: object) -> Started:
    one = Started(launch_id, f"nonce-{launch_id}", {key: fence}, (process(7),), "supervised")
    return msgspec.structs.replace(one, **fields)  # type: ignore[arg-type]


def complete(launch_id: str, fence: int = 1, key: ResourceKey = KEY, proof: Probe = GONE) -> Complete:
    return Complete(launch_id, f"nonce-{launch_id}", {key: fence}, proof)


def policy(*participants: Principal, controller: Principal = C) -> Policy:
    return Policy(controller.peer.id, tuple(sorted(one.peer.id for one in participants)), "strict")


def set_policy(*participants: Principal, controller: Principal = C, **fields: object) -> SetPolicy:
    one = SetPolicy(controller, KEY, controller.peer.id, tuple(one.peer.id for one in participants))
    return msgspec.structs.replace(one, **fields)  # type: ignore[arg-type]


def governed(*participants: Principal, controller: Principal = C) -> Document:
    """Return the resource under a first policy."""
    return do(Document(KEY), set_policy(*participants, controller=controller))


def do(document: Document, command: Command, ms: int = 0, known: Facts = FACTS) -> Document:
    """Return the document after a command that must not be refused."""
    after, outcome = handle(document, command, known, at(ms))
    assert outcome.refusal is None, outcome.refusal
    assert outcome.needs == ()
    return after


def refusal(document: Document, command: Command, ms: int = 0, known: Facts = FACTS) -> str:
    """Return the code with which a command is refused; it changes nothing."""
    after, outcome = handle(document, command, known, at(ms))
    assert outcome.refusal is not None
    assert outcome.tickets == ()
    assert after.tickets == document.tickets
    assert after.fence == document.fence
    return outcome.refusal.code


def do_all(
    documents: Mapping[ResourceKey, Document], command: Command, ms: int = 0, known: Facts = FACTS
) -> tuple[dict[ResourceKey, Document], Outcome]:
    return handle_all(documents, command, known, at(ms))


def state(document: Document, request_id: str) -> str:
    ticket = document.ticket(request_id)
    assert ticket is not None
    return ticket.state.value


def reserved(who: Principal = A, launch_id: str = "l1", ms: int = 0, **fields: object) -> Document:
    """Return the open resource, reserved for a launch under fence 1."""
    return do(do(Document(KEY), claim(who, launch_id, **fields), ms), AutoGrant(who), ms)


def starting(who: Principal = A, launch_id: str = "l1", ms: int = 0, **fields: object) -> Document:
    """Return the open resource with a launch that may have started, under fence 1."""
    document = reserved(who, launch_id, ms)
    return do(document, begin(who, document, launch_id, **fields), ms)


def running(who: Principal = A, launch_id: str = "l1", ms: int = 0, **fields: object) -> Document:
    """Return the open resource with a launch whose process 7 runs, under fence 1."""
    return do(starting(who, launch_id, ms, **fields), started(launch_id), ms)


def grant(request_id: str, who: Principal = C, epoch: int | None = None) -> Grant:
    return Grant(who, request_id, epoch)


def holder(document: Document) -> Ticket:
    ticket = document.holder
    assert ticket is not None
    return ticket


def launch(launch_id: str, who: Principal = A, **fields: object) -> Launch:
    one = Launch(
        launch_id=launch_id,
        nonce=f"nonce-{launch_id}",
        digest=f"digest-{launch_id}",
        executable="pytest",
        directory_digest="d",
        claimant=claimant(who),
        created_ms=1,
        boot_id=BOOT,
    )
    return msgspec.structs.replace(one, **fields)  # type: ignore[arg-type]
