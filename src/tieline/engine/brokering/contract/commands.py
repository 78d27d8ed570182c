"""All that may be asked of the hub: what one link said, or that time passed.

Rule 1: a command brings the fresh token that an answer to it could need; the hub mints nothing and reads no
    clock.
Rule 2: `link` is the caller's number of a socket; `token` is fresh, private, and a UUID v4.
Rule 3: what is said over a link that has no session any more changes nothing.

Source: specification of the intercom; reference/intercom.md 1.2 to 1.7, 4.2, 4.6, 5.
"""

from typing import Any, Literal

import msgspec

from tieline.engine.brokering.contract.values import Extension, Fields, Letter, Lineage, ReadKind
from tieline.engine.brokering.features import Features

__all__ = [
    "AskCancelled",
    "BusPublished",
    "Command",
    "ExtensionsTold",
    "Join",
    "Kept",
    "Leave",
    "ListAsked",
    "Lost",
    "MessageCancelled",
    "Opened",
    "PresenceTold",
    "ReadAnswered",
    "ReadAsked",
    "ReceiptTold",
    "SendAsked",
    "StateCommitted",
    "Tick",
    "Unkept",
    "WakeTold",
]


class Opened(msgspec.Struct, frozen=True):
    """A socket was accepted; `process_id` is the kernel's, 0 where unknown."""

    link: int
    process_id: int = 0


class Lost(msgspec.Struct, frozen=True):
    """A socket is gone, whoever closed it."""

    link: int


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A valid registration. `token` is its id where the wanted one is not to be had; `epoch` is fresh."""

    link: int
    features: Features
    fields: Fields
    token: str
    epoch: str
    wanted_id: str | None = None
    scope: str | None = None
    lineage: Lineage | None = None
    incarnation: str | None = None
    application_guard: str | None = None
    extensions: tuple[Extension, ...] = ()


class Leave(msgspec.Struct, frozen=True):
    """The session ends and its socket stays open; `is_parked`: a child that will come back for its mail."""

    link: int
    is_parked: bool = False


class ListAsked(msgspec.Struct, frozen=True):
    """Who is there."""

    link: int
    request_id: str


class PresenceTold(msgspec.Struct, frozen=True):
    """Valid changes of what a session tells of itself; the value None in `changes` takes a field away."""

    link: int
    changes: Fields
    application_guard: str | None = None
    is_guard_told: bool = False


class SendAsked(msgspec.Struct, frozen=True, kw_only=True):
    """One message to route; `letter` is None where it broke the form, `to` where that is no string.

    `message_id` is what an answer names. `target_id` with `target_epoch` bind it to one registration;
    `is_target_broken`: half of that pair came.
    """

    link: int
    message_id: str
    token: str
    to: str | None
    letter: Letter | None
    target_id: str | None = None
    target_epoch: str | None = None
    is_target_broken: bool = False


class AskCancelled(msgspec.Struct, frozen=True):
    """The asker waits no longer."""

    link: int
    message_id: str


class MessageCancelled(msgspec.Struct, frozen=True):
    """The sender takes a message back."""

    link: int
    message_id: str


class ReceiptTold(msgspec.Struct, frozen=True):
    """A recipient's word on a message, for its sender."""

    link: int
    message_id: str
    receipt: Fields


class ExtensionsTold(msgspec.Struct, frozen=True):
    """The session's extensions, all of them."""

    link: int
    extensions: tuple[Extension, ...]


class BusPublished(msgspec.Struct, frozen=True, kw_only=True):
    """One message on the extension bus, to its owner or to all who speak it.

    `is_owner_only`: it is sent only where the sender owns the namespace.
    """

    link: int
    namespace: str
    audience: Literal["owner", "capable"]
    payload: Any
    owner_epoch: str | None = None
    is_owner_only: bool = False


class StateCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's next state of its namespace, if the present revision is the expected one."""

    link: int
    namespace: str
    owner_epoch: str
    expected_revision: int
    payload: Any
    request_id: str | None = None


class ReadAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's last answer or a receipt is wanted; `body` is what its owner is asked, already valid."""

    link: int
    kind: ReadKind
    request_id: str
    to: str
    body: Fields
    token: str


class ReadAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's answer under the token it was asked with; `body` is a page, a receipt, or `{error}`."""

    link: int
    kind: ReadKind
    token: str
    body: Fields


class WakeTold(msgspec.Struct, frozen=True):
    """A main's word on a wake that was asked of it."""

    link: int
    token: str
    is_ok: bool
    detail: str = ""


class Tick(msgspec.Struct, frozen=True):
    """Time passed: due when the last plan's `deadline_ms` is reached.

    `unread`: links whose far ends have not taken yet what was said to them.
    """

    unread: frozenset[int] = frozenset()


class Kept(msgspec.Struct, frozen=True):
    """The rows of all refusable plans up to this number are kept, or taken back already."""

    number: int


class Unkept(msgspec.Struct, frozen=True):
    """There was no room for the rows of the refusable plan of this number: nothing of it was kept or said."""

    number: int


Command = (
    Opened
    | Lost
    | Join
    | Leave
    | ListAsked
    | PresenceTold
    | SendAsked
    | AskCancelled
    | MessageCancelled
    | ReceiptTold
    | ExtensionsTold
    | BusPublished
    | StateCommitted
    | ReadAsked
    | ReadAnswered
    | WakeTold
    | Tick
    | Kept
    | Unkept
)
