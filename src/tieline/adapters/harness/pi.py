"""pi and oh-my-pi: one extension file; where it is not shipped, our server in `mcp.json`.

Rule 1: the extension brings the tools itself, with the session's root behind them; a server beside it would
be a second peer of the same session, so there is none.
Rule 2: what an older `setup` wrote into `mcp.json` is known by its mark and taken out.

Source: reference/harnesses.md 2, 3; docs/harnesses/pi.md; pi's documentation of extensions and MCP.
"""

import os

from tieline.adapters.harness.base import (
    Document,
    Entry,
    Harness,
    Mark,
    Place,
    Whole,
    folder_of,
    is_our_server,
    is_our_shim,
    server_entry,
    shim,
)
from tieline.adapters.harness.facts import SERVER

__all__ = ["OMP", "PI"]


def _files(name: str, folder: str, place: Place) -> list[Document | Whole]:
    extension = shim(name, place)
    found: list[Document | Whole] = []
    if extension is not None:
        found.append(Whole(os.path.join(folder, "extensions", "tieline.js"), extension, is_our_shim))
    server = server_entry(place, **({"exposure": "direct"} if name == "pi" else {}))
    entries = () if extension is not None else (Entry(("mcpServers", SERVER), server),)
    marks = (Mark(("mcpServers", SERVER), is_our_server),)
    found.append(Document(os.path.join(folder, "mcp.json"), "json", entries, marks))
    return found


def _pi_folder(place: Place) -> str:
    return folder_of(place, "PI_CODING_AGENT_DIR", ".pi", "agent")


def _omp_folder(place: Place) -> str:
    return folder_of(place, "PI_CODING_AGENT_DIR", ".omp", "agent")


def _pi_files(place: Place) -> list[Document | Whole]:
    return _files("pi", os.path.join(place.project, ".pi") if place.project else _pi_folder(place), place)


def _omp_files(place: Place) -> list[Document | Whole]:
    return _files("omp", os.path.join(place.project, ".omp") if place.project else _omp_folder(place), place)


PI = Harness(
    "pi", "pi", ("pi",), _pi_folder, _pi_files, (), "type /reload in its windows, or start them anew"
)
OMP = Harness(
    "omp",
    "oh-my-pi",
    ("omp",),
    _omp_folder,
    _omp_files,
    (),
    "start its windows anew",
)
