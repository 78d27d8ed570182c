"""One record of the pi-peers registry: from bytes to a checked value, and back.

Rule 1: a record is a claim of another process. It proves neither life nor death, and grants nothing.
Rule 2: read liberally. Only what no later step could do without is asked for: a number, an address, and a
protocol that can be compared. An unknown status is busy; what has another shape is left out.
Rule 3: what is written bears every field that the contract names, and no token.
Rule 4: this module knows no files, no clocks and no processes.

Source: specification of the pi-peers wire, "Discovery", "Freshness semantics"; reference rules 2 to 5, 14,
15, and U1 to U8, U23.
"""

import hashlib
import math
from typing import Any

import msgspec

__all__ = [
    "FORMER_NAMES_MAX",
    "PROTOCOL",
    "RecordFault",
    "Window",
    "encode",
    "key_name",
    "read",
    "record_name",
]

PROTOCOL = 1
"""The protocol that we speak; a record without one is taken to mean it."""
FORMER_NAMES_MAX = 16
"""Names by which a renamed window is still found; the oldest give way."""
FEATURES_MAX = 64
TEXT_CHARS_MAX = 4_096
"""Of one text in a record; longer than any path or name that a system takes."""
PROCESS_ID_MAX = 2**31 - 1
INSTANT_MS_MAX = 2**53 - 1
IDLE = "idle"


class RecordFault(ValueError):
    """A record that cannot be used; its text is the reason, for a person, without foreign content."""


class Window(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one window publishes of itself. All text in it is foreign: nothing of it is shown unsanitised.

    Attributes:
        pid: Its process id, as its own domain counts; 1 to 2^31 - 1.
        session: The saved conversation it shows; empty when not told. It recurs and never routes alone.
        cwd: Its working directory, empty when not told.
        project_root: The top of its work tree, or None: then `cwd` is its project.
        name: How people call it; empty when not told.
        name_source: `derived` or `user`; any other word is kept as it is.
        former_names: Names that it had, the latest last.
        kind: `interactive` or another word.
        status: `idle`, `busy`, or another word, which counts as busy.
        status_updated_ms: Wall milliseconds of the last flip between busy and idle, 0 when not told.
        started_ms: Wall milliseconds of its start, 0 when not told.
        process_start: Start of its process, in whatever form its maker writes; empty when not told.
        pid_domain: Where `pid` counts; empty when not told.
        socket_path: The literal text of its address. The name of its key file is made of it.
        protocol: The highest protocol that it speaks.
        features: Optional controls that it takes; `notify_idle` is the only one with a meaning.
        context_percent: Whole percent of its context in use, 0 to 100, or None.
        version: Of the program that wrote the record.
    """

    pid: int
    session: str = ""
    cwd: str = ""
    project_root: str | None = None
    name: str = ""
    name_source: str = "derived"
    former_names: tuple[str, ...] = ()
    kind: str = "interactive"
    status: str = IDLE
    status_updated_ms: int = 0
    started_ms: int = 0
    process_start: str = ""
    pid_domain: str = ""
    socket_path: str
    protocol: int = PROTOCOL
    features: frozenset[str] = frozenset()
    context_percent: int | None = None
    version: str = ""

    @property
    def is_busy(self) -> bool:
        """Whether it is at work, as far as it says so."""
        return self.status != IDLE

    @property
    def ref(self) -> str:
        """Six hexadecimal digits that tell windows of one name apart and outlast a rename."""
        # Two windows that name no session must not share the digits of the empty text.
        return hashlib.sha256(_bytes(self.session or self.socket_path)).hexdigest()[:6]

    @property
    def project(self) -> str:
        """What bounds who sees it: the top of its work tree, else its working directory."""
        return self.project_root or self.cwd


def record_name(pid: int) -> str:
    """Return the name of the record's file."""
    return f"{pid}.json"


def key_name(pid: int, socket_path: str) -> str:
    """Return the name of the key file that belongs to this process and this very address.

    Source: reference rules 5, U8, U21: the literal text of the address, hashed as UTF-8.
    """
    return f"{pid}.{hashlib.sha256(_bytes(socket_path)).hexdigest()}.key"


def read(data: bytes, pid: int) -> Window:
    """Return what a record's file says.

    Args:
        data: The whole file.
        pid: The number in the file's name; the record must not name another.

    Raises:
        RecordFault: it cannot be used; the text says why.
    """
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RecordFault("it is not JSON") from None
    if not isinstance(fields, dict):
        raise RecordFault("it is not a JSON object")
    stated = fields.get("pid", pid)
    if isinstance(stated, bool) or stated != pid or not 0 < pid <= PROCESS_ID_MAX:
        raise RecordFault("its pid is not the one in the file's name")
    return Window(
        pid=pid,
        session=_text(fields.get("sessionId")),
        cwd=_text(fields.get("cwd")),
        project_root=_text(fields.get("projectRoot")) or None,
        name=_text(fields.get("name")),
        name_source=_text(fields.get("nameSource")),
        former_names=_former_names(fields.get("formerNames")),
        kind=_text(fields.get("kind")),
        status=_text(fields.get("status")) or "unknown",
        status_updated_ms=_instant(fields.get("statusUpdatedAt")),
        started_ms=_instant(fields.get("startedAt")),
        process_start=_text(fields.get("procStart")),
        pid_domain=_text(fields.get("pidDomain")),
        socket_path=_address(fields.get("socketPath")),
        protocol=_protocol(fields.get("peerProtocol", PROTOCOL)),
        features=_features(fields.get("features")),
        context_percent=_percent(fields.get("contextUsage")),
        version=_text(fields.get("version")),
    )


def encode(window: Window) -> bytes:
    """Return the bytes of a window's record, one line, fields in the contract's order.

    What is optional there (`projectRoot`, `contextUsage`) is left out when it is not known. A byte that is
    no text, as a directory's name may hold, is written as a question mark.

    Raises:
        RecordFault: no reader could use it, for its address, number or protocol.
    """
    fields: dict[str, Any] = {
        "version": window.version,
        "pid": window.pid,
        "sessionId": window.session,
        "cwd": window.cwd,
        "projectRoot": window.project_root,
        "name": window.name,
        "nameSource": window.name_source,
        "formerNames": list(window.former_names),
        "kind": window.kind,
        "status": window.status,
        "statusUpdatedAt": window.status_updated_ms,
        "startedAt": window.started_ms,
        "procStart": window.process_start,
        "pidDomain": window.pid_domain,
        "socketPath": window.socket_path,
        "peerProtocol": window.protocol,
        "features": sorted(window.features),
        "contextUsage": window.context_percent,
    }
    for optional in ("projectRoot", "contextUsage"):
        if fields[optional] is None:
            del fields[optional]
    for name, value in fields.items():
        if isinstance(value, str) and name != "socketPath":
            fields[name] = value.encode("utf-8", "replace").decode("utf-8")
    try:
        data = msgspec.json.encode(fields) + b"\n"
    except UnicodeEncodeError:
        raise RecordFault("its socketPath is not UTF-8") from None
    read(data, window.pid)
    return data


def _bytes(text: str) -> bytes:
    """Return the UTF-8 of a text; a path of this system may hold bytes that are none."""
    return text.encode("utf-8", "surrogateescape")


def _text(value: object) -> str:
    """Return a text, a whole number as its digits, and nothing for what is neither or is too long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value if isinstance(value, str) and len(value) <= TEXT_CHARS_MAX else ""


def _address(value: object) -> str:
    address = _text(value)
    if not address.startswith("/") or "\0" in address:
        raise RecordFault("its socketPath is not an absolute path")
    return address


def _protocol(value: object) -> int:
    # What cannot be compared cannot be refused for being newer either.
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RecordFault("its peerProtocol is not a positive whole number")
    return value


def _instant(value: object) -> int:
    """Return wall milliseconds, 0 for what is none: no decision rests on it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= INSTANT_MS_MAX:
        return 0
    return int(value)


def _former_names(value: object) -> tuple[str, ...]:
    """Return the latest names; each stands there as a text, or as an object with a `name`."""
    if not isinstance(value, list):
        return ()
    names = (_text(one.get("name") if isinstance(one, dict) else one) for one in value)
    return tuple(name for name in names if name)[-FORMER_NAMES_MAX:]


def _features(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        return frozenset()
    return frozenset(one for one in value[:FEATURES_MAX] if isinstance(one, str))


def _percent(value: object) -> int | None:
    """Return whole percent from a number, or from an object that has one; None for anything else."""
    if isinstance(value, dict):
        value = value.get("percent", value.get("percentage"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return math.floor(value) if 0 <= value <= 100 else None
