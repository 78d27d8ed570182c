"""The bytes of a shared record: marker, version, checksum, content.

Rule 1: a record with another checksum, another version or a field that nobody knows is not guessed at.
Rule 2: a file without our marker is another program's, and never written.
Rule 3: this module knows no file; it is given bytes and a name for messages.

Source: reference/native.md 177 to 181; reference/reliability.md I38, I50; reference/open-bugs.md O47.
"""

import hashlib
from typing import Any, Final, TypeVar

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import VERSION, Blocker, Document, Launch, Ledger, Mark, Policy, ResourceKey

__all__ = ["MARKERS", "Index", "Witness", "decode", "encode", "is_ours"]


class Index(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which resources were ever stored, and how far the ledger had come.

    Attributes:
        ledger_revision: The highest that was ever stored; 0 when there never was one.
    """

    resources: tuple[ResourceKey, ...] = ()
    ledger_revision: int = 0


class Witness(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What is remembered of a resource apart from its record.

    Attributes:
        mark: The numbers that it was last stored with.
        launches: The commands of the ledger that name the resource.
    """

    resource: ResourceKey
    mark: Mark
    policy: Policy | None = None
    enrolment: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    launches: tuple[Launch, ...] = ()


MARKERS: Final[dict[type, str]] = {
    Document: "tieline-resource",
    Mark: "tieline-resource-mark",
    Ledger: "tieline-launches",
    Index: "tieline-resources",
    Witness: "tieline-resource-witness",
}
"""What each kind of record calls itself."""

_Kind = TypeVar("_Kind", Document, Mark, Ledger, Index, Witness)


class _Envelope(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A record around its content, which is kept as the bytes that the checksum counts."""

    marker: str
    version: int
    sha256: str
    content: msgspec.Raw


class _Label(msgspec.Struct):
    """What tells whose a file is; everything else in it is passed over."""

    marker: str = ""
    version: int = 0


# Made while this module is loaded, in one thread: two threads that are the first to read a kind of record
# at the same instant would end the process.
_LABEL: Final = msgspec.json.Decoder(_Label)
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in MARKERS
}


def encode(record: Document | Mark | Ledger | Index | Witness) -> bytes:
    """Return the bytes of a record, with its checksum."""
    content = msgspec.json.encode(record)
    digest = hashlib.sha256(content).hexdigest()
    return msgspec.json.encode(_Envelope(MARKERS[type(record)], VERSION, digest, msgspec.Raw(content)))


def decode(data: bytes, kind: type[_Kind], name: str) -> _Kind:
    """Return the record in `data`.

    Args:
        data: A whole file.
        kind: What it must be.
        name: Of the file, for messages.

    Raises:
        RecoveryRequired: it is damaged, or another kind of record. The bytes are left as they are.
        Refused: `VERSION_SKEW`: a newer program wrote it.
    """
    try:
        label = _LABEL.decode(data)
        if label.marker == MARKERS[kind] and label.version > VERSION:
            raise Refused("VERSION_SKEW", f"{name} was written by a newer version of this program")
        envelope = _ENVELOPE.decode(data)
        if (envelope.marker, envelope.version) != (MARKERS[kind], VERSION):
            raise RecoveryRequired(f"{name} is not a record of this kind")
        content = bytes(envelope.content)
        if hashlib.sha256(content).hexdigest() != envelope.sha256:
            raise RecoveryRequired(f"{name} is damaged: its checksum does not fit")
        return _DECODERS[kind].decode(content)  # type: ignore[no-any-return]  # of the kind that is its key
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecoveryRequired(f"{name} is damaged: {error}") from error


def is_ours(data: bytes) -> bool:
    """Return whether `data` bears one of our markers, whatever else is in it."""
    try:
        return _LABEL.decode(data).marker in MARKERS.values()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
