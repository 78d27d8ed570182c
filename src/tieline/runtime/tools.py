"""The tools of a model: who is there, send, read and wait.

Rule 1: `rejected` and `expired` are raised as failures, never returned as success.
Rule 2: a wait always reads at least once, whatever time start-up took; it ends at `WAIT_MS_MAX`.
Rule 3: text for the model is what `tieline.text` made of verified facts; nothing here makes frames.

Source: reference/native.md 1M, 1O, 2.8, 2.12; open-bugs.md O01, O07.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tieline import config
from tieline.engine.contract import Act, Expose, Held, Page
from tieline.errors import OutcomeUnknown, Refusal, Refused
from tieline.model.identity import Capability, Peer
from tieline.model.message import Delivery
from tieline.model.receipt import FINAL, Receipt, State
from tieline.model.traits import NATIVE, TRAITS
from tieline.runtime import render
from tieline.runtime.calls import Actor, Params, Reach, Reply
from tieline.runtime.sending import Wish, expires_ms, reach_of, settled, submit

if TYPE_CHECKING:
    from tieline.runtime.node import Node
    from tieline.runtime.resources.feed import Told

__all__ = [
    "TABLE",
    "Bounds",
    "PeerMessages",
    "cursor_number",
    "is_answer",
    "read_mail",
    "reading_peer",
    "refused",
]

EVENTS_PER_READ_MAX = 100
MESSAGES_PER_READ_MAX = 16
READ_BYTES_MAX = 131_072
TEXT_BYTES_MAX = 16_777_216
"""A read shows whole what it consumes: `READ_BYTES_MAX` of content, and the first message in any case."""


class Bounds(NamedTuple):
    """How much of a mailbox one answer holds, and of which mail."""

    count_max: int
    bytes_max: int  # of content; the first message fits in any case
    only_asks: bool = False
    after: int = 0  # only mail that came after this cursor
    with_rings: bool = False  # tell rings of waits that the peer is in; one ends its wait


MODEL_BOUNDS = Bounds(MESSAGES_PER_READ_MAX, READ_BYTES_MAX)


class ListPeers(Params, frozen=True):
    """`list_peers`."""

    scope: Reach | None = None
    query: str = ""
    cursor: str | None = None
    run: str | None = None


class SendPeerMessage(Params, frozen=True):
    """`send_peer_message`."""

    to: str
    content: str
    topic: str | None = None
    reply_to: str | None = None
    scope: Reach | None = None
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


def reading_peer(node: "Node", actor: Actor, token: str | None) -> Peer:
    """Return whose eyes a call that changes nothing has: the run's that a token proves, else the actor's.

    Raises:
        Refused: TARGET_ENDED, the token proves no live run.
    """
    return actor.peer if token is None else node.acting_peer(actor, token)


async def list_peers(node: "Node", actor: Actor, asked: ListPeers, _call: str | None) -> Reply:
    """Return one page of who is there, and who we are."""
    peer = reading_peer(node, actor, asked.run)
    reach = asked.scope or Reach.WORKSPACE
    scope = reach_of(node, peer, reach.scope)
    await node.book.refresh_runs(scope)
    page = node.book.listing(scope, asked.query, asked.cursor, is_crossing=reach is Reach.ALL)
    if isinstance(page, Refusal):
        raise Refused.of(page)
    result: dict[str, Any] = {
        "self": node.book.describe_self(peer),
        "peers": [
            render.descriptor(item, age_ms=node.book.age_ms(item.peer.instance)) for item in page.peers
        ],
    }
    for shape in (result["self"], *result["peers"]):
        waits_for = node.waits.waits_for(shape["peerId"])
        if waits_for:
            shape["waitsFor"] = waits_for
    if page.cursor is not None:
        result["cursor"] = page.cursor
    if reach is not Reach.ALL and node.book.other_projects_count:
        result["otherProjects"] = node.book.other_projects_count
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
        scope=None if asked.scope is None else asked.scope.scope,
        is_crossing=asked.scope is Reach.ALL or is_answer(node, peer, asked.reply_to),
        delivery=asked.delivery,
        notify_when_idle=asked.notify_when_idle,
        act=node.act_of(peer) if actor.act is not Act.PERSON else Act.PERSON,
    )
    target, first = await submit(node, peer, wish)
    receipt = await settled(node, first, node.settings.limits.acknowledgement_ms + 500)
    wire = target.peer.wire
    refuse_failure(receipt, wire)
    shape = render.receipt(receipt, expires_ms(node, receipt), wire)
    shape["target"] = {"peerId": target.peer.id, "alias": target.alias}
    shape["text"] = render.receipt_text(receipt, wire)
    return Reply(shape)


def is_answer(node: "Node", peer: Peer, reply_to: str | None) -> bool:
    """Return whether a message that a peer of ours received has this id: whoever wrote may be answered."""
    return bool(reply_to and node.engine.held(peer, message_id=reply_to, unread_only=False, count_max=1))


def tool_message_id(peer_id: str, call_id: str) -> str:
    """Return the message id that equal tool calls share. Source: reference/native.md 2.12."""
    text = json.dumps([peer_id, call_id], separators=(",", ":"), ensure_ascii=False)
    return "tool-" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def refuse_failure(receipt: Receipt, wire: str = NATIVE.name) -> None:
    """Raise what a receipt of refusal or expiry says of a message that took `wire`."""
    if receipt.state is State.REJECTED:
        text = f"message {receipt.message_id} was refused; nothing was stored at the recipient"
        raise refused(receipt, wire, text)
    if receipt.state is State.EXPIRED:
        raise OutcomeUnknown(
            f"message {receipt.message_id} expired: {receipt.outcome or 'unread'}", receipt.message_id
        )


def refused(receipt: Receipt, wire: str, text: str) -> Refused:
    """Return the error that a receipt of refusal is; the same id helps only where a wire asks again by it."""
    is_settled = TRAITS[wire].retry == "never"
    error = Refused(
        receipt.outcome or "PEER_OFFLINE", text, is_retryable=receipt.is_retryable and not is_settled
    )
    if is_settled and error.code in ("RATE_LIMITED", "QUEUE_FULL"):
        return error.advising("wait for it to be idle, then send one message with all of it, under a new id")
    if is_settled and error.code == "INVALID_PARAMS":
        return error.advising(FORM_ADVICE)
    return error


async def peer_messages(node: "Node", actor: Actor, asked: PeerMessages, _call: str | None) -> Reply:
    """Return unread mail and events of the caller's own mailbox; wait for some when asked to."""
    peer = node.acting_peer(actor, asked.run)
    node.require(peer, Capability.RECEIVE)
    if not 0 <= asked.wait_ms <= config.WAIT_MS_MAX:
        raise Refused("INVALID_PARAMS", f"waitMs is a whole number from 0 to {config.WAIT_MS_MAX}")
    if asked.wait_ms:
        node.require(peer, Capability.WAIT)
    with _waiting(node, peer, asked):
        return await read_mail(
            node,
            actor,
            asked,
            wait_ms=asked.wait_ms,
            rung="read",
            bounds=MODEL_BOUNDS._replace(with_rings=True),
        )


def _waiting(node: "Node", peer: Peer, asked: PeerMessages) -> contextlib.AbstractContextManager[None]:
    """Let a wait for the answer to a question of the peer's own count as one."""
    sent = () if asked.reply_to is None or not asked.wait_ms else node.engine.sent(asked.reply_to, peer)
    if not sent or sent[0].receipt.state in FINAL:
        return contextlib.nullcontext()
    return node.waits.waiting(peer, sent[0].envelope.recipient, sent[0].envelope.message_id)


FORM_ADVICE = (
    "correct its form: no control characters but tab and line ends in a text, none at all in a name, an id "
    "or a thread, and a name for each attachment"
)
IN_FLIGHT_TEXT = (
    "What fits was given to your session by another way. It is shown right after this call, or was shown "
    "just before it: go on, do not wait for it here."
)


class _Look(NamedTuple):
    """What one look at a mailbox found: mail, how much more waits, news of resources, and events.

    `in_flight_count` is how many messages fit that another way is showing the reader right now.
    """

    found: tuple[Held, ...]
    in_flight_count: int
    remaining: int
    told: "list[Told]"
    page: Page
    rings: list[dict[str, Any]]

    def is_enough(self, *, with_events: bool) -> bool:
        """Return whether there is something to return now."""
        return bool(self.found or self.rings or (with_events and (self.page.events or self.told)))


async def read_mail(
    node: "Node", actor: Actor, asked: PeerMessages, *, wait_ms: int, rung: str, bounds: Bounds = MODEL_BOUNDS
) -> Reply:
    """Read the mailbox of the acting peer, waiting up to `wait_ms` for something that fits.

    The result's messages are prepared under one token, given back as `Reply.taken`, unless `asked.consume`
    is false. What fits and is in flight on another way ends a model's wait, since a host shows it between
    calls; `inFlight` counts it. Events are what came after `asked.after`; without it there are none, because
    a history told anew at each call is no news.
    """
    peer = node.acting_peer(actor, asked.run)
    cursor_number(asked.after)
    is_filtered = bool(asked.from_ or asked.reply_to or asked.message_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    while True:
        arrival = node.arrival(peer)
        look = _look(node, peer, asked, bounds)
        if look.is_enough(with_events=asked.after is not None and not is_filtered):
            break
        left = deadline - loop.time()
        # A host shows what it was given when this call has ended: a model that waits for it keeps it away.
        is_coming = rung == "read" and look.in_flight_count > 0
        if is_coming or left <= 0 or not await arrival.wait(left):
            break
    token, messages = await exposed(node, actor, asked, look.found, rung, bounds)
    told = look.told
    if told and asked.consume:  # of a resource: told again until a flush confirms it
        token = token or node.new_token()
        node.desk.read(token, told)
    if look.rings:
        token = token or node.new_token()
        node.waits.read(token, peer)
    events = look.page.events
    result: dict[str, Any] = {
        "events": [*map(render.event, events), *map(node.desk.shape, told), *look.rings],
        "messages": [await node.with_content(item) for item in messages],
        "remaining": look.remaining,
        "cursor": str(events[-1].cursor if events else look.page.latest_cursor),
        "oldestCursor": str(look.page.oldest_cursor),
        "gap": look.page.has_gap,
        "text": "\n\n".join(
            [
                *(ring["text"] for ring in look.rings),
                node.rendered(messages, TEXT_BYTES_MAX, max(1, len(messages))).text,
            ]
        ).strip("\n"),
    }
    sent = () if asked.message_id is None else node.engine.sent(asked.message_id, peer)
    if sent:  # an id may be one that the caller gave out itself: where that message stands
        result["receipts"] = [
            render.receipt(item.receipt, item.expires_ms, item.envelope.recipient.wire) for item in sent
        ]
    if asked.consume and look.in_flight_count:
        result["inFlight"] = look.in_flight_count
        result["text"] = result["text"] or IN_FLIGHT_TEXT
    elif wait_ms and not messages and not look.rings:
        result["timedOut"] = True
    return Reply(result, token)


def _look(node: "Node", peer: Peer, asked: PeerMessages, bounds: Bounds) -> _Look:
    """Look at a mailbox once; nothing is changed."""
    after = node.engine.latest_cursor if asked.after is None else cursor_number(asked.after)
    page = node.engine.page(peer, after, EVENTS_PER_READ_MAX)
    if isinstance(page, Refusal):
        raise Refused.of(page)
    counts = node.engine.inbox_counts(peer)
    is_filtered = bool(asked.from_ or asked.reply_to or asked.message_id)
    is_whole = bounds.only_asks or bounds.after > 0
    held = node.engine.held(
        peer,
        from_peer=None if asked.from_ is None else node.book.known_peer_id(asked.from_),
        reply_to=asked.reply_to,
        message_id=asked.message_id,
        unread_only=asked.message_id is None,
        count_max=counts.unread if is_whole else bounds.count_max + counts.prepared,
    )
    fitting = [
        item
        for item in held
        # What another reader has prepared is that reader's for now.
        if (not asked.consume or not item.is_prepared)
        and item.cursor > bounds.after
        and (item.envelope.is_ask or not bounds.only_asks)
    ]
    found = _within(fitting, bounds)
    in_flight_count = _in_flight_count(node, peer, asked, held) if asked.consume else 0
    waiting = counts.unread - (counts.prepared if asked.consume else 0)
    remaining = (len(fitting) if is_filtered or is_whole else waiting) - len(found)
    told: list[Told] = []
    if not is_filtered and asked.consume:
        told = node.desk.unread(peer)
    elif not is_filtered and asked.after is not None:
        told = node.desk.kept([peer.id], after)
    rings = node.waits.unread(peer) if bounds.with_rings and asked.consume else []
    return _Look(found, in_flight_count, max(0, remaining), told, page, rings)


def _in_flight_count(node: "Node", peer: Peer, asked: PeerMessages, held: Sequence[Held]) -> int:
    """Return how many that fit another way is showing, or has just shown where one answer was asked for."""
    count = sum(item.is_prepared for item in held)
    if not count and not held and asked.reply_to:
        # Some hosts say that they took it when they queued it: it is read then, but not shown yet.
        newest = node.engine.held(peer, reply_to=asked.reply_to, unread_only=False, count_max=1)
        count = sum(node.host.is_beside(item.cursor, node.now().mono_ms) for item in newest)
    return count


def _within(fitting: Sequence[Held], bounds: Bounds) -> tuple[Held, ...]:
    """Return the first of these that one answer may hold; the very first always fits."""
    size_bytes = 0
    for place, item in enumerate(fitting):
        size_bytes += item.envelope.content_bytes
        if place == bounds.count_max or (place and size_bytes > bounds.bytes_max):
            return tuple(fitting[:place])
    return tuple(fitting)


async def exposed(
    node: "Node", actor: Actor, asked: PeerMessages, found: tuple[Held, ...], rung: str, bounds: Bounds
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
        count_max=bounds.count_max,
        bytes_max=bounds.bytes_max,
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
