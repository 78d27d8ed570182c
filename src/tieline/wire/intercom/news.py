"""What a broker says to a session, as events; and what breaks the form of it.

Rule 1: a frame that is unknown, or whose capability was not announced, is a ProtocolError, and so is a
    malformed one; only a row of a list may be faulty, and is left out.
Rule 2: a row whose only fault is its projectId keeps the rest.
Rule 3: no frame is judged by another one here: the link knows the order and who waits.

Source: reference/intercom.md 1.3, 1.7, cases 14, 37; docs/wire-intercom.md.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tieline.errors import ProtocolError
from tieline.wire.intercom.forms import is_label, is_text, plain_letter, plain_session

__all__ = [
    "CAPABILITIES",
    "Closed",
    "Event",
    "LastAsked",
    "Left",
    "Listed",
    "MessageCame",
    "ReadAnswered",
    "ReceiptAsked",
    "Registered",
    "Sent",
    "TimedOut",
    "WakeAsked",
    "WakeFailed",
    "event_of",
    "registered_of",
]

CAPABILITIES: Final = ("guardedDelivery", "receiptReads", "lastReads", "wakeOutcomes")
"""What a session of ours announces with the number 1, and a broker that can, too."""

_Frame = Mapping[str, Any]


class Registered(msgspec.Struct, frozen=True):
    """The broker took us, under this id, and announced these of `CAPABILITIES`."""

    session_id: str
    capabilities: frozenset[str]


class Listed(msgspec.Struct, frozen=True):
    """Who can be seen, ourselves included; `error` where the broker could not say it whole."""

    request_id: str
    rows: tuple[dict[str, Any], ...]
    error: str = ""


class MessageCame(msgspec.Struct, frozen=True):
    """A message for us, and its sender as the broker shows it."""

    sender: dict[str, Any]
    message: dict[str, Any]


class Sent(msgspec.Struct, frozen=True):
    """The broker's answer to a send: `kind` is "delivered", "queued" or "failed"."""

    message_id: str
    kind: str
    reason: str = ""
    is_outcome_known: bool = True


class Left(msgspec.Struct, frozen=True):
    """A session that we could see is gone."""

    session_id: str


class ReadAnswered(msgspec.Struct, frozen=True):
    """The answer to a read of ours, or `{error}`; `kind` is "last" or "receipt"."""

    kind: str
    request_id: str
    body: dict[str, Any]


class LastAsked(msgspec.Struct, frozen=True):
    """Somebody reads our last answer; answered by `answer_last` under `token`."""

    token: str
    sender: dict[str, Any]
    entry: str | None
    offset: int
    limit: int


class ReceiptAsked(msgspec.Struct, frozen=True):
    """Somebody reads what became of a message to us; answered by `answer_receipt` under `token`."""

    token: str
    sender: dict[str, Any]
    root: str
    message_id: str


class WakeAsked(msgspec.Struct, frozen=True):
    """Mail waits for a parked child of ours; answered by `answer_wake` under `token`."""

    token: str
    session_id: str
    message_id: str


class WakeFailed(msgspec.Struct, frozen=True):
    """The child that we asked could not be woken; our question may still reach it."""

    message_id: str
    detail: str


class TimedOut(msgspec.Struct, frozen=True):
    """No answer in time; `kind` is "send", "list", "last" or "receipt", `name` the id of the operation."""

    kind: str
    name: str


class Closed(msgspec.Struct, frozen=True):
    """The connection is over; every operation that waited has no answer."""

    reason: str
    unanswered: tuple[tuple[str, str], ...] = ()  # (kind, name), as in `TimedOut`


Event = (
    Registered
    | Listed
    | MessageCame
    | Sent
    | Left
    | ReadAnswered
    | LastAsked
    | ReceiptAsked
    | WakeAsked
    | WakeFailed
    | TimedOut
    | Closed
)


def registered_of(frame: _Frame, announced: frozenset[str]) -> Registered:
    """Return what `registered` says; a capability that we did not announce is not taken from it."""
    session_id = frame.get("sessionId")
    if not is_label(session_id):
        raise ProtocolError("MALFORMED_FRAME", "registered without an id")
    granted = frozenset(name for name in CAPABILITIES if name in announced and _is_one(frame.get(name)))
    return Registered(str(session_id), granted)


def event_of(frame: _Frame, capabilities: frozenset[str]) -> Event:
    """Return what any later frame says.

    Raises:
        ProtocolError: it is unknown, malformed, or of a capability that is not among these.
    """
    kind = frame["type"]
    if kind in _ANNOUNCED and _ANNOUNCED[kind] not in capabilities:
        raise ProtocolError("MALFORMED_FRAME", f"{kind} was not announced")
    hear = _HEARD.get(kind)
    if hear is None:
        raise ProtocolError("MALFORMED_FRAME", f"unknown frame {kind[:64]!r}")
    return hear(frame)


def _is_one(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


def _string(frame: _Frame, name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise ProtocolError("MALFORMED_FRAME", f"{name} is not a string")
    return value


def _row(value: object) -> dict[str, Any] | None:
    """Return a session that can be shown: one whose only fault is its projectId keeps the rest."""
    if not isinstance(value, dict) or not is_label(value.get("id")):
        return None
    found = plain_session(value)
    if found is None and "projectId" in value:
        found = plain_session({name: item for name, item in value.items() if name != "projectId"})
    # What a broker adds for capable sessions is not a session's own to say, and is left out there.
    return None if found is None else {**{n: v for n, v in value.items() if n == "guardedDelivery"}, **found}


def _sender(frame: _Frame) -> dict[str, Any]:
    row = _row(frame.get("from"))
    if row is None:
        raise ProtocolError("MALFORMED_FRAME", "a sender that is no session")
    return row


def _sessions(frame: _Frame) -> Event:
    rows = frame.get("sessions")
    if not isinstance(rows, list):
        raise ProtocolError("MALFORMED_FRAME", "sessions is not a list")
    found = tuple(row for row in map(_row, rows) if row is not None)
    error = frame.get("error", "")
    return Listed(_string(frame, "requestId"), found, error if isinstance(error, str) else "")


def _message(frame: _Frame) -> Event:
    message = frame.get("message")
    if plain_letter(message) is None or not isinstance(message, dict):
        raise ProtocolError("MALFORMED_FRAME", "a message that is none")
    return MessageCame(_sender(frame), message)


def _delivered(frame: _Frame) -> Event:
    return Sent(_string(frame, "messageId"), "queued" if frame.get("delivery") == "queued" else "delivered")


def _queued(frame: _Frame) -> Event:
    return Sent(_string(frame, "messageId"), "queued", _string(frame, "reason"))


def _failed(frame: _Frame) -> Event:
    is_known = frame.get("outcomeKnown") is not False
    return Sent(_string(frame, "messageId"), "failed", _string(frame, "reason"), is_known)


def _left(frame: _Frame) -> Event:
    return Left(_string(frame, "sessionId"))


def _last_read(frame: _Frame) -> Event:
    entry, offset, limit = frame.get("entryId"), frame.get("offset", 0), frame.get("limit", 0)
    if not (entry is None or is_label(entry)) or not _is_count(offset) or not _is_count(limit):
        raise ProtocolError("MALFORMED_FRAME", "a read that is none")
    return LastAsked(_string(frame, "token"), _sender(frame), entry, offset, limit)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _receipt_read(frame: _Frame) -> Event:
    return ReceiptAsked(
        _string(frame, "token"), _sender(frame), _string(frame, "rootSessionId"), _string(frame, "messageId")
    )


def _last_response(frame: _Frame) -> Event:
    return _answered("last", frame)


def _receipt_response(frame: _Frame) -> Event:
    return _answered("receipt", frame)


def _answered(kind: str, frame: _Frame) -> Event:
    body = {name: value for name, value in frame.items() if name not in ("type", "requestId")}
    return ReadAnswered(kind, _string(frame, "requestId"), body)


def _wake_request(frame: _Frame) -> Event:
    return WakeAsked(_string(frame, "token"), _string(frame, "sessionId"), _string(frame, "messageId"))


def _wake_failed(frame: _Frame) -> Event:
    detail = frame.get("detail", "")
    return WakeFailed(_string(frame, "messageId"), str(detail) if is_text(detail) else "")


_HEARD: Final = {
    "sessions": _sessions,
    "message": _message,
    "delivered": _delivered,
    "delivery_queued": _queued,
    "delivery_failed": _failed,
    "session_left": _left,
    "last_read": _last_read,
    "last_response": _last_response,
    "receipt_read": _receipt_read,
    "receipt_response": _receipt_response,
    "wake_request": _wake_request,
    "wake_failed": _wake_failed,
}
_ANNOUNCED: Final = {
    "last_read": "lastReads",
    "last_response": "lastReads",
    "receipt_read": "receiptReads",
    "receipt_response": "receiptReads",
    "wake_request": "wakeOutcomes",
    "wake_failed": "wakeOutcomes",
}
"""Frames that only a broker that announced their capability may send."""
