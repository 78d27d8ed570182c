"""The `intercom` tool: who is there, send, ask, reply, what waits, and the last answer of a session.

Rule 1: a target is looked up by this wire's own rules among the sessions that its brokers show; how the
    message then goes is the root's affair: natively, where the session is reached so.
Rule 2: a yes of a broker is told as that; no answer of this tool says that somebody read or did anything.
Rule 3: a question waits at most `ASK_WAIT_MS` for its answer, below what any host allows a call; then its id
    is told, and the answer comes as mail.
Rule 4: one question of a peer waits at a time; one to a session that takes none now waits for nothing.

Source: specification of the intercom, "Discovery and groups", "Send, ask, and reply", "Read the last
response without waking"; reference/intercom.md 4.3, 7.1, cases 90 to 97, 104 to 108, 113 to 116.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tieline.engine.contract import Act, Held
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Descriptor, Peer
from tieline.model.message import Attachment, Delivery
from tieline.model.receipt import Receipt, State
from tieline.runtime import answers, render
from tieline.runtime.calls import Actor, Reply
from tieline.runtime.intercom.methods import Asked, ToolAttachment
from tieline.runtime.intercom.roster import (
    GLANCE_SECONDS_MAX,
    LOOK_SECONDS_MAX,
    Row,
    is_row_busy,
    takes_no_ask,
)
from tieline.runtime.sending import Wish, expires_ms, latest, settled, submit
from tieline.runtime.signals import Watch
from tieline.runtime.tools import PeerMessages, read_mail, refuse_failure, tool_message_id
from tieline.text import printable
from tieline.wire.intercom import mapping
from tieline.wire.intercom.targets import shown_targets, target_of

if TYPE_CHECKING:
    from tieline.runtime.intercom.intercom import Intercom
    from tieline.runtime.node import Node

__all__ = ["ASK_WAIT_MS", "call"]

ASK_WAIT_MS: Final = 45_000
SAID_COLUMNS_MAX: Final = 80
FAULT_COLUMNS_MAX: Final = 300
SAID_CHARACTERS_MAX: Final = 256
CWD_CHARACTERS_MAX: Final = 4_096
ALONE: Final = "No other intercom session is connected: start another agent that joins the intercom."
STALE: Final = "A broker has not answered yet: what it shows is as it was last listed. List again."
LISTING_SECONDS: Final = 0.25
"""A broker that just took us in gets this long for its list."""
STILL_COMING: Final = (
    "The question was accepted and may still reach it later: look at its run before asking again."
)


async def call(node: "Node", actor: Actor, asked: Asked, call_id: str | None) -> Reply:
    """Carry out one action of the tool.

    Raises:
        Refused: INVALID_PARAMS; PEER_OFFLINE, no broker has us; and
            what the action itself is refused with.
    """
    peer = node.acting_peer(actor, asked.run)
    assert node.intercom is not None, "methods.py lets nobody in without"
    _check(asked)
    one = _Call(node, node.intercom, actor, peer, asked, asked.call_id or call_id)
    if asked.action != "pending":
        is_glance = asked.action in ("list", "status")
        seconds_max = GLANCE_SECONDS_MAX if is_glance else LOOK_SECONDS_MAX
        began = asyncio.get_running_loop().time()
        await node.intercom.roster.connected(seconds_max)
        node.intercom.require()
        gone = asyncio.get_running_loop().time() - began if is_glance else 0.0
        is_fresh = await node.intercom.roster.look(max(seconds_max - gone, LISTING_SECONDS))
        one = msgspec.structs.replace(one, is_fresh=is_fresh)
        node.book.roots()  # who is shown by which wire
    return await _ACTIONS[asked.action](one)


def _check(asked: Asked) -> None:
    """Refuse fields that their action does not take. Source: reference/intercom.md case 113."""
    is_sent = asked.action in ("send", "ask")
    if asked.action in ("send", "ask", "reply") and not asked.message:
        raise Refused("INVALID_PARAMS", "Missing 'to' or 'message' parameter")
    if asked.action in ("send", "ask", "last") and not asked.to:
        raise Refused("INVALID_PARAMS", "Missing 'to' or 'message' parameter")
    if asked.delivery is Delivery.PASSIVE and asked.action != "send":
        raise Refused("INVALID_PARAMS", "only send may be passive: nobody reads a passive question")
    if (asked.queue_mode or asked.thread_id) and not (is_sent and asked.delivery is Delivery.QUEUE):
        raise Refused("INVALID_PARAMS", "queueMode and threadId go with send or ask and delivery queue")
    if (asked.queue_mode == "replace") != bool(asked.thread_id and asked.thread_id.strip()):
        raise Refused("INVALID_PARAMS", "queueMode replace needs a threadId, and nothing else takes one")
    if asked.offset < 0 or (asked.action != "last" and (asked.offset or asked.entry_id)):
        raise Refused("INVALID_PARAMS", "entryId and offset (from 0) go with last")


class _Call(msgspec.Struct, frozen=True):
    """One call of the tool."""

    node: "Node"
    intercom: "Intercom"
    actor: Actor
    peer: Peer
    asked: Asked
    call_id: str | None
    is_fresh: bool = True

    def target(self, to: str) -> Peer:
        """Return whom a name means.

        Raises:
            Refused: UNKNOWN_TARGET, AMBIGUOUS_TARGET with what could be meant; INVALID_PARAMS for ourselves.
        """
        found = self.intercom.roster.peer_of(to)
        if isinstance(found, Refusal):
            raise Refused.of(found)
        return found

    async def submit(
        self, to: Peer, *, reply_to: str | None, is_ask: bool = False
    ) -> tuple[Descriptor, Receipt]:
        """Store the intent to send this call's message."""
        node, asked = self.node, self.asked
        node.require(self.peer, Capability.SEND)
        wish = Wish(
            to=to.id,
            content=asked.message or "",
            message_id=None if self.call_id is None else tool_message_id(self.peer.id, self.call_id),
            reply_to=reply_to,
            is_crossing=True,
            delivery=asked.delivery or Delivery.STEER,
            thread=asked.thread_id.strip() if asked.thread_id else None,
            replaces=asked.queue_mode == "replace",
            is_ask=is_ask,
            attachments=tuple(_attachment(item) for item in asked.attachments),
            act=Act.PERSON if self.actor.act is Act.PERSON else node.act_of(self.peer),
        )
        return await submit(node, self.peer, wish)

    def shape(self, target: Descriptor, receipt: Receipt) -> dict[str, Any]:
        """Return what is told of a message that was sent."""
        wire = target.peer.wire
        is_queued = receipt.outcome == "BROKER_QUEUED"
        is_taken = receipt.state not in (State.PENDING, State.UNKNOWN) or receipt.outcome is not None
        return {
            "messageId": receipt.message_id,
            "target": {"peerId": target.peer.id, "alias": target.alias},
            "accepted": is_taken,
            "delivered": is_taken and not is_queued,
            "queued": is_queued,
            "receipt": render.receipt(receipt, expires_ms(self.node, receipt), wire),
            "receiptText": render.receipt_text(receipt, wire),
        }


def _attachment(item: ToolAttachment) -> Attachment:
    return mapping.attachment(item.type, item.name, item.content, item.language)


# ---------------------------------------------------------------- who is there


async def _list(one: _Call) -> Reply:
    """Return the sessions that can be addressed, and which one we are."""
    intercom = one.intercom
    rows, own = intercom.roster.rows(), intercom.roster.own_rows()
    project = next((row.get("projectId") for row in own), None)
    if one.asked.scope == "project":
        rows = [row for row in rows if _is_of_project(row, project, one.node.place.workspace)]
    shown = shown_targets([*rows, *own])
    listed = [_row(one, row, shown[row["id"]], project) for row in rows]
    lines = [_line(item) for item in listed] or [ALONE] * one.is_fresh
    if not one.is_fresh:
        lines.append(STALE)
    return Reply(
        {
            "self": [_row(one, row, shown[row["id"]], project) for row in own],
            "sessions": listed,
            "sessionCount": len(listed),
            "text": "\n".join(lines),
        }
    )


def _is_of_project(row: Row, project: object, workspace: str) -> bool:
    return row.get("cwd") == workspace or (project is not None and row.get("projectId") == project)


def _row(one: _Call, row: Row, shown: str, project: object) -> dict[str, Any]:
    peer = one.intercom.roster.shown_as(row["id"])
    busy = is_row_busy(row)
    now_ms = one.node.now().wall_ms
    facts: dict[str, Any] = {
        "target": shown,
        "sessionId": row["id"],
        "peerId": peer.id,
        "wire": peer.wire,
        "name": _kept(row.get("name")),
        "cwd": row["cwd"][:CWD_CHARACTERS_MAX],
        "model": _kept(row["model"]),
        "status": _kept(row.get("status")),
        "state": "unknown" if busy is None else "busy" if busy else "idle",
        "acceptsAsks": row.get("acceptsAsks"),
        "pendingAsks": row.get("pendingAsks"),
        "sameCwd": row["cwd"] == one.node.place.workspace,
        "sameProject": project is not None and row.get("projectId") == project,
        "lastActivityAgoS": _ago_s(row.get("lastIntercomActivity"), now_ms),
        "lastSeenAgoS": _ago_s(row.get("lastSeen"), now_ms),
    }
    for name in ("rootSessionId", "parentSessionId", "incarnation", "guardedDelivery", "applicationGuard"):
        facts[name] = row.get(name)
    return {name: value for name, value in facts.items() if value is not None}


def _kept(text: str | None) -> str | None:
    return None if text is None else text[:SAID_CHARACTERS_MAX]


def _ago_s(at_ms: object, now_ms: int) -> int | None:
    return max(0, int((now_ms - at_ms) // 1000)) if isinstance(at_ms, int | float) else None


def _line(item: dict[str, Any]) -> str:
    tags = [
        *(["same cwd"] if item["sameCwd"] else []),
        f"state:{item['state']}",
        f"accepts_asks:{_word(item.get('acceptsAsks'))}",
        f"pending_asks:{item.get('pendingAsks', 'unknown')}",
    ]
    name = _said(item.get("name") or "Unnamed session")
    return f"- {name} ({item['target']}) - {_said(item['cwd'])} ({_said(item['model'])}) [{', '.join(tags)}]"


def _said(text: str) -> str:
    """Return what a session says of itself as it may stand in a line of ours."""
    return printable(text, SAID_COLUMNS_MAX)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "unknown"


async def _status(one: _Call) -> Reply:
    """Return whether and where we are connected, and who is there."""
    listed = await _list(one)
    members = one.intercom.post.members.values()
    brokers = [
        {
            "broker": member.broker,
            "connected": member.link is not None,
            "sessionId": member.session_id or None,
            "capabilities": sorted(member.link.capabilities) if member.link is not None else [],
        }
        for member in members
    ]
    head = f"Connected: Yes\nSession ID: {one.intercom.peer}\nSessions: {listed.result['sessionCount']}\n"
    return Reply(
        {
            **listed.result,
            "connected": True,
            "context": one.intercom.snapshot(),
            "brokers": brokers,
            "warnings": one.intercom.warnings,
            "text": "\n".join([head + listed.result["text"], *one.intercom.warnings]),
        }
    )


# ---------------------------------------------------------------- sending


async def _send(one: _Call) -> Reply:
    """Send without waiting for anybody."""
    target, first = await one.submit(one.target(one.asked.to or ""), reply_to=one.asked.reply_to)
    receipt = await settled(one.node, first, one.node.settings.limits.acknowledgement_ms + 500)
    refuse_failure(receipt, target.peer.wire)
    shape = one.shape(target, receipt)
    shape["reasonCode"] = "message_queued" if shape["queued"] else "message_accepted"
    shape["text"] = f"Message sent to {_said(target.alias)}. {shape['receiptText']}"
    return Reply(shape)


async def _reply(one: _Call) -> Reply:
    """Answer a question that waits."""
    node, asked = one.node, one.asked
    waiting = one.intercom.asks.waiting(node.now().mono_ms)
    rows = [{"id": ask.session_id, "name": ask.alias} for ask in waiting]
    unique = list({row["id"]: row for row in rows}.values())
    ask = one.intercom.asks.pick(
        node.now().mono_ms,
        reply_to=asked.reply_to,
        to=asked.to,
        resolve=lambda to: target_of(unique, to),
        is_of_turn=one.intercom.is_of_turn,
    )
    if isinstance(ask, Refusal):
        raise Refused.of(ask)
    target, first = await one.submit(Peer(mapping.instance_of(ask.session_id)), reply_to=ask.message_id)
    receipt = await settled(node, first, node.settings.limits.acknowledgement_ms + 500)
    refuse_failure(receipt, target.peer.wire)
    text = f"Reply sent to {_said(target.alias)}."
    shape = {
        **one.shape(target, receipt),
        "replyTo": ask.message_id,
        "reasonCode": "reply_sent",
        "text": text,
    }
    return Reply(shape)


async def _pending(one: _Call) -> Reply:
    """Return the questions that wait for our answer, oldest first."""
    now_ms = one.node.now().mono_ms
    waiting = one.intercom.asks.waiting(now_ms)
    shapes = [
        {
            "from": ask.sender,
            "fromAlias": ask.alias,
            "sessionId": ask.session_id,
            "replyTo": ask.message_id,
            "secondsAgo": (now_ms - ask.at_ms) // 1000,
            "preview": ask.preview,
        }
        for ask in waiting
    ]
    lines = [
        f"- {_said(ask.alias or ask.session_id)} ({ask.session_id}), {(now_ms - ask.at_ms) // 1000} s ago, "
        f'replyTo: "{ask.message_id}": {printable(ask.preview)}'
        for ask in waiting
    ]
    return Reply({"asks": shapes, "text": "\n".join(lines) or "No unresolved inbound asks."})


async def _last(one: _Call) -> Reply:
    """Return a page of a session's last finished answer, without waking it."""
    peer = one.target(one.asked.to or "")
    target = await one.node.book.resolve(peer.id, None, is_crossing=True)
    if isinstance(target, Refusal):
        raise Refused.of(target)
    page = await answers.fetch(one.node, target, one.asked.entry_id, one.asked.offset)
    shape = {
        "entryId": page["entry"],
        "offset": page["offset"],
        "nextOffset": page["nextOffset"],
        "empty": page["entry"] is None,
    }
    text = (
        page["text"]
        if page["entry"] is not None
        else f"{_said(target.alias)} has not finished an answer yet."
    )
    return Reply({**shape, "text": text})


# ---------------------------------------------------------------- asking


async def _ask(one: _Call) -> Reply:
    """Ask, and wait for the answer as long as a call may take."""
    to = one.target(one.asked.to or "")
    session_id = one.intercom.roster.session_of(to)
    row = None if session_id is None else one.intercom.roster.row_of(session_id)
    one.node.require(one.peer, Capability.RECEIVE)
    with one.intercom.asking(one.peer):
        with one.node.waits.waiting(one.peer, None):
            target, first = await one.submit(to, reply_to=one.asked.reply_to, is_ask=True)
        if takes_no_ask(target, row) and one.asked.delivery is None:
            return await _peer_busy(one, target, first)
        with one.node.waits.waiting(one.peer, target.peer):
            return await _answer(one, target, first, session_id)


async def _peer_busy(one: _Call, target: Descriptor, first: Receipt) -> Reply:
    receipt = await settled(one.node, first, one.node.settings.limits.acknowledgement_ms + 500)
    refuse_failure(receipt, target.peer.wire)
    text = (
        f"{_said(target.alias)} is at work and takes no questions now: the question was delivered, and "
        f"nobody waits for its answer here. It comes as mail that answers {receipt.message_id}."
    )
    shape = one.shape(target, receipt)
    more = {"status": "delivered", "reason": "peer_busy", "reasonCode": "recipient_not_accepting_asks"}
    return Reply({**shape, **more, "text": text})


async def _answer(one: _Call, target: Descriptor, receipt: Receipt, session_id: str | None) -> Reply:
    """Wait for a question's answer, or for what ends the wait."""
    node, intercom, loop = one.node, one.intercom, asyncio.get_running_loop()
    deadline = loop.time() + ASK_WAIT_MS / 1000
    while True:
        watch = (
            node.arrival(one.peer).joined(node.movement(receipt.message_id)).joined(Watch(intercom.stirred))
        )
        found = node.engine.held(
            one.peer, from_peer=target.peer.id, reply_to=receipt.message_id, unread_only=False, count_max=1
        )
        receipt = latest(node, receipt)
        if found:
            return await _answered(one, target, receipt, found)
        refuse_failure(receipt, target.peer.wire)
        failed = _failed(one, target, receipt, session_id)
        if failed is not None:
            return failed
        left = deadline - loop.time()
        if left <= 0:
            break
        await watch.wait(left)
    text = (
        f"No answer of {_said(target.alias)} yet. The question waits there: its answer comes as mail. To "
        f'wait for it: peer_messages {{replyTo: "{receipt.message_id}", waitMs: 30000}}. Do not ask again.'
    )
    return Reply({**one.shape(target, receipt), "status": "pending", "text": text})


def _failed(one: _Call, target: Descriptor, receipt: Receipt, session_id: str | None) -> Reply | None:
    """Return what ends a wait without an answer, where something did."""
    fault = one.intercom.wake_fault(receipt.message_id)
    shape = one.shape(target, receipt)
    if fault is not None:
        why = printable(fault, FAULT_COLUMNS_MAX) or "its main gave no reason"
        text = f"{_said(target.alias)} could not be woken: {why}. {STILL_COMING}"
        return Reply({**shape, "status": "failed", "reasonCode": "wake_failed", "text": text})
    is_foreign = target.peer.wire == mapping.WIRE
    is_told = receipt.outcome == "BROKER_ACCEPTED" or receipt.state is State.ACCEPTED
    if is_foreign and is_told and session_id is not None and one.intercom.has_left(session_id):
        text = "Reply peer disconnected before answering."
        return Reply({**shape, "status": "failed", "reasonCode": "peer_left", "text": text})
    return None


async def _answered(one: _Call, target: Descriptor, receipt: Receipt, found: Sequence[Held]) -> Reply:
    """Read the answer: it counts as read once this call's result was flushed."""
    envelope = found[0].envelope
    read = PeerMessages(message_id=envelope.message_id, from_=envelope.sender.id, run=one.asked.run)
    reply = await read_mail(one.node, one.actor, read, wait_ms=0, rung="read")
    messages = reply.result["messages"]
    message = messages[0] if messages else await one.node.with_content(found[0])
    told = reply.result["text"] or printable(message.get("content", ""), multiline=True)
    is_failure = mapping.is_failure(envelope.attachments)
    shape = one.shape(target, receipt) | {"reply": message}
    if is_failure:
        shape |= {"status": "failed", "reasonCode": "recipient_turn_failed"}
        text = f"{_said(target.alias)} could not answer:\n{told}"
    else:
        shape |= {"status": "answered", "reasonCode": "reply_received"}
        text = f"Reply from {_said(target.alias)}:\n{told}"
    return Reply({**shape, "text": text}, reply.taken)


_ACTIONS: Final = {
    "list": _list,
    "status": _status,
    "send": _send,
    "ask": _ask,
    "reply": _reply,
    "pending": _pending,
    "last": _last,
}
