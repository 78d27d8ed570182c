"""Settings and every limit: unit in the name, default, range and reason.

Rule 1: `Limits` and `Settings` are frozen values passed in; two roots in one simulator may differ.
Rule 2: this module reads no file and no environment of its own; it is handed both.
Rule 3: flags go before `TIELINE_<FIELD>` variables, those before config.toml, that before defaults.
Rule 4: a wrong value names the source, the field, and what is allowed.

Source: specification, "Configuration reference"; reference/native.md 1P.
"""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tieline.errors import UsageError

__all__ = ["LIMITS", "Limits", "Scope", "Settings", "is_alias", "load"]

ALIAS_CHARACTERS_MAX = 64
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALIAS_TAIL = _LETTERS | frozenset("0123456789_-")


class Scope(StrEnum):
    """How far one may see and send; each includes those before it."""

    WORKSPACE = "workspace"
    REPOSITORY = "repository"
    MACHINE = "machine"

    @property
    def rank(self) -> int:
        """0 for the narrowest."""
        return tuple(Scope).index(self)


def is_alias(text: str) -> bool:
    """Return whether `text` starts with a letter and goes on with letters, digits, `_`, `-`; 1 to 64."""
    return 0 < len(text) <= ALIAS_CHARACTERS_MAX and text[0] in _LETTERS and _ALIAS_TAIL.issuperset(text)


class Bound(NamedTuple):
    """One limit: its default, its lowest and highest value, its unit and why it is there."""

    default: int
    low: int
    high: int
    unit: str
    reason: str


LIMITS: dict[str, Bound] = {
    "frame_bytes": Bound(
        65_536, 1_024, 16_777_216, "bytes", "one line of the native wire, checked before parsing"
    ),
    "message_bytes": Bound(8_000, 1, 1_048_576, "UTF-8 bytes", "one text with its attachments"),
    "inbox_messages": Bound(
        32,
        1,
        1_000_000,
        "unconsumed messages per recipient",
        "an agent that does not read is told to senders early",
    ),
    "pending_requests": Bound(
        32, 1, 65_536, "requests per connection", "bounds work that one end can make the other hold"
    ),
    "connections": Bound(16, 1, 4_096, "cached outbound connections", "descriptors are shared with the host"),
    "storage_bytes": Bound(
        10_485_760, 65_536, 1 << 40, "bytes per instance", "what peers may make one root keep"
    ),
    "rate_per_second": Bound(
        10, 1, 1_000_000, "new messages per second and sender", "a flood costs the flooder"
    ),
    "rate_burst": Bound(20, 1, 1_000_000, "new messages", "a short burst is normal work"),
    "handshake_ms": Bound(2_000, 50, 60_000, "ms", "the whole exchange, however it is dripped"),
    "acknowledgement_ms": Bound(2_000, 50, 60_000, "ms", "then the outcome is unknown, not refused"),
    "expiry_ms": Bound(600_000, 1, 86_400_000, "ms", "life of a message that names none"),
    "max_expiry_ms": Bound(3_600_000, 1, 86_400_000, "ms", "longest life that a sender may ask"),
    "retention_ms": Bound(
        86_400_000, 60_000, 31_536_000_000, "ms", "finished records are kept for questions"
    ),
    "automatic_replies": Bound(
        8, 1, 64, "automatic messages per conversation", "two models thank each other for ever otherwise"
    ),
    "directory_page_size": Bound(50, 1, 1_000, "peers per page", "a model reads the page"),
    "published_runs": Bound(64, 1, 4_096, "live runs", "a directory answer stays one frame"),
    "agent_sends_max": Bound(
        20,
        1,
        1_000_000,
        "sends per pair in 10 minutes without a person",
        "a loop across fresh conversations ends too",
    ),
    "events_kept": Bound(10_000, 100, 10_000_000, "events", "an endless history ends in QUEUE_FULL"),
    "ended_runs_kept": Bound(4_096, 1, 1_000_000, "identities", "a late reply to an ended run is told so"),
    "boundary_messages": Bound(
        16, 1, 256, "messages per boundary", "a burst must not fill the model's context"
    ),
    "boundary_bytes": Bound(32_768, 1_024, 1_048_576, "bytes per boundary", "the same, in bytes"),
}
"""Every limit of a root. Raising one is allowed inside its range; nothing is unlimited."""

WAIT_MS_MAX = 30_000  # peer_messages: reference/native.md 135
RECEIPT_RESERVE_BYTES = 2_048  # per unresolved record: reference/native.md 2.8
HEARTBEAT_MS = 5_000  # reference/native.md 33
STALE_MS = 15_000  # reference/native.md 34
RETRY_FIRST_MS = 500  # head of a route: reference/native.md 3.4
RETRY_LAST_MS = 30_000
IDLE_LINK_MS = 60_000  # reference/native.md 3.4
PRUNE_MS = 600_000  # reference/native.md 3.4
PAIR_WINDOW_MS = 600_000  # `agent_sends_max` counts over this
PREPARED_MS = 120_000  # an exposure without evidence is given to the next rung after this


class Limits(msgspec.Struct, frozen=True):
    """The limits of one root; see `LIMITS` for units and reasons."""

    frame_bytes: int = 65_536
    message_bytes: int = 8_000
    inbox_messages: int = 32
    pending_requests: int = 32
    connections: int = 16
    storage_bytes: int = 10_485_760
    rate_per_second: int = 10
    rate_burst: int = 20
    handshake_ms: int = 2_000
    acknowledgement_ms: int = 2_000
    expiry_ms: int = 600_000
    max_expiry_ms: int = 3_600_000
    retention_ms: int = 86_400_000
    automatic_replies: int = 8
    directory_page_size: int = 50
    published_runs: int = 64
    agent_sends_max: int = 20
    events_kept: int = 10_000
    ended_runs_kept: int = 4_096
    boundary_messages: int = 16
    boundary_bytes: int = 32_768


class Settings(msgspec.Struct, frozen=True):
    """What a person configured for one root."""

    enabled: bool = True
    scope: Scope = Scope.WORKSPACE
    idle_behavior: str = "notify"
    alias: str = ""
    coordination_directory: str = ""
    allow_resource_control: bool = False
    resource_wait_timeout_ms: int = 300_000
    limits: Limits = Limits()


_FIELDS = ("enabled", "scope", "idle_behavior", "alias", "coordination_directory", "allow_resource_control",
           "resource_wait_timeout_ms")  # fmt: skip
_SECTIONS = frozenset({"communication", "limits", "wires", "resource"})


def load(
    text: str, source: str, environment: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> Settings:
    """Return the settings that hold.

    Args:
        text: Contents of config.toml, empty when there is none.
        source: Its path, for messages.
        environment: Variables; those named `TIELINE_<FIELD>` count.
        flags: Fields that the command line gave; None values do not count.

    Raises:
        UsageError: a value is wrong; the text names source, field, line and what is allowed.
    """
    document = _document(text, source)
    fields, limits = _from_file(document, source, text)
    for name in _FIELDS:
        given = environment.get("TIELINE_" + name.upper())
        if given is not None:
            fields[name] = _field(name, _typed(name, given), "TIELINE_" + name.upper())
    for name in LIMITS:
        given = environment.get("TIELINE_" + name.upper())
        if given is not None:
            limits[name] = _limit(name, _number(given), "TIELINE_" + name.upper())
    for name, value in (flags or {}).items():
        if value is not None:
            fields[name] = _field(name, value, "--" + name.replace("_", "-"))
    return Settings(**fields, limits=_together(Limits(**limits), source))


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not TOML: {error}") from None
    for name in document:
        if name not in _SECTIONS:
            raise UsageError(
                _wrong(source, text, name, f"unknown section; allowed are {', '.join(sorted(_SECTIONS))}")
            )
    return document


def _from_file(document: dict[str, Any], source: str, text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the fields and limits that config.toml sets."""
    fields: dict[str, Any] = {}
    for name, value in _table(document, "communication", source, text).items():
        if name not in _FIELDS:
            raise UsageError(_wrong(source, text, name, f"unknown field; allowed are {', '.join(_FIELDS)}"))
        fields[name] = _field(name, value, _where(source, text, name))
    limits = {
        name: _limit(name, value, _where(source, text, name))
        for name, value in _table(document, "limits", source, text).items()
    }
    return fields, limits


def _together(limits: Limits, source: str) -> Limits:
    if limits.message_bytes > limits.frame_bytes:
        raise UsageError(f"{source}: limits.message_bytes is larger than limits.frame_bytes")
    if limits.expiry_ms > limits.max_expiry_ms:
        raise UsageError(f"{source}: limits.expiry_ms is larger than limits.max_expiry_ms")
    return limits


def _table(document: dict[str, Any], name: str, source: str, text: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(_wrong(source, text, name, "must be a table"))
    return table


def _field(name: str, value: Any, where: str) -> Any:
    allowed = {
        "enabled": "true or false",
        "allow_resource_control": "true or false",
        "scope": "workspace, repository or machine",
        "idle_behavior": "notify or auto",
        "alias": "a letter, then letters, digits, _ or -, at most 64",
        "coordination_directory": "an absolute path",
        "resource_wait_timeout_ms": "a whole number from 1",
    }[name]
    right = {
        "enabled": lambda: isinstance(value, bool),
        "allow_resource_control": lambda: isinstance(value, bool),
        "scope": lambda: value in ("workspace", "repository", "machine"),
        "idle_behavior": lambda: value in ("notify", "auto"),
        "alias": lambda: isinstance(value, str) and is_alias(value),
        "coordination_directory": lambda: (
            isinstance(value, str) and value.startswith("/") and "\0" not in value
        ),
        "resource_wait_timeout_ms": lambda: type(value) is int and value > 0,
    }[name]
    if not right():
        raise UsageError(f"{where}: {name} must be {allowed}")
    return Scope(value) if name == "scope" else value


def _limit(name: str, value: Any, where: str) -> int:
    if name not in LIMITS:
        raise UsageError(f"{where}: unknown limit {name}; allowed are {', '.join(LIMITS)}")
    bound = LIMITS[name]
    if type(value) is not int or not bound.low <= value <= bound.high:
        raise UsageError(
            f"{where}: {name} must be a whole number from {bound.low} to {bound.high} ({bound.unit})"
        )
    return value


def _typed(name: str, given: str) -> Any:
    if name in ("enabled", "allow_resource_control"):
        return {"true": True, "1": True, "false": False, "0": False}.get(given.lower(), given)
    return _number(given) if name == "resource_wait_timeout_ms" else given


def _number(given: str) -> int | str:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 17 else given


def _where(source: str, text: str, name: str) -> str:
    for number, line in enumerate(text.splitlines(), 1):
        if line.split("=")[0].strip().strip('"') == name or line.strip().strip("[]").startswith(name):
            return f"{source}, line {number}"
    return source


def _wrong(source: str, text: str, name: str, says: str) -> str:
    return f"{_where(source, text, name)}: {name}: {says}"
