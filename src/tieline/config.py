"""Settings and every limit: unit in the name, default, range and reason.

Rule 1: `Limits` and `Settings` are frozen values passed in; two roots in one simulator may differ.
Rule 2: this module reads no file and no environment of its own; it is handed both.
Rule 3: flags go before `TIELINE_<FIELD>` variables, those before config.toml, that before defaults.
Rule 4: a wrong value names the source, the field, and what is allowed.

Source: specification, "Configuration reference"; reference/native.md 1P; of rules 2.13, 2.14, 3.5.
"""

import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from tieline.errors import UsageError

__all__ = [
    "LIMITS",
    "RULE_SETS",
    "Limits",
    "ResourceSettings",
    "Rule",
    "Scope",
    "Settings",
    "is_alias",
    "is_resource_key",
    "is_rule_set",
    "load",
]

ALIAS_CHARACTERS_MAX = 64
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALIAS_TAIL = _LETTERS | frozenset("0123456789_-")
_ALPHANUMERIC = _LETTERS | frozenset("0123456789")

RESOURCE_KEY_CHARACTERS_MAX = 256  # reference/native.md 2.13 "Keys"
RESOURCE_NAME_CHARACTERS_MAX = 64
RULES_MAX = 256  # a command is held against each of them before it starts
PATTERNS_MAX = 64  # in one field of one rule
PATTERN_CHARACTERS_MAX = 200
RULE_SETS_MAX = 64
RULE_SETS = {
    "git": "",
    "python": "",
    "node": "",
    "cargo": "",
    "make": "",
    "jvm": "",
    "compose": "",
    "port": "PORT",
    "database": "NAME",
}
"""Ready sets of rules, each with what must follow its name after a colon; `engine.gate` has the rules."""


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


def is_resource_key(text: str) -> bool:
    """Return whether `text` is `machine/NAME`, `repository/ID/NAME`, or `repository/NAME`; at most 256."""
    kind, *rest = text.split("/")
    if len(text) > RESOURCE_KEY_CHARACTERS_MAX or kind not in {"machine", "repository"}:
        return False
    if len(rest) == 2 and kind == "repository":
        identity, name = rest
        return 0 < len(identity) <= 128 and _ALIAS_TAIL.issuperset(identity) and _is_resource_name(name)
    return len(rest) == 1 and _is_resource_name(rest[0])


def is_rule_set(text: str) -> bool:
    """Return whether `text` names a ready set of rules, with what it is about where it needs that."""
    name, colon, subject = text.partition(":")
    form = RULE_SETS.get(name)
    if form is None or bool(form) != bool(colon):
        return False
    if form == "PORT":
        return subject.isascii() and subject.isdigit() and subject[0] != "0" and int(subject[:6]) < 65_536
    return not form or (
        _is_resource_name(subject) and len(subject) <= RESOURCE_NAME_CHARACTERS_MAX - len(name) - 1
    )


def _is_resource_name(text: str) -> bool:
    return (
        0 < len(text) <= RESOURCE_NAME_CHARACTERS_MAX
        and text[0] in _ALPHANUMERIC
        and (_ALIAS_TAIL | {"."}).issuperset(text)
    )


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


class Rule(msgspec.Struct, frozen=True):
    """A resource, and what a command must be to need it: all that is named must hold.

    `executables` are base names; `subcommands` the first words that are no options; `scripts` those of a
    package manager or targets; `arguments` words anywhere, or leading assignments; `without` the same, and
    then the rule does not hold; `profile` is `build`, `strict` or empty. Of several patterns in a field one
    suffices. A pattern is a word, words with a space between, or the beginning of one before a last `*`.
    """

    resource: str
    name: str = ""
    executables: tuple[str, ...] = ()
    subcommands: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    profile: str = ""


class ResourceSettings(msgspec.Struct, frozen=True):
    """What a person configured of shared resources: who grants, and which commands need which."""

    auto_grant: str = "manual"
    rule_sets: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


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
    resource: ResourceSettings = ResourceSettings()


_FIELDS = ("enabled", "scope", "idle_behavior", "alias", "coordination_directory", "allow_resource_control",
           "resource_wait_timeout_ms")  # fmt: skip
_SECTIONS = frozenset({"communication", "limits", "wires", "resource"})
_RESOURCE_FIELDS = ("auto_grant", "rule_sets", "rule")
_PATTERN_FIELDS = ("executables", "subcommands", "scripts", "arguments", "without")
_RULE_FIELDS = ("resource", "name", *_PATTERN_FIELDS, "profile")


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
    resource = _resource(document, source, text)
    given = environment.get("TIELINE_RESOURCE_AUTO_GRANT")
    if given is not None:
        resource = msgspec.structs.replace(
            resource, auto_grant=_auto_grant(given, "TIELINE_RESOURCE_AUTO_GRANT")
        )
    for name, value in (flags or {}).items():
        if name == "resource_auto_grant" and value is not None:
            resource = msgspec.structs.replace(
                resource, auto_grant=_auto_grant(value, "--resource-auto-grant")
            )
        elif value is not None:
            fields[name] = _field(name, value, "--" + name.replace("_", "-"))
    return Settings(**fields, limits=_together(Limits(**limits), source), resource=resource)


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


def _resource(document: dict[str, Any], source: str, text: str) -> ResourceSettings:
    """Return what the section `resource` sets."""
    table = _table(document, "resource", source, text)
    for name in table:
        if name not in _RESOURCE_FIELDS:
            raise UsageError(
                _wrong(source, text, name, f"unknown field; allowed are {', '.join(_RESOURCE_FIELDS)}")
            )
    sets = table.get("rule_sets", [])
    where = _where(source, text, "rule_sets")
    if not isinstance(sets, list) or len(sets) > RULE_SETS_MAX:
        raise UsageError(f"{where}: rule_sets must be a list of at most {RULE_SETS_MAX} names")
    for name in sets:
        if not isinstance(name, str) or not is_rule_set(name):
            shown = ", ".join(f"{one}:{form}" if form else one for one, form in RULE_SETS.items())
            raise UsageError(f"{where}: unknown rule set {name!r}; allowed are {shown}")
    rules = table.get("rule", [])
    if not isinstance(rules, list) or len(rules) > RULES_MAX:
        raise UsageError(
            f"{_where(source, text, '[resource.rule')}: rule must be written as [[resource.rule]], "
            f"at most {RULES_MAX} times"
        )
    return ResourceSettings(
        auto_grant=_auto_grant(table.get("auto_grant", "manual"), _where(source, text, "auto_grant")),
        rule_sets=tuple(dict.fromkeys(sets)),
        rules=tuple(_rule(rule, number, source, text) for number, rule in enumerate(rules, 1)),
    )


def _auto_grant(value: Any, where: str) -> str:
    if value not in ("manual", "fifo"):
        raise UsageError(f"{where}: auto_grant must be manual or fifo")
    return str(value)


def _rule(rule: Any, number: int, source: str, text: str) -> Rule:
    """Return one `[[resource.rule]]`, the `number`th from 1."""
    if not isinstance(rule, dict):
        raise UsageError(f"{source}: resource.rule {number} must be a table")
    for name, value in rule.items():
        allowed = _rule_fault(name, value)
        if allowed:
            raise UsageError(
                f"{_rule_where(source, text, number, name)}: resource.rule {number}: {name}: {allowed}"
            )
    where = _rule_where(source, text, number, "")
    if "resource" not in rule:
        raise UsageError(f"{where}: resource.rule {number}: resource is missing")
    if rule.get("subcommands") and not rule.get("executables"):
        raise UsageError(f"{where}: resource.rule {number}: subcommands need executables")
    if not any(rule.get(name) for name in ("executables", "scripts", "arguments", "profile")):
        raise UsageError(
            f"{where}: resource.rule {number}: it must name executables, scripts, arguments or a profile; "
            'profile = "strict" is every command'
        )
    return msgspec.convert(rule, Rule)


def _rule_fault(name: str, value: Any) -> str:
    """Return what a field of a rule must be, empty when it is."""
    if name == "resource":
        right = isinstance(value, str) and is_resource_key(value)
        return "" if right else "must be machine/NAME, repository/NAME or repository/ID/NAME"
    if name == "name":
        return (
            ""
            if isinstance(value, str) and _is_resource_name(value)
            else "must be a word of at most 64 characters"
        )
    if name == "profile":
        return "" if value in ("build", "strict") else "must be build or strict"
    if name not in _PATTERN_FIELDS:
        return f"unknown field; allowed are {', '.join(_RULE_FIELDS)}"
    if not isinstance(value, list) or not 0 < len(value) <= PATTERNS_MAX:
        return f"must be a list of 1 to {PATTERNS_MAX} patterns"
    if not all(isinstance(one, str) and _is_pattern(one) for one in value):
        return f"each must be words, one space between, * only last, at most {PATTERN_CHARACTERS_MAX} long"
    if name == "executables" and any(mark in one for one in value for mark in "/ *"):
        return "each must be the name of a program without folder, space or *"
    return ""


def _is_pattern(text: str) -> bool:
    return (
        0 < len(text) <= PATTERN_CHARACTERS_MAX
        and text.isprintable()
        and "*" not in text[:-1]
        and all(text.split(" "))
    )


def _rule_where(source: str, text: str, number: int, name: str) -> str:
    """Return the source with the line of a field in the `number`th rule, or of the rule."""
    found = 0
    start = 0
    for line_number, line in enumerate(text.splitlines(), 1):
        if line.replace(" ", "").startswith("[[resource.rule]]"):
            found += 1
            start = line_number if found == number else start
        elif found == number and name and line.split("=")[0].strip().strip('"') == name:
            return f"{source}, line {line_number}"
    return f"{source}, line {start}" if start else source


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
    checks: dict[str, Callable[[], bool]] = {
        "enabled": lambda: isinstance(value, bool),
        "allow_resource_control": lambda: isinstance(value, bool),
        "scope": lambda: value in ("workspace", "repository", "machine"),
        "idle_behavior": lambda: value in ("notify", "auto"),
        "alias": lambda: isinstance(value, str) and is_alias(value),
        "coordination_directory": lambda: (
            isinstance(value, str) and value.startswith("/") and "\0" not in value
        ),
        "resource_wait_timeout_ms": lambda: type(value) is int and value > 0,
    }
    if not checks[name]():
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
