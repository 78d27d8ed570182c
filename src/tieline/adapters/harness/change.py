"""The exact change of one file: what it is now, what it becomes, and how that is taken back.

Rule 1: what is in place already is not touched: twice is as once.
Rule 2: what was set up is taken out to the byte where nobody wrote the file since; where somebody did, what
is ours goes and everything else stays.
Rule 3: an entry that needs a consent of its own stays where it once was given.
Rule 4: something of another that stands at our name is refused, never replaced; what somebody added to an
entry of ours stays as long as the entry.
Rule 5: texts in, texts out: this module reads and writes no file.

Source: DESIGN.md 4 "setup".
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from tieline.adapters.harness import edit_json, edit_toml, jsonc
from tieline.adapters.harness.base import Document, Entry, Whole, is_our_server, places_of, with_theirs
from tieline.adapters.harness.facts import SERVER
from tieline.adapters.harness.ledger import Record, digest, splices, undone
from tieline.errors import UsageError

__all__ = ["Change", "holds", "places_fit", "put_in", "taken_out", "value_of"]

EMPTY: Final[tuple[Any, ...]] = ({}, [])


class Change(NamedTuple):
    """What one file was, becomes, and what is recorded of it; None is no file, or no record.

    `folders` are ours alone: they go with the file.
    """

    path: str
    was: str | None
    now: str | None
    record: Record | None
    folders: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to write."""
        return self.was != self.now


def put_in(file: Document | Whole, was: str | None, record: Record | None, extras: Collection[str]) -> Change:
    """Return the change that sets a file up.

    Args:
        file: What belongs where.
        was: Its text now.
        record: What was recorded of it, if anything.
        extras: The consents that were given.

    Raises:
        UsageError: the file is broken, or something of another stands there; the line is named.
    """
    if isinstance(file, Whole):
        return _put_whole(file, was, record)
    entries = _chosen(file, was, extras)
    _require_free(file, was, entries)
    if holds(file, was, entries):
        return Change(file.path, was, was, record)
    base = taken_out(file, was, record).now
    texts = [base or ""]
    before = value_of(file, base)
    for entry in entries:
        texts.append(_put(file, texts[-1], entry))
    now = texts[-1]
    if not holds(file, now, entries):
        raise UsageError(f"{file.path} is written so that it cannot be changed here: change it there")
    made = tuple(sorted(_made(before, entries)))
    return Change(file.path, was, now, Record(digest(now), splices(texts), made, (), base is None))


def taken_out(file: Document | Whole, was: str | None, record: Record | None) -> Change:
    """Return the change that takes out of a file what is ours.

    Raises:
        UsageError: the file is broken, or a file of ours was changed by somebody.
    """
    if was is None:
        return Change(file.path, None, None, None)
    if isinstance(file, Whole):
        return _whole_taken_out(file, was, record)
    if record is not None:
        before = undone(was, record)
        if before is not None:
            return Change(file.path, was, None if record.is_created else before, None)
    now = _without_ours(file, was, record)
    is_gone = record is not None and record.is_created and value_of(file, now) in EMPTY
    return Change(file.path, was, None if is_gone else now, None)


def holds(file: Document, text: str | None, entries: tuple[Entry, ...]) -> bool:
    """Return whether every entry stands in a text as it should."""
    held = value_of(file, text)
    for entry in entries:
        found = [one for _, one in places_of(held, entry.keys)]
        if not found:
            return False
        if entry.value not in found[0] if entry.is_element else found[0] != entry.value:
            return False
    return True


def value_of(file: Document, text: str | None) -> Any:
    """Return what a document says; an empty one says {}.

    Raises:
        UsageError: it is broken; the line is named.
    """
    if file.form == "toml":
        return edit_toml.parse(text or "", file.path)
    if text is None or jsonc.is_blank(text, file.path):
        return {}
    return jsonc.parse(text, file.path).value


def _put_whole(file: Whole, was: str | None, record: Record | None) -> Change:
    if was is not None and was != file.text:
        _whole_taken_out(file, was, record)
    if was == file.text:
        return Change(file.path, was, was, record)
    before = "" if was is None else digest(was)
    return Change(file.path, was, file.text, Record(digest(file.text), (), (), (), was is None, before))


def _whole_taken_out(file: Whole, was: str, record: Record | None) -> Change:
    if record is None:
        if was != file.text and not file.is_ours(was):
            raise UsageError(f"{file.path} is there, and not ours: look at it, and move it away yourself")
    elif was != file.text and digest(was) not in (record.after, record.before):
        raise UsageError(f"{file.path} is not as setup left it: look at it, and remove it yourself")
    return Change(file.path, was, None, None, file.folders)


def _chosen(file: Document, text: str | None, extras: Collection[str]) -> tuple[Entry, ...]:
    """Return the entries that are wanted: consented now, or once before and still there."""
    held = value_of(file, text)
    return tuple(
        _with_added(held, entry)
        for entry in file.entries
        if not entry.extra or entry.extra in extras or _is_there(held, entry)
    )


def _with_added(held: Any, entry: Entry) -> Entry:
    """Return an entry with what somebody added to the one of ours that is there."""
    found = [one for _, one in places_of(held, entry.keys)]
    if entry.keys[-1] != SERVER or not found or not is_our_server(found[0]):
        return entry
    return entry._replace(value=with_theirs(entry.value, found[0]))


def _is_there(held: Any, entry: Entry) -> bool:
    found = [one for _, one in places_of(held, entry.keys)]
    if not found:
        return False
    held_there = found[0] if entry.is_element and isinstance(found[0], list) else found
    return any(one == entry.value or entry.is_former(one) for one in held_there)


def _require_free(file: Document, text: str | None, entries: tuple[Entry, ...]) -> None:
    """Refuse what stands where an entry is wanted, and a server of our name wherever one would count.

    Raises:
        UsageError: it is there, and not ours.
    """
    held = value_of(file, text)
    wanted = [entry.keys for entry in entries if not entry.is_element]
    for mark in file.marks:
        if mark.pattern[-1] == SERVER or mark.pattern in wanted:
            for _, one in places_of(held, mark.pattern):
                if not mark.is_ours(one):
                    named = ".".join(mark.pattern)
                    raise UsageError(
                        f"{file.path}: {named} is there, and not ours: rename it, then try again"
                    )


def places_fit(place: tuple[str | int, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a place fits a pattern."""
    return len(place) == len(pattern) and all(
        want in ("*", part) for part, want in zip(place, pattern, strict=True)
    )


def _put(file: Document, text: str, entry: Entry) -> str:
    if file.form == "json":
        put = edit_json.put_element if entry.is_element else edit_json.put_member
        return put(text, entry.keys, entry.value, file.path)
    if entry.is_element:
        return edit_toml.put_element(text, entry.keys, entry.value, file.path)
    return edit_toml.put_table(text, entry.keys, entry.value, file.path)


def _made(before: Any, entries: tuple[Entry, ...]) -> set[tuple[str, ...]]:
    """Return the places of containers that an entry needs and that are not there."""
    made: set[tuple[str, ...]] = set()
    for entry in entries:
        depth = len(entry.keys) + entry.is_element
        for length in range(1, depth):
            if not list(places_of(before, entry.keys[:length])):
                made.add(entry.keys[:length])
    return made


def _without_ours(file: Document, text: str, record: Record | None) -> str:
    undo = () if record is None else record.undo
    if file.form == "toml":
        text = _cut(file, text, undo)
    take = edit_json.removed if file.form == "json" else edit_toml.removed
    ours = _ours(file, text)
    for place in reversed(ours):
        text = take(text, place, file.path)
    made = set(record.made) if record is not None else _containers(ours) if file.form == "json" else ()
    for keys in sorted(made, key=len, reverse=True):
        if _is_bare(file, text, keys):
            text = take(text, keys, file.path)
    return text


def _is_bare(file: Document, text: str, keys: tuple[str, ...]) -> bool:
    """Return whether a container is there with nothing in it; a comment of a person's is something."""
    if file.form == "json":
        return edit_json.is_bare(text, keys, file.path)
    return any(one in EMPTY for _, one in places_of(value_of(file, text), keys))


def _containers(places: list[tuple[str | int, ...]]) -> set[tuple[str, ...]]:
    """Return what is around these places: without a record nobody knows who made it."""
    found: set[tuple[str, ...]] = set()
    for place in places:
        for length in range(1, len(place)):
            above = [part for part in place[:length] if isinstance(part, str)]
            if len(above) == length:
                found.add(tuple(above))
    return found


def _ours(file: Document, text: str) -> list[tuple[str | int, ...]]:
    held = value_of(file, text)
    found = [
        place for mark in file.marks for place, one in places_of(held, mark.pattern) if mark.is_ours(one)
    ]
    outer = [place for place in found if not any(place[:length] in found for length in range(1, len(place)))]
    return sorted(outer, key=lambda place: [(isinstance(part, int), part) for part in place])


def _cut(file: Document, text: str, undo: tuple[Any, ...]) -> str:
    """Return a text of TOML without those blocks of ours that stand in it exactly once, as they were put."""
    for splice in reversed(undo):
        if not splice.now.strip() or text.count(splice.now) != 1:
            continue
        at = text.index(splice.now)
        found = text[:at] + splice.was + text[at + len(splice.now) :]
        try:
            is_right = _leaves(value_of(file, found)) <= _leaves(value_of(file, text))
            is_right = is_right and not _is_halved(file, text, found)
        except UsageError:
            continue
        text = found if is_right else text
    return text


def _is_halved(file: Document, text: str, found: str) -> bool:
    """Return whether of an entry of ours only a part would stay: what somebody added below it."""
    held = value_of(file, found)
    whole = value_of(file, text)
    for place in _ours(file, text):
        keys = tuple(map(str, place))
        if list(places_of(held, keys)) not in ([], list(places_of(whole, keys))):
            return True
    return False


def _leaves(value: Any, *above: str) -> set[tuple[str, ...]]:
    """Return every value of a document with its place: what a cut leaves must have been there before."""
    if isinstance(value, dict) and value:
        return {leaf for key, one in value.items() for leaf in _leaves(one, *above, key)}
    return {(*above, repr(value))}
