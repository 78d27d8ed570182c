"""What a person's command line and a program's own calls ask of a root.

Rule 1: preview never consumes; consuming is a token of its own, settled by the caller's flush.
Rule 2: one receipt per target; a refused target does not spoil the others.
Rule 3: histories come from the real store, content of finished records from the journal.

Source: DESIGN.md 4; reference/native.md 2.8, 2.11; open-bugs.md O03, O07.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from tieline import __version__, config
from tieline.engine.contract import Act, Consent, Held, Mute
from tieline.errors import OutcomeUnknown, RecoveryRequired, Refusal, Refused, TielineError
from tieline.model.identity import Capability, Descriptor, Peer
from tieline.model.message import Attachment, Delivery
from tieline.model.receipt import Receipt, State
from tieline.runtime import answers, render
from tieline.runtime.calls import Actor, Params, Reach, Reply
from tieline.runtime.sending import Wish, expires_ms, latest, settled, submit
from tieline.runtime.tools import (
    Bounds,
    PeerMessages,
    cursor_number,
    is_answer,
    read_mail,
    reading_peer,
    refused,
)

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["TABLE"]

TARGETS_MAX = 64
SEND_WAIT_MS = 3_000
WAIT_MS_MAX = 3_600_000
LOG_EVENTS_MAX = 1_000
REPLIED_WAIT_MS = 500
GONE = frozenset({"UNKNOWN_TARGET", "PEER_OFFLINE", "TARGET_ENDED"})
GONE_ADVICE = (
    "nothing can reach it: a command that sent outside every agent ends with its send; answer when it writes "
    "again, or tell its person"
)
INBOX_MESSAGES_MAX = 1_000
INBOX_BYTES = 524_288
"""Of text in one answer: also with every character escaped, twice, it is within a control frame."""


class AttachmentParams(Params, frozen=True):
    """One attachment."""

    name: str
    text: str
    media_type: str = "text/plain"


class Who(Params, frozen=True):
    """`local.who`."""

    run: str | None = None


class Send(Params, frozen=True):
    """`local.send`, and what `local.ask` and `local.reply` share with it."""

    content: str
    to: str | list[str] = ""
    topic: str | None = None
    reply_to: str | None = None
    scope: Reach | None = None
    delivery: Delivery = Delivery.STEER
    thread: str | None = None
    replace: bool = False
    attachments: tuple[AttachmentParams, ...] = ()
    message_id: str | None = None
    expiry_ms: int | None = None
    ask: bool = False
    notify_when_idle: bool = False
    wait_ms: int = SEND_WAIT_MS
    timeout_ms: int = 600_000
    run: str | None = None


class Inbox(Params, frozen=True):
    """`local.inbox`."""

    after: str | None = None
    wait_ms: int = 0
    consume: bool = False
    asks: bool = False
    limit: int = 100
    run: str | None = None


class ConsentParams(Params, frozen=True):
    """`local.consent`."""

    message_id: str
    accept: bool
    run: str | None = None


class Status(Params, frozen=True):
    """`local.status`."""

    message_id: str
    run: str | None = None


class Last(Params, frozen=True):
    """`local.last`."""

    to: str
    entry: str | None = None
    offset: int = 0
    run: str | None = None


class Log(Params, frozen=True):
    """`local.log`."""

    after: str | None = None
    query: str = ""
    peer: str | None = None
    limit: int = LOG_EVENTS_MAX
    run: str | None = None


class MuteParams(Params, frozen=True):
    """`local.mute`."""

    peer: str
    muted: bool = True
    run: str | None = None


class Nothing(Params, frozen=True):
    """No params."""


async def who(node: "Node", actor: Actor, asked: Who, _call: str | None) -> Reply:
    """Return who this root is, and which of its peers a call with this token acts as."""
    return Reply({**node.who(), "acting": node.acting(reading_peer(node, actor, asked.run))})


async def send(node: "Node", actor: Actor, asked: Send, _call: str | None) -> Reply:
    """Send to each target; wait for the strongest answer that comes in time."""
    targets = [asked.to] if isinstance(asked.to, str) else asked.to
    if not 0 < len(targets) <= TARGETS_MAX:
        raise Refused("INVALID_PARAMS", f"1 to {TARGETS_MAX} targets")
    if asked.message_id is not None and len(targets) > 1:
        raise Refused("INVALID_PARAMS", "one message id names one message: give one target")
    receipts: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    results = await asyncio.gather(*(_send_one(node, actor, asked, target) for target in targets))
    for target, result in zip(targets, results, strict=True):
        if isinstance(result, dict):
            receipts.append(result)
        else:
            errors.append(_error(target, result))
    return Reply({"receipts": receipts, "errors": errors})


async def _send_one(node: "Node", actor: Actor, asked: Send, to: str) -> dict[str, Any] | TielineError:
    try:
        target, receipt = await _submit(node, actor, asked, to)
    except (Refused, RecoveryRequired) as error:
        return error
    receipt = await settled(node, receipt, _bounded(asked.wait_ms))
    if receipt.state is State.REJECTED:
        text = f"{target.alias} refused message {receipt.message_id}"
        return refused(receipt, target.peer.wire, text)
    return _shape(node, target, receipt)


async def _submit(node: "Node", actor: Actor, asked: Send, to: str) -> tuple[Descriptor, Receipt]:
    sender = node.acting_peer(actor, asked.run)
    node.require(sender, Capability.SEND)
    wish = Wish(
        to=to,
        content=asked.content,
        message_id=asked.message_id,
        topic=asked.topic,
        reply_to=asked.reply_to,
        scope=None if asked.scope is None else asked.scope.scope,
        is_crossing=asked.scope is Reach.ALL or is_answer(node, sender, asked.reply_to),
        delivery=asked.delivery,
        thread=asked.thread,
        replaces=asked.replace,
        is_ask=asked.ask,
        notify_when_idle=asked.notify_when_idle,
        attachments=tuple(Attachment(part.name, part.text, part.media_type) for part in asked.attachments),
        expiry_ms=asked.expiry_ms,
        act=Act.PERSON if actor.act is Act.PERSON else node.act_of(sender),
    )
    return await submit(node, sender, wish)


def _shape(node: "Node", target: Descriptor, receipt: Receipt) -> dict[str, Any]:
    wire = target.peer.wire
    shape = render.receipt(receipt, expires_ms(node, receipt), wire)
    shape["target"] = {"peerId": target.peer.id, "alias": target.alias}
    shape["text"] = render.receipt_text(receipt, wire)
    return shape


def _error(target: str, error: TielineError) -> dict[str, Any]:
    candidates = error.candidates if isinstance(error, Refused) else []
    return {
        **({"candidates": candidates} if candidates else {}),
        "to": target,
        "code": error.code,
        "text": str(error),
        "action": error.action,
        "retryable": getattr(error, "is_retryable", False),
    }


def _bounded(wait_ms: int) -> int:
    if not 0 <= wait_ms <= WAIT_MS_MAX:
        raise Refused("INVALID_PARAMS", f"a wait is a whole number of ms from 0 to {WAIT_MS_MAX}")
    return wait_ms


async def ask(node: "Node", actor: Actor, asked: Send, _call: str | None) -> Reply:
    """Send one question and wait for its correlated reply; a timeout is not an answer.

    The reply is prepared under `token`, which the caller settles once it showed it.
    """
    if not isinstance(asked.to, str):
        raise Refused("INVALID_PARAMS", "an ask has one target")
    sender = node.acting_peer(actor, asked.run)
    node.require(sender, Capability.RECEIVE)
    to = asked.to
    asked = msgspec.structs.replace(asked, ask=True)
    timeout_ms = _bounded(asked.timeout_ms)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    with node.waits.waiting(sender, None):
        target, receipt = await _submit(node, actor, asked, to)
    with node.waits.waiting(sender, target.peer, receipt.message_id):
        found, receipt = await _answer_of(node, sender, target, receipt, deadline)
    if found:  # the receipt that says "replied" comes right behind the reply
        receipt = await settled(node, receipt, REPLIED_WAIT_MS, until_final=True)
    shape = _shape(node, target, receipt)
    if found:
        shape["text"] = render.REPLIED_TEXT
    if not found and receipt.state is State.REJECTED:
        raise Refused(receipt.outcome or "PEER_OFFLINE", f"{target.alias} refused the question")
    if not found and receipt.state is State.EXPIRED:
        raise OutcomeUnknown(
            f"the question expired unread ({receipt.outcome or 'EXPIRED'})", receipt.message_id
        )
    if not found:
        return Reply({"receipt": shape, "reply": None, "timedOut": True})
    answer = found[0].envelope
    read = PeerMessages(message_id=answer.message_id, from_=answer.sender.id, run=asked.run)
    reply = await read_mail(node, actor, read, wait_ms=0, rung="read")
    messages = reply.result["messages"]
    return Reply(
        {
            "receipt": shape,
            "reply": messages[0] if messages else await node.with_content(found[0]),
            "timedOut": False,
            "text": reply.result["text"],
            "token": reply.taken,
        }
    )


async def _answer_of(
    node: "Node", sender: Peer, target: Descriptor, receipt: Receipt, deadline: float
) -> tuple[tuple[Held, ...], Receipt]:
    """Wait for a question's answer, until the loop's time `deadline`; return it and what is known then."""
    loop = asyncio.get_running_loop()
    while True:
        arrival, watch = node.arrival(sender), node.movement(receipt.message_id)
        found = node.engine.held(
            sender, from_peer=target.peer.id, reply_to=receipt.message_id, unread_only=False, count_max=1
        )
        receipt = latest(node, receipt)
        left = deadline - loop.time()
        if found or receipt.state in (State.REJECTED, State.EXPIRED) or left <= 0:
            return found, receipt
        await arrival.joined(watch).wait(left)


async def inbox(node: "Node", actor: Actor, asked: Inbox, _call: str | None) -> Reply:
    """Return unread mail after a cursor; with `consume` a token that the caller settles by `host.taken`.

    At most `limit` messages and `INBOX_BYTES` of text; `remaining` says how many more fit, and `cursor`
    is where to read on. `prepared` counts those that are on their way to a model: they are unread still.
    `held` are those that wait for the person's word: they have not arrived.
    """
    if not 1 <= asked.limit <= INBOX_MESSAGES_MAX:
        raise Refused("INVALID_PARAMS", f"limit is a whole number from 1 to {INBOX_MESSAGES_MAX}")
    read = PeerMessages(after=asked.after, consume=asked.consume, run=asked.run)
    bounds = Bounds(asked.limit, INBOX_BYTES, asked.asks, cursor_number(asked.after))
    peer = node.acting_peer(actor, asked.run)
    node.require(peer, Capability.RECEIVE)
    reply = await read_mail(node, actor, read, wait_ms=_bounded(asked.wait_ms), rung="cli", bounds=bounds)
    messages = reply.result["messages"]
    counts = node.engine.inbox_counts(peer)
    shape = {**reply.result, "token": reply.taken, "unread": counts.unread}
    shape["prepared"] = counts.prepared - (len(messages) if asked.consume else 0)
    shape["held"] = [
        render.held(item, is_personal=not actor.is_in_tree) for item in node.engine.awaiting(peer)
    ]
    if reply.result["remaining"] and messages:  # read on behind what was shown, not behind what was not
        shape["cursor"] = str(messages[-1]["sequence"])
    return Reply(shape)


async def consent(node: "Node", actor: Actor, asked: ConsentParams, _call: str | None) -> Reply:
    """Let a held message in, or send it away; its sender is told.

    Raises:
        Refused: CAPABILITY_DENIED, an agent's own shell asks; UNKNOWN_TARGET, nothing of this id waits.
    """
    if actor.is_in_tree:
        raise Refused(
            "CAPABILITY_DENIED",
            "a held message waits for the word of the person, not of the agent: say it from another terminal",
        )
    owners = node.owners() if asked.run is None else [node.acting_peer(actor, asked.run)]
    waiting = [
        owner
        for owner in owners
        if any(item.envelope.message_id == asked.message_id for item in node.engine.awaiting(owner))
    ]
    answer = await node.ask(Consent((waiting or owners)[0], asked.message_id, asked.accept))
    if isinstance(answer, Refusal):
        raise Refused.of(answer)
    return Reply({"accepted": asked.accept, "receipt": render.receipt(answer)})


async def reply(node: "Node", actor: Actor, asked: Send, call_id: str | None) -> Reply:
    """Answer a received message; the target is its sender."""
    if asked.message_id is None:
        raise Refused("INVALID_PARAMS", "messageId names the message to answer")
    peer = node.acting_peer(actor, asked.run)
    found = node.engine.held(peer, message_id=asked.message_id, unread_only=False, count_max=2)
    if not found:
        raise Refused("INVALID_REPLY", f"no received message has the id {asked.message_id[:64]}")
    if len(found) > 1:
        raise Refused(
            "AMBIGUOUS_TARGET", "two senders used this message id; send with --reply-to to one of them"
        )
    wish = msgspec.structs.replace(
        asked, to=found[0].envelope.sender.id, reply_to=asked.message_id, message_id=None
    )
    told = await send(node, actor, wish, call_id)
    for error in told.result["errors"]:
        if error["code"] in GONE:
            error["text"] = f"who sent {asked.message_id[:64]} is not there any more: nothing was delivered"
            error["action"] = GONE_ADVICE
    return told


async def status(node: "Node", actor: Actor, asked: Status, _call: str | None) -> Reply:
    """Return all that this root knows of a message id, with its history; with a token, of that run's mail."""
    run = None if asked.run is None else node.acting_peer(actor, asked.run)
    sent = [
        {**render.sent_message(item), "history": node.history(item.cursor)}
        for item in node.engine.sent(asked.message_id, run)
    ]
    received = [
        {
            "message": await node.with_content(item),
            "receipt": render.receipt(item.receipt, wire=item.envelope.sender.wire),
            "history": node.history(item.cursor),
        }
        for owner in (node.owners() if run is None else [run])
        for item in node.engine.held(owner, message_id=asked.message_id, unread_only=False, count_max=16)
    ]
    if not sent and not received:
        raise Refused("UNKNOWN_TARGET", f"this root knows no message {asked.message_id[:64]}")
    return Reply({"sent": sent, "received": received})


async def last(node: "Node", actor: Actor, asked: Last, _call: str | None) -> Reply:
    """Return a page of a peer's last finished answer, without waking it."""
    if asked.offset < 0:
        raise Refused("INVALID_PARAMS", "offset is a whole number from 0, in UTF-16 code units")
    reading_peer(node, actor, asked.run)
    target = await node.book.resolve(asked.to, None)
    if isinstance(target, Refusal):
        raise Refused.of(target)
    return Reply(await answers.fetch(node, target, asked.entry, asked.offset))


async def log(node: "Node", actor: Actor, asked: Log, _call: str | None) -> Reply:
    """Return this root's history, or with its token a run's, oldest first, filtered by text and peer."""
    owners = node.owners() if asked.run is None else [node.acting_peer(actor, asked.run)]
    limit = min(max(1, asked.limit), LOG_EVENTS_MAX)
    after, needle = cursor_number(asked.after), asked.query.lower()
    wanted = None if asked.peer is None else node.book.known_peer_id(asked.peer)
    events: list[dict[str, Any]] = []
    for item in node.events_after(after, owners):
        if wanted is not None and wanted not in (item.sender, item.recipient):
            continue
        shape = render.event(item)
        shape.update(node.event_names(item))
        if needle and not any(needle in str(value).lower() for value in shape.values()):
            continue
        events.append(shape)
        if len(events) == limit:
            break
    if wanted is None and len(events) < limit:
        told = node.desk.kept([peer.id for peer in owners], after)
        shapes = [node.desk.shape(one) for one in told]
        shapes = [one for one in shapes if not needle or needle in str(one.values()).lower()]
        events = sorted([*events, *shapes], key=lambda one: int(one["cursor"]))[:limit]
    return Reply({"events": events, "cursor": events[-1]["cursor"] if events else str(after)})


async def mute(node: "Node", actor: Actor, asked: MuteParams, _call: str | None) -> Reply:
    """Silence a peer for this root and its runs: its mail is kept, and wakes and notifies nobody."""
    if reading_peer(node, actor, asked.run).run is not None:
        raise Refused(
            "CAPABILITY_DENIED", "a run silences nobody: its root does, for itself and all its runs"
        )
    peer = node.book.known_peer_id(asked.peer)
    await node.ask(Mute(peer, asked.muted))
    return Reply({"peer": peer, "muted": asked.muted})


async def doctor(node: "Node", _actor: Actor, _asked: Nothing, _call: str | None) -> Reply:
    """Return this root's own health, counters and limits."""
    limits = {
        name: {"value": getattr(node.settings.limits, name), "default": bound.default, "unit": bound.unit}
        for name, bound in config.LIMITS.items()
    }
    return Reply(
        {"version": __version__, "checks": node.checks(), "counters": node.counters(), "limits": limits}
    )


TABLE: dict[str, Any] = {
    "local.who": (Who, who),
    "local.send": (Send, send),
    "local.ask": (Send, ask),
    "local.inbox": (Inbox, inbox),
    "local.consent": (ConsentParams, consent),
    "local.reply": (Send, reply),
    "local.status": (Status, status),
    "local.last": (Last, last),
    "local.log": (Log, log),
    "local.mute": (MuteParams, mute),
    "local.doctor": (Nothing, doctor),
}
