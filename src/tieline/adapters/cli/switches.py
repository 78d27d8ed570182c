"""How `enabled` of a foreign wire is written into the text of config.toml, and taken out to the byte.

Rule 1: a person's lines, comments and order stay; what is added says that it was, and only that is removed.
Rule 2: a switch that a person wrote is turned, never removed: turning it back gives the same bytes.
Rule 3: in a table that is written as one value nothing can be marked: the line that holds it says behind
itself what it was. Where a person changed it since, `enabled = false` stays behind.
Rule 4: what comes out is what `config.load` takes; the caller tries it before it is written.

Source: DESIGN.md 3, 4 "setup"; docs/configuration.md.
"""

import json
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from tieline.errors import UsageError

__all__ = ["is_on", "switched_off", "switched_on"]

MARK: Final = "tieline setup"
_OUR_LINE_END: Final = f"enabled = true # {MARK}"
_AFTER_OPEN_LINE: Final = " (the line before it had no end)"
_BEFORE: Final = f"  # {MARK}, before: "
"""Behind a line that holds a table as one value; what follows is the line as it was, as JSON."""
_WIRES: Final = ("pi_peers", "intercom")


def is_on(text: str, wire: str) -> bool:
    """Return whether `[wires.WIRE]` says `enabled = true`; `text` is TOML."""
    return _table(tomllib.loads(text), wire).get("enabled") is True


def switched_on(text: str, wire: str) -> str:
    """Return `text` with the wire on; the same text where it is on already.

    Raises:
        UsageError: the package that keeps a person's comments is not installed.
    """
    if is_on(text, wire):
        return text
    found = tomllib.loads(text)
    section = found.get("wires")
    if section is not None and (wire in section or _is_inline(text)):
        return _edited(text, wire, is_enabled=True)
    end = _line_end(text)
    is_open = bool(text) and not text.endswith("\n")
    head = f"[wires.{wire}]  # {MARK}{_AFTER_OPEN_LINE if is_open else ''}"
    before = (end if is_open else "") + (end if text else "")
    return f"{text}{before}{head}{end}enabled = true{end}"


def switched_off(text: str, wire: str) -> str:
    """Return `text` with the wire off: what `switched_on` added is gone, what a person wrote is `false`.

    Raises:
        UsageError: the package that keeps a person's comments is not installed.
    """
    if not is_on(text, wire):
        return text
    end = _line_end(text)
    for is_open in (True, False):
        head = f"[wires.{wire}]  # {MARK}{_AFTER_OPEN_LINE if is_open else ''}"
        block = f"{head}{end}enabled = true{end}"
        at = text.find(block)
        rest = text[at + len(block) :]
        # Something that a person wrote below our head belongs to the table: it keeps its head.
        if at < 0 or (rest.strip() and not rest.lstrip().startswith("[")):
            continue
        before = text[:at]
        for _ in range((before != "") + is_open):
            before = before.removesuffix(end)
        return before + rest
    restored = _with_line_before(text, wire)
    return restored or _without_our_line(text, wire) or _edited(text, wire, is_enabled=False)


def _with_line_before(text: str, wire: str) -> str | None:
    """Return `text` with the line as it was that holds the wire's table as one value.

    None: there is none that says so, or a person changed it since.
    """
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        _, mark, told = bare.rpartition(_BEFORE)
        if not mark:
            continue
        try:
            before = text.replace(line, str(json.loads(told)) + line.removeprefix(bare))
            for one in _WIRES:
                before = before if is_on(text, one) else switched_off(before, one)
            on = [one for one in _WIRES if is_on(text, one) and not is_on(before, one)]
            is_ours = wire in on and tomllib.loads(_all_on(before, on)) == tomllib.loads(text)
        except ValueError:
            continue
        if is_ours:
            return _all_on(before, [one for one in on if one != wire])
    return None


def _all_on(text: str, wires: list[str]) -> str:
    for wire in wires:
        text = switched_on(text, wire)
    return text


def _without_our_line(text: str, wire: str) -> str | None:
    """Return `text` without the one line that we added below a table of a person's, or None: there is none.

    Where a table is written in dotted keys its parts stand apart, and no parser tells which line is ours.
    """
    wanted = tomllib.loads(text)
    del wanted["wires"][wire]["enabled"]
    for rest in _without_lines(text):
        try:
            if tomllib.loads(rest) == wanted:
                return rest
        except tomllib.TOMLDecodeError:
            continue
    return None


def _without_lines(text: str) -> Iterator[str]:
    """Yield the text without each line that ends as ours do."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        bare = line.rstrip("\r\n")
        if bare.endswith(_OUR_LINE_END):
            yield "".join(lines[:at] + lines[at + 1 :])
        elif bare.endswith(_OUR_LINE_END + _AFTER_OPEN_LINE):
            yield "".join(lines[:at]).removesuffix(_line_end(text)) + "".join(lines[at + 1 :])


def _table(document: dict[str, Any], wire: str) -> dict[str, Any]:
    section = document.get("wires", {})
    found = section.get(wire, {}) if isinstance(section, dict) else {}
    return found if isinstance(found, dict) else {}


def _is_inline(text: str) -> bool:
    """Return whether `wires` is written as one value, into which nothing can be added below."""
    return any(line.split("=")[0].strip() == "wires" for line in text.splitlines() if "=" in line)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _edited(text: str, wire: str, *, is_enabled: bool) -> str:
    """Return `text` with `enabled` of a table that a person wrote turned, added, or what we added removed."""
    try:
        import tomlkit
    except ImportError:
        raise UsageError(
            "config.toml has a table of this wire, and to change it needs the extra: "
            f"install tieline[setup], or write `enabled = {str(is_enabled).lower()}` there yourself"
        ) from None
    document: Any = tomlkit.parse(text)
    if wire not in document["wires"]:
        document["wires"][wire] = tomlkit.inline_table()
    table = document["wires"][wire]
    is_new = "enabled" not in table
    if is_new:
        value = tomlkit.item(True)
        if isinstance(table, tomlkit.items.Table):  # one that is written as a value has no place for it
            value.comment(MARK)
        table["enabled"] = value
    elif not is_enabled and _comment(table).startswith(f"# {MARK}"):
        del table["enabled"]
    else:
        table["enabled"] = is_enabled
    found = str(tomlkit.dumps(document))
    return _marked(text, found) if is_new else found


def _marked(was: str, now: str) -> str:
    """Return the text with what its one changed line was before, where nothing says yet that it is ours."""
    before, after = was.splitlines(keepends=True), now.splitlines(keepends=True)
    if (
        len(before) < len(after)
        and now.endswith(f"{_OUR_LINE_END}{_line_end(now)}")
        and not was.endswith("\n")
    ):
        return now.removesuffix(_line_end(now)) + _AFTER_OPEN_LINE + _line_end(now)
    changed = [at for at, line in enumerate(after) if len(before) != len(after) or line != before[at]]
    if len(changed) != 1 or MARK in after[changed[0]]:
        return now
    at = changed[0]
    line = after[at].rstrip("\r\n")
    end = after[at][len(line) :]
    told = _BEFORE + json.dumps(before[at].rstrip("\r\n"), ensure_ascii=False).replace("\x7f", "\\u007f")
    found = "".join([*after[:at], line, told, end, *after[at + 1 :]])
    return found if tomllib.loads(found) == tomllib.loads(now) else now


def _comment(table: Any) -> str:
    """Return what stands behind `enabled`; "" where it has no line of its own."""
    find = getattr(table, "item", None)
    return "" if find is None else str(find("enabled").trivia.comment)
