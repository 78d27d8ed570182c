"""Intercom messages and what they mean here; the only room of the client that speaks both languages.

Rule 1: a broker's word is no custody: `delivered` and `delivery_queued` refine `unknown`, and only a
    Tieline recipient's own receipt says `accepted`.
Rule 2: text is kept exact but for what no store of ours takes: half of a surrogate pair becomes U+FFFD, as
    it does in UTF-8, so that the hash over it stays that of the sender's text.
Rule 3: an attachment's kind and language are its media type here, and come back from it unchanged.
Rule 4: who sent a message is the broker's word alone; no field of the message becomes a peer.

Source: reference/intercom.md 1.3, 1.4, 4.1, 4.3, 5; DESIGN.md 1.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tieline.errors import Refusal
from tieline.model.identity import Peer, foreign_instance
from tieline.model.message import Attachment, Delivery, Envelope
from tieline.model.receipt import (
    BROKER_ACCEPTED,
    BROKER_QUEUED,
    CHECKPOINTED,
    PLACED,
    Durability,
    Receipt,
    State,
)
from tieline.wire.intercom.client import Sent
from tieline.wire.intercom.reading import trim

__all__ = [
    "EMPTY_TEXT",
    "FAILURE_NAME",
    "INSTANCE_FIELD",
    "NOT_RECORDED",
    "WIRE",
    "Provenance",
    "attachment",
    "envelope",
    "instance_of",
    "is_failure",
    "message",
    "peer_id_of",
    "provenance",
    "receipt_told",
    "refusal_of",
    "said_of",
    "text_sha256",
]

WIRE: Final = "intercom"
FAILURE_NAME: Final = "pi-intercom-recipient-turn-failure"
"""Name of the attachment that alone makes a reply a failure."""
INSTANCE_FIELD: Final = "tielineInstance"
"""What a Tieline end adds to its session: the instance that its other wires show it under."""
NOT_RECORDED: Final = "receipt_not_found"
"""What an owner says that has no checkpoint of a message: none yet, or none at all."""
EMPTY_TEXT: Final = "(no text)"
HINT_TYPE: Final = "application/x-intercom-reply-hint"
_KIND_OF_TYPE: Final = {"text/plain": "file", "text/x-intercom-context": "context"}
_TYPE_OF_KIND: Final = {kind: name for name, kind in _KIND_OF_TYPE.items()}
_SNIPPET: Final = "text/x-intercom-snippet"
_LANGUAGE: Final = "; language="
NAME_CHARACTERS_MAX: Final = 64


class Provenance(msgspec.Struct, frozen=True):
    """What is told of a received message beside what the store keeps: see `receipt` reads."""

    peer: str
    root: str | None
    incarnation: str | None
    delivery: str
    text_sha256: str
    guard: dict[str, Any] | None = None
    hint: dict[str, Any] | None = None


def peer_id_of(native_session: str) -> str:
    """Return the id that a session asks a broker for."""
    return "pi-" + hashlib.sha256(native_session.encode("utf-8", "replace")).hexdigest()[:32]


def instance_of(session_id: str) -> str:
    """Return the identity of who a broker knows by this id."""
    return foreign_instance(WIRE, _whole(session_id))


def _whole(text: str) -> str:
    """Return `text` as it reads in UTF-8: half of a surrogate pair is U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_sha256(text: str) -> str:
    """Return the lower-case SHA-256 of a sender's exact text in UTF-8."""
    return hashlib.sha256(_whole(text).encode()).hexdigest()


# ---------------------------------------------------------------- what came


def envelope(sender: Mapping[str, Any], came: Mapping[str, Any], *, recipient: Peer) -> Envelope:
    """Return the message that a frame carries; both parts were found well-formed.

    Args:
        sender: The session that wrote it, as the broker shows it.
        came: The message.
        recipient: The peer of ours that it is for.
    """
    delivery = _delivery(came)
    thread = came.get("threadId")
    content = came["content"]
    reply_to = came.get("replyTo")
    return Envelope(
        message_id=_whole(came["id"]),
        sender=Peer(instance_of(sender["id"])),
        recipient=recipient,
        content=_whole(content["text"]) or EMPTY_TEXT,
        reply_to=None if reply_to is None else _whole(reply_to),
        sender_alias=_whole(str(sender.get("name") or ""))[:NAME_CHARACTERS_MAX],
        delivery=delivery,
        thread=None if thread is None else trim(_whole(thread)),
        replaces=came.get("queueMode") == "replace",
        is_ask=came.get("expectsReply") is True,
        attachments=_attachments(content) + _hint(came),
    )


def _delivery(came: Mapping[str, Any]) -> Delivery:
    if came.get("passive") is True:
        return Delivery.PASSIVE
    return Delivery(came.get("delivery", "steer"))


def _attachments(content: Mapping[str, Any]) -> tuple[Attachment, ...]:
    return tuple(
        attachment(item["type"], item["name"], item["content"], item.get("language"))
        for item in content.get("attachments", ())
    )


def attachment(kind: str, name: str, content: str, language: str | None = None) -> Attachment:
    """Return an attachment of ours from one of this wire: its kind and language are its media type."""
    media_type = _TYPE_OF_KIND.get(kind, _SNIPPET)
    media_type += "" if language is None else _LANGUAGE + _whole(language)
    return Attachment(_whole(name), _whole(content), media_type)


def _hint(came: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Return how the sender wants results published, apart from its text; it is no question and no order."""
    hint = came.get("replyHint")
    if "guard" not in came or not isinstance(hint, dict):
        return ()
    told = [f"tool: {hint['tool']}", f"commandId: {hint['commandId']}"]
    if "commandFingerprint" in hint:
        told.append(f"commandFingerprint: {hint['commandFingerprint']}")
    return (Attachment("reply-hint", "\n".join(told), HINT_TYPE),)


def provenance(sender: Mapping[str, Any], came: Mapping[str, Any]) -> Provenance:
    """Return what is told of a received message later, exactly as it came."""
    root, incarnation = sender.get("rootSessionId"), sender.get("incarnation")
    guard, hint = came.get("guard"), came.get("replyHint")
    return Provenance(
        peer=sender["id"],
        root=root if isinstance(root, str) else None,
        incarnation=incarnation if isinstance(incarnation, str) else None,
        delivery=str(_delivery(came)),
        text_sha256=text_sha256(came["content"]["text"]),
        guard=guard if isinstance(guard, dict) else None,
        hint=hint if isinstance(hint, dict) else None,
    )


def is_failure(attachments: tuple[Attachment, ...]) -> bool:
    """Return whether a reply says that the recipient's turn failed: the same words alone do not."""
    return any(item.name == FAILURE_NAME and item.media_type in _FAILURE_TYPES for item in attachments)


_FAILURE_TYPES: Final = frozenset({_TYPE_OF_KIND["context"]})


# ---------------------------------------------------------------- what goes


def message(sent: Envelope, now_ms: int) -> dict[str, Any]:
    """Return the message that carries an envelope; `now_ms` is wall time where it has none of its own."""
    content: dict[str, Any] = {"text": sent.content}
    attachments = [_attachment(item) for item in sent.attachments]
    if attachments:
        content["attachments"] = attachments
    made: dict[str, Any] = {
        "id": sent.message_id,
        "timestamp": now_ms if sent.created_ms is None else sent.created_ms,
        "content": content,
        "delivery": str(sent.delivery),
    }
    if sent.reply_to is not None:
        made["replyTo"] = sent.reply_to
    if sent.is_ask:
        made["expectsReply"] = True
    if sent.delivery is Delivery.PASSIVE:
        made["passive"] = True
    if sent.replaces and sent.thread is not None:
        made |= {"delivery": "queue", "queueMode": "replace", "threadId": sent.thread}
    return made


def _attachment(item: Attachment) -> dict[str, Any]:
    media_type, _, language = item.media_type.partition(_LANGUAGE)
    kind = "snippet" if media_type == _SNIPPET else _KIND_OF_TYPE.get(media_type, "file")
    made = {"type": kind, "name": item.name, "content": item.text}
    return made | {"language": language} if language else made


# ---------------------------------------------------------------- what the broker answered

_CODES: Final = (
    ("Session not found", "UNKNOWN_TARGET"),
    ("Multiple sessions named", "AMBIGUOUS_TARGET"),
    ("Recipient disconnected", "UNKNOWN_TARGET"),
    ("Sender session not found", "UNKNOWN_TARGET"),
    ("Intercom message too large", "MESSAGE_TOO_LARGE"),
    ("Replace-mode delivery queue is full", "QUEUE_FULL"),
    ("Invalid message format", "INVALID_PARAMS"),
)


def said_of(answer: Sent) -> str | None:
    """Return the note that a broker's yes becomes beside `unknown`; None where it said no."""
    return {"delivered": BROKER_ACCEPTED, "queued": BROKER_QUEUED}.get(answer.kind)


def refusal_of(answer: Sent) -> Refusal:
    """Return a broker's no as a value; the message was not delivered, and will not be."""
    code = next((code for start, code in _CODES if answer.reason.startswith(start)), "REFUSED")
    return Refusal(code, answer.reason[:400])


def receipt_told(facts: Mapping[str, Any], sent: Envelope) -> Receipt | None:
    """Return what a receipt read says of a message of ours; None where it says nothing of this one.

    A Tieline end states its own receipt beside the facts, and only that is custody.
    """
    if facts.get("version") != 1 or facts.get("messageId") != sent.message_id:
        return None
    told = facts.get("tieline")
    if isinstance(told, dict) and told.get("version") == 1 and told.get("state") in _TOLD_STATES:
        state = State(told["state"])
        accepted, cursor = told.get("acceptedAt"), told.get("cursor")
        return _receipt(
            sent,
            state,
            outcome=told.get("outcome") if isinstance(told.get("outcome"), str) else None,
            accepted_ms=accepted if isinstance(accepted, int) else None,
            cursor=cursor if isinstance(cursor, int) else 0,
            durability=_DURABILITIES.get(str(told.get("durability")), Durability.UNSTATED),
        )
    if isinstance(facts.get("placementEntryId"), str):
        return _receipt(sent, State.UNKNOWN, outcome=PLACED)
    if isinstance(facts.get("checkpointEntryId"), str):
        return _receipt(sent, State.UNKNOWN, outcome=CHECKPOINTED)
    return None


_DURABILITIES: Final = {str(word): word for word in Durability}
_TOLD_STATES: Final = frozenset({"accepted", "consumed", "replied", "expired"})


def _receipt(
    sent: Envelope,
    state: State,
    *,
    outcome: str | None,
    accepted_ms: int | None = None,
    cursor: int = 0,
    durability: Durability | None = None,
) -> Receipt:
    return Receipt(
        message_id=sent.message_id,
        sender=sent.sender.id,
        recipient=sent.recipient.id,
        state=state,
        cursor=cursor,
        outcome=outcome,
        accepted_ms=accepted_ms,
        durability=durability,
    )
