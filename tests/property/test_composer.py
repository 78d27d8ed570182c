"""Laws of what a person types: bindings follow their names, literals stay literal, drafts survive."""

import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.composer import Binding, Draft, direct, mentions, open_mention

LETTERS = st.text(alphabet=":ab \\`~\n/!(é1", max_size=30)
EDITS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 6), st.text(":ab c\n`", max_size=4), st.booleans())
)
LITERALS = st.sampled_from(
    ["https://host:3000", "12:30", "C:\\x", "pkg:script", ":smile:", "`:ab`", "\\:ab", "x:ab"]
)


@given(LETTERS)
def test_mention_of_any_text_is_where_it_says(text: str) -> None:
    """Each mention is its text, they do not overlap, and the first word of a letter is one of them."""
    found = mentions(text)
    assert all(text[one.start : one.end] == ":" + one.alias for one in found)
    assert all(one.end <= other.start for one, other in itertools.pairwise(found))
    sent = direct(text)
    if sent is not None:
        assert sent.mention == found[0]
        assert "\n" not in sent.content


@given(LETTERS, st.integers(0, 30))
def test_open_name_of_any_text_ends_at_cursor(text: str, cursor: int) -> None:
    """The name that is being typed ends where the cursor is, and begins with a colon."""
    found = open_mention(text, min(cursor, len(text)))
    if found is not None:
        assert text[found.start] == ":"
        assert text[found.start + 1 : found.end] == found.alias
        assert found.end == min(cursor, len(text))


@pytest.mark.clause("native-128")
@given(st.lists(st.sampled_from(["word", "two words", "1"])), LITERALS, st.sampled_from([" ", "\n"]))
def test_literal_among_any_words_stays_literal(words: list[str], literal: str, between: str) -> None:
    """No word around it turns a literal into a mention."""
    assert mentions(between.join([*words, literal, *words])) == ()
    fence = "\n".join([*words, "```", ":ab", literal, "```", *words])
    assert mentions(fence) == ()


@given(LETTERS.filter(bool))
def test_paste_of_any_text_names_nobody(text: str) -> None:
    """Whatever is pasted is text."""
    assert mentions(text, [(0, len(text))]) == ()


@pytest.mark.clause("native-129")
@given(EDITS)
def test_binding_under_any_edits_is_at_its_name_or_gone(edits: list[tuple[int, int, str, bool]]) -> None:
    """After any edits each binding stands at its own name, in order, and the draft reads back the same."""
    draft = Draft(":ab x :b ", 9, (Binding("ab", 0, 3, "p", "i"), Binding("b", 6, 8, "q", "j")))
    for start, length, new, is_pasted in edits:
        first = min(start, len(draft.text))
        before = draft
        draft = draft.edited(first, min(first + length, len(draft.text)), new, is_pasted=is_pasted)
        assert all(draft.text[one.start : one.end] == ":" + one.alias for one in draft.bindings)
        assert [one.start for one in draft.bindings] == sorted(one.start for one in draft.bindings)
        assert {one.peer_id for one in draft.bindings} <= {one.peer_id for one in before.bindings}
        assert all(0 <= one < other <= len(draft.text) for one, other in draft.pasted)
    assert Draft.of(json.loads(json.dumps(draft.shape()))) == draft


@given(st.text(":ab ", max_size=12), st.text(":ab ", max_size=12), st.integers(0, 12))
def test_draft_that_became_any_text_has_it(before: str, after: str, cursor: int) -> None:
    """Whatever a screen says the text is now, the draft has it, and its bindings stand at their names."""
    spans = [Binding(one.alias, one.start, one.end, "p", "i") for one in mentions(before)]
    draft = msgspec.structs.replace(Draft(before, 0), bindings=tuple(spans)).became(after, cursor)
    assert draft.text == after
    assert all(after[one.start : one.end] == ":" + one.alias for one in draft.bindings)
