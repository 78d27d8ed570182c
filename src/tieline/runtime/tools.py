"""The tools of a model: who is there, send, read and wait.

Rule 1: `rejected` and `expired` are raised as failures, never returned as success.
Rule 2: a wait always reads at least once, whatever time start-up took; it ends at `WAIT_MS_MAX`.
Rule 3: text for the model is what `tieline.text` made of verified facts; nothing here makes frames.

Source: reference/native.md 1M, 1O, 2.8, 2.12; open-bugs.md O01, O07.
"""

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from tieline import config
from tieline.config import Scope
from tieline.engine.contract import Act, Expose, Held
from tieline.errors import OutcomeUnknown, Refusal, Refused
from tieline.model.identity import Capability
from tieline.model.message import Delivery
from tieline.model.receipt import Receipt, State
from tieline.runtime import render
from tieline.runtime.calls import Actor, Params, Reply
from tieline.runtime.sending import Wish, expires_ms, settled, submit

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["TABLE", "exposed", "read_mail"]

EVENTS_PER_READ_MAX = 100
MESSAGES_PER_READ_MAX = 16
READ_BYTES_MAX = 131_072
TEXT_BYTES_MAX = 16_777_216
"""A read shows whole what it consumes: `READ_BYTES_MAX` of content, and the first message in any case."""


class ListPeers(Params, frozen=True):
    """`list_peers`."""

    scope: Scope | None = None
    query: str = ""
    cursor: str | None = None


class SendPeerMessage(Params, frozen=True):
    """`send_peer_message`."""

    to: str
    content: str
    topic: str | None = None
    reply_to: str | None = None
    scope: Scope | None = None
    delivery: Delivery = Delivery.STEER
    notify_when_idle: bool = False
    call_id: str | None = None
    run: str | None = None


class PeerMessages(Params, frozen=True):
    """`peer_messages`."""

    after: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    reply_to: str | None = None
    message_id: str | None = None
    wait_ms: int = 0
    consume: bool = True
    run: str | None = None


async def list_peers(node: "Node", actor: Actor, asked: ListPeers, _call: str | None) -> Reply:
    """Return one page of who is there, and who we are."""
    scope = asked.scope or Scope.WORKSPACE
    await node.book.refresh_runs(scope)
    page = node.book.listing(scope, asked.query, asked.cursor)
    if isinstance(page, Refusal):
        raise Refused.of(page)
    result: dict[str, Any] = {
        "self": node.book.describe_self(actor.peer),
        "peers": [
            render.descriptor(item, age_ms=node.book.age_ms(item.peer.instance)) for item in page.peers
        ],
    }
    if page.cursor is not None:
        result["cursor"] = page.cursor
    if node.book.presence_faults:
        result["presenceFaults"] = node.book.presence_faults
    return Reply(result)


async def send_peer_message(node: "Node", actor: Actor, asked: SendPeerMessage, call_id: str | None) -> Reply:
    """Send one message and return its receipt; a refusal is raised."""
    peer = node.acting_peer(actor, asked.run)
    node.require(peer, Capability.SEND)
    call_id = asked.call_id or call_id
    wish = Wish(
        to=asked.to,
        content=asked.content,
        message_id=None if call_id is None else tool_message_id(peer.id, call_id),
        topic=asked.topic,
        reply_to=asked.reply_to,
        scope=asked.scope,
        delivery=asked.delivery,
        notify_when_idle=asked.notify_when_idle,
        act=node.act_of(peer) if actor.act is not Act.PERSON else Act.PERSON,
    )
    target, first = await submit(node, peer, wish)
    receipt = await settled(node, first, node.settings.limits.acknowledgement_ms + 500)
    refuse_failure(receipt)
    shape = render.receipt(receipt, expires_ms(node, receipt))
    shape["target"] = {"peerId": target.peer.id, "alias": target.alias}
    shape["text"] = render.receipt_text(receipt)
    return Reply(shape)


def tool_message_id(peer_id: str, call_id: str) -> str:
    """Return the message id that equal tool calls share. Source: reference/native.md 2.12."""
    text = json.dumps([peer_id, call_id], separators=(",", ":"), ensure_ascii=False)
    return "tool-" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def refuse_failure(receipt: Receipt) -> None:
    """Raise what a receipt of refusal or expiry says."""
    if receipt.state is State.REJECTED:
        raise Refused(
            receipt.outcome or "PEER_OFFLINE",
            f"message {receipt.message_id} was refused; nothing was stored at the recipient",
            is_retryable=receipt.is_retryable,
        )
    if receipt.state is State.EXPIRED:
        raise OutcomeUnknown(
            f"message {receipt.message_id} expired: {receipt.outcome or 'unread'}", receipt.message_id
        )


async def peer_messages(node: "Node", actor: Actor, asked: PeerMessages, _call: str | None) -> Reply:
    """Return unread mail and events of the caller's own mailbox; wait for some when asked to."""
    peer = node.acting_peer(actor, asked.run)
    node.require(peer, Capability.RECEIVE)
    if not 0 <= asked.wait_ms <= config.WAIT_MS_MAX:
        raise Refused("INVALID_PARAMS", f"waitMs is a whole number from 0 to {config.WAIT_MS_MAX}")
    if asked.wait_ms:
        node.require(peer, Capability.WAIT)
    return await read_mail(node, actor, asked, wait_ms=asked.wait_ms, rung="read")


async def read_mail(
    node: "Node", actor: Actor, asked: PeerMessages, *, wait_ms: int, rung: str, only_asks: bool = False
) -> Reply:
    """Read the mailbox of the acting peer, waiting up to `wait_ms` for something that fits.

    The result's messages are prepared under one token, given back as `Reply.taken`, unless
    `asked.consume` is false.
    """
    peer = node.acting_peer(actor, asked.run)
    after = cursor_number(asked.after)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    while True:
        arrival = node.arrival(peer)
        page = node.engine.page(peer, after, EVENTS_PER_READ_MAX)
        if isinstance(page, Refusal):
            raise Refused.of(page)
        found = node.engine.held(
            peer,
            from_peer=None if asked.from_ is None else node.book.known_peer_id(asked.from_),
            reply_to=asked.reply_to,
            message_id=asked.message_id,
            unread_only=asked.message_id is None,
            count_max=MESSAGES_PER_READ_MAX,
        )
        if only_asks:
            found = tuple(item for item in found if item.envelope.is_ask)
        if asked.consume:  # what another reader has prepared is that reader's for now
            found = tuple(item for item in found if not item.is_prepared)
        is_filtered = bool(asked.from_ or asked.reply_to or asked.message_id)
        told = [] if is_filtered or not asked.consume else node.desk.unread(peer)
        if found or (asked.after is not None and (page.events or told) and not is_filtered):
            break
        left = deadline - loop.time()
        if left <= 0 or not await arrival.wait(left):
            break
    token, messages = await exposed(node, actor, asked, found, rung)
    if told:  # of a resource: told again until a flush confirms it
        token = token or node.new_token()
        node.desk.read(token, told)
    elif not asked.consume and not is_filtered:
        told = node.desk.kept([peer.id], after)
    result: dict[str, Any] = {
        "events": [*map(render.event, page.events), *map(node.desk.shape, told)],
        "messages": [await node.with_content(item) for item in messages],
        "cursor": str(page.events[-1].cursor if page.events else max(after, page.latest_cursor)),
        "oldestCursor": str(page.oldest_cursor),
        "gap": page.has_gap,
        "text": node.rendered(messages, TEXT_BYTES_MAX, max(1, len(messages))).text,
    }
    if wait_ms and not messages:
        result["timedOut"] = True
    return Reply(result, token)


async def exposed(
    node: "Node", actor: Actor, asked: PeerMessages, found: tuple[Held, ...], rung: str
) -> tuple[str | None, tuple[Held, ...]]:
    """Prepare what may be prepared of `found`; what another reader holds is left out."""
    free = tuple(item.cursor for item in found if item.state is State.ACCEPTED and not item.is_prepared)
    if not asked.consume or not free:
        return None, tuple(item for item in found if item.state is not State.ACCEPTED or not asked.consume)
    token = node.new_token()
    command = Expose(
        owner=node.acting_peer(actor, asked.run),
        token=token,
        rung=rung,
        count_max=MESSAGES_PER_READ_MAX,
        bytes_max=READ_BYTES_MAX,
        cursors=free,
    )
    held = await node.ask(command)
    if isinstance(held, Refusal):
        raise Refused.of(held)
    read = tuple(item for item in found if item.state is not State.ACCEPTED)
    return token, (*read, *held)


def cursor_number(text: str | None) -> int:
    """Return a cursor; absent is 0.

    Raises:
        Refused: it is not a decimal string.
    """
    if text is None:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise Refused("INVALID_PARAMS", "after is a cursor: a decimal string")
    return int(text)


TABLE: dict[str, Any] = {
    "list_peers": (ListPeers, list_peers),
    "send_peer_message": (SendPeerMessage, send_peer_message),
    "peer_messages": (PeerMessages, peer_messages),
}
