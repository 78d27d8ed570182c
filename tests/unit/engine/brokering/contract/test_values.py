"""What commands and orders speak of."""

import pytest

from tieline.engine.brokering.contract import Letter, Lineage, Row
from tieline.engine.brokering.features import DIRECT


def test_row_is_known_by_the_id_among_its_fields() -> None:
    """A row's id is the one that others are shown."""
    row = Row(fields={"id": "s1"}, features=DIRECT, epoch="e", process_id=0, joined_ms=0)
    assert row.session_id == "s1"


def test_letter_of_few_words_is_an_ordinary_plain_message() -> None:
    """What is not said of a message is the harmless thing."""
    letter = Letter(message_id="m", fields={})
    assert letter.is_plain
    assert not any((letter.is_ask, letter.is_passive, letter.is_guard_broken, letter.is_guardable))


def test_values_cannot_be_changed() -> None:
    """A value that was passed stays what it was."""
    with pytest.raises(AttributeError):
        Lineage("r").root = "other"  # type: ignore[misc]
