"""Who is who: instances, runs, peers, aliases, scopes, capabilities, descriptors.

Rule 1: only a peer id routes; it is the hash of an (instance, run) pair.
Rule 2: an alias, a process id, a path or a saved session never stands in for it.
Rule 3: who is reached over another wire has an instance with that wire's name and a colon before it: no
    native instance holds a colon, so none can be taken for the other.

Source: reference/native.md 1B, 2.3, 2.4, 3.2; DESIGN.md section 1.
"""

import hashlib
import json
from enum import StrEnum
from functools import lru_cache

import msgspec

from tieline.config import Scope, is_alias

__all__ = [
    "Availability",
    "Capability",
    "Descriptor",
    "Peer",
    "Principal",
    "Scope",
    "foreign_instance",
    "generated_alias",
    "is_alias",
    "is_instance",
    "is_peer_id",
    "is_plain_id",
    "peer_id",
    "wire_of",
]

INSTANCE_CHARACTERS_MAX = 128
PLAIN_ID_CHARACTERS_MAX = 256
PROJECT_SLUG_CHARACTERS_MAX = 40
_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_INSTANCE = _ALNUM | frozenset("-")
_HEX = frozenset("0123456789abcdef")
_NATIVE = "native"
_FOREIGN_WIRES = frozenset({"pi-peers", "intercom"})


class Capability(StrEnum):
    """What one may do. Source: reference/native.md 138."""

    SEND = "message.send"
    RECEIVE = "message.receive"
    WAIT = "message.wait"
    REQUEST = "resource.request"
    CONTROL = "resource.control"


class Availability(StrEnum):
    """Whether a listed peer can be addressed now. Source: reference/native.md 2.4."""

    AVAILABLE = "available"
    OFFLINE = "offline"
    PRESENCE_ONLY = "presence_only"
    UNSUPPORTED = "unsupported"


def is_instance(text: str) -> bool:
    """Return whether `text` may name an instance: letters, digits, dashes; 1 to 128."""
    return 0 < len(text) <= INSTANCE_CHARACTERS_MAX and _INSTANCE.issuperset(text)


def wire_of(instance: str) -> str:
    """Return the name of the wire that reaches an instance: "native" for one without a known prefix."""
    wire, colon, _ = instance.partition(":")
    return wire if colon and wire in _FOREIGN_WIRES else _NATIVE


def foreign_instance(wire: str, *parts: str) -> str:
    """Return the instance of somebody on another wire: the same parts name the same one, in every process.

    Args:
        wire: "pi-peers" or "intercom".
        parts: What makes it itself there, such as a session id; none holds NUL.
    """
    return f"{wire}:{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}"


def is_plain_id(text: str) -> bool:
    """Return whether `text` is an id of 1 to 256 characters without control characters."""
    if not 0 < len(text) <= PLAIN_ID_CHARACTERS_MAX:
        return False
    if text.isascii() and text.isprintable():  # nearly every id: no character is looked at in Python
        return True
    return not any(
        ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F or 0xD800 <= ord(character) <= 0xDFFF
        for character in text
    )


def is_peer_id(text: str) -> bool:
    """Return whether `text` has the form of a peer id (`peer-` and 32 hex digits)."""
    return len(text) == 37 and text.startswith("peer-") and _HEX.issuperset(text[5:])


@lru_cache(maxsize=4_096)
def peer_id(instance: str, run: str | None) -> str:
    """Return the opaque hash that routes to this (instance, run) pair.

    Source: reference/native.md 3.2, with its test vectors.
    """
    text = json.dumps([instance, run], separators=(",", ":"), ensure_ascii=False)
    return "peer-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def generated_alias(project: str, instance: str) -> str:
    """Return the alias of a root that was given none.

    Lower-cased project slug (at most 40 characters, prefixed `agent-` when it does not start
    with a letter), a dash, and the first six alphanumerics of the instance.
    Source: reference/native.md 2.4.
    """
    slug = "".join(c if c in _ALNUM else "-" for c in project.lower()).strip("-")
    slug = "-".join(part for part in slug.split("-") if part)[:PROJECT_SLUG_CHARACTERS_MAX].strip("-")
    if not slug or slug[0] not in _LETTERS:
        slug = ("agent-" + slug)[:PROJECT_SLUG_CHARACTERS_MAX].strip("-")
    return slug + "-" + "".join(c for c in instance if c in _ALNUM)[:6]


class Peer(msgspec.Struct, frozen=True, gc=False):
    """An exact (instance, run) pair; `run` is None for the root itself."""

    instance: str
    run: str | None = None

    @property
    def id(self) -> str:
        """The peer id, the only thing that routes."""
        return peer_id(self.instance, self.run)

    @property
    def root(self) -> "Peer":
        """The root that owns this peer."""
        return self if self.run is None else Peer(self.instance)

    @property
    def wire(self) -> str:
        """The name of the wire that reaches it."""
        return wire_of(self.instance)


class Principal(msgspec.Struct, frozen=True):
    """Who acts, as the link or the child channel proved it. Never a claimed `from`."""

    peer: Peer
    capabilities: frozenset[str] = frozenset()
    alias: str = ""
    project: str = ""

    def may(self, capability: Capability) -> bool:
        """Return whether this principal holds `capability`."""
        return capability.value in self.capabilities


class Descriptor(msgspec.Struct, frozen=True, omit_defaults=False):
    """One peer as a directory shows it: sanitised, bounded, without endpoint, key or paths.

    Source: reference/native.md 2.4; from `harness` on the fields are ours.
    """

    peer: Peer
    session: str
    alias: str
    project: str
    kind: str  # "root" or "run"
    activity: str  # a phase word only
    availability: Availability
    capabilities: tuple[str, ...]
    workspace: str = ""  # opaque id
    repository: str = ""  # opaque id
    scope: Scope = Scope.WORKSPACE
    harness: str = ""
    model: str = ""
    is_busy: bool = False
    context_percent: int | None = None
    wire: str = "native"
    ref: str = ""  # of a wire that knows refs
    address: str = ""  # how that wire calls it; shown to nobody but who must copy it
    former_names: tuple[str, ...] = ()
    is_other_project: bool = False
