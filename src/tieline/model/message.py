"""A message with its routing facts, and what makes two attempts the same message.

Rule: equality of attempts compares what the sender owns; times only when both attempts gave them.

Source: reference/native.md 2.8, 3.4 "equality for duplicates"; reference/reliability.md I5, I21, I22.
"""

import hashlib
import json
from enum import StrEnum

import msgspec

from tieline.model.identity import Peer

__all__ = ["OPTIONS", "Attachment", "Delivery", "Envelope", "Key", "content_sha256", "digest"]

OPTIONS = frozenset({"queue", "passive", "thread", "replaces", "notify_when_idle", "attachments"})
"""What a message may ask for beyond its text; which of it a wire can say is that wire's trait."""
_NO_OPTIONS: frozenset[str] = frozenset()


class Delivery(StrEnum):
    """How the sender wishes the message to reach the model.

    STEER is what the native specification does with every message, so it needs no word on that wire.
    """

    STEER = "steer"  # at the next safe boundary of a busy turn; wakes an idle one
    QUEUE = "queue"  # when the turn ends; wakes an idle one
    PASSIVE = "passive"  # with the next turn; wakes nobody


class Attachment(msgspec.Struct, frozen=True, gc=False):
    """A named text that travels with a message; counted in its size."""

    name: str
    text: str
    media_type: str = "text/plain"


class Key(msgspec.Struct, frozen=True, gc=False):
    """The duplicate identity: authenticated sender instance, message id, recipient peer id."""

    sender_instance: str
    message_id: str
    recipient: str


class Envelope(msgspec.Struct, frozen=True):
    """One message as its sender owns it; wall milliseconds are None where the sender gave none."""

    message_id: str
    sender: Peer
    recipient: Peer
    content: str
    topic: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    automatic_depth: int = 0
    created_ms: int | None = None
    expires_ms: int | None = None
    sender_alias: str = ""
    sender_project: str = ""
    delivery: Delivery = Delivery.STEER
    thread: str | None = None
    replaces: bool = False
    is_ask: bool = False
    notify_when_idle: bool = False
    attachments: tuple[Attachment, ...] = ()

    @property
    def key(self) -> Key:
        """Its duplicate identity."""
        return Key(self.sender.instance, self.message_id, self.recipient.id)

    @property
    def chain(self) -> str:
        """The first message of its chain: the correlation id, or its own id."""
        return self.correlation_id or self.message_id

    @property
    def needs_tieline(self) -> bool:
        """Whether, on the native wire, only a Tieline end can be told all of this: whether it has options.

        An ask is not in the list: any peer that replies answers it.
        """
        return bool(
            self.delivery is not Delivery.STEER
            or self.thread is not None
            or self.replaces
            or self.notify_when_idle
            or self.attachments
        )

    @property
    def options(self) -> frozenset[str]:
        """Those of `OPTIONS` that this message asks for."""
        if not self.needs_tieline:
            return _NO_OPTIONS
        wishes = {
            "queue": self.delivery is Delivery.QUEUE,
            "passive": self.delivery is Delivery.PASSIVE,
            "thread": self.thread is not None,
            "replaces": self.replaces,
            "notify_when_idle": self.notify_when_idle,
            "attachments": bool(self.attachments),
        }
        return frozenset(name for name, is_wished in wishes.items() if is_wished)

    @property
    def content_bytes(self) -> int:
        """UTF-8 bytes of the text and its attachments."""
        size = len(self.content.encode())
        for item in self.attachments:
            size += len(item.text.encode()) + len(item.name.encode())
        return size


def content_sha256(text: str) -> str:
    """Return the SHA-256 of the exact UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest(envelope: Envelope) -> bytes:
    """Return 32 bytes over every sender-owned field that may not change between attempts."""
    fields: list[object] = [
        envelope.sender.run,
        envelope.recipient.id,
        envelope.content,
        envelope.topic,
        envelope.reply_to,
        envelope.correlation_id,
        envelope.automatic_depth,
    ]
    if envelope.needs_tieline:
        fields.append([str(envelope.delivery), envelope.thread, envelope.replaces])
        fields.append([[item.name, item.media_type, item.text] for item in envelope.attachments])
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).digest()
