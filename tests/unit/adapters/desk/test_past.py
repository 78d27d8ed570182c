import json

import pytest

from tests.unit.adapters.desk.kit import entry
from tieline.adapters.desk.past import detail, exported, query_of, row
from tieline.runtime.timeline import TimelinePage


def clock(_ms: int) -> str:
    return "12:00:00"


def test_search_words_narrow_or_are_looked_for() -> None:
    """`peer:` and `state:` narrow; what is no state is said; other words with colons are text."""
    query, wrong = query_of("red  https://x peer:api state:replied state:expired", 5)
    assert (query.text, query.peer, query.since_ms) == ("red https://x", "api", 5)
    assert query.states == frozenset({"replied", "expired"})
    assert wrong == ""
    assert "state is one of" in query_of("state:gone", 0)[1]
    assert query_of("peer:", 0)[0].text == "peer:"


@pytest.mark.clause("K22")
def test_export_is_ascii_json_lines() -> None:
    """Each line is one JSON object, and no sequence of another's making is in the file."""
    text = exported(TimelinePage((entry("\x1b[2J\u202e"), entry("two", 2))))
    assert text.isascii()
    assert "\x1b" not in text
    assert [json.loads(line)["messageId"] for line in text.splitlines()] == ["m-1", "m-2"]


def test_row_and_detail_show_who_when_and_every_receipt() -> None:
    """A line says who wrote to whom and where it stands; below are its text, receipts and faults."""
    line = "".join(piece.text for piece in row(entry("hello\nthere", is_ask=True), 80, clock))
    assert "12:00:00 :api to :db" in line
    assert "? hello there" in line
    page = TimelinePage((), faults=("api did not answer",))
    shown = "\n".join(
        "".join(p.text for p in one) for one in detail(entry("hello", topic="t"), 80, clock, page)
    )
    assert all(word in shown for word in ("m-1  [t], native", "  | hello", "accepted", "api did not answer"))
    empty = detail(None, 80, clock, TimelinePage(()))
    assert empty[0][0].text == "nothing that fits happened today"
    assert "its text waits" in "".join(piece.text for piece in row(entry(""), 80, clock))
