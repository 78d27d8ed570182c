"""Any text in the place of a message or of a context: one envelope, the exact body, or a typed error."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.errors import TielineError
from tieline.text import Shown, model_context, parse_context

PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def shown(number: int, content: str, alias: str, topic: str | None) -> Shown:
    return Shown(
        message_id=f"m{number}",
        sender_peer_id="peer-" + "0" * 32,
        sender_alias=alias,
        sender_project=alias,
        sender_run=None,
        topic=topic,
        correlation_id=None,
        reply_to=None,
        automatic_depth=0,
        thread=None,
        delivery="steer",
        created_at="2026-01-01T00:00:00.000Z",
        content=content,
        re_exposed=False,
    )


def boundary(message: Shown) -> str:
    return hashlib.sha256(message.message_id.encode()).hexdigest()[:32]


@pytest.mark.clause("S21", "O51", "K23")
@settings(max_examples=300)
@given(bodies=st.lists(PLAIN, min_size=1, max_size=5), alias=PLAIN, topic=st.none() | PLAIN, forged=PLAIN)
def test_context_of_any_bodies_gives_each_back_exactly(
    bodies: list[str], alias: str, topic: str | None, forged: str
) -> None:
    """A body that holds an earlier context, tags or markers is still one body."""
    earlier = model_context([shown(99, forged, alias, topic)], boundary).text
    texts = [*bodies, earlier + forged, earlier]
    messages = [shown(number, body, alias, topic) for number, body in enumerate(texts)]
    rendered = model_context(messages, boundary, bytes_max=10_000_000, count_max=100)
    read = parse_context(rendered.text)
    assert [item["content"] for item in read] == texts
    assert [item["messageId"] for item in read] == [item.message_id for item in messages]


@pytest.mark.clause("S21")
@settings(max_examples=300)
@given(text=PLAIN)
def test_context_reader_of_any_text_refuses_or_reads(text: str) -> None:
    """Whatever is handed to the reader, it answers with envelopes or a typed error."""
    try:
        read = parse_context(text)
    except (TielineError, ValueError):
        return
    assert isinstance(read, list | tuple)
