"""What commands and orders of the hub speak of: one message, one session, one group.

Rule 1: JSON objects pass through as they were read; what the hub decides by is taken out of them beforehand.
Rule 2: this module knows no frame and no dialect.

Source: specification of the intercom; reference/intercom.md 1.2 to 1.7, 4.2, 4.6, 5.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tieline.engine.brokering.features import Features

__all__ = [
    "Extension",
    "Fields",
    "Guard",
    "Letter",
    "Lineage",
    "ReadKind",
    "Row",
    "RowKind",
]

Fields = Mapping[str, Any]
"""One JSON object, as it was read; nobody changes it in place."""

RowKind = Literal["mail", "parked", "ask", "extension_state"]
"""What the journal keeps: mail that waits, who will come back for it, open asks, extensions' state."""

ReadKind = Literal["last", "receipt"]


class Lineage(msgspec.Struct, frozen=True):
    """The group that a registration pinned: the main's own session id, and it again for a child."""

    root: str
    parent: str | None = None


class Extension(msgspec.Struct, frozen=True):
    """One namespace that a session speaks on the bus, and whether it may own its state."""

    namespace: str
    is_owner_eligible: bool


class Guard(msgspec.Struct, frozen=True):
    """The whole binding that a guarded send is conditional on."""

    root: str
    peer: str
    incarnation: str
    application_guard: str


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One message and what routing decides by.

    `fields` is the object as it came and goes on. `content_key` is the same for the same text, attachments,
    correlation and purpose. `is_plain`: it keeps the strict form. `thread_id` is set where it replaces.
    `is_guardable`: it states a delivery and `expectsReply:false`. `is_guard_broken`: it bears a guard that is
    not whole, or a hint without one: it is never sent as an ordinary message.
    """

    message_id: str
    fields: Fields
    is_ask: bool = False
    is_passive: bool = False
    reply_to: str | None = None
    thread_id: str | None = None
    supersedes: str | None = None
    retry_of: str | None = None
    content_key: str = ""
    is_plain: bool = True
    guard: Guard | None = None
    is_guardable: bool = False
    is_guard_broken: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One session as others may see it; `fields` holds its `id` and what it told of itself.

    `process_id` is what the kernel says of its socket, 0 where it does not; `joined_ms` is wall time.
    """

    fields: Fields
    features: Features
    epoch: str
    process_id: int
    joined_ms: int

    @property
    def session_id(self) -> str:
        """Its id at this broker."""
        return str(self.fields["id"])
