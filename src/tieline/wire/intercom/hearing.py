"""What a registered socket says, as commands of the hub; a table per dialect.

Rule 1: a frame that its dialect does not know, or that its sender did not announce, breaks the order.
Rule 2: `Broken` costs the socket; `Unheard` is answered and does not.
Rule 3: no frame is judged by another one here: the link knows the order, the hub the state.

Source: reference/intercom.md 1.2, 1.5, 1.7; where 1.7 knows no bytes, our own.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tieline.engine.brokering import contract
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.wire.intercom.forms import (
    extensions,
    is_finite,
    is_label,
    is_namespace,
    is_text,
    lineage,
    plain_letter,
    plain_presence,
    plain_session,
    recorded_letter,
    recorded_presence,
    recorded_session,
)
from tieline.wire.intercom.reading import dump, trim
from tieline.wire.intercom.saying import CAPABILITIES

__all__ = ["Broken", "Heard", "Unheard", "command_of", "join_of"]

PAGE_UNITS_MAX: Final = 16_384
"""UTF-16 code units of one page of a last answer."""
PUBLISH_BYTES_MAX: Final = 16_384
STATE_BYTES_MAX: Final = 65_536
TOKEN_CHARACTERS_MAX: Final = 200
_UNKNOWN: Final = "unknown"
_RECEIPT_STATUSES: Final = frozenset(
    {
        *("receiver_received", "queued", "injected", "acknowledged", "expired", "cancelled", "superseded"),
        "cancellation_requested",
    }
)

Fields = Mapping[str, Any]


class Broken(Exception):
    """The form or the order is broken: this socket is closed without a word."""


class Unheard(Exception):
    """A request that means nothing: `answer` is said to this socket, which stays open."""

    def __init__(self, answer: contract.Output) -> None:
        super().__init__()
        self.answer = answer


class Heard(NamedTuple):
    """Who speaks, and a fresh token for what is said."""

    link: int
    features: Features
    token: str


def join_of(frame: Fields, heard: Heard, epoch: str) -> contract.Join:
    """Return the registration in a frame, in the dialect that its fields tell; Broken where it has none."""
    session = frame.get("session")
    if not isinstance(session, dict):
        raise Broken
    if "requestedId" not in frame and (
        "sessionId" in frame or "scopeId" in frame or is_finite(session.get("pid"))
    ):
        return _recorded_join(frame, session, heard, epoch)
    return _plain_join(frame, session, heard, epoch)


def _plain_join(frame: Fields, session: Fields, heard: Heard, epoch: str) -> contract.Join:
    fields = plain_session(session)
    if fields is None:
        raise Broken
    try:
        group = lineage(fields)
    except ValueError:
        raise Broken from None
    told = {attribute: True for name, attribute in CAPABILITIES.items() if _is_one(frame.get(name))}
    features = Features(**{**_set(DIRECT), **told})
    guard = fields.pop("applicationGuard", None) if features.guarded_delivery else None
    return contract.Join(
        link=heard.link,
        features=features,
        fields=fields,
        token=heard.token,
        epoch=epoch,
        wanted_id=_requested(frame.get("requestedId")),
        lineage=group,
        incarnation=fields.get("incarnation"),
        application_guard=guard,
    )


def _recorded_join(frame: Fields, session: Fields, heard: Heard, epoch: str) -> contract.Join:
    fields = recorded_session(session)
    scope = frame.get("scopeId", "")
    if fields is None or not isinstance(scope, str):
        raise Broken
    wanted = frame.get("sessionId")
    return contract.Join(
        link=heard.link,
        features=RECORDED,
        fields=fields,
        token=heard.token,
        epoch=epoch,
        wanted_id=wanted if is_label(wanted) and trim(str(wanted)) else None,
        scope=trim(scope) or None,
        extensions=extensions(fields.get("extensions", [])) or (),
    )


def _set(features: Features) -> dict[str, bool]:
    return {name: True for name in features.__struct_fields__ if getattr(features, name)}


def _is_one(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


_ID_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def _requested(value: object) -> str | None:
    """Return an id that may be granted: 8 to 80 letters, digits, dashes and underscores."""
    if isinstance(value, str) and 8 <= len(value) <= 80 and _ID_CHARACTERS.issuperset(value):
        return value
    return None


def command_of(frame: Fields, heard: Heard) -> contract.Command | None:
    """Return what a registered socket says; None where it says nothing new.

    Raises:
        Broken: the socket is to be closed.
        Unheard: it is to be answered instead.
    """
    table = _PLAIN if heard.features.needs_plain else _RECORDED
    hear = table.get(frame["type"])
    if hear is None:
        raise Broken
    return hear(frame, heard)


def _needed(value: object) -> str:
    if not isinstance(value, str):
        raise Broken
    return value


def _list(frame: Fields, heard: Heard) -> contract.Command:
    return contract.ListAsked(heard.link, _needed(frame.get("requestId")))


def _leave(frame: Fields, heard: Heard) -> contract.Command:
    return contract.Leave(heard.link, is_parked=frame.get("parked") is True and heard.features.wake_outcomes)


def _presence(frame: Fields, heard: Heard) -> contract.Command:
    changes = plain_presence(frame)
    if changes is None:
        raise Broken
    is_guard_told = "applicationGuard" in frame and heard.features.guarded_delivery
    guard = frame.get("applicationGuard") if is_guard_told else None
    if guard is not None and not is_label(guard):
        raise Broken
    return contract.PresenceTold(heard.link, changes, guard, is_guard_told)


def _recorded_presence_told(frame: Fields, heard: Heard) -> contract.Command:
    return contract.PresenceTold(heard.link, recorded_presence(frame))


def _send(frame: Fields, heard: Heard) -> contract.Command:
    return _sent(frame, heard, plain_letter(frame.get("message")))


def _recorded_send(frame: Fields, heard: Heard) -> contract.Command:
    sent = _sent(frame, heard, recorded_letter(frame.get("message")))
    target, epoch = frame.get("targetId"), frame.get("targetEpoch")
    if target is None and epoch is None:
        return sent
    if not isinstance(target, str) or not isinstance(epoch, str) or not target or not epoch:
        return contract.SendAsked(**{**_members(sent), "is_target_broken": True})
    return contract.SendAsked(**{**_members(sent), "target_id": target, "target_epoch": epoch})


def _members(sent: contract.SendAsked) -> dict[str, Any]:
    return {name: getattr(sent, name) for name in sent.__struct_fields__}


def _sent(frame: Fields, heard: Heard, letter: contract.Letter | None) -> contract.SendAsked:
    to = frame.get("to")
    return contract.SendAsked(
        link=heard.link,
        message_id=_UNKNOWN if letter is None else letter.message_id,
        token=heard.token,
        to=to if isinstance(to, str) else None,
        letter=letter,
    )


def _read(kind: contract.ReadKind, frame: Fields, heard: Heard) -> contract.Command:
    request_id, to = _needed(frame.get("requestId")), _needed(frame.get("to"))
    body = _last_body(frame) if kind == "last" else _receipt_body(frame)
    if body is None:
        raise Unheard(contract.ReadReturned(kind, request_id, {"error": "invalid_request"}))
    return contract.ReadAsked(
        link=heard.link, kind=kind, request_id=request_id, to=to, body=body, token=heard.token
    )


def _last_asked(frame: Fields, heard: Heard) -> contract.Command:
    if not heard.features.last_reads:
        raise Broken
    return _read("last", frame, heard)


def _receipt_asked(frame: Fields, heard: Heard) -> contract.Command:
    if not heard.features.receipt_reads:
        raise Broken
    return _read("receipt", frame, heard)


def _last_body(frame: Fields) -> dict[str, Any] | None:
    offset, limit = frame.get("offset", 0), frame.get("limit", PAGE_UNITS_MAX)
    if not _is_count(offset) or not _is_count(limit) or not 0 < limit <= PAGE_UNITS_MAX:
        return None
    body: dict[str, Any] = {"offset": offset, "limit": limit}
    if "entryId" in frame:
        if not is_label(frame["entryId"]):
            return None
        body = {"entryId": frame["entryId"], **body}
    return body


def _receipt_body(frame: Fields) -> dict[str, Any] | None:
    names = ("rootSessionId", "messageId")
    return {name: frame[name] for name in names} if all(is_label(frame.get(name)) for name in names) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _last_told(frame: Fields, heard: Heard) -> contract.Command:
    if not heard.features.last_reads:
        raise Broken
    names = ("entryId", "text", "offset", "nextOffset", "empty")
    return _answered("last", frame, heard, {name: frame[name] for name in names if name in frame})


def _receipt_facts_told(frame: Fields, heard: Heard) -> contract.Command:
    if not heard.features.receipt_reads:
        raise Broken
    return _answered("receipt", frame, heard, {"receipt": frame.get("receipt")})


def _answered(kind: contract.ReadKind, frame: Fields, heard: Heard, body: Fields) -> contract.Command:
    token = _needed(frame.get("token"))
    error = frame.get("error")
    if error is not None:
        known = is_label(error) and len(error) <= TOKEN_CHARACTERS_MAX
        body = {"error": error if known else "invalid_answer"}
    return contract.ReadAnswered(link=heard.link, kind=kind, token=token, body=body)


def _wake_told(frame: Fields, heard: Heard) -> contract.Command:
    if not heard.features.wake_outcomes or not isinstance(frame.get("ok"), bool):
        raise Broken
    detail = frame.get("detail", "")
    if not is_text(detail):
        raise Broken
    return contract.WakeTold(heard.link, _needed(frame.get("token")), frame["ok"], str(detail))


_Hear = Callable[[Fields, Heard], contract.Command | None]

_PLAIN: Final[dict[str, _Hear]] = {
    "list": _list,
    "send": _send,
    "presence": _presence,
    "unregister": _leave,
    "last_request": _last_asked,
    "last_page": _last_told,
    "receipt_request": _receipt_asked,
    "receipt_facts": _receipt_facts_told,
    "wake_outcome": _wake_told,
}


def _refused(why: str) -> Unheard:
    return Unheard(contract.BusRefused(why))


def _identity(frame: Fields) -> str:
    identity = frame.get("messageId")
    if not isinstance(identity, str) or not identity:
        raise _refused("messageId must be a non-empty string")
    return identity


def _ask_cancelled(frame: Fields, heard: Heard) -> contract.Command:
    return contract.AskCancelled(heard.link, _identity(frame))


def _message_cancelled(frame: Fields, heard: Heard) -> contract.Command:
    return contract.MessageCancelled(heard.link, _identity(frame))


def _receipt_told(frame: Fields, heard: Heard) -> contract.Command:
    receipt = frame.get("receipt")
    if not isinstance(receipt, dict):
        raise _refused("receipt must be an object")
    status = receipt.get("status")
    if (
        not isinstance(status, str)
        or status not in _RECEIPT_STATUSES
        or not is_finite(receipt.get("timestamp"))
    ):
        raise _refused("receipt must have a known status and a timestamp")
    return contract.ReceiptTold(heard.link, _identity(receipt), receipt)


def _extensions_told(frame: Fields, heard: Heard) -> contract.Command:
    found = extensions(frame.get("extensions"))
    if found is None:
        raise _refused("extensions must be at most 32 well-formed capabilities")
    return contract.ExtensionsTold(heard.link, found)


def _namespace(frame: Fields) -> str:
    if not is_namespace(frame.get("namespace")):
        raise _refused("namespace is malformed")
    return str(frame["namespace"])


def _payload(frame: Fields, bytes_max: int) -> Any:
    if "payload" not in frame:
        raise _refused("payload is missing")
    if len(dump(frame["payload"])) > bytes_max:
        raise _refused(f"payload is larger than {bytes_max} bytes")
    return frame["payload"]


def _published(frame: Fields, heard: Heard) -> contract.Command:
    audience, epoch = frame.get("audience"), frame.get("ownerEpoch")
    if audience not in ("owner", "capable") or not (epoch is None or isinstance(epoch, str)):
        raise _refused("audience must be owner or capable, ownerEpoch a string")
    return contract.BusPublished(
        link=heard.link,
        namespace=_namespace(frame),
        audience=audience,
        payload=_payload(frame, PUBLISH_BYTES_MAX),
        owner_epoch=epoch,
        is_owner_only=frame.get("ownerOnly") is True,
    )


def _committed(frame: Fields, heard: Heard) -> contract.Command:
    epoch, revision, request_id = (
        frame.get("ownerEpoch"),
        frame.get("expectedRevision"),
        frame.get("requestId"),
    )
    if not isinstance(epoch, str) or not _is_count(revision):
        raise _refused("ownerEpoch must be a string, expectedRevision a whole number")
    return contract.StateCommitted(
        link=heard.link,
        namespace=_namespace(frame),
        owner_epoch=epoch,
        expected_revision=int(revision or 0),
        payload=_payload(frame, STATE_BYTES_MAX),
        request_id=request_id if isinstance(request_id, str) else None,
    )


_RECORDED: Final[dict[str, _Hear]] = {
    "list": _list,
    "send": _recorded_send,
    "presence": _recorded_presence_told,
    "unregister": _leave,
    "cancel_ask": _ask_cancelled,
    "cancel_message": _message_cancelled,
    "message_receipt": _receipt_told,
    "extension_capabilities_update": _extensions_told,
    "extension_publish": _published,
    "extension_state_commit": _committed,
}
