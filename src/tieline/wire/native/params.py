"""The params that peers send and the receipts that they state, as closed or lenient sets of typed members.

Rule 1: params are closed sets with exact types: `true` is no integer, an unknown member is refused. A
null stands for a member that is absent.
Rule 2: a receipt is read leniently; see `mapping`, which says what all of this means.
Rule 3: a refusal names a member of ours and repeats nothing that the peer wrote.

Source: reference/native.md 2.6b, 2.8, 3.2, 3.7; DESIGN.md section 1.
"""

import re
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from tieline.errors import Refusal
from tieline.model.identity import is_plain_id
from tieline.model.message import Delivery
from tieline.model.moment import from_iso
from tieline.model.receipt import State
from tieline.wire.jsonrpc import INTEGER_MAX

__all__ = [
    "PATH_MAX",
    "VERSION",
    "Directory",
    "Hello",
    "Last",
    "ReceiptParams",
    "Send",
    "SentAttachment",
    "Status",
    "TielineSend",
    "ToldReceipt",
    "WaitProbe",
    "read_params",
    "wall_ms_of",
    "wrong",
]

VERSION: Final = 1
"""Of the peer methods' params, and of the `tieline.*` methods."""

TOPIC_LENGTH_MAX: Final = 256
AUTOMATIC_DEPTH_MAX: Final = 64
MEDIA_TYPE_LENGTH_MAX: Final = 128
ATTACHMENTS_MAX: Final = 32
PATH_MAX: Final = 32

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Length = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]


class Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Params of one method; a null stands for a member that is absent."""


class Send(Closed, frozen=True):
    """`peer.send`: the public closed set. There is no member for who sends it."""

    version: int
    message_id: _Id
    to: _Id
    content: Annotated[str, msgspec.Meta(min_length=1)]
    topic: Annotated[str, msgspec.Meta(max_length=TOPIC_LENGTH_MAX)] | None = None
    reply_to: _Id | None = None
    expires_at: str | None = None
    created_at: str | None = None
    sender_run_id: _Id | None = None
    correlation_id: _Id | None = None
    automatic_depth: Annotated[int, msgspec.Meta(ge=0, le=AUTOMATIC_DEPTH_MAX)] | None = None


class SentAttachment(Closed, frozen=True):
    """A named text beside the content."""

    name: _Id
    text: str
    media_type: Annotated[str, msgspec.Meta(min_length=1, max_length=MEDIA_TYPE_LENGTH_MAX)] = "text/plain"


class TielineSend(Send, frozen=True):
    """`tieline.send`: the public set, and what only Tieline ends can say."""

    delivery: Delivery = Delivery.STEER
    thread: _Id | None = None
    replace: bool = False
    ask: bool = False
    notify_when_idle: bool = False
    attachments: Annotated[tuple[SentAttachment, ...], msgspec.Meta(max_length=ATTACHMENTS_MAX)] = ()


class Status(Closed, frozen=True):
    """`peer.status` and `peer.subscribe`. `from` may be given, and then must be the asker itself."""

    message_id: _Id
    to: _Id
    sender_run_id: _Id | None = None
    version: int = VERSION
    sender: _Id | None = msgspec.field(default=None, name="from")


class ReceiptParams(Closed, frozen=True):
    """`peer.receipt`: one receipt, read by itself."""

    receipt: dict[str, Any]
    version: int = VERSION


class Directory(Closed, frozen=True):
    """`peer.directory`."""

    version: int = VERSION


class Hello(Closed, frozen=True):
    """`tieline.hello`: version of the `tieline.*` methods, and those that the asker answers."""

    version: int
    features: tuple[str, ...] = ()


class Last(Closed, frozen=True):
    """`tieline.last`: whose answer, which entry (absent: the last), from which UTF-16 unit."""

    to: _Id
    entry: _Id | None = None
    offset: _Length = 0
    version: int = VERSION


class WaitProbe(Closed, frozen=True):
    """`tieline.wait_probe`: peers that wait for each other, the last one, the sender's, for `to`.

    `kinds` says of each wait of the path whether it is an "ask" or a "resource".
    """

    id: _Id
    to: _Id
    path: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
    kinds: Annotated[tuple[Literal["ask", "resource"], ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
    sender_run_id: _Id | None = None
    version: int = VERSION


class ToldReceipt(msgspec.Struct, frozen=True, rename="camel"):
    """A receipt as its owner wrote it; members that we do not know are ignored."""

    message_id: _Id
    to: _Id
    state: State
    cursor: str
    sender: str | None = msgspec.field(default=None, name="from")
    accepted_at: str | None = None
    consumed_at: str | None = None
    replied_at: str | None = None
    outcome: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    durability: str | None = None


_IN_PATH: Final = re.compile(r"at `\$\.(\w+)")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_Params = TypeVar("_Params", bound=Closed)


def read_params(kind: type[_Params], params: dict[str, Any]) -> _Params | Refusal:
    """Return typed params, or a refusal that names one of our own members."""
    version = params.get("version", VERSION)
    if type(version) is int and version != VERSION:
        return Refusal("UNSUPPORTED_PROTOCOL", f"only version {VERSION} is spoken here")
    try:
        read = msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        # The library's text may quote a name that the peer made up: only a member of ours is repeated.
        found = _IN_PATH.search(str(error)) or _MISSING.search(str(error))
        name = found.group(1) if found is not None else None
        return wrong(name if name in kind.__struct_encode_fields__ else None)
    for name, value in zip(kind.__struct_fields__, msgspec.structs.astuple(read), strict=True):
        if name in _PLAIN_IDS and isinstance(value, str) and not is_plain_id(value):
            return wrong(kind.__struct_encode_fields__[kind.__struct_fields__.index(name)])
    return read


_PLAIN_IDS: Final = frozenset(
    {"message_id", "to", "reply_to", "sender_run_id", "correlation_id", "thread", "entry", "sender", "id"}
)


def wrong(name: str | None) -> Refusal:
    """Return the refusal of a member of ours, or, for None, of a member that is not in the set."""
    if name is None:
        return Refusal("INVALID_PARAMS", "the params have a member that this method does not take")
    return Refusal("INVALID_PARAMS", f"the member {name} is absent or not as it must be")


def wall_ms_of(text: str | None) -> int | None:
    """Return wall milliseconds of an ISO-8601 time in UTC; ValueError for any other."""
    if text is None:
        return None
    if not text.endswith(("Z", "+00:00")):
        raise ValueError("not UTC")
    return from_iso(text)
