"""opencode: one plugin file; where it is not shipped, the server in `opencode.json` or `opencode.jsonc`.

Rule 1: the file that is there is edited; of both the one with comments, which goes before the other.
Rule 2: the plugin brings the tools itself, with the root of each session behind them: no server runs beside.

Source: reference/harnesses.md 7; docs/harnesses/opencode.md; its documentation of configuration and plugins.
"""

import os
from typing import Any

from tieline.adapters.harness.base import (
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    command_variables,
    folder_of,
    is_our_server,
    is_our_shim,
    shim,
)
from tieline.adapters.harness.facts import SERVER

__all__ = ["HARNESS"]


def _folder(place: Place) -> str:
    if place.environment.get("OPENCODE_CONFIG_DIR"):
        return folder_of(place, "OPENCODE_CONFIG_DIR")
    return os.path.join(folder_of(place, "XDG_CONFIG_HOME", ".config"), "opencode")


def _files(place: Place) -> list[Document | Whole]:
    folder = place.project or _folder(place)
    plugins = os.path.join(place.project, ".opencode") if place.project else folder
    commented = os.path.join(folder, "opencode.jsonc")
    path = commented if os.path.exists(commented) else os.path.join(folder, "opencode.json")
    server: dict[str, Any] = {"type": "local", "command": [*place.command, "mcp"], "enabled": True}
    variables = command_variables(place)
    if variables:
        server["environment"] = variables
    marks = (Mark(("mcp", SERVER), is_our_server),)
    plugin = shim("opencode", place)
    entries = () if plugin is not None else (Entry(("mcp", SERVER), server),)
    found: list[Document | Whole] = [Document(path, "json", entries, marks)]
    if plugin is not None:
        found.append(Whole(os.path.join(plugins, "plugins", "tieline.js"), plugin, is_our_shim))
    return found


HARNESS = Harness("opencode", "opencode", ("opencode",), _folder, _files)
