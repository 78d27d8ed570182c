"""Editors that speak the Agent Client Protocol: the line for their configuration, which nobody else writes.

Rule 1: every editor keeps its agents elsewhere: the line is printed, and no file is touched.

Source: reference/harnesses.md 9; DESIGN.md 4.
"""

import json

from tieline.adapters.harness.base import Document, Harness, Place, Whole

__all__ = ["HARNESS", "line_for_editor"]


def line_for_editor(place: Place) -> str:
    """Return the entry of an agent that runs behind our proxy; AGENT stands for the agent's own words."""
    words = {"command": place.command[0], "args": [*place.command[1:], "acp", "--", "AGENT"]}
    return json.dumps(words)


def _files(_place: Place) -> list[Document | Whole]:
    return []


def _folder(_place: Place) -> str:
    return ""


HARNESS = Harness("acp", "an editor with ACP", (), _folder, _files)
