r"""Where a text names somebody, and where its colons are only colons.

Theory. A mention is `:alias` at the start of the input, or after a blank or an opening bracket. Everything
else with a colon in it stays what it is: `https://host:3000`, `12:30`, `C:\x`, `pkg:script`, `:smile:`, code
and fences, `\:`, whatever begins with `/` or `!`, and whatever was pasted.

Rule 1: this is the one parser of what a person types; each door and screen asks it.
Rule 2: it knows nobody: whom a name means is decided in `addressing`.
Rule 3: work is linear in the text.

Source: reference/native.md 2.11; 1N (128, 130, 131).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tieline.config import ALIAS_CHARACTERS_MAX

__all__ = ["Direct", "Mention", "Span", "direct", "mentions", "open_mention"]

Span = tuple[int, int]
"""A start and an end in a text."""

BRACKETS = "([{<"
LITERAL_STARTS = ("/", "!")
"""A command of a host or of its shell: nothing in it is a mention."""
# What follows a name and makes it part of something else: an emoji, an address, a path, an assignment.
_NOT_AFTER = frozenset(":/\\@=")
_NAME = re.compile(rf":([A-Za-z][A-Za-z0-9_-]{{0,{ALIAS_CHARACTERS_MAX - 1}}})")
_PREFIX = re.compile(rf":([A-Za-z0-9_-]{{0,{ALIAS_CHARACTERS_MAX}}})$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_TICKS = re.compile(r"`+")


class Mention(NamedTuple):
    """One `:alias`; `start` is its colon, `end` is behind the name."""

    alias: str
    start: int
    end: int


class Direct(NamedTuple):
    """A text that goes to one peer at once: whom, and what."""

    mention: Mention
    content: str


def mentions(text: str, pasted: Iterable[Span] = ()) -> tuple[Mention, ...]:
    """Return every mention of a text, in order.

    Args:
        text: What was typed.
        pasted: Spans that came by a bracketed paste: nothing in them is a mention.
    """
    if text.lstrip().startswith(LITERAL_STARTS) or ":" not in text:
        return ()
    literal = _Literal((*_code(text), *pasted))
    found: list[Mention] = []
    for match in _NAME.finditer(text):
        start, end = match.span()
        if (
            (start == 0 or text[start - 1].isspace() or text[start - 1] in BRACKETS)
            and not (end < len(text) and (text[end] in _NOT_AFTER or text[end].isalnum() or text[end] == "_"))
            and not literal.touches(start, end)
        ):
            found.append(Mention(match[1], start, end))
    return tuple(found)


def direct(text: str, pasted: Iterable[Span] = ()) -> Direct | None:
    """Return whom a text is for where it is for one peer, else None.

    Its first word is the mention; it has one line; a blank and content follow.
    """
    stripped = text.strip()
    if "\n" in stripped or "\r" in stripped:
        return None
    found = mentions(text, pasted)
    if not found or text[: found[0].start].strip():
        return None
    rest = text[found[0].end :]
    if not rest[:1].isspace() or not rest.strip():
        return None
    return Direct(found[0], rest.strip())


def open_mention(text: str, cursor: int, pasted: Iterable[Span] = ()) -> Mention | None:
    """Return the name that is being typed right before the cursor, "" after a lone colon, or None."""
    match = _PREFIX.search(text, 0, cursor)
    if match is None or cursor > len(text):
        return None
    # The rest of a name behind the cursor is not typed anew; a colon behind it would make it an emoji.
    if cursor < len(text) and not text[cursor].isspace():
        return None
    probe = f"{text[: match.start()]}:x{text[cursor:]}"
    before, shortened = match.start(), cursor - match.start() - 2

    def moved(point: int) -> int:
        return point if point <= before else point - shortened if point >= cursor else before + 1

    spans = [(moved(start), moved(end)) for start, end in pasted]
    if any(one.start == match.start() for one in mentions(probe, spans)):
        return Mention(match[1], match.start(), cursor)
    return None


class _Literal:
    """Spans in which nothing is a mention; asked from left to right."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(spans)
        self._place = 0
        self._reach = 0

    def touches(self, start: int, end: int) -> bool:
        while self._place < len(self._spans) and self._spans[self._place][0] < end:
            self._reach = max(self._reach, self._spans[self._place][1])
            self._place += 1
        return self._reach > start


def _code(text: str) -> list[Span]:
    """Return the spans of fences, and of code between backticks outside them."""
    fences: list[Span] = []
    opened: tuple[int, str] | None = None
    for match in _FENCE.finditer(text):
        marks = match[1]
        if opened is None:
            opened = match.start(), marks
        elif marks[0] == opened[1][0] and len(marks) >= len(opened[1]):
            fences.append((opened[0], match.end()))
            opened = None
    if opened is not None:
        fences.append((opened[0], len(text)))
    spans, position = list(fences), 0
    for start, end in [*fences, (len(text), len(text))]:
        spans += _ticked(text, position, start)
        position = end
    return spans


def _ticked(text: str, start: int, end: int) -> list[Span]:
    """Return the spans between runs of equally many backticks."""
    spans: list[Span] = []
    runs = [match.span() for match in _TICKS.finditer(text, start, end)]
    later: dict[int, list[int]] = {}
    for place in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[place][1] - runs[place][0], []).append(place)
    place = 0
    while place < len(runs):
        closing = later[runs[place][1] - runs[place][0]]
        while closing and closing[-1] <= place:
            closing.pop()
        if not closing:
            place += 1
            continue
        spans.append((runs[place][0], runs[closing[-1]][1]))
        place = closing[-1] + 1
    return spans
