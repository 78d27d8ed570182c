"""From a wish to a stored intent, and from an intent to its strongest answer.

Rule 1: a target is resolved to an exact peer before anything is stored; a wrong name stores nothing.
Rule 2: a wait never changes a message; it only looks at what the store says.
Rule 3: a message id names one message for each recipient: what is said of it is said of that recipient.

Source: reference/native.md 1C, 1H, 2.4, 2.9; open-bugs.md O03, O04.
"""

import asyncio
import uuid
from typing import TYPE_CHECKING

import msgspec

from tieline.config import Scope
from tieline.engine.contract import Act, Draft, Sent, Standing, Submit
from tieline.errors import RecoveryRequired, Refusal, Refused
from tieline.model.identity import Availability, Capability, Descriptor, Peer
from tieline.model.message import Attachment, Delivery
from tieline.model.receipt import FINAL, Receipt, State
from tieline.model.traits import traits_of
from tieline.wire.peers.frames import is_message_id

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["Wish", "expires_ms", "latest", "reach_of", "settled", "submit"]

UUID_WIRES = frozenset({"pi-peers"})
"""Where a message id is a UUID and nothing else."""
UNANSWERED_SECONDS = 1.0
"""A window that takes a message says so within milliseconds, or when it can."""
UNSETTLED = frozenset({State.PENDING, State.UNKNOWN})

PACE_ADVICE = "wait as long as the text says, then send one message with all of it"


class Wish(msgspec.Struct, frozen=True):
    """What somebody here wants to say, its target still a name."""

    to: str
    content: str
    message_id: str | None = None
    topic: str | None = None
    reply_to: str | None = None
    scope: Scope | None = None
    delivery: Delivery = Delivery.STEER
    thread: str | None = None
    replaces: bool = False
    is_ask: bool = False
    notify_when_idle: bool = False
    attachments: tuple[Attachment, ...] = ()
    expiry_ms: int | None = None
    act: Act = Act.PERSON
    is_crossing: bool = False  # into other projects, on a wire that knows projects


async def submit(node: "Node", sender: Peer, wish: Wish) -> tuple[Descriptor, Receipt]:
    """Store the intent to send; return the exact target and the first receipt.

    Raises:
        Refused: nothing was stored.
        RecoveryRequired: the store is in doubt; the same message id may be used again later.
    """
    reach = reach_of(node, sender, wish.scope)
    target = await node.book.resolve(wish.to, reach, is_crossing=wish.is_crossing)
    if isinstance(target, Refusal):
        raise Refused.of(target)
    if target.availability is Availability.UNSUPPORTED:
        raise Refused(
            "UNSUPPORTED_PROTOCOL", f"{target.alias} speaks another protocol version (protocol_version)"
        )
    if target.availability is Availability.OFFLINE:
        text = f"{target.alias} is listed, but its key or its socket is missing: nobody can write to it now"
        raise Refused("PEER_OFFLINE", text, is_retryable=True)
    if (
        target.availability is Availability.PRESENCE_ONLY
        or Capability.RECEIVE.value not in target.capabilities
    ):
        raise Refused("CAPABILITY_DENIED", f"{target.alias} has no inbox")
    draft = Draft(
        message_id=_message_id(node, target, wish.message_id),
        sender=sender,
        recipient=target.peer,
        standing=Standing(
            capabilities=frozenset(target.capabilities),
            is_in_scope=True,
            alias=target.alias,
            project=target.project,
        ),
        content=wish.content,
        act=wish.act,
        topic=wish.topic,
        reply_to=wish.reply_to,
        expiry_ms=wish.expiry_ms,
        delivery=wish.delivery,
        thread=wish.thread,
        replaces=wish.replaces,
        is_ask=wish.is_ask,
        notify_when_idle=wish.notify_when_idle,
        attachments=wish.attachments,
        is_recipient_tieline=await node.is_tieline(target.peer.instance, wish_needs_tieline(wish)),
        may_cross=node.may_cross(sender, target.peer),
    )
    answer = await node.ask(Submit(draft))
    if isinstance(answer, Refusal):
        if answer.code == "RECOVERY_REQUIRED":
            raise RecoveryRequired(answer.text)
        refused = Refused.of(answer)
        is_paced = answer.code == "RATE_LIMITED" and traits_of(target.peer.instance).pace_burst is not None
        raise refused.advising(PACE_ADVICE) if is_paced else refused
    return target, answer


def _message_id(node: "Node", target: Descriptor, wanted: str | None) -> str:
    """Return the id of a message: the one asked for, in the form that the target's wire takes.

    Equal wishes give equal ids on every wire, so that a repeated call is the same message there, too.
    """
    if wanted is None:
        return node.new_message_id()
    if target.wire in UUID_WIRES and not is_message_id(wanted):
        return str(uuid.uuid5(uuid.NAMESPACE_OID, wanted))
    return wanted


def reach_of(node: "Node", peer: Peer, asked: Scope | None) -> Scope:
    """Return how far a local peer may see and send: the root's policy, or what its run was given.

    Raises:
        Refused: SCOPE_DENIED: more was asked for.
    """
    policy = node.settings.scope
    own = policy if peer.run is None else node.host.scopes.get(peer.run, policy)
    if asked is not None and asked.rank > own.rank:
        raise Refused("SCOPE_DENIED", f"this peer may reach {own}, not {asked}")
    return asked or own


def wish_needs_tieline(wish: Wish) -> bool:
    """Return whether only a Tieline end can be told all of this wish."""
    return bool(
        wish.delivery is not Delivery.STEER
        or wish.thread is not None
        or wish.replaces
        or wish.notify_when_idle
        or wish.attachments
    )


def sent_record(node: "Node", receipt: Receipt) -> Sent | None:
    """Return the sent message that a receipt is about: same id, same sender, same recipient; or None."""
    for item in node.engine.sent(receipt.message_id, None):
        if (item.receipt.sender, item.receipt.recipient) == (receipt.sender, receipt.recipient):
            return item
    return None


def expires_ms(node: "Node", receipt: Receipt) -> int | None:
    """Return when the sent message that a receipt is about expires, in wall milliseconds."""
    found = sent_record(node, receipt)
    return None if found is None else found.expires_ms


def latest(node: "Node", receipt: Receipt) -> Receipt:
    """Return what is known now of the message that a receipt is about."""
    found = sent_record(node, receipt)
    return receipt if found is None else found.receipt


async def settled(node: "Node", first: Receipt, wait_ms: int, *, until_final: bool = False) -> Receipt:
    """Return the receipt once its recipient has spoken (or, with `until_final`, spoken its last word).

    After `wait_ms` it returns what is known then: pending or unknown are true answers, too. Where a wire
    promises no answer, what was written is waited for a short while only.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    is_written = False
    receipt = first
    while True:
        watch = node.movement(receipt.message_id)
        receipt = latest(node, receipt)
        if receipt.state in FINAL or (not until_final and receipt.state not in UNSETTLED):
            return receipt
        if receipt.state is State.UNKNOWN and not until_final and not is_written:
            is_written = not _has_answers(node, receipt)
            deadline = min(deadline, loop.time() + UNANSWERED_SECONDS) if is_written else deadline
        left = deadline - loop.time()
        if left <= 0 or not await watch.wait(left):
            return receipt


def _has_answers(node: "Node", receipt: Receipt) -> bool:
    """Return whether the wire of a sent message answers what became of it."""
    found = sent_record(node, receipt)
    return found is None or traits_of(found.envelope.recipient.instance).has_status
