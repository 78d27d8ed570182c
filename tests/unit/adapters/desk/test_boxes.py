"""The boxes over the desk."""

import pytest
from textual.app import App
from textual.widgets import Input

from tieline.adapters.desk.boxes import HELP, Answer, Reading
from tieline.adapters.desk.lines import Lines

pytestmark = pytest.mark.asyncio


async def test_reading_shows_escaped_lines_and_closes() -> None:
    """A text is wrapped and escaped; Escape, Enter and `q` close it."""
    app: App[None] = App()
    async with app.run_test() as pilot:
        for key in ("escape", "enter", "q"):
            app.push_screen(Reading("title", "one\n\x1b[2J" + "x" * 200))
            await pilot.pause()
            assert len(app.screen.query_one(Lines).keys) == 4
            await pilot.press(key)
            assert len(app.screen_stack) == 1


async def test_answer_is_taken_only_where_it_is_typed_exactly() -> None:
    """Another text changes nothing; the wanted one is the answer; Escape is none."""
    app: App[None] = App()
    said: list[str | None] = []
    async with app.run_test() as pilot:
        app.push_screen(Answer("title", ["a fact\x1b"], "l-1"), said.append)
        await pilot.pause()
        app.screen.query_one(Input).focus()
        await pilot.press(*"l-2", "enter")
        assert said == []
        await pilot.press("escape")
        app.push_screen(Answer("title", [], "l-1"), said.append)
        await pilot.pause()
        app.screen.query_one(Input).focus()
        await pilot.press(*"l-1", "enter")
        await pilot.pause()
        assert said == [None, "l-1"]


async def test_help_fits_the_smallest_usual_screen() -> None:
    """No line of the help is wider than its box at 80 columns."""
    assert max(map(len, HELP.splitlines())) <= 70
