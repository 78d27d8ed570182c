r"""What a terminal, a log or a notification may show of text that others wrote.

Rule 1: one function, `printable`, stands before every sink. What could move the cursor, change the
terminal, reorder or hide text is shown as an escape, `\x1b`, so that the reader sees that it was there.
Rule 2: nothing is shown that needs its neighbours in another frame: a combining mark without a base is
an escape too, and a cut falls between characters as a reader counts them.
Rule 3: width is counted high rather than low: what is promised to fit does fit.
Rule 4: applying it twice changes nothing; work is linear in what is shown.

Source: reference/reliability.md 3.6, K22, K24; reference/native.md 3.4 "sanitiser", 3.6 weak point 17;
reference/open-bugs.md O49, O50.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

__all__ = ["LABEL_COLUMNS_MAX", "display_width", "label", "printable", "wrapped"]

LABEL_COLUMNS_MAX = 80
"""Of one label, such as an alias or a project."""
MARKS_MAX = 8
"""Combining marks on one base; no script stacks more, and a flood of them climbs over other lines."""
JOINS_MAX = 8
"""Joiners in one emoji; the longest that is defined has fewer."""
TAB_COLUMNS = 8
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

JOINER = 0x200D
_PLAIN_RUN = re.compile(r"[\x20-\x7e]+")
# Format characters that are seen: they enclose the digits that follow.
_SEEN_FORMATS = frozenset({*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD})
# Letters and marks that show as nothing, used to hide text or to fake an empty name.
_UNSEEN = frozenset({0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810)})
_UNSEEN_SELECTORS = range(0xE0100, 0xE01F0)
_SELECTORS = range(0xFE00, 0xFE10)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)
# Emoji younger than the interpreter's tables are unassigned there and still shown.
_YOUNG_PICTURES = range(0x1F000, 0x1FB00)
_PICTURES = (_YOUNG_PICTURES, range(0x2190, 0x2C00), range(0x3030, 0x303E), range(0x3297, 0x329A))

# A syllable written in its letters: what follows the first letter belongs to it.
_HANGUL = (range(0x1100, 0x1200), range(0xA960, 0xA980), range(0xAC00, 0xD800))
_HANGUL_TAILS = (range(0x1161, 0x1200), range(0xD7B0, 0xD800))

BASE, MARK, SELECTOR, JOIN, HOSTILE, TONE = range(6)


@lru_cache(maxsize=8_192)
def _kind(character: str) -> int:
    """Return what the character is for a reader: a base, something that hangs on one, or an escape."""
    point = ord(character)
    if point == JOINER:
        return JOIN
    if point in _SELECTORS:
        return SELECTOR
    if point in _SKIN_TONES:
        return TONE
    if point in _UNSEEN or point in _UNSEEN_SELECTORS:
        return HOSTILE
    category = unicodedata.category(character)
    if category in ("Mn", "Me", "Mc"):
        return MARK
    if category == "Cf":
        return BASE if point in _SEEN_FORMATS else HOSTILE
    if category == "Cn":
        return BASE if point in _YOUNG_PICTURES else HOSTILE
    return HOSTILE if category in ("Cc", "Cs", "Co", "Zl", "Zp") else BASE


def _is_in(character: str, blocks: tuple[range, ...]) -> bool:
    point = ord(character)
    return any(point in block for block in blocks)


def _is_picture(character: str) -> bool:
    return _is_in(character, _PICTURES)


def _escape(character: str) -> str:
    point = ord(character)
    named = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}.get(point)
    if named is not None:
        return named
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


@lru_cache(maxsize=8_192)
def _width(character: str) -> int:
    """Return the most columns that one character takes."""
    if _kind(character) in (MARK, JOIN):
        # A spacing mark takes a column of its own on many terminals.
        return 1 if unicodedata.category(character) == "Mc" else 0
    if _kind(character) == SELECTOR:
        return 1 if character == "\N{VARIATION SELECTOR-16}" else 0  # a narrow base becomes a wide picture
    is_wide = unicodedata.east_asian_width(character) in ("W", "F")
    return 2 if is_wide or unicodedata.category(character) == "Cn" else 1


class _Unit(NamedTuple):
    """One character as a reader counts them, or one escape: it is shown whole or not at all."""

    text: str
    columns: int


def _units(text: str, *, multiline: bool) -> Iterator[_Unit]:
    """Yield what is shown, one unit after the other."""
    position, end = 0, len(text)
    while position < end:
        character = text[position]
        if multiline and character in "\n\t":
            yield _Unit(character, TAB_COLUMNS if character == "\t" else 0)
            position += 1
            continue
        if _kind(character) not in (BASE, TONE):
            # Hostile, or something that hangs on a base and has none here.
            escape = _escape(character)
            yield _Unit(escape, len(escape))
            position += 1
            continue
        stop = _cluster_end(text, position)
        cluster = text[position:stop]
        yield _Unit(cluster, sum(map(_width, cluster)))
        position = stop


def _cluster_end(text: str, start: int) -> int:
    """Return where the character that begins at `start` ends, for a reader."""
    position, end, marks, joins = start + 1, len(text), 0, 0
    previous = text[start]
    if ord(previous) in _FLAGS and position < end and ord(text[position]) in _FLAGS:
        return position + 1
    while position < end:
        character = text[position]
        kind = _kind(character)
        if kind == MARK and marks < MARKS_MAX:
            marks += 1
        elif _hangs_on(character, kind, previous):
            pass
        elif kind == JOIN and joins < JOINS_MAX and _joins(text, position):
            joins += 1
            position += 1  # and the picture after it
            marks = 0
        else:
            return position
        previous = text[position]
        position += 1
    return position


def _hangs_on(character: str, kind: int, previous: str) -> bool:
    """Return whether the character belongs to the base right before it."""
    if kind == SELECTOR:
        return _kind(previous) == BASE
    if kind == TONE:
        return _kind(previous) == BASE and _is_picture(previous)
    return _is_in(character, _HANGUL_TAILS) and _is_in(previous, _HANGUL)


def _joins(text: str, position: int) -> bool:
    """Return whether the joiner stands between two pictures; anywhere else it only hides something."""
    before = position - 1
    while before >= 0 and before >= position - 2 and _kind(text[before]) in (SELECTOR, TONE):
        before -= 1
    return (
        before >= 0
        and position + 1 < len(text)
        and (_is_picture(text[before]) or ord(text[before]) in _SKIN_TONES)
        and _kind(text[position + 1]) == BASE
        and _is_picture(text[position + 1])
    )


def display_width(text: str) -> int:
    """Return the most columns that one line of `printable` text takes."""
    if _is_plain(text):
        return len(text)
    return sum(unit.columns for unit in _units(text, multiline=False))


def printable(text: str, columns_max: int | None = None, *, multiline: bool = False) -> str:
    r"""Return `text` as it may be shown: the one way to any sink.

    Args:
        text: Anything, also lone surrogates.
        columns_max: Bound of the width, for each line; what is longer ends in an ellipsis. None
            means unbounded, 0 or less means nothing.
        multiline: Keep newlines and tabs; else they are escapes like other controls.

    Returns:
        Text without control, bidirectional, zero-width, tag, separator or unassigned characters:
        each is an escape such as `\x1b` or `\u202e`. Applying it again changes nothing.

    Source: reference/reliability.md 3.6.
    """
    if columns_max is None:
        return _escaped(text, multiline=multiline)
    if not multiline:
        return _bounded(text, columns_max)
    return "\n".join(_bounded(line, columns_max, multiline=True) for line in text.split("\n"))


def label(text: str, columns_max: int = LABEL_COLUMNS_MAX) -> str:
    """Return a short text, such as an alias or a project, on one line of at most `columns_max` columns."""
    return printable(text, columns_max)


def wrapped(text: str, columns: int, lines_max: int) -> list[str]:
    """Return a whole text as lines that may be shown, each of at most `columns` columns.

    Args:
        text: Anything.
        columns: At least 16: an escape or a character of a reader is never cut.
        lines_max: At most so many lines; whoever calls says that there are more.
    """
    lines: list[str] = []
    for given in text.split("\n"):
        if len(lines) >= lines_max:
            break
        line, width, blank = "", 0, 0  # `blank`: where the line may be broken
        for unit in _units(given, multiline=True):
            if len(lines) >= lines_max:
                return lines
            shown = " " * TAB_COLUMNS if unit.text == "\t" else unit.text
            if width + unit.columns > columns:
                at = blank or len(line)
                lines.append(line[:at].rstrip())
                line, blank = line[at:], 0
                width = sum(one.columns for one in _units(line, multiline=False))
                if width + unit.columns > columns:  # the word alone does not leave room for it
                    lines.append(line)
                    line, width = "", 0
            line += shown
            width += unit.columns
            if shown.isspace():
                blank = len(line)
        lines.append(line)
    return lines[:lines_max]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escaped(text: str, *, multiline: bool) -> str:
    if _is_plain(text):
        return text
    parts: list[str] = []
    position, end = 0, len(text)
    while position < end:
        # The last character of a plain run may be the base of what follows it.
        run = _PLAIN_RUN.match(text, position)
        if run is not None and run.end() - 1 > position:
            parts.append(text[position : run.end() - 1])
            position = run.end() - 1
            continue
        stop = _next_plain(text, position + 1)
        parts.extend(unit.text for unit in _units(text[position:stop], multiline=multiline))
        position = stop
    return "".join(parts)


def _next_plain(text: str, position: int) -> int:
    """Return where the next run of two plain characters begins, or the end."""
    found = _TWO_PLAIN.search(text, position)
    return found.start() if found is not None else len(text)


_TWO_PLAIN = re.compile(r"[\x20-\x7e]{2}")


def _bounded(text: str, columns_max: int, *, multiline: bool = False) -> str:
    if columns_max <= 0:
        return ""
    # One character more than fits: the last one that is kept must not be the base of what follows it.
    if _is_plain(text[: columns_max + 1]):
        return text if len(text) <= columns_max else text[: columns_max - 1] + ELLIPSIS
    parts: list[str] = []
    columns = kept = 0
    for unit in _units(text, multiline=multiline):
        if columns + unit.columns > columns_max:
            # Room for the ellipsis was remembered, not taken.
            return "".join(parts[:kept]) + ELLIPSIS
        parts.append(unit.text)
        columns += unit.columns
        if columns < columns_max:
            kept = len(parts)
    return "".join(parts)
