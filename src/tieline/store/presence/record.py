"""One presence record, version 1: from bytes to a checked value.

Rule 1: a record is a hint. It proves neither life nor death, and no record grants anything.
Rule 2: the base and the `communication` extension are validated separately. A bad extension takes
messaging from that record and leaves it listed; `communication_fault` says why.
Rule 3: this module knows no files and no clocks.

Source: reference/native.md 1C, 2.1, 2.6b, 3.2; reference/reliability.md F6.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tieline.keys import FIELD_PRIME, SMALL_ORDER_Y, SPKI_PREFIX, encode_base64
from tieline.model.identity import generated_alias, peer_id

__all__ = ["Communication", "Freshness", "Record", "file_name", "parse"]

Freshness = Literal["fresh", "stale", "ended"]
"""`fresh`: its process exists and wrote within 15 s. `stale`: it exists and did not. `ended`: no such
process is seen from here, which is not proof: it may live in another container."""

FILE_NAME_BYTES_MAX = 255
CAPABILITIES_MAX = 16

# Checked while decoding, in C: a directory may hold ten thousand records. test_record.py holds these
# against the rules of `model.identity`, which say the same one value at a time.
Instance = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9-]{1,128}\Z")]
Alias = Annotated[str, Meta(pattern=r"\A[A-Za-z][A-Za-z0-9_-]{0,63}\Z")]
EndpointPath = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"\A[^\x00]*\Z")]
KeyText = Annotated[str, Meta(min_length=1, max_length=256)]
Identifier = Annotated[str, Meta(max_length=4_096)]
ProcessNumber = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Known = Literal["message.send", "message.receive", "message.wait", "resource.request", "resource.control"]
ScopeWord = Literal["workspace", "repository", "machine"]
Instant = Annotated[datetime, Meta(tz=True)]

# 12 bytes of prefix are 16 digits; of the last of the other 44, two bits are unused and must be zero.
_CANONICAL_KEY = re.compile(re.escape(encode_base64(SPKI_PREFIX)) + "[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=")
_REFUSED_KEYS = frozenset(
    encode_base64(SPKI_PREFIX + (y | sign).to_bytes(32, "little"))
    for y in (*SMALL_ORDER_Y, *range(FIELD_PRIME, 2**255))
    for sign in (0, 1 << 255)
)
"""Every key of small order, and every one that is not encoded canonically: 48 texts."""
_PHASES = frozenset({"idle", "thinking", "editing", "running_command", "waiting_input", "waiting_resource"})
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


class Communication(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "instance": "instanceId",
        "public_key": "publicKey",
        "claimed_peer_id": "peerId",
        "workspace_id": "workspaceId",
        "repository_id": "repositoryId",
    },
):
    """What a record says of how to reach its instance; text of another process, not yet authenticated.

    `alias` and `scope` hold their defaults where the record names none; it is checked, and only for
    protocol 1, that the key is canonical and not of small order. Another `protocol` is listed and
    cannot be reached.
    """

    protocol: Annotated[int, Meta(ge=1)]
    instance: Instance
    endpoint: EndpointPath
    public_key: KeyText
    capabilities: Annotated[tuple[Known, ...], Meta(max_length=CAPABILITIES_MAX)]
    alias: Alias = ""
    scope: ScopeWord = "workspace"
    claimed_peer_id: Identifier | None = None
    workspace_id: Identifier | None = None
    repository_id: Identifier | None = None

    @property
    def peer_id(self) -> str:
        """The root's peer id, computed and never taken over."""
        return peer_id(self.instance, None)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One presence record. All text in it is foreign: nothing of it is shown unsanitised.

    Times are wall milliseconds; `context_percent` is what was told, if anything; `activity` is a phase
    word or empty.
    """

    pid: int
    session: str
    workspace_root: str
    project: str
    provider: str
    model: str
    mode: str
    status: str
    activity: str
    started_ms: int | None
    updated_ms: int
    context_percent: float | None
    communication: Communication | None
    communication_fault: str | None
    file_name: str = ""
    freshness: Freshness = "stale"


class _Activity(msgspec.Struct, gc=False):
    phase: str


class _Head(msgspec.Struct, rename="camel", gc=False):
    """The base of a record."""

    version: Literal[1]
    pid: ProcessNumber
    session_id: Annotated[str, Meta(min_length=1)]
    workspace_root: str
    updated_at: Instant
    project_name: str = ""
    provider: str | None = None
    model: str | None = None
    mode: str = ""
    status: str = ""
    started_at: Instant | None = None
    context_percent: float | None = None


class _Base(_Head, rename="camel", gc=False):
    """The base, with what follows as bytes that are judged apart."""

    activity: msgspec.Raw = msgspec.Raw()
    communication: msgspec.Raw = msgspec.Raw()


class _Whole(_Head, rename="camel", gc=False):
    """A record of which every part is right, read in one go: nearly all are."""

    activity: _Activity | None = None
    communication: Communication | None = None


_decode_whole = msgspec.json.Decoder(_Whole).decode
_decode_base = msgspec.json.Decoder(_Base).decode
_decode_activity = msgspec.json.Decoder(_Activity | None).decode
_decode_extension = msgspec.json.Decoder(Communication | None).decode
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def file_name(session: str, instance: str | None) -> str:
    """Return the name of a record's file.

    The session with every character outside letters, digits, `_`, `.`, `-` replaced by `_`, a dot and
    the instance where the record has the extension, and `.json`. A session that leaves no room is cut.

    Source: reference/native.md 22, 2.1.
    """
    tail = f".{instance}.json" if instance is not None else ".json"
    return "".join(c if c in _PLAIN else "_" for c in session)[: FILE_NAME_BYTES_MAX - len(tail)] + tail


def _always_stale(pid: int, updated_ms: int) -> Freshness:  # noqa: ARG001 - the shape of a judgement
    return "stale"


def parse(data: bytes, name: str = "", judge: Callable[[int, int], Freshness] = _always_stale) -> Record:
    """Return the record that a file's bytes state.

    Args:
        data: The file's contents.
        name: The file's name, which the record keeps.
        judge: Called with process id and time of writing; what it returns becomes `freshness`.

    Raises:
        ValueError: the base is not a version 1 record; the text says what is wrong. A bad extension
            raises nothing: `communication` is None then, and `communication_fault` says why.

    Source: reference/native.md 20, 21, 2.1.
    """
    base: _Head
    fault: str | None = None
    try:
        base = whole = _decode_whole(data)
        communication = whole.communication
        phase = whole.activity.phase if whole.activity is not None else ""
    except _UNREADABLE:
        base, phase, communication, fault = _in_parts(data)
    if communication is not None:
        if communication.protocol == 1 and not _is_acceptable_key(communication.public_key):
            communication, fault = None, "communication: publicKey is not an acceptable Ed25519 key"
        elif not communication.alias:
            alias = generated_alias(base.project_name, communication.instance)
            communication = msgspec.structs.replace(communication, alias=alias)
    updated_ms = round(base.updated_at.timestamp() * 1000)
    return Record(
        base.pid,
        base.session_id,
        base.workspace_root,
        base.project_name,
        base.provider or "",
        base.model or "",
        base.mode,
        base.status,
        phase if phase in _PHASES else "",
        round(base.started_at.timestamp() * 1000) if base.started_at is not None else None,
        updated_ms,
        base.context_percent,
        communication,
        fault,
        name,
        judge(base.pid, updated_ms),
    )


def _in_parts(data: bytes) -> tuple[_Base, str, Communication | None, str | None]:
    """Return the base, and what is right of the rest: neither part condemns the other."""
    phase, communication, fault = "", None, None
    try:
        base = _decode_base(data)
    except _UNREADABLE as error:
        raise ValueError(f"not a presence record: {error}") from error
    if base.activity:
        try:
            activity = _decode_activity(base.activity)
            phase = activity.phase if activity is not None else ""
        except _UNREADABLE:
            phase = ""  # it is for display, and costs no listing
    if base.communication:
        try:
            communication = _decode_extension(base.communication)
        except _UNREADABLE as error:
            fault = f"communication: {error}"
    return base, phase, communication, fault


def _is_acceptable_key(text: str) -> bool:
    """Return whether this is the canonical text of an Ed25519 key that is not of small order.

    Whether the point is on the curve costs a multiplication and is asked at the handshake, by `keys`.
    """
    return _CANONICAL_KEY.fullmatch(text) is not None and text not in _REFUSED_KEYS
