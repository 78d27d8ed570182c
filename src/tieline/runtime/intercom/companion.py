"""What a companion of a root asks through its door: its context, its guard, the provenance of a message.

Rule 1: every question bears its version; another one than `VERSION` is an error, as a result: of a provenance
    `publication_unavailable`, else `unsupported_version`.
Rule 2: an answer is at once, from what this root knows; nothing is asked of a peer, and nobody is woken.
Rule 3: these are the host's methods: no peer and no tool of a model reaches them.

Source: specification of the intercom, "Conditional native context targeting", "Native-owned receipts and
publication provenance"; docs/attach.md.
"""

from typing import TYPE_CHECKING, Any

from tieline.model.identity import Peer
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.intercom.context import VERSION
from tieline.runtime.intercom.methods import (
    ApplicationGuard,
    ContextQuery,
    ProvenanceQuery,
    TurnFailed,
    WakeOutcome,
)
from tieline.runtime.intercom.reads import UNAVAILABLE
from tieline.runtime.sending import Wish, submit
from tieline.wire.intercom import mapping

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom
    from tieline.runtime.node import Node

__all__ = ["context", "guard", "provenance", "turn_failed", "wake_outcome"]

ERROR_CHARACTERS_MAX = 1_000
_UNSUPPORTED = {"error": "unsupported_version"}


def _intercom(node: "Node") -> "Intercom":
    assert node.intercom is not None, "methods.py lets nobody in without"
    return node.intercom


async def context(node: "Node", _actor: Actor, asked: ContextQuery, _call: str | None) -> Reply:
    """Return the snapshot of this context."""
    intercom = _intercom(node)
    return Reply(intercom.snapshot() if asked.version == VERSION else _UNSUPPORTED)


async def guard(node: "Node", _actor: Actor, asked: ApplicationGuard, _call: str | None) -> Reply:
    """Set the application guard for exactly the context that the companion saw; null withdraws it."""
    intercom = _intercom(node)
    if asked.version != VERSION:
        return Reply(_UNSUPPORTED)
    target: dict[str, Any] = {
        "rootSessionId": asked.target.root_session_id,
        "peerId": asked.target.peer_id,
        "incarnation": asked.target.incarnation,
    }
    return Reply(intercom.set_guard(target, asked.revision))


async def provenance(node: "Node", _actor: Actor, asked: ProvenanceQuery, _call: str | None) -> Reply:
    """Return what this root recorded of a message to it, or why it tells nothing."""
    intercom = _intercom(node)
    if asked.version != VERSION:
        return Reply({"error": UNAVAILABLE})
    return Reply(intercom.reads.receipt(asked.root_session_id, asked.message_id))


async def wake_outcome(node: "Node", _actor: Actor, asked: WakeOutcome, _call: str | None) -> Reply:
    """Say whether a parked child was woken."""
    _intercom(node).wakes.answer(asked.token, is_woken=asked.ok, detail=asked.detail[:1_000])
    return Reply({})


async def turn_failed(node: "Node", actor: Actor, asked: TurnFailed, _call: str | None) -> Reply:
    """Answer the questions that this turn was shown and that still wait: their askers need not.

    What was answered already, and what came after the turn began to end, is left alone.
    """
    intercom = _intercom(node)
    replied: list[str] = []
    for ask in intercom.asks.waiting(node.now().mono_ms):
        if not intercom.is_of_turn(ask):
            continue
        error = asked.error[:ERROR_CHARACTERS_MAX]
        wish = Wish(
            to=ask.sender,
            content=f"Recipient turn failed: {error}",
            reply_to=ask.message_id,
            is_crossing=True,
            attachments=(mapping.attachment("context", mapping.FAILURE_NAME, error or "unknown"),),
            act=node.act_of(actor.peer),
        )
        await submit(node, Peer(node.instance), wish)
        intercom.asks.end(ask.session_id, ask.message_id)
        replied.append(ask.message_id)
    intercom.tell_presence()
    return Reply({"replied": replied})
