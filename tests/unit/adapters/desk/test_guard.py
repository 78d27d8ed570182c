import pytest
from rich.segment import Segment
from textual.color import Color

from tieline.adapters.desk.guard import MARK, Guard, guarded


@pytest.mark.clause("K22", "native-127")
@pytest.mark.parametrize("text", ["\x1b[2J", "a\u202eb", "\u200b" * 5 + "x", "\x9b5n", "\ud800"])
def test_drawn_line_holds_nothing_hostile_and_is_no_longer(text: str) -> None:
    """Each character that may not be shown is one mark; the line takes no more room than before."""
    line = [Segment("left ", None), Segment(text, None)]
    made = Guard().apply(line, Color(0, 0, 0))
    shown = "".join(one.text for one in made)
    assert not any(one in shown for one in "\x1b\u202e\u200b\x9b\ud800")
    assert Segment.get_line_length(made) <= Segment.get_line_length(line)


def test_plain_line_passes_as_it_is() -> None:
    """What may be shown is not touched, with its boxes, accents and wide letters."""
    line = [Segment("│ ╭▶ e\u0301 字 \N{HORIZONTAL ELLIPSIS}", None)]
    assert Guard().apply(line, Color(0, 0, 0)) is line
    assert guarded("a\x1bb") == f"a{MARK}b"
