"""What a person configured for one root, read from config.toml, variables and flags.

Rule 1: this module reads no file and no environment of its own; it is handed both.
Rule 2: flags go before `TIELINE_<FIELD>` variables, those before config.toml, that before defaults.
Rule 3: a wrong value names the source, the field, and what is allowed.

Source: specification, "Configuration reference"; reference/native.md 1P; of rules 2.13, 2.14, 3.5.
"""

import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tieline.config.limits import LIMITS, Limits
from tieline.config.rules import ResourceSettings, auto_grant, resource_settings
from tieline.config.source import flag, number, table, where, wrong
from tieline.config.wires import WireSettings, wire_settings
from tieline.config.words import Scope, is_alias
from tieline.errors import UsageError

__all__ = ["FIELDS", "SECTIONS", "Settings", "load"]


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
    wires: WireSettings = WireSettings()


FIELDS = ("enabled", "scope", "idle_behavior", "alias", "coordination_directory", "allow_resource_control",
           "resource_wait_timeout_ms")  # fmt: skip
SECTIONS = frozenset({"communication", "limits", "wires", "resource"})


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
    for name in FIELDS:
        given = environment.get("TIELINE_" + name.upper())
        if given is not None:
            fields[name] = _field(name, _typed(name, given), "TIELINE_" + name.upper())
    for name in LIMITS:
        given = environment.get("TIELINE_" + name.upper())
        if given is not None:
            limits[name] = _limit(name, number(given), "TIELINE_" + name.upper())
    resource = resource_settings(document, source, text)
    given = environment.get("TIELINE_RESOURCE_AUTO_GRANT")
    if given is not None:
        resource = msgspec.structs.replace(
            resource, auto_grant=auto_grant(given, "TIELINE_RESOURCE_AUTO_GRANT")
        )
    wires = wire_settings(document, source, text, environment)
    for name, value in (flags or {}).items():
        if name == "resource_auto_grant" and value is not None:
            resource = msgspec.structs.replace(
                resource, auto_grant=auto_grant(value, "--resource-auto-grant")
            )
        elif value is not None:
            fields[name] = _field(name, value, "--" + name.replace("_", "-"))
    return Settings(**fields, limits=_together(Limits(**limits), source), resource=resource, wires=wires)


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not TOML: {error}") from None
    for name in document:
        if name not in SECTIONS:
            raise UsageError(
                wrong(source, text, name, f"unknown section; allowed are {', '.join(sorted(SECTIONS))}")
            )
    return document


def _from_file(document: dict[str, Any], source: str, text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the fields and limits that config.toml sets."""
    fields: dict[str, Any] = {}
    for name, value in table(document, "communication", source, text).items():
        if name not in FIELDS:
            raise UsageError(wrong(source, text, name, f"unknown field; allowed are {', '.join(FIELDS)}"))
        fields[name] = _field(name, value, where(source, text, name))
    limits = {
        name: _limit(name, value, where(source, text, name))
        for name, value in table(document, "limits", source, text).items()
    }
    return fields, limits


def _together(limits: Limits, source: str) -> Limits:
    if limits.message_bytes > limits.frame_bytes:
        raise UsageError(f"{source}: limits.message_bytes is larger than limits.frame_bytes")
    if limits.expiry_ms > limits.max_expiry_ms:
        raise UsageError(f"{source}: limits.expiry_ms is larger than limits.max_expiry_ms")
    return limits


def _field(name: str, value: Any, place: str) -> Any:
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
        raise UsageError(f"{place}: {name} must be {allowed}")
    return Scope(value) if name == "scope" else value


def _limit(name: str, value: Any, place: str) -> int:
    if name not in LIMITS:
        raise UsageError(f"{place}: unknown limit {name}; allowed are {', '.join(LIMITS)}")
    bound = LIMITS[name]
    if type(value) is not int or not bound.low <= value <= bound.high:
        raise UsageError(
            f"{place}: {name} must be a whole number from {bound.low} to {bound.high} ({bound.unit})"
        )
    return value


def _typed(name: str, given: str) -> Any:
    if name in ("enabled", "allow_resource_control"):
        return flag(given)
    return number(given) if name == "resource_wait_timeout_ms" else given
