"""How `enabled` of a foreign wire is written into the text of config.toml, and taken out to the byte.

Rule 1: a person's lines, comments and order stay; what is added says that it was, and only that is removed.
Rule 2: a switch that a person wrote is turned, never removed: turning it back gives the same bytes.
Rule 3: in a table that is written as one value nothing can be marked: there `enabled = false` stays behind.
Rule 4: what comes out is what `config.load` takes; the caller tries it before it is written.

Source: DESIGN.md 3, 4 "setup"; docs/configuration.md.
"""

import tomllib
from typing import Any, Final

from tieline.errors import UsageError

__all__ = ["is_on", "switched_off", "switched_on"]

MARK: Final = "tieline setup"
_OUR_LINE_END: Final = f"enabled = true # {MARK}"
_AFTER_OPEN_LINE: Final = " (the line before it had no end)"


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
    return _without_our_line(text, wire) or _edited(text, wire, is_enabled=False)


def _without_our_line(text: str, wire: str) -> str | None:
    """Return `text` without the one line that we added below a table of a person's, or None: there is none.

    Where a table is written in dotted keys its parts stand apart, and no parser tells which line is ours.
    """
    lines = text.splitlines(keepends=True)
    ours = [at for at, line in enumerate(lines) if line.rstrip("\r\n").endswith(_OUR_LINE_END)]
    if len(ours) != 1:
        return None
    wanted = tomllib.loads(text)
    del wanted["wires"][wire]["enabled"]
    rest = "".join(lines[: ours[0]] + lines[ours[0] + 1 :])
    try:
        return rest if tomllib.loads(rest) == wanted else None
    except tomllib.TOMLDecodeError:
        return None


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
    if "enabled" not in table:
        value = tomlkit.item(True)
        if isinstance(table, tomlkit.items.Table):  # one that is written as a value has no place for it
            value.comment(MARK)
        table["enabled"] = value
    elif not is_enabled and _comment(table) == f"# {MARK}":
        del table["enabled"]
    else:
        table["enabled"] = is_enabled
    return tomlkit.dumps(document)


def _comment(table: Any) -> str:
    """Return what stands behind `enabled`; "" where it has no line of its own."""
    find = getattr(table, "item", None)
    return "" if find is None else str(find("enabled").trivia.comment)
