"""Whatever a row says, it says after it was stored and read."""

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.engine.contract import Box, ContextRow, MessageRow, MoveRow, MuteRow, Row, RunRow
from tieline.model.identity import Peer
from tieline.model.message import Attachment, Delivery, Envelope, digest
from tieline.model.receipt import Durability, State
from tieline.store.journal.database import create_schema
from tieline.store.journal.rows import bound, insert, read_rows

# Any text that UTF-8 can say, NUL and line separators included.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NUMBER = st.integers(-(2**63), 2**63 - 1)
MAYBE_NUMBER = st.none() | NUMBER
PEER = st.builds(Peer, TEXT, st.none() | TEXT)
ENVELOPE = st.builds(
    Envelope,
    message_id=TEXT,
    sender=PEER,
    recipient=PEER,
    content=st.text(st.characters(exclude_categories=["Cs"]), max_size=5_000),
    topic=st.none() | TEXT,
    created_ms=MAYBE_NUMBER,
    delivery=st.sampled_from(Delivery),
    thread=st.none() | TEXT,
    is_ask=st.booleans(),
    attachments=st.lists(st.builds(Attachment, TEXT, TEXT), max_size=2).map(tuple),
)


def messages(cursor: int) -> st.SearchStrategy[Row]:
    """Return messages that have this cursor."""
    return ENVELOPE.flatmap(
        lambda envelope: st.builds(
            MessageRow,
            st.just(cursor),
            st.sampled_from(Box),
            st.just(envelope),
            st.just(digest(envelope)),
            NUMBER,
            NUMBER,
            NUMBER,
            st.booleans(),
        )
    ).flatmap(lambda row: st.sampled_from([row, msgspec.structs.replace(row, box=Box.IN, is_held=True)]))


OTHERS = st.one_of(
    st.builds(
        MoveRow, NUMBER, st.just(1), st.sampled_from(State), NUMBER,
        MAYBE_NUMBER, MAYBE_NUMBER, MAYBE_NUMBER,
        st.none() | TEXT, st.none() | st.sampled_from(Durability), st.booleans(), TEXT, st.none() | TEXT,
        NUMBER,
        MAYBE_NUMBER,
    ),
    st.builds(ContextRow, NUMBER, st.just(1), TEXT, TEXT, NUMBER),
    st.builds(RunRow, TEXT, TEXT, st.lists(TEXT, max_size=3).map(tuple), st.booleans(), NUMBER),
    st.builds(MuteRow, TEXT, st.booleans()),
)  # fmt: skip


@pytest.mark.clause("I5", "native-176")
@given(first=messages(1), others=st.lists(OTHERS, max_size=12))
def test_rows_stored_and_read_are_equal(first: Row, others: list[Row]) -> None:
    """Every row of any content comes back field for field, in the order of its commit."""
    connection = apsw.Connection(":memory:")
    create_schema(connection, "i")
    rows = [first, *others]
    insert(connection, [bound(row, position) for position, row in enumerate(rows, 1)])
    assert read_rows(connection, "f").rows == rows
    connection.close()
