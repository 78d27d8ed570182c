"""What the doors of a root offer of the intercom: names and params; what they do is loaded on first use.

Rule 1: a root without that wire answers each of these with how to turn it on, and imports nothing for it.
Rule 2: a run's token that proves nothing is refused first, as in every method.

Source: specification of the intercom; docs/attach.md; docs/mcp.md.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from tieline.errors import Refused
from tieline.model.message import Delivery
from tieline.runtime.calls import Actor, Params, Reply

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = [
    "TABLE",
    "ApplicationGuard",
    "Asked",
    "ContextQuery",
    "ProvenanceQuery",
    "Target",
    "ToolAttachment",
    "TurnFailed",
    "WakeOutcome",
]


class ToolAttachment(Params, frozen=True):
    """A text beside a message."""

    type: Literal["file", "snippet", "context"]
    name: str
    content: str
    language: str | None = None


class Asked(Params, frozen=True):
    """`intercom`."""

    action: Literal["list", "status", "send", "ask", "reply", "pending", "last"]
    to: str | None = None
    message: str | None = None
    attachments: tuple[ToolAttachment, ...] = ()
    reply_to: str | None = None
    delivery: Delivery | None = None
    queue_mode: Literal["stack", "replace"] | None = None
    thread_id: str | None = None
    scope: Literal["project", "all"] | None = None
    entry_id: str | None = None
    offset: int = 0
    call_id: str | None = None
    run: str | None = None


class ContextQuery(Params, frozen=True):
    """`intercom.context`."""

    version: int


class Target(Params, frozen=True):
    """The context that a companion saw."""

    root_session_id: str
    peer_id: str
    incarnation: str


class ApplicationGuard(Params, frozen=True):
    """`intercom.guard`."""

    version: int
    target: Target
    revision: str | None


class ProvenanceQuery(Params, frozen=True):
    """`intercom.provenance`."""

    version: int
    root_session_id: str
    message_id: str


class WakeOutcome(Params, frozen=True):
    """`intercom.wake_outcome`."""

    token: str
    ok: bool
    detail: str = ""


class TurnFailed(Params, frozen=True):
    """`intercom.turn_failed`."""

    error: str


def _loaded(module: str, name: str) -> Callable[["Node", Actor, Any, str | None], Awaitable[Reply]]:
    """Return what carries out a method: the function of that module, once this root is on the wire."""

    async def handle(node: "Node", actor: Actor, asked: Any, call_id: str | None) -> Reply:
        run = getattr(asked, "run", None)
        if run is not None:
            node.acting_peer(actor, run)
        if node.intercom is None:
            raise Refused(
                "CAPABILITY_DENIED", "the intercom is switched off: `tieline setup intercom` turns it on"
            )
        function = getattr(import_module("tieline.runtime.intercom." + module), name)
        reply: Reply = await function(node, actor, asked, call_id)
        return reply

    return handle


TABLE: dict[str, Any] = {
    "intercom": (Asked, _loaded("tool", "call")),
    "intercom.context": (ContextQuery, _loaded("companion", "context")),
    "intercom.guard": (ApplicationGuard, _loaded("companion", "guard")),
    "intercom.provenance": (ProvenanceQuery, _loaded("companion", "provenance")),
    "intercom.turn_failed": (TurnFailed, _loaded("companion", "turn_failed")),
    "intercom.wake_outcome": (WakeOutcome, _loaded("companion", "wake_outcome")),
}
