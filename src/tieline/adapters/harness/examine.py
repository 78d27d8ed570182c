"""What `doctor` says of one harness: is it here, is all in place, and does its door answer a message.

Rule 1: a harness that a person did not ask for is no fault; it is named, with the word that sets it up.
Rule 2: the proof is a message: two servers are started by the words that stand in the harness's own file, and
one hands a text over to the other. It happens in a folder of its own and leaves nothing.
Rule 3: what cannot be proven without the harness's model is said as a hint, never as done.

Source: DESIGN.md 4 "doctor".
"""

import os
from collections.abc import Mapping
from typing import Any

from tieline.adapters.harness import codex
from tieline.adapters.harness.base import Document, Harness, Place, Whole, is_our_server, places_of, program
from tieline.adapters.harness.change import put_in, value_of
from tieline.adapters.harness.facts import SERVER
from tieline.adapters.harness.files import read, require_writable
from tieline.adapters.harness.ledger import Record
from tieline.adapters.harness.round_trip import round_trip
from tieline.errors import TielineError
from tieline.runtime.checkup import Check

__all__ = ["checks"]


def checks(harness: Harness, place: Place, records: Mapping[str, Record]) -> list[Check]:
    """Return the checks of one harness; none where it is neither here nor set up.

    Of a project's files it says something where there is something of ours in them, and nothing else.
    """
    name = f"harness {harness.name}{' in this folder' if place.project else ''}"
    words = f"{harness.name}{' --project' if place.project else ''}"
    files = harness.files(place)
    try:
        present = [file for file in files if _is_ours_in(file)]
        if place.project and not present:
            return []
        changes = [put_in(file, read(file.path), records.get(file.path), ()) for file in files]
    except TielineError as error:
        if place.project and not any(file.path in records for file in files):
            return []  # somebody's own file, which nobody set up
        return [Check(name, False, str(error), f"correct it, then run `tieline setup {words}`")]
    missing = [change.path for change in changes if change.is_needed]
    barrier = _barrier(missing)
    then = "then " if barrier else ""
    if not present:
        if not program(harness, place):
            return []
        text = f"here, and not set up{'; ' if barrier else ''}{barrier}"
        return [Check(name, True, text, f"to set it up: {then}tieline setup {words}")]
    if missing:
        text = f"not as this version sets it up: {', '.join(missing)}{'; ' if barrier else ''}{barrier}"
        return [Check(name, False, text, f"{then}run `tieline setup {words}`")]
    if not program(harness, place):
        wanted = " or ".join(harness.programs)
        text = f"set up, and {wanted} is not on the PATH"
        return [Check(name, False, text, f"install it, or run `tieline unsetup {words}`")]
    reason = _tried(files, place)
    if reason:
        text = f"its door does not answer: {reason}"
        action = f"see that {SERVER} is on the PATH" if place.project else f"run `tieline setup {words}`"
        return [Check(name, False, text, action)]
    proven = Check(name, True, "set up; a message went from one door of it to another")
    if place.project:
        return [proven]
    return [
        proven,
        *_trust(harness, place),
        *([Check(f"{name}, reach", True, harness.reach)] if harness.reach else []),
    ]


def _barrier(paths: list[str]) -> str:
    """Return why one of these cannot be written, or ""."""
    try:
        for path in paths:
            require_writable(path)
    except TielineError as error:
        return str(error)
    return ""


def _is_ours_in(file: Document | Whole) -> bool:
    text = read(file.path)
    if text is None:
        return False
    if isinstance(file, Whole):
        return True
    held = value_of(file, text)
    return any(mark.is_ours(one) for mark in file.marks for _, one in places_of(held, mark.pattern))


def _tried(files: list[Document | Whole], place: Place) -> str:
    """Return why a message does not get through, or ""."""
    command, variables = _server(files, place)
    return round_trip(tuple(command), tuple(sorted(variables.items())), place.environment.get("PATH", ""))


def _server(files: list[Document | Whole], place: Place) -> tuple[list[str], dict[str, str]]:
    """Return the words and variables by which the harness starts our server."""
    for file in files:
        if isinstance(file, Document):
            held = value_of(file, read(file.path))
            for mark in file.marks:
                for _, one in places_of(held, mark.pattern):
                    if is_our_server(one):
                        return _words(one)
    return [*place.command, "mcp"], {}


def _words(server: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    command, arguments = server["command"], server.get("args", [])
    words = command if isinstance(command, list) else [command, *arguments]
    variables = server.get("env", server.get("environment", {}))
    return list(map(str, words)), {str(name): str(value) for name, value in dict(variables).items()}


def _trust(harness: Harness, place: Place) -> list[Check]:
    """Return whether Codex trusts our hooks; of another harness nothing."""
    if harness.name != codex.HARNESS.name or not os.path.isdir(harness.folder(place)):
        return []
    name = "harness codex, hooks"
    try:
        hooks = codex.hooks_of(place)
    except TielineError as error:
        return [Check(name, False, str(error), "run `codex` once, then `tieline doctor`")]
    if not hooks:
        text = "Codex knows none of the hooks that stand in its file: mail waits for its tools"
        return [Check(name, False, text, "switch its hooks on, then run `tieline doctor` again")]
    # A hook that was changed since it was trusted is "modified", and skipped like any other.
    skipped = [one for one in hooks if not _is_run(one)]
    if not skipped:
        return [Check(name, True, f"{len(hooks)} hooks, all trusted")]
    is_gate = any(one.get("command") for one in skipped)
    what = "no command is judged" if is_gate else "mail waits for its tools"
    text = f"{len(skipped)} of {len(hooks)} hooks are not trusted, so Codex skips them: {what}"
    return [Check(name, False, text, "run `tieline setup codex --with trust`, or /hooks in Codex")]


def _is_run(hook: dict[str, Any]) -> bool:
    return hook.get("trustStatus") in ("trusted", "managed") and bool(hook.get("enabled", True))
