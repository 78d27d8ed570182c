"""Pages of a finished answer, in UTF-16 code units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.errors import Refused
from tieline.runtime.answers import page
from tieline.runtime.host import Answers


def answers(text: str) -> Answers:
    kept = Answers()
    kept.add("e", text, 1)
    return kept


@pytest.mark.clause("O49")
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60), units=st.integers(2, 9))
def test_pages_of_any_text_join_to_it_and_cut_no_pair(text: str, units: int) -> None:
    """Every page is whole characters; together they are the exact text."""
    joined, offset = "", 0
    while True:
        shown = page(answers(text), "e", offset, units)
        assert "\ufffd" not in shown["text"] or "\ufffd" in text
        joined += shown["text"]
        if shown["nextOffset"] is None:
            break
        offset = shown["nextOffset"]
    assert joined == text


def test_page_of_no_answer_says_that_there_is_none() -> None:
    """An empty history is explicit, and a pinned entry that went is refused."""
    assert page(None, None, 0)["entry"] is None
    assert page(Answers(), None, 0) == {
        "entry": None,
        "text": "",
        "offset": 0,
        "nextOffset": None,
        "entries": 0,
    }
    with pytest.raises(Refused) as caught:
        page(Answers(), "gone", 0)
    assert caught.value.code == "UNKNOWN_TARGET"


def test_page_offset_inside_of_a_pair_moves_to_its_start() -> None:
    """A cursor never splits a surrogate pair."""
    shown = page(answers("a\U0001f600b"), None, 2)
    assert (shown["offset"], shown["text"]) == (1, "\U0001f600b")
    assert page(answers("ab"), None, 99)["text"] == ""
