"""What the hub orders, in the words of each dialect.

Rule 1: a dialect says what it has a frame for; the rest is not said to it at all.
Rule 2: who is shown to a dialect has the form that its reader demands, whoever it is.
Rule 3: one output is put into words once, however often and to how many it is said in a row.

Source: reference/intercom.md 1.3, 1.5, 1.7, 1.8, 10.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tieline.engine.brokering import contract
from tieline.engine.brokering.features import Features
from tieline.wire.intercom.forms import is_label, plain_session, recorded_view
from tieline.wire.intercom.framing import FRAME_BYTES_MAX, payload
from tieline.wire.intercom.reading import dump, parse

__all__ = ["CAPABILITIES", "FrameCodec"]

CAPABILITIES: Final = {
    "guardedDelivery": "guarded_delivery",
    "receiptReads": "receipt_reads",
    "lastReads": "last_reads",
    "wakeOutcomes": "wake_outcomes",
}
"""Names on the wire of what a session may announce with the number 1, and the features they stand for."""

_RECORDED_FEATURES: Final = ["extension-bus-v1", "exact-send-v1"]
_UNKNOWN: Final = "unknown"
_RECORDED_ORDER: Final = ("name", "runtimeFallbackAlias", "cwd", "model", "pid", "startedAt", "lastActivity")
_RECORDED_REST: Final = ("status", "tmuxPane", "contextUsage", "extensions")

_Frame = dict[str, Any]


class FrameCodec:
    """What the hub asks of this wire; one for all links of a broker, so that nothing is worded twice."""

    def __init__(self) -> None:
        self._last: tuple[contract.Output, Features, bytes] | None = None

    def payload(self, features: Features, output: contract.Output) -> bytes | None:
        """Return the payload that says `output` to such a session; None where there is no frame for it.

        It may be over the bound: `frame_bytes` tells.
        """
        if self._last is not None and self._last[0] is output and self._last[1] == features:
            return self._last[2]
        frame = _said(features, output)
        if frame is None:
            return None
        data = payload(frame)
        self._last = (output, features, data)
        return data

    def frame_bytes(self, features: Features, output: contract.Output) -> int:
        """Return how many bytes the frame that says `output` has, its length not counted."""
        return len(self.payload(features, output) or b"")

    def smaller(self, features: Features, output: contract.Output) -> bytes | None:
        """Return what is said instead of an output that is over the bound; None where that is nothing."""
        if isinstance(output, contract.Listing):
            error = f"Intercom message too large (max {FRAME_BYTES_MAX})"
            frame = {"type": "sessions", "requestId": output.request_id, "sessions": [], "error": error}
            return payload(frame)
        if isinstance(output, contract.ReadReturned):
            short = contract.ReadReturned(output.kind, output.request_id, {"error": "too_large"})
            return self.payload(features, short)
        return None

    def dump(self, value: object) -> bytes:
        """Return a JSON value as compact UTF-8."""
        return dump(value)

    def parse(self, data: bytes) -> Any:
        """Return the JSON value that `dump` wrote."""
        return parse(data)


def _said(features: Features, output: contract.Output) -> _Frame | None:
    table = _PLAIN if features.needs_plain else _RECORDED
    say = table.get(type(output))
    return None if say is None else say(features, output)


def _plain_row(row: contract.Row) -> Mapping[str, Any]:
    """Return a session as readers of the strict form demand it."""
    if row.features.needs_plain:
        return row.fields
    shown = {
        name: value for name, value in row.fields.items() if name not in ("name", "status", "cwd", "model")
    }
    for name in ("name", "status"):
        if is_label(row.fields.get(name)):
            shown[name] = row.fields[name]
    for name in ("cwd", "model"):
        given = row.fields.get(name)
        shown[name] = given if is_label(given) else _UNKNOWN
    return (
        shown
        if plain_session(shown) is not None
        else {"id": row.session_id, "cwd": _UNKNOWN, "model": _UNKNOWN}
    )


def _recorded_row(row: contract.Row) -> Mapping[str, Any]:
    """Return a session as readers of revision N demand it: with a process and two times, always."""
    fields = recorded_view(row.fields) if row.features.needs_plain else row.fields
    standing = {
        "pid": row.process_id,
        "startedAt": row.joined_ms,
        "lastActivity": row.fields.get("lastSeen", row.joined_ms),
    }
    shown: _Frame = {"id": row.session_id, "endpointEpoch": row.epoch}
    for name in _RECORDED_ORDER:
        if name in fields:
            shown[name] = fields[name]
        elif name in standing:
            shown[name] = standing[name]
    shown |= {name: fields[name] for name in _RECORDED_REST if name in fields}
    shown["trustedLocal"] = True
    return shown


def _registered(features: Features, output: contract.Registered) -> _Frame:
    frame: _Frame = {"type": "registered", "sessionId": output.session_id}
    for name, attribute in CAPABILITIES.items():
        if getattr(features, attribute):
            frame[name] = 1
    return frame


def _recorded_registered(_: Features, output: contract.Registered) -> _Frame:
    return {"type": "registered", "sessionId": output.session_id, "features": _RECORDED_FEATURES}


def _sessions(
    row_of: Callable[[contract.Row], Mapping[str, Any]],
) -> Callable[[Features, contract.Listing], _Frame]:
    def say(_: Features, output: contract.Listing) -> _Frame:
        rows = [row_of(row) for row in output.rows]
        return {"type": "sessions", "requestId": output.request_id, "sessions": rows}

    return say


def _message(_: Features, output: contract.Delivery) -> _Frame:
    return {"type": "message", "from": _plain_row(output.sender), "message": output.fields}


def _recorded_message(_: Features, output: contract.Delivery) -> _Frame:
    times = {"brokerReceivedAt": output.received_ms, "brokerDeliveredAt": output.delivered_ms}
    return {"type": "message", "from": _recorded_row(output.sender), "message": {**output.fields, **times}}


def _delivered(_: Features, output: contract.Delivered) -> _Frame:
    return {"type": "delivered", "messageId": output.message_id}


def _recorded_delivered(_: Features, output: contract.Delivered) -> _Frame:
    return _recorded_taken(output.message_id, is_held=output.is_held)


def _recorded_queued(_: Features, output: contract.Queued) -> _Frame:
    return _recorded_taken(output.message_id, is_held=True)


def _recorded_taken(message_id: str, *, is_held: bool) -> _Frame:
    return {
        "type": "delivered",
        "messageId": message_id,
        "delivery": "queued" if is_held else "socket_delivered",
        "retryable": False,
        "outcomeKnown": True,
    }


def _queued(_: Features, output: contract.Queued) -> _Frame:
    return {"type": "delivery_queued", "messageId": output.message_id, "reason": output.reason}


def _failed(_: Features, output: contract.Failed) -> _Frame:
    return {"type": "delivery_failed", "messageId": output.message_id, "reason": output.reason}


def _recorded_failed(features: Features, output: contract.Failed) -> _Frame:
    return {
        **_failed(features, output),
        "delivery": "failed",
        "code": output.code,
        "retryable": output.is_retryable,
        "outcomeKnown": True,
    }


def _departed(_: Features, output: contract.Departed) -> _Frame:
    return {"type": "session_left", "sessionId": output.session_id}


def _arrived(_: Features, output: contract.Arrived) -> _Frame:
    return {"type": "session_joined", "session": _recorded_row(output.row)}


def _changed(_: Features, output: contract.Changed) -> _Frame:
    return {"type": "presence_update", "session": _recorded_row(output.row)}


def _controlled(_: Features, output: contract.Controlled) -> _Frame:
    control: _Frame = {"messageId": output.message_id, "action": output.action, "timestamp": output.at_ms}
    if output.superseded_by is not None:
        control["supersededBy"] = output.superseded_by
    return {"type": "message_control", "from": _recorded_row(output.sender), "control": control}


def _receipt_passed(_: Features, output: contract.ReceiptPassed) -> _Frame:
    return {"type": "message_receipt", "from": _recorded_row(output.sender), "receipt": output.receipt}


def _bus_owner(_: Features, output: contract.BusOwner) -> _Frame:
    return {
        "type": "extension_owner",
        "namespace": output.namespace,
        "ownerId": output.session_id,
        "ownerEpoch": output.epoch,
    }


def _bus_message(_: Features, output: contract.BusMessage) -> _Frame:
    frame: _Frame = {
        "type": "extension_message",
        "from": _recorded_row(output.sender),
        "namespace": output.namespace,
        "payload": output.payload,
    }
    if output.owner_epoch is not None:
        frame["ownerEpoch"] = output.owner_epoch
    return frame


def _bus_state(_: Features, output: contract.BusState) -> _Frame:
    return {
        "type": "extension_state",
        "namespace": output.namespace,
        "revision": output.revision,
        "payload": output.payload,
    }


def _bus_state_answered(_: Features, output: contract.BusStateAnswered) -> _Frame:
    frame: _Frame = {
        "type": "extension_state_result",
        "namespace": output.namespace,
        "ok": output.is_committed,
        "revision": output.revision,
    }
    if output.reason:
        frame["reason"] = output.reason
    if output.request_id is not None:
        frame["requestId"] = output.request_id
    return frame


def _bus_refused(_: Features, output: contract.BusRefused) -> _Frame:
    return {"type": "error", "error": output.reason}


def _read_wanted(features: Features, output: contract.ReadWanted) -> _Frame | None:
    if not (features.last_reads if output.kind == "last" else features.receipt_reads):
        return None
    return {
        "type": f"{output.kind}_read",
        "token": output.token,
        "from": _plain_row(output.sender),
        **output.body,
    }


def _read_returned(_: Features, output: contract.ReadReturned) -> _Frame:
    return {"type": f"{output.kind}_response", "requestId": output.request_id, **output.body}


def _wake_wanted(features: Features, output: contract.WakeWanted) -> _Frame | None:
    if not features.wake_outcomes:
        return None
    return {
        "type": "wake_request",
        "token": output.token,
        "sessionId": output.session_id,
        "messageId": output.message_id,
    }


def _wake_failed(features: Features, output: contract.WakeFailed) -> _Frame | None:
    if not features.wake_outcomes:
        return None
    return {"type": "wake_failed", "messageId": output.message_id, "detail": output.detail}


# Each entry takes the very output that it stands under.
_Say = Callable[[Features, Any], _Frame | None]

_PLAIN: Final[dict[type, _Say]] = {
    contract.Registered: _registered,
    contract.Listing: _sessions(_plain_row),
    contract.Delivery: _message,
    contract.Delivered: _delivered,
    contract.Queued: _queued,
    contract.Failed: _failed,
    contract.Departed: _departed,
    contract.ReadWanted: _read_wanted,
    contract.ReadReturned: _read_returned,
    contract.WakeWanted: _wake_wanted,
    contract.WakeFailed: _wake_failed,
}
_RECORDED: Final[dict[type, _Say]] = {
    contract.Registered: _recorded_registered,
    contract.Listing: _sessions(_recorded_row),
    contract.Delivery: _recorded_message,
    contract.Delivered: _recorded_delivered,
    contract.Queued: _recorded_queued,
    contract.Failed: _recorded_failed,
    contract.Departed: _departed,
    contract.Arrived: _arrived,
    contract.Changed: _changed,
    contract.Controlled: _controlled,
    contract.ReceiptPassed: _receipt_passed,
    contract.BusOwner: _bus_owner,
    contract.BusMessage: _bus_message,
    contract.BusState: _bus_state,
    contract.BusStateAnswered: _bus_state_answered,
    contract.BusRefused: _bus_refused,
}
