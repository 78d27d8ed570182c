"""The JSON shapes of the doors: descriptors, receipts, messages and events for hosts, tools and people.

Rule 1: the sender that is shown is the authenticated one, never a field of the body.
Rule 2: names are camel case, times ISO-8601 UTC, cursors decimal strings, absent facts absent.
Rule 3: what has no end has no `expiresAt`; a wire is named only where it is known.
Rule 4: shapes are versioned with the doors; a member may be added, none changes its meaning.

Source: reference/native.md 2.4, 2.8; docs/json-shapes.md.
"""

from typing import Any

from tieline.engine.contract import Held, Sent
from tieline.model.identity import Descriptor
from tieline.model.message import Envelope
from tieline.model.moment import NEVER_MS, to_iso
from tieline.model.receipt import (
    BROKER_ACCEPTED,
    BROKER_QUEUED,
    CHECKPOINTED,
    HELD,
    PLACED,
    Event,
    Receipt,
    State,
)
from tieline.model.traits import NATIVE, TRAITS

__all__ = ["REPLIED_TEXT", "descriptor", "event", "message", "receipt", "receipt_text", "sent_message"]


def _without_none(shape: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shape.items() if value is not None}


def descriptor(item: Descriptor, *, age_ms: int | None = None, is_self: bool = False) -> dict[str, Any]:
    """Return a peer as a listing shows it."""
    return _without_none(
        {
            "peerId": item.peer.id,
            "instanceId": item.peer.instance,
            "sessionId": item.session,
            "runId": item.peer.run,
            "alias": item.alias,
            "project": item.project,
            "kind": item.kind,
            "activity": item.activity,
            "availability": str(item.availability),
            "capabilities": list(item.capabilities),
            "workspaceId": item.workspace or None,
            "repositoryId": item.repository or None,
            "scope": str(item.scope),
            "wire": item.wire,
            "ref": item.ref or None,
            "otherProject": True if item.is_other_project else None,
            "harness": item.harness or None,
            "model": item.model or None,
            "busy": item.is_busy,
            "contextPercent": item.context_percent,
            "ageMs": age_ms,
            "isSelf": True if is_self else None,
        }
    )


def _end(expires_ms: int | None) -> str | None:
    return None if expires_ms is None or expires_ms >= NEVER_MS else to_iso(expires_ms)


def receipt(item: Receipt, expires_ms: int | None = None, wire: str | None = None) -> dict[str, Any]:
    """Return a receipt.

    Args:
        item: What is known of the message.
        expires_ms: When it expires unread, wall milliseconds; None is unknown.
        wire: The wire that it took; None is unknown.
    """
    return _without_none(
        {
            "messageId": item.message_id,
            "from": item.sender,
            "to": item.recipient,
            "state": str(item.state),
            "cursor": str(item.cursor),
            "acceptedAt": None if item.accepted_ms is None else to_iso(item.accepted_ms),
            "consumedAt": None if item.consumed_ms is None else to_iso(item.consumed_ms),
            "repliedAt": None if item.replied_ms is None else to_iso(item.replied_ms),
            "outcome": item.outcome,
            "durability": None if item.durability is None else str(item.durability),
            "retryable": True if item.is_retryable else None,
            "expiresAt": _end(expires_ms),
            "wire": wire,
        }
    )


def _envelope(item: Envelope) -> dict[str, Any]:
    return {
        "messageId": item.message_id,
        "from": item.sender.id,
        "fromAlias": item.sender_alias or None,
        "fromProject": item.sender_project or None,
        "fromRun": item.sender.run,
        "to": item.recipient.id,
        "topic": item.topic,
        "replyTo": item.reply_to,
        "correlationId": item.correlation_id,
        "automaticDepth": item.automatic_depth,
        "delivery": str(item.delivery),
        "thread": item.thread,
        "ask": item.is_ask,
        "createdAt": None if item.created_ms is None else to_iso(item.created_ms),
        "attachments": [
            {"name": part.name, "mediaType": part.media_type, "text": part.text} for part in item.attachments
        ]
        or None,
    }


def message(item: Held) -> dict[str, Any]:
    """Return an inbox record; `content` is absent when only the journal still has it."""
    return _without_none(
        {
            **_envelope(item.envelope),
            "sequence": item.cursor,
            "receivedAt": to_iso(item.at_ms),
            "expiresAt": _end(item.expires_ms),
            "content": item.envelope.content if item.has_content else None,
            "state": str(item.state),
            "prepared": item.is_prepared,
            "exposureCount": item.exposure_count,
            "authority": "external",
            "wire": item.envelope.sender.wire,
        }
    )


def held(item: Held, *, is_personal: bool) -> dict[str, Any]:
    """Return a message that waits for the person's word; what an agent's own shell asks has no text of it."""
    shape = {**message(item), "contentBytes": item.envelope.content_bytes}
    if not is_personal:
        for name in ("content", "attachments", "topic"):
            shape.pop(name, None)
    return shape


def sent_message(item: Sent) -> dict[str, Any]:
    """Return an outbox record."""
    last = item.last_refusal
    return _without_none(
        {
            "receipt": receipt(item.receipt, item.expires_ms, item.envelope.recipient.wire),
            "message": _without_none(
                {**_envelope(item.envelope), "content": item.envelope.content if item.has_content else None}
            ),
            "attempts": item.attempt_count,
            "lastRefusal": None if last is None else {"code": last.code, "text": last.text},
        }
    )


def event(item: Event) -> dict[str, Any]:
    """Return one entry of the history."""
    return _without_none(
        {
            "type": item.kind,
            "cursor": str(item.cursor),
            "messageId": item.message_id,
            "from": item.sender,
            "to": item.recipient,
            "state": None if item.state is None else str(item.state),
            "receipt": None if item.receipt is None else receipt(item.receipt),
            "at": to_iso(item.at_ms),
        }
    )


REPLIED_TEXT = "The recipient replied."
_NOTES = {
    BROKER_QUEUED: "The broker holds it back for a moment, or until its recipient returns.",
    BROKER_ACCEPTED: "The broker passed it on; whether the recipient took it is not told.",
    CHECKPOINTED: "The recipient's program wrote it down; whether a model read it is not known.",
    PLACED: "The recipient's program placed it before its model; whether that read it is not known.",
}
_TEXTS = {
    State.PENDING: "Stored here, not yet handed over; it is retried until it expires.",
    State.UNKNOWN: (
        "Sent, but no answer came: whether it arrived is not known. It is retried under the same id."
    ),
    State.CONSUMED: "The recipient's model has it in its context. That does not say that the work is done.",
    State.REPLIED: REPLIED_TEXT,
    State.REJECTED: "Refused; the recipient stored nothing.",
    State.EXPIRED: "Its time was over before it was read.",
}
_EXPIRED = {
    "HELD_EXPIRED": "Never read: the recipient's person did not say yes in time.",
    "NOT_DELIVERED": "Never delivered: the recipient ended, or the time was over, before it took it.",
    "REPLACED": "Never read: its sender replaced it by a later message.",
}


def receipt_text(item: Receipt, wire: str = NATIVE.name) -> str:
    """Return one true sentence about a receipt of a message that took `wire`."""
    traits = TRAITS[wire]
    if item.outcome == "TARGET_ENDED":
        return "The recipient stored it, but that run ended before reading it."
    if item.outcome == HELD and item.state in (State.PENDING, State.UNKNOWN):
        return (
            "The recipient asks its person first; the answer comes as an event. Do not send it again. (HELD)"
        )
    if item.state is State.UNKNOWN and item.outcome in _NOTES:
        return f"{_NOTES[item.outcome]} Do not send it again. ({item.outcome})"
    if item.state is State.UNKNOWN and traits.retry == "never":
        return (
            "Written; whether the recipient took it is not known yet. It is not sent again by itself: "
            "its answer comes as an event, or never."
        )
    if item.state is State.ACCEPTED:
        if item.durability == "synced":
            return "Accepted: the recipient has it on disk. It has not been read yet."
        if not traits.has_status:
            return "Accepted: the recipient says that it has it. It does not tell when it is read."
        return "Accepted: the recipient says that it has it. It has not been read yet."
    text = _TEXTS[item.state]
    if item.state is State.EXPIRED:
        text = _EXPIRED.get(item.outcome or "", text)
    return text if item.outcome is None else f"{text} ({item.outcome})"
