"""A list of rows on the screen."""

from typing import Any

import pytest
from textual.app import App, ComposeResult

from tieline.adapters.desk.lines import Lines
from tieline.adapters.desk.words import Piece, Row

pytestmark = pytest.mark.asyncio


class Shown(App[None]):
    def __init__(self, *, has_cursor: bool = True) -> None:
        super().__init__()
        self.has_cursor = has_cursor
        self.drawn: list[Any] = []
        self.chosen: list[Any] = []

    def compose(self) -> ComposeResult:
        yield Lines(id="rows", has_cursor=self.has_cursor)

    def draw(self, key: Any) -> Row:
        self.drawn.append(key)
        return (Piece(f"row {key}", "strong"),)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        self.chosen.append(event.control.key)


async def test_only_what_is_seen_is_drawn_of_very_many_rows() -> None:
    """Ten thousand rows cost what a screen of them costs; the last is one key away."""
    app = Shown()
    async with app.run_test(size=(40, 10)) as pilot:
        rows = app.query_one(Lines)
        rows.show(range(10_000), app.draw)
        rows.focus()
        await pilot.pause()
        assert set(app.drawn) <= set(range(10))
        app.drawn.clear()
        await pilot.press("end", "enter")
        assert rows.key == 9_999
        assert app.chosen == [9_999]
        assert set(app.drawn) <= set(range(9_980, 10_000)) | set(range(10))
        await pilot.press("home", "pagedown", "up", "j")
        assert rows.key == 9


async def test_cursor_stays_on_its_key_while_rows_come_and_go() -> None:
    """Rows before it move it along; where its own goes it stays at its place."""
    app = Shown()
    async with app.run_test(size=(40, 10)) as pilot:
        rows = app.query_one(Lines)
        rows.show(["a", "b", "c"], app.draw)
        rows.go("b")
        rows.show(["x", "y", "a", "b", "c"], app.draw)
        assert rows.key == "b"
        rows.show(["x", "y", "a", "c"], app.draw)
        assert rows.key == "c"
        rows.show(["x"], app.draw)
        assert rows.key == "x"
        rows.show([], app.draw)
        assert rows.key is None
        rows.go("x")
        await pilot.press("enter")
        assert app.chosen == []


async def test_list_without_cursor_scrolls() -> None:
    """A text to read is moved by the same keys, and chooses nothing by the mouse."""
    app = Shown(has_cursor=False)
    async with app.run_test(size=(40, 10)) as pilot:
        rows = app.query_one(Lines)
        rows.show(range(100), app.draw)
        rows.focus()
        await pilot.pause()
        await pilot.press("down", "down", "pagedown")
        await pilot.pause()
        assert rows.scroll_offset.y == 11
        await pilot.press("end")
        await pilot.pause()
        assert rows.scroll_offset.y == 90
        await pilot.press("home")
        await pilot.pause()
        await pilot.click(Lines, offset=(1, 5), times=2)
        assert app.chosen == []
