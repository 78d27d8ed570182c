"""What `setup` put where, so that `unsetup` gives the bytes back: `setup.json` in `TIELINE_HOME`.

Rule 1: it keeps what is ours: places, and the text that we put there; of a person's text only what a change
took away or stands between its two ends.
Rule 2: it is a help, not the truth: without it what is ours is found by what it does.
Rule 3: a record that nobody can read is worth nothing, and stops nobody.
Rule 4: who changes the records reads and writes them alone, so that two at once lose none of either.

Source: DESIGN.md 4 "setup".
"""

import hashlib
import itertools
import json
from typing import Any, Final, NamedTuple

from tieline.adapters.harness.files import read, remove_folders, replace

__all__ = ["Record", "Splice", "digest", "load", "path_in", "save", "splices", "undone"]

VERSION: Final = 1


class Splice(NamedTuple):
    """One change of a text: `now` stands at `at` where `was` stood."""

    at: int
    now: str
    was: str


class Record(NamedTuple):
    """What was done to one file.

    Attributes:
        after: The digest of what was written.
        undo: Its changes, in order.
        made: Places of the containers that were made for our entries.
        folders: Folders that were made, the outermost first.
        is_created: Whether there was no file before.
        before: The digest of the file of ours that was replaced, which is still there when the writer died.
    """

    after: str
    undo: tuple[Splice, ...] = ()
    made: tuple[tuple[str, ...], ...] = ()
    folders: tuple[str, ...] = ()
    is_created: bool = False
    before: str = ""


def path_in(home: str) -> str:
    """Return where the records of a home are."""
    return home + "/setup.json"


def digest(text: str) -> str:
    """Return what a record knows a text by."""
    return hashlib.sha256(text.encode()).hexdigest()


def splices(texts: list[str]) -> tuple[Splice, ...]:
    """Return the changes that lead from the first text over the others to the last."""
    found = []
    for was, now in itertools.pairwise(texts):
        if was == now:
            continue
        longest = min(len(was), len(now))
        head = next((at for at in range(longest) if was[at] != now[at]), longest)
        rest = longest - head
        tail = next((at for at in range(rest) if was[-1 - at] != now[-1 - at]), rest)
        found.append(Splice(head, now[head : len(now) - tail], was[head : len(was) - tail]))
    return tuple(found)


def undone(text: str, record: Record) -> str | None:
    """Return what the file was before, or None where it was changed since."""
    if digest(text) != record.after:
        return None
    for splice in reversed(record.undo):
        text = text[: splice.at] + splice.was + text[splice.at + len(splice.now) :]
    return text


def load(home: str) -> dict[str, Record]:
    """Return the records of a home by the path of the file; nothing where none can be read."""
    text = read(path_in(home))
    try:
        held = json.loads(text or "{}")
        return {path: _record(one) for path, one in held.get("files", {}).items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return {}


def save(home: str, records: dict[str, Record]) -> None:
    """Keep the records; without any, the file goes.

    Raises:
        Refused: `PERMISSION_DENIED`.
    """
    was = read(path_in(home))
    if not records:
        replace(path_in(home), None, was)
        remove_folders([home])
        return
    files: dict[str, Any] = {
        path: {
            "after": one.after,
            "undo": [list(splice) for splice in one.undo],
            "made": [list(keys) for keys in one.made],
            "folders": list(one.folders),
            "created": one.is_created,
            **({"before": one.before} if one.before else {}),
        }
        for path, one in sorted(records.items())
    }
    replace(path_in(home), json.dumps({"version": VERSION, "files": files}, indent=1) + "\n", was)


def _record(held: dict[str, Any]) -> Record:
    undo = tuple(Splice(int(at), str(now), str(was)) for at, now, was in held["undo"])
    made = tuple(tuple(map(str, keys)) for keys in held["made"])
    folders = tuple(map(str, held["folders"]))
    before = str(held.get("before", ""))
    return Record(str(held["after"]), undo, made, folders, bool(held["created"]), before)
