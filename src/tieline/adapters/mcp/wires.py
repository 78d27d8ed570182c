"""Whether this host's root speaks the intercom, so that its tool is shown; known before the root is.

Rule 1: a person without that wire pays one read of a file: nothing that reads TOML is imported for them.
Rule 2: what is wrong in the configuration is no tool here; the root says what is wrong.

Source: DESIGN.md 4 "MCP tools"; docs/mcp.md.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["has_intercom"]

VARIABLE = "TIELINE_INTERCOM_ENABLED"
_ON = ("1", "true")
_BYTES_MAX = 1_048_576


def has_intercom(environment: "Mapping[str, str]") -> bool:
    """Return whether the configuration that this environment names switches the intercom on."""
    given = environment.get(VARIABLE)
    if given is not None:
        return given.strip().lower() in _ON
    home = environment.get("TIELINE_HOME") or os.path.expanduser("~/.tieline")
    try:
        file = os.open(home + "/config.toml", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        data = os.read(file, _BYTES_MAX)
    except OSError:
        return False
    finally:
        os.close(file)
    if b"intercom" not in data:
        return False
    import tomllib  # noqa: PLC0415 - paid for by who wrote of this wire

    try:
        section = tomllib.loads(data.decode()).get("wires", {})
        return section.get("intercom", {}).get("enabled") is True
    except (ValueError, AttributeError):
        return False
