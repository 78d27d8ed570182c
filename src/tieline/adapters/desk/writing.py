"""Where a person types: a text area whose draft keeps exact peers, whatever happens around it.

Theory. The draft is the truth and the widget shows it. Each edit of the widget is the same edit of the draft,
so a binding moves with its name. Nothing that arrives touches it; it is loaded only by the person's own act.

Rule 1: Enter sends, or takes what the open picker shows; it never does both.
Rule 2: what was pasted in a bracketed paste is marked as such, and names nobody.

Source: reference/native.md 2.11; 1N (125, 129 to 131).
"""

from typing import ClassVar

import msgspec
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditResult, Location

from tieline.composer import Draft

__all__ = ["Writer"]


class Writer(TextArea):
    """The composer."""

    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment]  # narrower than the widget's
        Binding("ctrl+j,alt+enter,shift+enter", "new_line", show=False),
        Binding("escape", "leave", show=False, priority=True),
    ]

    class Drafted(Message):
        """The draft is another one."""

    class Submitted(Message):
        """The person wants it sent."""

    class Left(Message):
        """The person goes back to the panes; the draft stays."""

    class Picking(Message):
        """A key for the open picker: "up", "down" or "take"."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Recalling(Message):
        """The person goes through what was sent: -1 is earlier."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, *, id: str) -> None:  # noqa: A002 - textual's name
        super().__init__(id=id, soft_wrap=True, compact=True, highlight_cursor_line=False)
        self.draft = Draft()
        self.is_picking = False
        self._is_pasting = False
        self._is_loading = False

    # ------------------------------------------------------------ the draft

    def load(self, draft: Draft) -> None:
        """Show a draft, its cursor where it was."""
        self._is_loading = True
        try:
            if self.text != draft.text:
                self.load_text(draft.text)
            self.draft = draft
            self.move_cursor(self._location(draft.text, draft.cursor))
        finally:
            self._is_loading = False
        self.post_message(self.Drafted())

    def edit(self, edit: Edit) -> EditResult:
        """Make the same edit of the text and of the draft."""
        before = self.text
        first, last = sorted((edit.from_location, edit.to_location))
        start, end = _index(before, first), _index(before, last)
        result = super().edit(edit)
        new = edit.text.replace("\r\n", "\n").replace("\r", "\n")
        made = self.draft.edited(start, end, new, is_pasted=self._is_pasting)
        self._take(made if made.text == self.text else self.draft.became(self.text, self.cursor_index))
        return result

    def undo(self) -> None:
        """Take the last edits back; bindings that they moved move back."""
        super().undo()
        self._take(self.draft.became(self.text, self.cursor_index))

    def redo(self) -> None:
        """Make them again."""
        super().redo()
        self._take(self.draft.became(self.text, self.cursor_index))

    def _take(self, draft: Draft) -> None:
        self.draft = draft
        self.post_message(self.Drafted())

    @property
    def cursor_index(self) -> int:
        """The cursor's place in the text."""
        return _index(self.text, self.cursor_location)

    @staticmethod
    def _location(text: str, index: int) -> Location:
        before = text[:index]
        return before.count("\n"), index - (before.rfind("\n") + 1)

    def on_text_area_selection_changed(self, _event: TextArea.SelectionChanged) -> None:
        """Keep the draft's cursor where the person put it."""
        index = self.cursor_index
        if not self._is_loading and self.draft.text == self.text and self.draft.cursor != index:
            self._take(msgspec.structs.replace(self.draft, cursor=index))

    # ------------------------------------------------------------ keys

    async def _on_paste(self, event: events.Paste) -> None:
        self._is_pasting = True
        try:
            event.text = event.text.replace("\r\n", "\n").replace("\r", "\n")
            await super()._on_paste(event)
        finally:
            self._is_pasting = False
        event.prevent_default()
        event.stop()

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter" or (event.key == "tab" and self.is_picking):
            event.stop()
            event.prevent_default()
            self.post_message(self.Picking("take") if self.is_picking else self.Submitted())
            return
        if event.key == "tab":
            event.stop()
            event.prevent_default()
            self.post_message(self.Left())
            return
        await super()._on_key(event)

    def action_new_line(self) -> None:
        """Begin another line; Enter sends."""
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    def action_leave(self) -> None:
        """Close the picker, or go back to the panes."""
        self.post_message(self.Picking("close") if self.is_picking else self.Left())

    def action_cursor_up(self, select: bool = False) -> None:  # noqa: FBT001, FBT002 - textual's signature
        """Go up: in the picker, in the text, or to what was sent before."""
        if self.is_picking:
            self.post_message(self.Picking("up"))
        elif self.cursor_at_first_line and not select:
            self.post_message(self.Recalling(-1))
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:  # noqa: FBT001, FBT002 - textual's signature
        """Go down: in the picker, in the text, or to what was sent after."""
        if self.is_picking:
            self.post_message(self.Picking("down"))
        elif self.cursor_at_last_line and not select:
            self.post_message(self.Recalling(1))
        else:
            super().action_cursor_down(select)


def _index(text: str, location: Location) -> int:
    row, column = location
    start = 0
    for _ in range(row):
        found = text.find("\n", start)
        if found < 0:
            return len(text)
        start = found + 1
    return min(start + column, len(text))
