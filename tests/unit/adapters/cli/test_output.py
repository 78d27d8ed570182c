"""Streams: safe text, JSON, colour, and what a failed write means."""

import io
import json
import sys
import time
from typing import Any

import pytest

from tests.unit.adapters.cli.fake import ESCAPE
from tieline.adapters.cli import output
from tieline.errors import OutcomeUnknown, Refused
from tieline.runtime.locate import Ambiguous


def test_line_foreign_text_is_one_safe_bounded_line() -> None:
    """Controls are shown as escapes, line ends are gone, and length is bounded."""
    shown = output.line(f"a{ESCAPE}\nb\u2028c")
    assert not set(shown) & {"\x1b", "\x07", "\n", "\u2028", "\u202e"}
    assert "a" in shown
    assert "b" in shown
    assert len(output.line("ä" * 1_000)) == len(output.line("x" * 1_000)) == output.LINE_CHARACTERS_MAX


def test_block_every_line_is_behind_the_bar() -> None:
    """Lines and tabs stay, other controls do not, and each line has its mark."""
    shown = output.block(f"a\tb\n{ESCAPE}\rc\nä")
    assert [row[:4] for row in shown.split("\n")] == ["  | "] * 3
    assert not set(shown) & {"\x1b", "\x07", "\r", "\u202e"}
    assert "a\tb" in shown


def test_json_hostile_text_is_ascii_and_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON on stdout is ASCII: its reader gets the exact text and a terminal gets no control."""
    text = f"{ESCAPE}\x9b\u2028é"
    output.write_json("x", {"text": text})
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.rstrip("\n").isprintable()
    assert json.loads(out) == {"version": 1, "command": "x", "text": text}


def test_write_to_narrow_encoding_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stdout that cannot say a character gets its escape."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    output.write("é")
    output.flush()
    assert raw.getvalue() == b"\\xe9\n"


def test_write_to_closed_stdout_is_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stdout that was never there fails as one whose reader left; a missing stderr does not matter."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(BrokenPipeError):
        output.write("x")
    with pytest.raises(BrokenPipeError):
        output.flush()
    output.note("x")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "stream", "is_painted"),
    [
        ({"TERM": "xterm"}, Terminal(), True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, Terminal(), False),
        ({"TERM": "dumb"}, Terminal(), False),
        ({}, Terminal(), False),
        ({"TERM": "xterm"}, io.StringIO(), False),
    ],
)
def test_paint_only_where_a_terminal_wants_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], stream: Any, is_painted: bool
) -> None:
    """Colour goes to a terminal that did not say no, and nowhere else."""
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (output.paint("x", "bold", stream) != "x") == is_painted


def test_table_columns_are_aligned() -> None:
    """Columns begin at the same place; nothing trails."""
    assert output.table([("a", "bb", ""), ("aaa", "b", "c")]) == "a    bb\naaa  b   c"
    assert output.table([]) == ""


def test_clock_shows_local_time_and_survives_other_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment is shown in local time, with its date on another day; other text is shown safely."""
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        assert output.clock("2001-02-03T04:05:06.789Z") == "2001-02-03 06:05:06+0200"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        assert output.clock(now) == time.strftime("%H:%M:%S%z")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "\x1b" not in output.clock(ESCAPE)


def test_error_shape_of_each_kind_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Every error has a code, a text and a next action; some have more."""
    errors: list[Exception] = [
        Refused("QUEUE_FULL", "full", is_retryable=True),
        OutcomeUnknown("lost", "m-1"),
        Ambiguous("two", [{"instance": "i"}], "name one"),
        PermissionError(13, "Permission denied", "/x"),
        OSError(28, "No space left"),
        KeyError("x"),
    ]
    shapes = [output.error_shape(error) for error in errors]
    assert [shape["code"] for shape in shapes] == [
        "QUEUE_FULL",
        "DELIVERY_UNKNOWN",
        "AMBIGUOUS_TARGET",
        "PERMISSION_DENIED",
        "IO_ERROR",
        "INTERNAL_ERROR",
    ]
    assert all(shape["text"] and shape["action"] for shape in shapes)
    assert shapes[0]["retryable"] is True
    assert shapes[1]["messageId"] == "m-1"
    assert shapes[2]["candidates"] == [{"instance": "i"}]
    output.fail(errors[2], "x", as_json=False)
    assert "instance i" in capsys.readouterr().err
