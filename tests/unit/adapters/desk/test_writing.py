"""Where a person types."""

import pytest
from textual import events
from textual.app import App, ComposeResult

from tieline.adapters.desk.writing import Writer
from tieline.composer import Binding, Draft

pytestmark = pytest.mark.asyncio
API = Binding("api", 0, 0, "p", "i")


class Shown(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def compose(self) -> ComposeResult:
        yield Writer(id="writer")

    def on_writer_submitted(self) -> None:
        self.told.append("submitted")

    def on_writer_left(self) -> None:
        self.told.append("left")

    def on_writer_picking(self, event: Writer.Picking) -> None:
        self.told.append(event.key)

    def on_writer_recalling(self, event: Writer.Recalling) -> None:
        self.told.append(str(event.step))


def writer(app: Shown) -> Writer:
    found = app.query_one(Writer)
    found.focus()
    return found


@pytest.mark.clause("native-129")
async def test_each_edit_is_the_same_edit_of_the_draft() -> None:
    """Letters, lines, deletions, undo and redo: text and draft are equal, bindings follow."""
    app = Shown()
    async with app.run_test() as pilot:
        area = writer(app)
        area.load(Draft(":api go", 7, (Binding("api", 0, 4, "p", "i"),)))
        keys = ("home", "a", "space", "ctrl+j", "b", "space", "end", "x", "ctrl+w", "left", "y", "delete",
                "ctrl+z", "ctrl+y", "home", "ctrl+k", "ctrl+z")  # fmt: skip
        for key in keys:
            await pilot.press(key)
            assert area.draft.text == area.text, key
            for one in area.draft.bindings:
                assert area.text[one.start : one.end] == ":api"
        await pilot.pause()
        assert area.draft.cursor == area.cursor_index


@pytest.mark.clause("native-125")
async def test_loaded_draft_has_its_cursor_on_its_line() -> None:
    """A draft of several lines comes back with the cursor where it was."""
    app = Shown()
    async with app.run_test() as pilot:
        area = writer(app)
        area.load(Draft("one\ntwo\nthree", 6))
        await pilot.pause()
        assert area.cursor_location == (1, 2)
        assert area.draft.cursor == 6
        await pilot.press("right")
        await pilot.pause()
        assert area.draft.cursor == 7


async def test_enter_sends_or_takes_and_never_both() -> None:
    """With the list open Enter, Tab and the arrows are the list's; without it they send, leave, recall."""
    app = Shown()
    async with app.run_test() as pilot:
        area = writer(app)
        area.load(Draft("x", 1))
        await pilot.press("enter", "up", "down", "tab")
        area.is_picking = True
        area.focus()
        await pilot.press("enter", "tab", "up", "down", "escape")
        area.is_picking = False
        await pilot.press("escape")
        assert app.told == ["submitted", "-1", "1", "left", "take", "take", "up", "down", "close", "left"]
        assert area.text == "x"


async def test_paste_is_marked_with_its_lines_as_they_were() -> None:
    """A bracketed paste names nobody, and its line ends are those of a text."""
    app = Shown()
    async with app.run_test() as pilot:
        area = writer(app)
        area.post_message(events.Paste(":api one\r\ntwo\rthree"))
        await pilot.pause()
        assert area.draft.text == area.text == ":api one\ntwo\nthree"
        assert area.draft.pasted == ((0, len(area.text)),)
        await pilot.press("up", "up", "up")
        assert app.told == ["-1"], "within the text the arrows move"
