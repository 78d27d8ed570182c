"""The last look at what is drawn: nothing leaves for the terminal that could move, hide or reorder.

Theory. Every foreign text passes the sanitiser where a row is made. What a person pastes into the composer is
drawn by the screen's package as it is; this filter stands behind everything that is drawn, so no way leads
around it.

Rule: what passes is what was drawn, but for what may not be shown; each of that is one mark, one column, and
    the line takes no more room than before.

Source: reference/reliability.md 3.6, K22.
"""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from tieline.text import printable

__all__ = ["Guard", "guarded"]

MARK = "\N{REPLACEMENT CHARACTER}"


def guarded(text: str) -> str:
    """Return a drawn text with a mark in the place of each character that may not be shown."""
    if text.isascii() and text.isprintable():
        return text
    if printable(text) == text:
        return text
    return "".join(one if printable(one) == one else MARK for one in text)


class Guard(LineFilter):
    """The filter of every line of the screen."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - textual's
        """Return the segments as they may be written."""
        made = [
            segment if segment.control else Segment(guarded(segment.text), segment.style, None)
            for segment in segments
        ]
        if all(one is other or one.text == other.text for one, other in zip(made, segments, strict=True)):
            return segments
        # What had no width has a mark of one column now: the line still ends where its room does.
        return Segment.adjust_line_length(made, Segment.get_line_length(segments), pad=False)
