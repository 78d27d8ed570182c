"""What a host alone can say: busy or idle, runs, boundaries, evidence, answers, prompts, shutdown.

Rule 1: only the host's own doors (and hooks below it) reach these; a peer never does.
Rule 2: a boundary's mail is prepared under a token; it is consumed on the host's evidence, nothing else.
Rule 3: the generation told at a boundary lets a host recheck before it ends a turn.

Source: reference/native.md 1L, 1M, 2.10; DESIGN.md 3.
"""

from typing import TYPE_CHECKING, Any, Literal

from tieline.config import PREPARED_MS, Scope
from tieline.engine.contract import BeginRun, EndRun, Held, UserPrompt
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Peer
from tieline.model.message import Delivery
from tieline.model.traits import NATIVE
from tieline.runtime import hooked
from tieline.runtime.calls import Actor, Params, Reply
from tieline.runtime.host import PAUSES
from tieline.runtime.ladder.showing import Bounds, prepared
from tieline.runtime.windows import is_window_name

if TYPE_CHECKING:
    from tieline.runtime.node import Node
    from tieline.runtime.windows import Windows

__all__ = ["TABLE"]

EVIDENCE_MS_MAX = 86_400_000
"""For how long a host may have mail shown without evidence: it knows what it waits for."""
DELEGATED = (Capability.SEND.value, Capability.RECEIVE.value, Capability.WAIT.value, Capability.REQUEST.value)


class HostState(Params, frozen=True):
    """`host.state`."""

    busy: bool | None = None
    paused: str | None = None
    model: str | None = None
    context_percent: int | None = None
    activity: str | None = None
    session: str | None = None
    resumed: bool = False
    name: str | None = None


class RunBegin(Params, frozen=True):
    """`host.run_begin`."""

    run: str
    alias: str | None = None
    capabilities: list[str] | None = None
    scope: Scope | None = None


class RunEnd(Params, frozen=True):
    """`host.run_end`."""

    run: str


class Boundary(Params, frozen=True):
    """`host.boundary`."""

    kind: Literal["tool", "turn_end", "prompt"]
    run: str | None = None
    bytes_max: int | None = None
    evidence_ms: int | None = None


class Token(Params, frozen=True):
    """`host.taken`, `host.refused`."""

    token: str


class Seen(Params, frozen=True):
    """`host.seen`."""

    text: str


class HostAnswer(Params, frozen=True):
    """`host.answer`."""

    entry: str
    text: str
    run: str | None = None


class OfMessage(Params, frozen=True):
    """`host.answered`."""

    message_id: str


class OfRun(Params, frozen=True):
    """`host.user_prompt`."""

    run: str | None = None


class Shutdown(Params, frozen=True):
    """`host.shutdown`; with `request`, the answer to a request of another window."""

    request: str | None = None
    accept: bool = True
    parked: bool = False


class ShutdownPeer(Params, frozen=True):
    """`host.shutdown_peer`."""

    to: str
    text: str = ""
    all_projects: bool = False


class OfEnvironment(Params, frozen=True):
    """`host.environment`."""


async def state(node: "Node", _actor: Actor, asked: HostState, _call: str | None) -> Reply:
    """Take the host's state; publish what listings show of it."""
    if asked.paused is not None and asked.paused not in PAUSES:
        raise Refused("INVALID_PARAMS", f"paused is one of {', '.join(sorted(PAUSES))}, or absent")
    if asked.context_percent is not None and not 0 <= asked.context_percent <= 100:
        raise Refused("INVALID_PARAMS", "contextPercent is a whole number from 0 to 100")
    if asked.name is not None and not is_window_name(asked.name):
        raise Refused("INVALID_PARAMS", 'name is 1 to 64 printable characters, none of [ ] < > & " \\ /')
    host = node.host
    host.state(is_busy=asked.busy, pause=asked.paused, has_pause=asked.paused is not None or asked.resumed)
    if asked.model is not None:
        host.model = asked.model[:128]
    if asked.activity is not None:
        host.activity = asked.activity[:32]
    if asked.context_percent is not None:
        host.context_percent = asked.context_percent
    node.ladder.look()
    await node.state_changed(asked.session)
    if asked.name is not None and node.windows is not None:
        node.windows.rename(asked.name)
    if asked.name is not None and node.intercom is not None:
        node.intercom.rename(asked.name)
    return Reply({})


async def run_begin(node: "Node", _actor: Actor, asked: RunBegin, _call: str | None) -> Reply:
    """Begin a child run; its token proves it from now on."""
    names = tuple(asked.capabilities) if asked.capabilities is not None else DELEGATED
    unknown = [name for name in names if name not in node.capabilities]
    if unknown:
        raise Refused("CAPABILITY_DENIED", "a run gets no capability that its root does not have")
    if asked.scope is not None and asked.scope.rank > node.settings.scope.rank:
        raise Refused("SCOPE_DENIED", f"this root reaches {node.settings.scope}, a run of it no further")
    peer = Peer(node.instance, asked.run)
    alias = asked.alias or node.run_alias(asked.run)
    refusal = await node.ask(BeginRun(asked.run, alias, frozenset(names)))
    if isinstance(refusal, Refusal):
        raise Refused.of(refusal)
    token = node.new_token()
    node.host.begin(asked.run, token)
    if asked.scope is not None:
        node.host.scopes[asked.run] = asked.scope
    shape: dict[str, Any] = {"run": asked.run, "peerId": peer.id, "alias": alias, "token": token}
    # For the environment of this run's processes, and for nothing else.
    if node.windows is not None:
        shape["environment"] = node.windows.begin(asked.run)
    if node.intercom is not None:
        shape["environment"] = shape.get("environment", {}) | node.intercom.environment_of_run()
    return Reply(shape)


async def run_end(node: "Node", _actor: Actor, asked: RunEnd, _call: str | None) -> Reply:
    """End a child run."""
    node.host.end(asked.run)
    if node.windows is not None:
        node.windows.tokens.end(asked.run)
    await node.ask(EndRun(asked.run))
    await node.desk.ended(Peer(node.instance, asked.run))
    return Reply({})


async def boundary(node: "Node", _actor: Actor, asked: Boundary, _call: str | None) -> Reply:
    """Return the mail for the model at a safe boundary, prepared under a token.

    Only what the text shows whole is prepared. A message too long for any boundary is shown once as
    an excerpt that says how to read it, and stays unread.
    """
    owner = _live(node, asked.run)
    limits = node.settings.limits
    bytes_max = limits.boundary_bytes if asked.bytes_max is None else asked.bytes_max
    evidence_ms = PREPARED_MS if asked.evidence_ms is None else asked.evidence_ms
    if not 1_024 <= bytes_max <= 1_048_576:
        raise Refused("INVALID_PARAMS", "bytesMax is 1024 to 1048576")
    if not 1_000 <= evidence_ms <= EVIDENCE_MS_MAX:
        raise Refused("INVALID_PARAMS", f"evidenceMs is 1000 to {EVIDENCE_MS_MAX}")
    node.host.note_wake(asked.run, is_out=False)
    if asked.run is None:
        node.ladder.passed()
    # What was pushed is on its way and comes first: this boundary shows nothing beside it.
    is_held_back = node.ladder.is_out and asked.run is None
    shown = await prepared(
        node,
        owner,
        Bounds("boundary" if asked.kind == "tool" else asked.kind, bytes_max, evidence_ms),
        lambda item: not is_held_back and _may_come(item, asked.kind),
    )
    unread = node.engine.inbox_counts(owner)
    return Reply(
        {
            "text": shown.text,
            "messageIds": [item.envelope.message_id for item in shown.held],
            "senders": shown.senders,
            "token": shown.token,
            "generation": node.engine.arrival_generation,
            "remaining": max(0, unread.unread - len(shown.held)),
        }
    )


def _live(node: "Node", run: str | None) -> Peer:
    """Return the root (None) or the run that the host named.

    Raises:
        Refused: TARGET_ENDED, no such run is live.
    """
    if run is not None:
        row = node.engine.run(run)
        if row is None or not row.is_live:
            raise Refused("TARGET_ENDED", "this run is not live: it has ended, or never began")
    return Peer(node.instance, run)


def _may_come(item: Held, kind: str) -> bool:
    """Return whether mail of this delivery may come at this kind of boundary."""
    delivery = item.envelope.delivery
    return (
        kind == "prompt" or delivery is Delivery.STEER or (kind == "turn_end" and delivery is Delivery.QUEUE)
    )


async def taken(node: "Node", _actor: Actor, asked: Token, _call: str | None) -> Reply:
    """The host saw the token's mail in the model's context."""
    return Reply({"consumed": await node.operations.flushed(asked.token)})


async def refused(node: "Node", _actor: Actor, asked: Token, _call: str | None) -> Reply:
    """The host could not place the token's mail."""
    return Reply({"freed": await node.operations.unflushed(asked.token)})


async def seen(node: "Node", _actor: Actor, asked: Seen, _call: str | None) -> Reply:
    """The host shows its model this text: where mail that was pushed stands in it, that is the evidence."""
    is_ours, consumed = await node.ladder.seen(asked.text)
    return Reply({"ours": is_ours, "consumed": consumed})


async def answered(node: "Node", _actor: Actor, asked: OfMessage, _call: str | None) -> Reply:
    """The host's model answers this message, so it has read it: evidence for a push."""
    return Reply({"consumed": await node.ladder.answered(asked.message_id)})


async def answer(node: "Node", _actor: Actor, asked: HostAnswer, _call: str | None) -> Reply:
    """Keep a finished answer for `last`."""
    if not asked.entry or len(asked.entry) > 256:
        raise Refused("INVALID_PARAMS", "entry is an id of 1 to 256 characters")
    _live(node, asked.run)
    node.host.add_answer(asked.run, asked.entry, asked.text, node.now().wall_ms)
    return Reply({})


async def user_prompt(node: "Node", _actor: Actor, asked: OfRun, _call: str | None) -> Reply:
    """A person began this turn: budgets without a person start anew."""
    await node.ask(UserPrompt(_live(node, asked.run)))
    return Reply({})


async def shutdown(node: "Node", _actor: Actor, asked: Shutdown, _call: str | None) -> Reply:
    """The host ends: admit nothing new, end what was admitted, leave.

    With `request` it is the host's word on a request of another window, which is told so; denied, the host
    goes on. With `parked` this session will be resumed: where a wire knows that, its mail waits for it.
    """
    node.host.is_parked = asked.parked
    if asked.request is not None:
        _windows(node).answer_shutdown(asked.request, is_accepted=asked.accept)
    if asked.request is None or asked.accept:
        node.request_shutdown()
    return Reply({})


async def shutdown_peer(node: "Node", _actor: Actor, asked: ShutdownPeer, _call: str | None) -> Reply:
    """Ask a window to end; its answer comes as an event that bears the id returned here."""
    windows = _windows(node)
    target = await node.book.resolve(asked.to, None, is_crossing=asked.all_projects)
    if isinstance(target, Refusal):
        raise Refused.of(target)
    if target.wire == NATIVE.name:
        raise Refused("CAPABILITY_DENIED", "only a window of pi or oh-my-pi takes this request")
    return Reply({"request": windows.ask_to_end(target.peer.instance, asked.text)})


async def environment(node: "Node", _actor: Actor, _asked: OfEnvironment, _call: str | None) -> Reply:
    """Return the variables by which processes that the host itself starts reach this root's window."""
    return Reply({"environment": {} if node.windows is None else node.windows.environment()})


def _windows(node: "Node") -> "Windows":
    """Return the root's place among windows.

    Raises:
        Refused: CAPABILITY_DENIED, it has none.
    """
    if node.windows is None:
        raise Refused("CAPABILITY_DENIED", "this root is no window: the pi-peers wire is switched off")
    return node.windows


TABLE: dict[str, Any] = {
    "host.state": (HostState, state),
    "host.run_begin": (RunBegin, run_begin),
    "host.run_end": (RunEnd, run_end),
    "host.boundary": (Boundary, boundary),
    "host.taken": (Token, taken),
    "host.refused": (Token, refused),
    "host.seen": (Seen, seen),
    "host.answered": (OfMessage, answered),
    "host.answer": (HostAnswer, answer),
    "host.user_prompt": (OfRun, user_prompt),
    "host.shutdown": (Shutdown, shutdown),
    "host.shutdown_peer": (ShutdownPeer, shutdown_peer),
    "host.environment": (OfEnvironment, environment),
    **hooked.TABLE,
}
