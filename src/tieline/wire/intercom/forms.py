"""What a session and a message must be, and what the hub decides by in them.

Rule 1: each revision has its own form; what one of them forbids, another may take.
Rule 2: an unknown field is never an error; null is not absent; a boolean is no number.
Rule 3: a reader here returns None for what breaks the form: what becomes of it is the link's to say.
Rule 4: this module knows no order of frames and no session.

Source: reference/intercom.md 1.4, 1.5, 1.7, 3, 5; where 1.7 knows no bytes, our own.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tieline.engine.brokering.contract import Extension, Guard, Letter, Lineage
from tieline.wire.intercom.reading import dump, trim

__all__ = [
    "HINT_FIELDS",
    "extensions",
    "hint_fault",
    "is_finite",
    "is_label",
    "is_text",
    "lineage",
    "plain_letter",
    "plain_presence",
    "plain_session",
    "recorded_letter",
    "recorded_presence",
    "recorded_session",
    "recorded_view",
]

Fields = Mapping[str, Any]

EXTENSIONS_MAX: Final = 32
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_TEXT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PROJECT: Final = re.compile("[0-9a-f]{64}")
_NAMESPACE: Final = re.compile("[a-z0-9][a-z0-9._/-]{0,63}")
_TOOL: Final = re.compile("[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_UUID: Final = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_DIGEST: Final = _PROJECT
_HINT: Final = {
    "tool": (_TOOL, "a name of letters, digits and _ . - that begins with a letter or _, 128 at most"),
    "commandId": (_UUID, "a UUID"),
    "commandFingerprint": (_DIGEST, "a SHA-256 in 64 lower-case hexadecimal digits"),
}
HINT_FIELDS: Final = tuple(_HINT)
"""Of a hint; the last one may be absent."""
_DELIVERIES: Final = frozenset({"queue", "steer", "passive"})
_ATTACHMENT_TYPES: Final = frozenset({"file", "snippet", "context"})
_ABSENT: Final = object()


def is_label(value: object) -> bool:
    """Return whether `value` is a string that is not empty and holds no control character."""
    return isinstance(value, str) and value != "" and _CONTROL.search(value) is None


def is_text(value: object) -> bool:
    """Return whether `value` is a string without control characters but tab, line feed, carriage return."""
    return isinstance(value, str) and _CONTROL_IN_TEXT.search(value) is None


def is_finite(value: object) -> bool:
    """Return whether `value` is a number, and neither infinite nor a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return is_finite(value) and float(value) >= 0 and float(value).is_integer()  # type: ignore[arg-type]


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_project(value: object) -> bool:
    return isinstance(value, str) and _PROJECT.fullmatch(value) is not None


def _is_string(value: object) -> bool:
    return isinstance(value, str)


_Check = Callable[[object], bool]

_PLAIN_SESSION: Final[dict[str, _Check]] = {
    "name": is_label,
    "status": is_label,
    "projectId": _is_project,
    "lastSeen": is_finite,
    "lastIntercomActivity": is_finite,
    "pendingAsks": _is_count,
    "acceptsAsks": _is_flag,
}
_PLAIN_PRESENCE: Final = ("name", "status", "model", "pendingAsks", "acceptsAsks", "lastIntercomActivity")
_LINEAGE: Final[dict[str, _Check]] = {
    "rootSessionId": is_label,
    "parentSessionId": is_label,
    "incarnation": is_label,
    "applicationGuard": is_label,
}
# What a session cannot say of itself: the hub adds it.
_OURS: Final = ("guardedDelivery",)


def plain_session(session: object) -> dict[str, Any] | None:
    """Return a session of the strict form with all that it says of itself, or None."""
    if not isinstance(session, dict):
        return None
    if not is_label(session.get("cwd")) or not is_label(session.get("model")):
        return None
    checks = _PLAIN_SESSION | _LINEAGE
    if not all(check(session[name]) for name, check in checks.items() if name in session):
        return None
    return {name: value for name, value in session.items() if name not in _OURS}


def plain_presence(frame: Fields) -> dict[str, Any] | None:
    """Return what a presence frame of the strict form changes, or None where the session would break it."""
    changes = {name: frame[name] for name in _PLAIN_PRESENCE if name in frame}
    checks = _PLAIN_SESSION | {"model": is_label}
    return changes if all(checks[name](value) for name, value in changes.items()) else None


def lineage(session: Fields) -> Lineage | None:
    """Return the group that a session states, or None for one that states none.

    Raises:
        ValueError: a parent without a root, or one that is not the root: no one has a grandparent here.
    """
    root, parent = session.get("rootSessionId"), session.get("parentSessionId")
    if parent is not None and parent != root:
        raise ValueError("a child's parent is its root")
    return None if root is None else Lineage(str(root), None if parent is None else str(parent))


_RECORDED_SESSION: Final[dict[str, _Check]] = {
    "name": _is_string,
    "runtimeFallbackAlias": lambda value: isinstance(value, bool | str),
    "status": _is_string,
    "tmuxPane": _is_string,
    "extensions": lambda value: extensions(value) is not None,
}
_RECORDED_REQUIRED: Final[dict[str, _Check]] = {
    "cwd": _is_string,
    "model": _is_string,
    "pid": is_finite,
    "startedAt": is_finite,
    "lastActivity": is_finite,
}
_RECORDED_PRESENCE: Final[dict[str, _Check]] = {
    "name": _is_string,
    "runtimeFallbackAlias": lambda value: isinstance(value, bool | str),
    "status": _is_string,
    "model": _is_string,
    "tmuxPane": _is_string,
    "contextUsage": lambda value: is_finite(value) or isinstance(value, dict),
}


def recorded_session(session: object) -> dict[str, Any] | None:
    """Return what counts of a session of revision N, or None where something needed is absent or wrong."""
    if not isinstance(session, dict):
        return None
    if not all(check(session.get(name)) for name, check in _RECORDED_REQUIRED.items()):
        return None
    if not all(check(session[name]) for name, check in _RECORDED_SESSION.items() if name in session):
        return None
    known = ("name", "runtimeFallbackAlias", *_RECORDED_REQUIRED, "status", "tmuxPane", "extensions")
    return {name: session[name] for name in known if name in session}


def recorded_presence(frame: Fields) -> dict[str, Any]:
    """Return what a presence frame of revision N changes: None clears, what is wrong counts as unsaid."""
    return {
        name: frame[name]
        for name, check in _RECORDED_PRESENCE.items()
        if name in frame and (frame[name] is None or check(frame[name]))
    }


def recorded_view(session: Fields) -> dict[str, Any]:
    """Return of a session of another form what revision N would take from one of its own."""
    checks = _RECORDED_PRESENCE | _RECORDED_SESSION | _RECORDED_REQUIRED
    return {name: session[name] for name, check in checks.items() if name in session and check(session[name])}


def extensions(value: object) -> tuple[Extension, ...] | None:
    """Return the extensions that a session names, or None where one is malformed or they are too many."""
    if not isinstance(value, list) or len(value) > EXTENSIONS_MAX:
        return None
    found: list[Extension] = []
    for item in value:
        if not isinstance(item, dict) or not is_namespace(item.get("namespace")):
            return None
        if not isinstance(item.get("ownerEligible"), bool):
            return None
        found.append(Extension(item["namespace"], item["ownerEligible"]))
    return tuple(found)


def is_namespace(value: object) -> bool:
    """Return whether `value` may name an extension's namespace."""
    return isinstance(value, str) and _NAMESPACE.fullmatch(value) is not None


def plain_letter(message: object) -> Letter | None:
    """Return a message of the strict form, or None."""
    if not isinstance(message, dict) or not _is_plain_message(message):
        return None
    guard, is_guard_broken = _guard(message)
    replaces = message.get("queueMode") == "replace"
    return Letter(
        message_id=message["id"],
        fields=message,
        is_ask=message.get("expectsReply") is True,
        is_passive=message.get("passive") is True or message.get("delivery") == "passive",
        reply_to=message.get("replyTo"),
        thread_id=message["threadId"] if replaces else None,
        content_key="",
        is_plain=True,
        guard=guard,
        is_guardable=message.get("expectsReply") is False and "delivery" in message,
        is_guard_broken=is_guard_broken,
    )


def _is_plain_message(message: Fields) -> bool:
    content = message.get("content")
    if not is_label(message.get("id")) or not is_finite(message.get("timestamp")):
        return False
    if not isinstance(content, dict) or not is_text(content.get("text")):
        return False
    attachments = content.get("attachments", [])
    if not isinstance(attachments, list) or not all(
        _is_attachment(one, is_label, is_text) for one in attachments
    ):
        return False
    return _is_addressed(message) and _is_ordered(message)


def _is_addressed(message: Fields) -> bool:
    checks: dict[str, _Check] = {"replyTo": is_label, "expectsReply": _is_flag, "passive": _is_flag}
    return all(check(message[name]) for name, check in checks.items() if name in message)


def _is_ordered(message: Fields) -> bool:
    """Return whether a message's ways of delivery agree with one another."""
    delivery = message.get("delivery", _ABSENT)
    mode = message.get("queueMode", _ABSENT)
    thread = message.get("threadId", _ABSENT)
    if delivery is not _ABSENT and not (isinstance(delivery, str) and delivery in _DELIVERIES):
        return False
    if message.get("passive") is True and delivery not in (_ABSENT, "passive"):
        return False
    is_passive = message.get("passive") is True or delivery == "passive"
    if is_passive and message.get("expectsReply") is True:
        return False
    if mode is not _ABSENT and (mode not in ("stack", "replace") or delivery != "queue"):
        return False
    if thread is _ABSENT:
        return bool(mode != "replace")
    return mode == "replace" and isinstance(thread, str) and is_label(trim(thread))


def _is_attachment(value: object, is_name: _Check, is_content: _Check) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _ATTACHMENT_TYPES:
        return False
    if not is_name(value.get("name")) or not is_content(value.get("content")):
        return False
    return "language" not in value or is_name(value["language"])


def _guard(message: Fields) -> tuple[Guard | None, bool]:
    """Return a message's whole guard, and whether it bears a broken one or a hint that needs one."""
    hint = message.get("replyHint", _ABSENT)
    if "guard" not in message:
        return None, hint is not _ABSENT
    guard = message["guard"]
    names = ("rootSessionId", "peerId", "incarnation", "applicationGuard")
    if not isinstance(guard, dict) or not all(is_label(guard.get(name)) for name in names):
        return None, True
    return Guard(*(guard[name] for name in names)), hint is not _ABSENT and bool(hint_fault(hint))


def hint_fault(value: object) -> str:
    """Return what breaks the form of a hint, "" where nothing does."""
    if not isinstance(value, Mapping):
        return f"it must have {', '.join(HINT_FIELDS[:-1])}"
    for name, (form, words) in _HINT.items():
        field = value.get(name)
        is_left_out = name == HINT_FIELDS[-1] and name not in value
        if not is_left_out and not (isinstance(field, str) and form.fullmatch(field)):
            return f"its {name} must be {words}"
    return ""


def recorded_letter(message: object) -> Letter | None:
    """Return a message of revision N, or None. It may hold what the strict form forbids: see `is_plain`."""
    if not isinstance(message, dict) or not _is_recorded_message(message):
        return None
    content = message["content"]
    key = [
        content["text"],
        content.get("attachments"),
        message.get("replyTo"),
        message.get("expectsReply", False),
        message.get("supersedes"),
        message.get("retryOf"),
    ]
    return Letter(
        message_id=message["id"],
        fields=message,
        is_ask=message.get("expectsReply") is True,
        reply_to=message.get("replyTo"),
        supersedes=message.get("supersedes"),
        retry_of=message.get("retryOf"),
        content_key=hashlib.sha256(dump(key)).hexdigest(),
        is_plain=_is_plain_message(message),
        is_guard_broken="guard" in message or "replyHint" in message,
    )


def _is_recorded_message(message: Fields) -> bool:
    content = message.get("content")
    identity = message.get("id")
    if not isinstance(identity, str) or not identity or not is_finite(message.get("timestamp")):
        return False
    if not isinstance(content, dict) or not isinstance(content.get("text"), str):
        return False
    attachments = content.get("attachments", [])
    if not isinstance(attachments, list):
        return False
    if not all(_is_attachment(one, _is_string, _is_string) for one in attachments):
        return False
    checks: dict[str, _Check] = {
        "replyTo": _is_string,
        "expectsReply": _is_flag,
        "supersedes": lambda value: isinstance(value, str) and value != "",
        "retryOf": lambda value: isinstance(value, str) and value != "",
        "senderSequence": is_finite,
    }
    return all(check(message[name]) for name, check in checks.items() if name in message)
