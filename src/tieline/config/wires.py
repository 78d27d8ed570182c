"""The section `wires` of config.toml: which foreign wires a root speaks, and how.

Rule 1: a foreign wire is off until a person, or `tieline setup`, switched it on.
Rule 2: a foreign product's own variables go before config.toml, ours before those; a wrong value in a
variable of a wire that is off stops nobody.

Source: specification of pi-peers, "Configuration"; reference/pi-peers-and-harness-doors.md 1.9, U16.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tieline.config.source import flag, table, where, wrong
from tieline.errors import UsageError

__all__ = [
    "ACCEPT_POLICIES",
    "INTERCOM_FIELDS",
    "PI_PEERS_FIELDS",
    "IntercomSettings",
    "PiPeersSettings",
    "WireSettings",
    "wire_settings",
]

ACCEPT_POLICIES: Final = ("accept", "ask", "off")
"""Take what peers write; hold it until the person says; refuse it."""
WINDOW_NAME_CHARACTERS_MAX: Final = 64
PI_PEERS_FIELDS: Final = ("enabled", "accept", "directory", "name")
INTERCOM_FIELDS: Final = ("enabled",)

# Another product's variables come after ours of the same field, which a person set for this one.
_VARIABLES: Final = {
    "enabled": ("TIELINE_PI_PEERS_ENABLED",),
    "accept": ("TIELINE_PI_PEERS_ACCEPT", "PI_PEERS_ACCEPT"),
    "directory": ("TIELINE_PI_PEERS_DIRECTORY", "PI_PEERS_DIR"),
    "name": ("TIELINE_PI_PEERS_NAME",),
}
_NOT_IN_A_NAME: Final = frozenset('[]<>&"\\/')


class PiPeersSettings(msgspec.Struct, frozen=True):
    """How a root shows itself to windows of pi and oh-my-pi; `accept` is one of `ACCEPT_POLICIES`.

    An empty `directory` is `~/.pi-peers`; an empty `name` is the alias, else what the workspace is called.
    """

    enabled: bool = False
    accept: str = "accept"
    directory: str = ""
    name: str = ""


class IntercomSettings(msgspec.Struct, frozen=True):
    """Whether a root joins the intercom."""

    enabled: bool = False


class WireSettings(msgspec.Struct, frozen=True):
    """The foreign wires of one root."""

    pi_peers: PiPeersSettings = PiPeersSettings()
    intercom: IntercomSettings = IntercomSettings()


def wire_settings(
    document: dict[str, Any], source: str, text: str, environment: Mapping[str, str]
) -> WireSettings:
    """Return what the section `wires` and the variables set; UsageError for a wrong value."""
    section = table(document, "wires", source, text)
    for name in section:
        if name not in WireSettings.__struct_fields__:
            allowed = ", ".join(WireSettings.__struct_fields__)
            raise UsageError(wrong(source, text, name, f"unknown wire; allowed are {allowed}"))
    pi_peers = _fields(section, "pi_peers", PI_PEERS_FIELDS, source, text)
    intercom = _fields(section, "intercom", INTERCOM_FIELDS, source, text)
    given = environment.get("TIELINE_INTERCOM_ENABLED")
    if given is not None:
        intercom["enabled"] = _checked("enabled", flag(given), "TIELINE_INTERCOM_ENABLED")
    return WireSettings(_pi_peers(pi_peers, environment), IntercomSettings(**intercom))


def _pi_peers(fields: dict[str, Any], environment: Mapping[str, str]) -> PiPeersSettings:
    for name, variables in _VARIABLES.items():
        if name != "enabled" and not fields.get("enabled"):
            break  # `enabled` is the first: nothing else counts while the wire is off
        for variable in variables:
            # An empty variable of another product is one that is not set, as a shell leaves it.
            given = environment.get(variable)
            if given is not None and (given or variable.startswith("TIELINE_")):
                fields[name] = _checked(name, flag(given) if name == "enabled" else given, variable)
                break
    return PiPeersSettings(**fields)


def _fields(
    section: dict[str, Any], wire: str, known: tuple[str, ...], source: str, text: str
) -> dict[str, Any]:
    """Return what `[wires.WIRE]` sets, each checked."""
    found = section.get(wire, {})
    if not isinstance(found, dict):
        raise UsageError(wrong(source, text, wire, "must be a table"))
    for name, value in found.items():
        place = _place(source, text, wire, name)
        if name not in known:
            raise UsageError(f"{place}: {name}: unknown field; allowed are {', '.join(known)}")
        _checked(name, value, place)
    return dict(found)


def _checked(name: str, value: Any, place: str) -> Any:
    allowed = {
        "enabled": "true or false",
        "accept": "accept, ask or off",
        "directory": "an absolute path",
        "name": f'1 to {WINDOW_NAME_CHARACTERS_MAX} printable characters, none of [ ] < > & " \\ /',
    }[name]
    if name == "enabled":
        is_right = isinstance(value, bool)
    elif name == "accept":
        is_right = value in ACCEPT_POLICIES
    elif name == "directory":
        is_right = isinstance(value, str) and value.startswith("/") and "\0" not in value
    else:
        is_right = isinstance(value, str) and _is_window_name(value)
    if not is_right:
        raise UsageError(f"{place}: {name} must be {allowed}")
    return value


def _is_window_name(text: str) -> bool:
    return (
        0 < len(text) <= WINDOW_NAME_CHARACTERS_MAX
        and text.isprintable()
        and text == text.strip()
        and not _NOT_IN_A_NAME.intersection(text)
    )


def _place(source: str, text: str, wire: str, name: str) -> str:
    """Return the source with the line of a field below `[wires.WIRE]`."""
    is_inside = False
    for line_number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            is_inside = line.replace(" ", "").startswith(f"[wires.{wire}]")
        elif is_inside and line.split("=")[0].strip().strip('"') == name:
            return f"{source}, line {line_number}"
    return where(source, text, wire)
