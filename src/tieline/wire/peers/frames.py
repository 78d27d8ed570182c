"""The frames of the pi-peers wire: one JSON object a line, read liberally, written for every reader.

Rule 1: unknown fields, actions, types and statuses are ignored, never an error: a newer window may say more.
Rule 2: where the specification names no field, every name that its family uses is read and a superset
is written. A field whose value has another type than it should counts as not stated.
Rule 3: what a frame says of its sender is a claim; an address is text here and is never opened.
Rule 4: an error is a line that is no JSON object, or an envelope whose id is no UUID; the link then closes.
Rule 5: this module knows no order of frames, no token but the one it writes, no clock and no I/O.

Source: spec/pi-peers.md, "Frames"; reference/pi-peers-and-harness-doors.md 27 to 39, U5, U8,
U10 to U13, U19, U20.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn, assert_never, cast

import msgspec

from tieline.errors import ProtocolError

__all__ = [
    "LINE_BYTES_MAX",
    "MESSAGE_VERSION",
    "NO_TEXT",
    "Auth",
    "Frame",
    "IdleNotice",
    "NotifyWhenIdle",
    "Priority",
    "Rename",
    "Shutdown",
    "ShutdownResponse",
    "Status",
    "StatusFrame",
    "Unknown",
    "UserFrame",
    "auth_line",
    "decode",
    "decode_auth",
    "encode",
    "is_message_id",
    "plain_address",
]

LINE_BYTES_MAX: Final = 1_048_576
"""One line, 1 MiB. What we write keeps within it together with its line end."""
MESSAGE_VERSION: Final = 1
"""`msgV` of every frame we write. A frame of a later version is one whose meaning we do not know."""

TEXT_CHARACTERS_MAX: Final = 256
"""A name, a session, a nonce or an id: what is longer is none."""
ADDRESS_CHARACTERS_MAX: Final = 4_096
"""The longest path of any system."""
FORMER_NAMES_MAX: Final = 64
NO_TEXT: Final = "<cross-session-message>"
"""The content of a message whose own is no text: no whole wrapper, so it is dropped as a malformed one and
its sender is told, where closing would tell nobody."""
DROPPED_IDS_MAX: Final = 256
"""How many messages one receipt may speak of. Source: reference 1Q."""

Priority = Literal["now", "next"]
Status = Literal["held", "delivered", "denied", "expired", "refused", "dropped"]


class UserFrame(msgspec.Struct, frozen=True):
    """A message. `content` is as it was on the wire, wrapper and all; see `wrapper`.

    `sender` is the wire address that the frame claims, without a scheme; the empty string where none was
    stated. `pid` is 0 and `session` and `name` are empty where not stated. `in_reply_to` is a message id.
    `reply_to` is the address that receipts go to; the empty string means `sender`.
    """

    message_id: str
    sender: str
    pid: int
    session: str
    name: str
    hop_chain: tuple[str, ...]
    priority: Priority
    content: str
    in_reply_to: str | None = None
    reply_to: str = ""


class StatusFrame(msgspec.Struct, frozen=True):
    """A receipt for the message `original`; `reason` is empty where none was given.

    `durability` is a Tieline end's own word for its storage; None on a frame that does not say.
    `also` are further messages of which the same is true. `sender` may be empty.
    """

    message_id: str
    sender: str
    original: str
    status: Status
    reason: str = ""
    durability: str | None = None
    also: tuple[str, ...] = ()

    def each(self) -> "tuple[StatusFrame, ...]":
        """Return one receipt per message it speaks of, the first one first."""
        if not self.also:
            return (self,)
        names = dict.fromkeys((self.original, *self.also))
        return tuple(msgspec.structs.replace(self, original=name, also=()) for name in names)


class NotifyWhenIdle(msgspec.Struct, frozen=True):
    """Somebody asks to be told once when this window is idle; the notice goes to `reply_to`."""

    message_id: str
    sender: str
    reply_to: str
    nonce: str


class IdleNotice(msgspec.Struct, frozen=True):
    """A window is idle; `nonce` is that of the subscription it answers."""

    message_id: str
    sender: str
    nonce: str


class Shutdown(msgspec.Struct, frozen=True):
    """Somebody asks this window to end; the answer goes to `reply_to`. `text` says why, if anything."""

    message_id: str
    sender: str
    reply_to: str
    text: str = ""


class ShutdownResponse(msgspec.Struct, frozen=True):
    """The answer to the shutdown request `in_reply_to`."""

    message_id: str
    sender: str
    in_reply_to: str
    outcome: Literal["accepted", "denied"]


class Rename(msgspec.Struct, frozen=True):
    """A window has another name: a reason to read its record again, no truth in itself."""

    message_id: str
    sender: str
    name: str
    former_names: tuple[str, ...] = ()


class Unknown(msgspec.Struct, frozen=True):
    """A frame of which this version has no use; `action` names it, for diagnosis only."""

    message_id: str
    action: str


class Auth(msgspec.Struct, frozen=True):
    """The first line of a connection."""

    token: str


Frame = UserFrame | StatusFrame | NotifyWhenIdle | IdleNotice | Shutdown | ShutdownResponse | Rename | Unknown

_parse: Final = msgspec.json.Decoder().decode
_write: Final = msgspec.json.Encoder().encode
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SCHEME: Final = re.compile(r"(?:uds|pipe):")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_STATUSES: Final = frozenset({"held", "delivered", "denied", "expired", "refused", "dropped"})

# Every name under which the family of this protocol writes one thing; the first that is stated counts.
_SENDER: Final = ("from",)
_REPLY_TO: Final = ("reply_to", "replyTo")
_ORIGINAL: Final = (
    *("orig_msg_id", "origMsgId", "original", "inReplyTo", "in_reply_to", "msgId", "dropped_msg_id"),
    "droppedMsgId",
)
_ALSO: Final = ("dropped_msg_ids", "droppedMsgIds")
_STATUS: Final = ("status", "delivery_status", "deliveryStatus")
_REASON: Final = ("drop_reason", "dropReason", "reason", "status_detail", "statusDetail")
_NONCE: Final = ("nonce", "orig_msg_id", "origMsgId")
_ANSWERED: Final = ("inReplyTo", "in_reply_to", "orig_msg_id", "origMsgId")
_NAME: Final = ("name", "newName", "new_name")
_OLD_NAME: Final = ("oldName", "old_name")
_FORMER_NAMES: Final = ("formerNames", "former_names")
_WHY: Final = ("text", "reason", "content")

_Object = dict[str, Any]


def is_message_id(text: str) -> bool:
    """Return whether `text` may name a message on this wire: a UUID of any version, in either case."""
    return _UUID.fullmatch(text) is not None


def plain_address(text: str) -> str:
    """Return the socket path that an address means, without its optional scheme.

    Source: reference/pi-peers-and-harness-doors.md U8.
    """
    return _SCHEME.sub("", text, count=1) if _SCHEME.match(text) else text


def auth_line(token: str) -> bytes:
    """Return the first line of a connection, with its end."""
    return _write({"type": "auth", "token": token}) + b"\n"


def decode_auth(line: bytes) -> Auth:
    """Return what the first line of a connection presents.

    Raises:
        ProtocolError: it is anything but an authentication with a token.
    """
    document = _document(line)
    token = document.get("token")
    if document.get("type") != "auth" or not isinstance(token, str) or not token:
        _refuse("the first line is no authentication")
    return Auth(token)


def decode(line: bytes) -> Frame:
    """Return the one frame that `line` holds, a later line of an authenticated connection.

    A frame that lacks what its action needs comes back as `Unknown`, like one of a later version.

    Raises:
        ProtocolError: the line is no JSON object, authenticates again, or has an id that is no UUID.
    """
    document = _document(line)
    kind = document.get("type")
    if kind == "auth":
        _refuse("a connection authenticates once")
    message_id = document.get("msg_id")
    if not isinstance(message_id, str) or not is_message_id(message_id):
        _refuse("a frame's msg_id is no UUID")
    version = document.get("msgV", MESSAGE_VERSION)
    if version != MESSAGE_VERSION:
        return Unknown(message_id, "msgV")
    if kind == "user":
        return _user(document, message_id)
    if kind != "control":
        return Unknown(message_id, _short(kind))
    action = document.get("action")
    read = _CONTROLS.get(action) if isinstance(action, str) else None
    frame = None if read is None else read(document, message_id, _address(document, _SENDER))
    return Unknown(message_id, _short(action)) if frame is None else frame


def encode(frame: Frame) -> bytes:
    """Return the line that says `frame`, with its end.

    Raises:
        ProtocolError: `FRAME_TOO_LARGE`; the line would pass `LINE_BYTES_MAX` with its end.
    """
    document: _Object = {"msgV": MESSAGE_VERSION, "msg_id": frame.message_id}
    if isinstance(frame, UserFrame):
        document |= _user_fields(frame)
    else:
        document |= {"type": "control", **_control_fields(frame)}
    line = _write(document) + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise ProtocolError("FRAME_TOO_LARGE", f"a line is longer than {LINE_BYTES_MAX} bytes")
    return line


def _refuse(text: str) -> NoReturn:
    raise ProtocolError("PARSE_ERROR", text)


def _document(line: bytes) -> _Object:
    document: Any = None
    try:
        document = _parse(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = _repaired(line)
    except RecursionError:
        _refuse("a line is nested too deeply")
    if not isinstance(document, dict):
        _refuse("a line is no JSON object")
    return document


def _repaired(line: bytes) -> Any:
    """Return the document of a line whose only fault are halves of surrogate pairs, each replaced.

    A window that cuts a text inside a pair writes such a half as an escape, and its own parser reads it
    back. Closing on it would lose the message for a defect of one character that no encoding can keep.
    """
    if rb"\u" not in line:
        _refuse("a line is no JSON")
    try:
        text = json.dumps(json.loads(line.decode(), parse_constant=_refuse), ensure_ascii=False)
        return _parse(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode())
    except (ValueError, RecursionError):
        _refuse("a line is no JSON")


def _first(document: _Object, names: tuple[str, ...]) -> str:
    """Return the first non-empty text under one of `names`, or the empty string."""
    for name in names:
        value = document.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _id(document: _Object, names: tuple[str, ...]) -> str:
    value = _first(document, names)
    return value if len(value) <= TEXT_CHARACTERS_MAX and not _CONTROL.search(value) else ""


def _name(document: _Object, names: tuple[str, ...]) -> str:
    return _first(document, names)[:TEXT_CHARACTERS_MAX]


def _address(document: _Object, names: tuple[str, ...]) -> str:
    value = plain_address(_first(document, names))
    return value if len(value) <= ADDRESS_CHARACTERS_MAX and "\0" not in value else ""


def _short(value: object) -> str:
    return value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else ""


def _texts(document: _Object, names: tuple[str, ...], count_max: int) -> tuple[str, ...]:
    """Return the texts of the first list under one of `names`; an object counts by its `name`."""
    found: Any = next((document[name] for name in names if isinstance(document.get(name), list)), [])
    texts = (item.get("name") if isinstance(item, dict) else item for item in found)
    usable = [text for text in texts if isinstance(text, str) and 0 < len(text) <= TEXT_CHARACTERS_MAX]
    return tuple(usable[:count_max])


def _hop(item: object) -> str:
    """Return the address of one hop; the empty string for a hop of unknown form, which still counts."""
    if isinstance(item, dict):
        return _address(item, ("address", "from", "socketPath"))
    return plain_address(item) if isinstance(item, str) else ""


def _user(document: _Object, message_id: str) -> UserFrame:
    content = document.get("content")
    pid = document.get("fromPid")
    hops = document.get("hopChain")
    return UserFrame(
        message_id=message_id,
        sender=_address(document, _SENDER),
        pid=pid if type(pid) is int and pid > 0 else 0,
        session=_id(document, ("fromSession",)),
        name=_name(document, ("fromName",)),
        hop_chain=tuple(_hop(item) for item in hops) if isinstance(hops, list) else (),
        # Whatever is not "now" waits for the end of the turn: the gentler of the two.
        priority="now" if document.get("priority") == "now" else "next",
        content=content if isinstance(content, str) else NO_TEXT,
        in_reply_to=_id(document, ("inReplyTo", "in_reply_to")) or None,
        reply_to=_address(document, _REPLY_TO),
    )


def _status(document: _Object, message_id: str, sender: str) -> StatusFrame | None:
    status, _, detail = _first(document, _STATUS).partition(":")
    also = _texts(document, _ALSO, DROPPED_IDS_MAX)
    original = _id(document, _ORIGINAL) or (also[0] if also else "")
    if status not in _STATUSES or not original:
        return None
    return StatusFrame(
        message_id=message_id,
        sender=sender,
        original=original,
        status=cast("Status", status),
        reason=(detail.strip() or _first(document, _REASON))[:TEXT_CHARACTERS_MAX],
        durability=_id(document, ("durability",)) or None,
        also=tuple(name for name in dict.fromkeys(also) if name != original),
    )


def _notify(document: _Object, message_id: str, sender: str) -> NotifyWhenIdle | None:
    reply_to = _address(document, _REPLY_TO) or sender
    nonce = _id(document, _NONCE) or message_id
    return NotifyWhenIdle(message_id, sender, reply_to, nonce) if reply_to else None


def _notice(document: _Object, message_id: str, sender: str) -> IdleNotice | None:
    nonce = _id(document, (*_NONCE, *_ANSWERED))
    return IdleNotice(message_id, sender, nonce) if nonce else None


def _shutdown(document: _Object, message_id: str, sender: str) -> Shutdown:
    return Shutdown(message_id, sender, _address(document, _REPLY_TO) or sender, _first(document, _WHY))


def _response(document: _Object, message_id: str, sender: str) -> ShutdownResponse | None:
    answered, outcome = _id(document, _ANSWERED), document.get("outcome")
    if not answered or outcome not in ("accepted", "denied"):
        return None
    return ShutdownResponse(message_id, sender, answered, cast("Literal['accepted', 'denied']", outcome))


def _rename(document: _Object, message_id: str, sender: str) -> Rename | None:
    name = _name(document, _NAME)
    former = _texts(document, _FORMER_NAMES, FORMER_NAMES_MAX)
    old = _name(document, _OLD_NAME)
    if old and old not in former:
        former = (*former, old)[-FORMER_NAMES_MAX:]
    return Rename(message_id, sender, name, former) if name else None


_CONTROLS: Final[dict[str, Callable[[_Object, str, str], Frame | None]]] = {
    "peer_message_status": _status,
    "notify_when_idle": _notify,
    "peer_idle_notice": _notice,
    "shutdown": _shutdown,
    "shutdown_response": _response,
    "rename": _rename,
}


def _user_fields(frame: UserFrame) -> _Object:
    fields: _Object = {
        "type": "user",
        "from": frame.sender,
        "fromPid": frame.pid,
        "fromSession": frame.session,
        "hopChain": frame.hop_chain,
        "priority": frame.priority,
        "content": frame.content,
    }
    optional = {"fromName": frame.name, "inReplyTo": frame.in_reply_to, "reply_to": frame.reply_to}
    return fields | {name: value for name, value in optional.items() if value}


def _control_fields(
    frame: StatusFrame | NotifyWhenIdle | IdleNotice | Shutdown | ShutdownResponse | Rename | Unknown,
) -> _Object:
    match frame:
        case StatusFrame():
            return _status_fields(frame)
        case NotifyWhenIdle(_, sender, reply_to, nonce):
            fields = {"from": sender, "reply_to": reply_to, "nonce": nonce, "orig_msg_id": nonce}
            return {"action": "notify_when_idle", **fields}
        case IdleNotice(_, sender, nonce):
            fields = {"from": sender, "nonce": nonce, "orig_msg_id": nonce, "inReplyTo": nonce}
            return {"action": "peer_idle_notice", **fields, "state": "idle"}
        case Shutdown(_, sender, reply_to, text):
            fields = {"from": sender, "reply_to": reply_to}
            return {"action": "shutdown", **fields, **({"text": text, "reason": text} if text else {})}
        case ShutdownResponse(_, sender, in_reply_to, outcome):
            fields = {"from": sender, "inReplyTo": in_reply_to, "orig_msg_id": in_reply_to}
            return {"action": "shutdown_response", **fields, "outcome": outcome}
        case Rename(_, sender, name, former):
            old = {"oldName": former[-1]} if former else {}
            fields = {"from": sender, "name": name, "newName": name}
            return {"action": "rename", **fields, **old, "formerNames": former}
        case Unknown(_, action):
            return {"action": action}
        case _:
            assert_never(frame)


def _status_fields(frame: StatusFrame) -> _Object:
    is_dropped = frame.status == "dropped"
    fields: _Object = {
        "action": "peer_message_status",
        "from": frame.sender,
        "orig_msg_id": frame.original,
        "inReplyTo": frame.original,
        # The specification writes the reason behind a colon; the rest of the family in a field of its own.
        "status": f"dropped:{frame.reason or 'dropped'}" if is_dropped else frame.status,
        "delivery_status": frame.status,
    }
    if frame.reason:
        fields["reason"] = frame.reason
    if is_dropped:
        fields["drop_reason"] = frame.reason or "dropped"
    if frame.durability:
        fields["durability"] = frame.durability
    if frame.also:
        fields["dropped_msg_ids"] = (frame.original, *frame.also)
    return fields
