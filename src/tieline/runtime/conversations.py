"""What a root and its peers said to each other, for a screen: each message once, with all its receipts.

Theory. A screen keeps what it was shown. It asks for what has changed since a place in the history, and is
given each such message as it stands now; asking shows and consumes nothing.

Rule 1: a message is its sender, its id and its recipient; both directions have one shape.
Rule 2: what waits for the person's word is among them, marked as held.

Source: reference/native.md 2.8, 2.11 "Inbox screen"; DESIGN.md 4.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tieline.engine.contract import Held, Sent
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability, Peer
from tieline.model.moment import to_iso
from tieline.model.receipt import Event, State
from tieline.runtime import render
from tieline.runtime.calls import Actor, Params, Reply
from tieline.runtime.sending import expires_ms
from tieline.runtime.tools import cursor_number, reading_peer

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["TABLE", "Conversations", "conversations"]

EVENTS_MAX = 2_000
"""Of the history in one answer; `remaining` says whether there is more."""
_Key = tuple[str, str, str]


class Conversations(Params, frozen=True):
    """`local.conversations`: what has changed behind a place; absent: all of it."""

    after: str | None = None
    run: str | None = None


async def conversations(node: "Node", actor: Actor, asked: Conversations, _call: str | None) -> Reply:
    """Return the messages of the acting peer that changed since a cursor, as they stand now.

    Raises:
        Refused: INVALID_PARAMS, a cursor of another store; CAPABILITY_DENIED, it may receive nothing.
    """
    peer = reading_peer(node, actor, asked.run)
    node.require(peer, Capability.RECEIVE)
    page = node.engine.page(peer, cursor_number(asked.after), EVENTS_MAX)
    if isinstance(page, Refusal):
        raise Refused.of(page)
    changed = dict.fromkeys(_key(event) for event in page.events)
    steps = _steps(node, peer, changed, page.events, is_whole=asked.after is None)
    awaiting = {_held_key(one): one for one in node.engine.awaiting(peer)}
    messages = []
    for key in changed:
        record = awaiting.get(key) or _record(node, peer, key)
        if record is not None:
            messages.append(await _shape(node, actor, record, steps[key], is_held=key in awaiting))
    last = page.events[-1].cursor if page.events else page.latest_cursor
    return Reply(
        {
            "messages": messages,
            "held": [one.envelope.message_id for one in awaiting.values()],
            "cursor": str(last),
            "remaining": len(page.events) == EVENTS_MAX,
            "gap": page.has_gap and asked.after is not None,
        }
    )


def _key(event: Event) -> _Key:
    return event.sender, event.message_id, event.recipient


def _held_key(held: Held) -> _Key:
    return held.envelope.sender.id, held.envelope.message_id, held.envelope.recipient.id


def _steps(
    node: "Node", peer: Peer, changed: Iterable[_Key], events: Iterable[Event], *, is_whole: bool
) -> dict[_Key, list[Event]]:
    """Return all kept events of each message; the whole history is walked once, not once for each."""
    found: dict[_Key, list[Event]] = {key: [] for key in changed}
    if is_whole:
        for event in events:
            found[_key(event)].append(event)
        return found
    for key in found:
        record = _record(node, peer, key)
        if record is not None:
            found[key] = list(node.engine.moves(record.cursor))
    return found


def _record(node: "Node", peer: Peer, key: _Key) -> Held | Sent | None:
    sender, message_id, recipient = key
    if recipient == peer.id:
        held = node.engine.held(peer, from_peer=sender, message_id=message_id, unread_only=False, count_max=1)
        if held:
            return held[0]
    for item in node.engine.sent(message_id, peer):
        if item.receipt.recipient == recipient:
            return item
    return None


async def _shape(
    node: "Node", actor: Actor, record: Held | Sent, steps: list[Event], *, is_held: bool
) -> dict[str, Any]:
    envelope, receipt = record.envelope, record.receipt
    is_received = isinstance(record, Held)
    shape = await node.with_content(record) if isinstance(record, Held) else render.sent_message(record)
    end_ms: int | None
    if isinstance(record, Held):
        wire, at_ms, end_ms = envelope.sender.wire, record.at_ms, record.expires_ms
    else:
        wire, end_ms = envelope.recipient.wire, expires_ms(node, receipt)
        at_ms = steps[0].at_ms if steps else node.now().wall_ms
        shape = {**shape["message"], "attempts": shape["attempts"], "state": str(receipt.state)}
        if "content" not in shape:
            loop = asyncio.get_running_loop()
            shape["content"] = (await loop.run_in_executor(None, node.custody.content, record.cursor)).content
    if is_held and actor.is_in_tree:  # an agent's own shell is shown no text that its person did not let in
        for name in ("content", "attachments", "topic"):
            shape.pop(name, None)
    return {
        **shape,
        "isReceived": is_received,
        "isHeld": is_held,
        "isUnread": is_received and not is_held and receipt.state is State.ACCEPTED,
        "at": to_iso(at_ms),
        "chain": envelope.chain,
        "wire": wire,
        "receipt": render.receipt(receipt, end_ms, wire),
        "said": render.receipt_text(receipt, wire),
        "steps": _moves(steps),
    }


def _moves(steps: Iterable[Event]) -> list[dict[str, Any]]:
    """Return each state with its outcome once, when it was first known."""
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for event in steps:
        state = "accepted" if event.state is None else str(event.state)
        outcome = None if event.receipt is None else event.receipt.outcome
        step = {"state": state, "at": to_iso(event.at_ms)}
        found.setdefault((state, outcome), step if outcome is None else {**step, "outcome": outcome})
    return list(found.values())


TABLE: dict[str, Any] = {"local.conversations": (Conversations, conversations)}
