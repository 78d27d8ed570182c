"""What the commands `setup`, `unsetup` and `doctor` ask of this room.

Rule 1: nothing is written before the whole change of a harness is known; a file that is broken or read-only
refuses that harness alone.
Rule 2: the record of a file is kept before the file is written: a crash between the two loses nothing.

Source: DESIGN.md 4 "setup".
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from typing import Final

from tieline.adapters.harness import acp, claude_code, codex, examine, gemini, ledger, opencode, pi
from tieline.adapters.harness.base import Document, Harness, Place, Whole, program
from tieline.adapters.harness.change import Change, put_in, taken_out
from tieline.adapters.harness.facts import EXTRAS
from tieline.adapters.harness.files import (
    SUFFIX,
    missing_folders,
    read,
    remove_folders,
    replace,
    require_writable,
)
from tieline.errors import UsageError
from tieline.runtime.checkup import Check
from tieline.runtime.configuration import alone, swept
from tieline.runtime.options import home_directory

__all__ = [
    "EXTRAS",
    "NAMES",
    "apply",
    "checks",
    "extras_of",
    "here",
    "hint",
    "is_home",
    "paths",
    "place",
    "plan_in",
    "plan_out",
    "tidied",
    "trusted",
]

_HARNESSES: Final[dict[str, Harness]] = {
    one.name: one
    for one in (
        claude_code.HARNESS,
        codex.HARNESS,
        pi.PI,
        pi.OMP,
        opencode.HARNESS,
        gemini.HARNESS,
        acp.HARNESS,
    )
}
NAMES: Final = tuple(_HARNESSES)
"""The harnesses, by the names that a person types."""
_PROGRAM: Final = "tieline"


def place(environment: Mapping[str, str], project: str) -> Place:
    """Return where things are; `project` is a folder, or "" for the person's own level."""
    import tieline  # noqa: PLC0415 - for the folder of the package, once

    home = environment.get("HOME") or os.path.expanduser("~")
    package = os.path.dirname(os.path.abspath(tieline.__file__))
    command = (_PROGRAM,) if project else _command(environment)
    return Place(home, environment, project, command, package)


def _command(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start this installation, by a path that no other environment changes."""
    called = os.path.abspath(sys.argv[0]) if os.path.basename(sys.argv[0]) == _PROGRAM else ""
    found = shutil.which(_PROGRAM, path=environment.get("PATH", os.defpath)) or ""
    beside = os.path.join(os.path.dirname(sys.executable), _PROGRAM)
    for path in (called, found, beside):
        if path and os.access(path, os.X_OK):
            # A link stays a link: it is what an update of the installation keeps in place.
            return (os.path.abspath(path),)
    return (sys.executable, "-m", "tieline.adapters.cli.main")


def here(where: Place) -> list[str]:
    """Return the harnesses whose program is on the PATH."""
    return [name for name, one in _HARNESSES.items() if program(one, where)]


def extras_of(name: str) -> tuple[str, ...]:
    """Return what of `EXTRAS` a harness has."""
    return _HARNESSES[name].extras


def hint(name: str, where: Place) -> str:
    """Return what a person does after `setup`."""
    if name == acp.HARNESS.name:
        return f"put this into your editor, AGENT being the agent's own words: {acp.line_for_editor(where)}"
    return _HARNESSES[name].hint


def paths(name: str, where: Place) -> list[str]:
    """Return the files that a harness has for us, in place or not."""
    return [file.path for file in _HARNESSES[name].files(where)]


def plan_in(name: str, where: Place, extras: Collection[str]) -> list[Change]:
    """Return the changes that set a harness up; none where all is in place.

    Raises:
        UsageError: the harness is not here, or a file is broken; the line is named.
        Refused: `PERMISSION_DENIED`: a file is read-only.
    """
    harness = _HARNESSES[name]
    if where.project and is_home(where, where.project):
        raise UsageError("this folder is your home: what is in it is set up without --project")
    folder = harness.folder(where)
    if folder and not program(harness, where) and not os.path.isdir(folder):
        wanted = " or ".join(harness.programs)
        raise UsageError(f"{harness.title} is not here: neither {wanted} on the PATH nor {folder}")
    wrong = [one for one in extras if one not in EXTRAS]
    if wrong:
        raise UsageError(f"there is no {wrong[0]!r}; there are {', '.join(EXTRAS)}")
    if "trust" in extras and "trust" in harness.extras and not program(harness, where):
        raise UsageError(f"{harness.title} is not on the PATH, and only it knows the digests of its hooks")
    return _planned(harness.files(where), extras, where)


def plan_out(name: str, where: Place) -> list[Change]:
    """Return the changes that take a harness out again; none where nothing of ours is in it.

    Raises:
        UsageError: a file is broken, or one of ours was changed.
        Refused: `PERMISSION_DENIED`: a file is read-only.
    """
    records = ledger.load(home_directory("", where.environment))
    files = _HARNESSES[name].files(where)
    found = [taken_out(file, read(file.path), records.get(file.path)) for file in files]
    # In reverse, so that a folder is empty when the file goes for which it was made.
    needed = [one for one in reversed(found) if one.is_needed]
    for change in needed:
        require_writable(change.path)
    return needed


def trusted(where: Place, extras: Collection[str]) -> list[Change]:
    """Return the changes that trust Codex's hooks as they stand in the file now.

    Raises:
        UsageError: Codex is not here, or gave no answer.
    """
    return _planned(codex.with_trust(codex.HARNESS.files(where), codex.hooks_of(where)), extras, where)


def _planned(files: list[Document | Whole], extras: Collection[str], where: Place) -> list[Change]:
    records = ledger.load(home_directory("", where.environment))
    changes = [put_in(file, read(file.path), records.get(file.path), extras) for file in files]
    needed = [one for one in changes if one.is_needed]
    for change in needed:
        require_writable(change.path)
    return needed


def apply(changes: list[Change], environment: Mapping[str, str]) -> None:
    """Write the changes, and keep what takes them back.

    Raises:
        UsageError: a file was changed by somebody since it was read.
        Refused: `PERMISSION_DENIED`.
    """
    home = home_directory("", environment)
    with alone(home):
        _apply(changes, home)


def _apply(changes: list[Change], home: str) -> None:
    records = ledger.load(home)
    for change in changes:
        old = records.get(change.path)
        folders = missing_folders(os.path.realpath(change.path)) if change.now is not None else []
        if change.record is not None:
            kept = tuple(old.folders) if old is not None else ()
            records[change.path] = change.record._replace(folders=(*kept, *folders))
            ledger.save(home, records)
        replace(change.path, change.now, change.was)
        if change.now is None:
            remove_folders(list(old.folders if old is not None and old.folders else change.folders))
        if change.record is None and old is not None:
            del records[change.path]
            ledger.save(home, records)


def tidied(name: str, where: Place) -> None:
    """Remove what a command that was killed left of us: files beside those of a harness, folders, records.

    Raises:
        Refused: `PERMISSION_DENIED`.
    """
    home = home_directory("", where.environment)
    with alone(home):
        records = ledger.load(home)
        is_left = os.path.isfile(ledger.path_in(home))
        for file in reversed(_HARNESSES[name].files(where)):
            swept(os.path.realpath(file.path), SUFFIX)
            record = records.get(file.path)
            if record is not None and not taken_out(file, read(file.path), record).is_needed:
                if not os.path.lexists(file.path):
                    remove_folders(list(record.folders))
                del records[file.path]
        if is_left:
            ledger.save(home, records)
        else:
            swept(ledger.path_in(home), SUFFIX)
            remove_folders([home])


def checks(environment: Mapping[str, str]) -> list[Check]:
    """Return what `doctor` says of the harnesses that are here, or that Tieline was put into: also here."""
    records = ledger.load(home_directory("", environment))
    places = [place(environment, "")]
    with contextlib.suppress(FileNotFoundError):  # the present folder may be gone
        folder = os.getcwd()
        if not is_home(places[0], folder):
            places.append(place(environment, folder))
    return [
        check
        for one in _HARNESSES.values()
        for where in places
        for check in examine.checks(one, where, records)
    ]


def is_home(where: Place, folder: str) -> bool:
    """Return whether a folder is the person's home: there a project's files are the person's own."""
    return os.path.realpath(folder) == os.path.realpath(where.home)
