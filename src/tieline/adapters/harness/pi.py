"""pi and oh-my-pi: one extension file; where it is not shipped, and for oh-my-pi beside it, `mcp.json`.

Rule 1: in pi the extension registers the MCP server itself, with the session's id; an entry of that name in
`mcp.json` would go before it, so there is none.
Rule 2: oh-my-pi has no such call: there the server stands in `mcp.json`.

Source: reference/harnesses.md 2, 3; pi's documentation of extensions and MCP.
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
    server_entry,
    shim,
)
from tieline.adapters.harness.facts import SERVER

__all__ = ["OMP", "PI"]


def _files(name: str, folder: str, place: Place) -> list[Document | Whole]:
    extension = shim(name, place)
    found: list[Document | Whole] = []
    if extension is not None:
        found.append(Whole(os.path.join(folder, "extensions", "tieline.js"), extension))
    is_registered = name == "pi" and extension is not None
    server = server_entry(place, **({"exposure": "direct"} if name == "pi" else {}))
    entries = () if is_registered else (Entry(("mcpServers", SERVER), server),)
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
    "start its windows anew; with tools.xdev: false in its config.yml the model sees the tools as functions",
)
