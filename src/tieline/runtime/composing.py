"""`host.compose`: what a person typed at a host, read by the one parser that every input shares.

Rule 1: a letter is sent at once, by the host's person, and no model is asked; an instruction sends nothing.
Rule 2: what was picked is judged against who is there now, not against who was there when it was picked.

Source: reference/native.md 1N (128 to 131), 2.11; docs/attach.md.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from tieline.composer import Draft, Instruction, Known, note, read
from tieline.engine import directory
from tieline.engine.contract import Act
from tieline.errors import Refusal, Refused
from tieline.model.identity import Availability, Capability, Descriptor
from tieline.runtime import local
from tieline.runtime.calls import Actor, Params, Reach, Reply
from tieline.runtime.sending import reach_of
from tieline.runtime.tools import reading_peer

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["TABLE", "Compose", "compose", "known"]

PEERS_MAX = 10_000


class Compose(Params, frozen=True):
    """`host.compose`: a draft as docs/attach.md says."""

    draft: dict[str, Any]
    wait_ms: int = local.SEND_WAIT_MS
    run: str | None = None


async def known(node: "Node", actor: Actor, scope: str | None, run: str | None = None) -> list[Known]:
    """Return everybody whom a draft may mean now.

    Raises:
        Refused: SCOPE_DENIED; INVALID_PARAMS, the scope is none.
    """
    try:
        reach = None if scope is None else Reach(scope)
    except ValueError:
        raise Refused("INVALID_PARAMS", "scope is workspace, repository, machine or all") from None
    wanted = reach_of(node, reading_peer(node, actor, run), None if reach is None else reach.scope)
    await node.book.refresh_runs(wanted)
    found = directory.listing(
        node.place, node.book.roots(), scope=wanted, query="", cursor=None, page_size=PEERS_MAX,
        is_crossing=reach is Reach.ALL,
    )  # fmt: skip
    if isinstance(found, Refusal):
        raise Refused.of(found)
    return [_known(one) for one in found.peers]


def _known(item: Descriptor) -> Known:
    has_inbox = Capability.RECEIVE.value in item.capabilities and item.availability is Availability.AVAILABLE
    return Known(item.alias, item.peer.id, item.peer.instance, item.peer.run, has_inbox)


async def compose(node: "Node", actor: Actor, asked: Compose, call_id: str | None) -> Reply:
    """Send the letter that a draft is, or return the instruction that it is.

    Raises:
        Refused: PEER_OFFLINE, pick it again; CAPABILITY_DENIED; AMBIGUOUS_TARGET; UNKNOWN_TARGET; as a send.
    """
    draft = Draft.of(asked.draft)
    if draft == Draft() and asked.draft.get("text"):
        raise Refused("INVALID_PARAMS", "draft is not a draft: its bindings and spans must fit its text")
    meant = read(draft, await known(node, actor, draft.scope, asked.run))
    if isinstance(meant, Refusal):
        raise Refused.of(meant)
    references = [msgspec.to_builtins(one._asdict(), str_keys=True) for one in meant.references]
    if isinstance(meant, Instruction):
        shape = {"kind": "instruction", "text": meant.text, "references": references}
        return Reply({**shape, "note": note(meant.references), "replyTo": meant.reply_to})
    params = local.Send(
        to=meant.to.peer_id, content=meant.content, reply_to=meant.reply_to,
        scope=None if meant.scope is None else Reach(meant.scope), wait_ms=asked.wait_ms, run=asked.run,
    )  # fmt: skip
    # At the host's own door a person typed it; from anywhere else it is as any send from there.
    typing = actor._replace(act=Act.PERSON) if actor.is_host else actor
    sent = await local.send(node, typing, params, call_id)
    return Reply({"kind": "letter", "content": meant.content, "references": references, **sent.result})


TABLE: dict[str, Any] = {"host.compose": (Compose, compose)}
