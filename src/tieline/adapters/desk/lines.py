"""A list of rows on the screen: only those that are seen are drawn, however many there are.

Rule 1: the cursor stays on its key while rows come and go around it.
Rule 2: a role looks the same everywhere, and without colours still differs where that matters.

Source: reference/native.md 2.11 "Inbox screen"; issue "10,000 messages".
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tieline.adapters.desk.words import Row, width

__all__ = ["Lines"]

ROLES = ("strong", "weak", "good", "warn", "bad")
Draw = Callable[[Any], Row]


class Lines(ScrollView, can_focus=True):
    """Rows, each with a key; one of them may bear the cursor."""

    DEFAULT_CSS = "Lines { overflow-x: hidden; }"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--cursor",
        "lines--here",
        *(f"lines--{one}" for one in ROLES),
    }
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]  # narrower than the widget's
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Moved(Message):
        """The cursor is on another key."""

        def __init__(self, lines: "Lines") -> None:
            super().__init__()
            self.lines = lines

        @property
        def control(self) -> "Lines":
            """The list that it is about."""
            return self.lines

    class Chosen(Moved):
        """The person pressed Enter on a row, or clicked it twice."""

    def __init__(self, *, id: str, has_cursor: bool = True) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id)
        self._has_cursor = has_cursor
        self._keys: Sequence[Any] = ()
        self._draw: Draw = lambda _key: ()
        self._place = 0

    @property
    def key(self) -> Any | None:
        """The key under the cursor, or None where there are no rows."""
        return self._keys[self._place] if self._keys else None

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of all rows."""
        return self._keys

    def show(self, keys: Sequence[Any], draw: Draw) -> None:
        """Show these rows; the cursor stays on its key where that is still there."""
        before = self.key
        self._keys, self._draw = keys, draw
        if before is not None and not (self._place < len(keys) and keys[self._place] == before):
            try:
                self._place = list(keys).index(before)
            except ValueError:
                self._place = min(self._place, max(0, len(keys) - 1))
        self._place = min(self._place, max(0, len(keys) - 1))
        self._resize()
        if self.key != before:
            self.post_message(self.Moved(self))
        self._keep_seen()
        self.refresh()

    def go(self, key: Any) -> None:
        """Put the cursor on a key, if it is there."""
        if key in self._keys:
            self._move(list(self._keys).index(key))

    def _resize(self) -> None:
        size = Size(max(1, self.size.width), len(self._keys))
        if size != self.virtual_size:
            self.virtual_size = size

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new width."""
        self._resize()
        self._keep_seen()
        self.refresh()

    def _move(self, place: int) -> None:
        place = max(0, min(place, len(self._keys) - 1))
        if place != self._place and self._keys:
            self._place = place
            self._keep_seen()
            self.post_message(self.Moved(self))
            self.refresh()

    def _keep_seen(self) -> None:
        if not self._has_cursor or not self.size.height:
            return
        top = int(self.scroll_offset.y)
        if self._place < top:
            self.scroll_to(y=self._place, animate=False, immediate=True)
        elif self._place >= top + self.size.height:
            self.scroll_to(y=self._place - self.size.height + 1, animate=False, immediate=True)

    def _scroll(self, by: int) -> None:
        self.scroll_to(y=int(self.scroll_offset.y) + by, animate=False, immediate=True)

    def action_step(self, by: int) -> None:
        """Move the cursor, or scroll where there is none."""
        if self._has_cursor:
            self._move(self._place + by)
        else:
            self._scroll(by)

    def action_page(self, by: int) -> None:
        """Move by a screen."""
        rows = max(1, self.size.height - 1) * by
        if self._has_cursor:
            self._move(self._place + rows)
        else:
            self._scroll(rows)

    def action_edge(self, is_last: int) -> None:
        """Move to the first or the last row."""
        if self._has_cursor:
            self._move(len(self._keys) - 1 if is_last else 0)
        elif is_last:
            self.scroll_end(animate=False)
        else:
            self.scroll_home(animate=False)

    def action_choose(self) -> None:
        """Choose the row under the cursor."""
        if self._keys:
            self.post_message(self.Chosen(self))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; twice chooses."""
        if not self._has_cursor:
            return
        place = int(self.scroll_offset.y) + event.y
        if place < len(self._keys):
            self._move(place)
            if event.chain >= 2:
                self.action_choose()

    def render_line(self, y: int) -> Strip:
        """Draw one row of the screen."""
        place, columns = int(self.scroll_offset.y) + y, self.size.width
        base = self.rich_style
        if place >= len(self._keys):
            return Strip.blank(columns, base)
        is_here = self._has_cursor and place == self._place
        if is_here:
            base += self.get_component_rich_style("lines--cursor" if self.has_focus else "lines--here")
        segments: list[Segment] = []
        left = columns
        for piece in self._draw(self._keys[place]):
            style = base
            if piece.role and not is_here:
                style += self.get_component_rich_style(f"lines--{piece.role}")
            segments.append(Segment(piece.text, style))
            left -= width(piece.text)
        if left > 0:
            segments.append(Segment(" " * left, base))
        return Strip(segments).adjust_cell_length(columns, base)
