"""Frames and rows as the history keeps them: ids and digests, no texts.

Rule: this reads bytes as a bystander at the port would, with a plain JSON reader of its own; it uses
nothing of the product's protocol, so that a defect there cannot hide itself here.

Source: reference/native.md 2.5, 2.6b, 2.8; reference/reliability.md 2.1.
"""

import hashlib
from typing import Any

import msgspec

from tieline.engine.contract import ContextRow, MessageRow, MoveRow, MuteRow, PruneRow, Row, RunRow

__all__ = ["outline", "outline_row", "sha"]

_decode = msgspec.json.Decoder().decode
RECEIPT_FIELDS = ("messageId", "from", "to", "state", "cursor", "outcome")


def sha(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of the exact UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def outline(line: bytes) -> dict[str, Any]:
    """Return what one line says; kind is request, result, error or garbage."""
    try:
        frame = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"kind": "garbage", "size": len(line)}
    if not isinstance(frame, dict):
        return {"kind": "garbage", "size": len(line)}
    if "method" in frame:
        params = frame.get("params")
        return {
            "kind": "request",
            "id": frame.get("id"),
            "method": str(frame["method"]),
            **_params(str(frame["method"]), params if isinstance(params, dict) else {}),
        }
    if "error" in frame:
        error = frame["error"] if isinstance(frame["error"], dict) else {}
        given = error.get("data")
        data: dict[str, Any] = given if isinstance(given, dict) else {}
        return {
            "kind": "error",
            "id": frame.get("id"),
            "code": str(data.get("code", "")),
            "fields": sorted(data),
            "text": str(error.get("message", "")),
        }
    result = frame.get("result")
    return {"kind": "result", "id": frame.get("id"), **_result(result if isinstance(result, dict) else {})}


def _params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    tail = method.rpartition(".")[2]
    if tail == "send":
        said = {
            "message": params.get("messageId"),
            "to": params.get("to"),
            "sha": sha(str(params.get("content", ""))),
            "topic": params.get("topic"),
            "reply_to": params.get("replyTo"),
            "correlation": params.get("correlationId"),
            "depth": params.get("automaticDepth") or 0,
            "run": params.get("senderRunId"),
        }
        return {"send": said}
    if tail in ("status", "subscribe"):
        return {"message": params.get("messageId"), "to": params.get("to")}
    if tail == "receipt":
        told = params.get("receipt")
        return {"receipt": _receipt(told if isinstance(told, dict) else {})}
    if method == "peer.hello":
        return {"nonce": params.get("nonce"), "instance": params.get("instanceId")}
    if method == "peer.authenticate":
        return {"proof": params.get("proof")}
    return {}


def _receipt(told: dict[str, Any]) -> dict[str, Any]:
    return {name: told.get(name) for name in RECEIPT_FIELDS} | {"fields": sorted(told)}


def _result(result: dict[str, Any]) -> dict[str, Any]:
    if "state" in result:
        return {"receipt": _receipt(result)}
    if result.get("subscribed") is True and isinstance(result.get("receipt"), dict):
        return {"receipt": _receipt(result["receipt"])}
    if "authenticated" in result:
        return {"authenticated": result["authenticated"]}
    if "proof" in result:
        return {
            "nonce": result.get("nonce"),
            "proof": result.get("proof"),
            "instance": result.get("instanceId"),
        }
    return {"fields": sorted(result)}


def outline_row(row: Row) -> dict[str, Any]:
    """Return what one row says."""
    match row:
        case MessageRow():
            envelope = row.envelope
            return {
                "row": "message",
                "cursor": row.cursor,
                "box": row.box.value,
                "message": envelope.message_id,
                "sender_instance": envelope.sender.instance,
                "sender": envelope.sender.id,
                "recipient_instance": envelope.recipient.instance,
                "recipient": envelope.recipient.id,
                "recipient_run": envelope.recipient.run,
                "sha": sha(envelope.content),
                "topic": envelope.topic,
                "reply_to": envelope.reply_to,
                "correlation": envelope.correlation_id,
                "depth": envelope.automatic_depth,
                "is_ask": envelope.is_ask,
                "from_person": row.from_person,
                "size": envelope.content_bytes,
                "deadline_ms": row.deadline_ms,
            }
        case MoveRow():
            return {
                "row": "move",
                "cursor": row.cursor,
                "of": row.message,
                "state": row.state.value,
                "outcome": row.outcome,
                "note": row.note,
                "token": row.token,
                "retryable": row.is_retryable,
            }
        case ContextRow():
            return {
                "row": "context",
                "cursor": row.cursor,
                "of": row.message,
                "record": row.record,
                "token": row.token,
            }
        case RunRow():
            return {"row": "run", "run": row.run, "is_live": row.is_live}
        case MuteRow():
            return {"row": "mute", "peer": row.peer, "is_muted": row.is_muted}
        case PruneRow():
            return {
                "row": "prune",
                "messages": list(row.messages),
                "moves_through": row.moves_through,
                "oldest": row.oldest_cursor,
            }
