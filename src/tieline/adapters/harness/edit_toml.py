"""A table or an element put into a text of TOML, and taken out again.

Rule 1: a table of ours is put at the end, in lines that nothing else shares; where a person wrote the place
in another form, tomlkit changes it there and leaves the rest.
Rule 2: what comes out is read and compared with what went in: it differs by what was asked, and by nothing
else; otherwise nothing is done.
Rule 3: a table in lines of its own goes with the empty line before it, as it came; comments behind it stay.
Rule 4: a byte order mark, as an editor may leave it, is passed over and kept.
Rule 5: the text comes and goes as a value; files are not known here.

Source: DESIGN.md 4 "setup"; TOML 1.0.
"""

import copy
import json
import tomllib
from typing import Any, Final

from tieline.errors import UsageError

__all__ = ["parse", "put_element", "put_table", "removed"]

_EXTRA: Final = "install tieline[setup]"
_MARK: Final = "\ufeff"


def parse(text: str, path: str) -> dict[str, Any]:
    """Return what the text says.

    Raises:
        UsageError: it is not TOML; the line is named.
    """
    try:
        return tomllib.loads(text.removeprefix(_MARK))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None


def put_table(text: str, keys: tuple[str, ...], table: dict[str, Any], path: str) -> str:
    """Return the text with this table at these keys, in place of one that is there.

    Raises:
        UsageError: the text is not TOML, or written so that this cannot be put in.
    """
    wanted = _with(parse(text, path), keys, table, path)
    if parse(text, path) == wanted:
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    before = ("" if not text or text.endswith("\n") else end) + (end if text else "")
    lines = [
        f"[{'.'.join(map(_key, keys))}]",
        *(f"{_key(name)} = {_shown(one)}" for name, one in table.items()),
    ]
    appended = text + (before if text != _MARK else "") + end.join(lines) + end
    return appended if _says(appended, wanted) else _edited(text, keys, table, wanted, path)


def put_element(text: str, keys: tuple[str, ...], value: Any, path: str) -> str:
    """Return the text with `value` in the list at these keys; a missing list is made.

    Raises:
        UsageError: the text is not TOML, there is no list, or it cannot be put in.
    """
    held: Any = parse(text, path)
    for key in keys:
        held = held.get(key) if isinstance(held, dict) else None
    if held is None:
        above: Any = parse(text, path)
        for key in keys[:-1]:
            above = above.get(key, {}) if isinstance(above, dict) else None
        if above == {}:
            return put_table(text, keys[:-1], {keys[-1]: [value]}, path)
        held = []
    if not isinstance(held, list):
        raise UsageError(f"{path}: {'.'.join(keys)} is not a list")
    if value in held:
        return text
    wanted = _with(parse(text, path), keys, [*held, value], path)
    return _edited(text, keys, [*held, value], wanted, path)


def removed(text: str, place: tuple[str | int, ...], path: str) -> str:
    """Return the text without what is at `place`: keys, and a number in a list.

    Raises:
        UsageError: it is written so that it cannot be taken out here.
        KeyError: nothing is there.
    """
    wanted = copy.deepcopy(parse(text, path))
    del _at(wanted, place[:-1])[place[-1]]
    lines = _without_lines(text, place, wanted)
    if lines is not None:
        return lines
    document = _kit(path).parse(text.removeprefix(_MARK))
    del _at(document, place[:-1])[place[-1]]
    found = _marked(text, document.as_string())
    # An emptied table may go with what was in it: the caller removes what it made anyway.
    if not _says(found, wanted) and not _says(found, _pruned(wanted, place[:-1])):
        raise UsageError(f"{path}: {'.'.join(map(str, place))} is written so that it must be taken out there")
    return found


def _without_lines(text: str, place: tuple[str | int, ...], wanted: dict[str, Any]) -> str | None:
    """Return the text without the lines of a table and of those below it, or None where it has none."""
    name = ".".join(_key(str(part)) for part in place)
    lines = text.removeprefix(_MARK).splitlines(keepends=True)
    first = next((at for at, one in enumerate(lines) if _header(one) == name), None)
    if first is None:
        return None
    start = first - 1 if first and not lines[first - 1].strip() else first
    end = first + 1
    for at in range(first + 1, len(lines) + 1):
        header = _header(lines[at]) if at < len(lines) else "the end"
        # What looks like the next table may stand in a text of several lines: the rest must say the same.
        if header and not f"{header}.".startswith(f"{name}."):
            found = _marked(text, "".join(lines[:start] + lines[end:]))
            if _says(found, wanted) or _says(found, _pruned(wanted, place[:-1])):
                return found
        if at < len(lines) and lines[at].strip() and not lines[at].lstrip().startswith("#"):
            end = at + 1
    return None


def _header(line: str) -> str:
    """Return the name of the table that a line opens, or ""."""
    found = line.lstrip(" \t")
    return found[1:].partition("]")[0].strip() if found.startswith("[") else ""


def _marked(text: str, found: str) -> str:
    return (_MARK if text.startswith(_MARK) else "") + str(found)


def _pruned(document: dict[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    while place and _at(document, place) == {}:
        del _at(document, place[:-1])[place[-1]]
        place = place[:-1]
    return document


def _at(document: Any, place: tuple[str | int, ...]) -> Any:
    for part in place:
        document = document[part]
    return document


def _with(document: dict[str, Any], keys: tuple[str, ...], value: Any, path: str) -> dict[str, Any]:
    made = copy.deepcopy(document)
    table: Any = made
    for depth, key in enumerate(keys[:-1]):
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {'.'.join(keys[: depth + 1])} is not a table")
    table[keys[-1]] = value
    return made


def _edited(text: str, keys: tuple[str, ...], value: Any, wanted: dict[str, Any], path: str) -> str:
    document = _kit(path).parse(text.removeprefix(_MARK))
    table: Any = document
    for key in keys[:-1]:
        if key not in table:
            table[key] = {}
        table = table[key]
    table[keys[-1]] = value
    found = _marked(text, document.as_string())
    if not _says(found, wanted):
        raise UsageError(f"{path}: {'.'.join(keys)} is written so that it must be changed there")
    return found


def _kit(path: str) -> Any:
    try:
        import tomlkit  # noqa: PLC0415 - an extra, and most files need none of it
    except ImportError:
        raise UsageError(f"{path}: to change a table that is there already, {_EXTRA}") from None
    return tomlkit


def _says(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text.removeprefix(_MARK)) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if is_bare else _shown(key)


def _shown(value: Any) -> str:
    """Return a value of text, number, truth, list or table as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_shown(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    # A JSON text is a TOML text, but for the sign DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
