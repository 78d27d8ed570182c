"""What became of messages that may be repeated."""

import pytest

from tests.unit.engine.brokering.kit import letter
from tieline.engine.brokering.contract import Delivered
from tieline.engine.brokering.records import RECORD_MS, RECORDS_PER_SENDER_MAX, Place, Record, Records


def record(identity: str, sender: str = "a", at_ms: int = 0) -> Record:
    return Record(
        Place(None, sender), "b", "name", letter(identity, content_key="k"), Delivered(identity), at_ms
    )


@pytest.mark.clause("intercom-52", "intercom-53")
def test_repeat_is_the_same_content_by_the_same_name_or_to_the_same_target() -> None:
    """Another content is never a repeat, another target neither."""
    one = record("m")
    same = letter("m", content_key="k")
    assert one.is_repeated_by(same, "name", None)
    assert one.is_repeated_by(same, "other name", "b")
    assert not one.is_repeated_by(same, "other name", "c")
    assert not one.is_repeated_by(letter("m", content_key="z"), "name", "b")


def test_record_lives_for_an_hour() -> None:
    """Then it is not found, and a sweep forgets it and who sent it."""
    records = Records()
    records.add(record("m"))
    assert records.find(Place(None, "a"), "m", RECORD_MS - 1) is not None
    assert records.find(Place(None, "a"), "m", RECORD_MS) is None
    assert records.find(Place("s", "a"), "m", 0) is None
    assert records.sender_of("b", "m") == Place(None, "a")
    records.sweep(RECORD_MS - 1)
    assert len(records) == 1
    records.sweep(RECORD_MS)
    assert (len(records), records.sender_of("b", "m")) == (0, None)


def test_oldest_record_gives_way_where_a_sender_has_too_many() -> None:
    """The bound per sender holds, and a record that is replaced counts once."""
    records = Records()
    for number in range(RECORDS_PER_SENDER_MAX + 1):
        records.add(record(str(number)))
    records.add(record("7"))
    assert len(records) == RECORDS_PER_SENDER_MAX
    assert records.find(Place(None, "a"), "0", 0) is None
    assert records.find(Place(None, "a"), "1", 0) is not None


def test_oldest_records_of_all_give_way_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of the whole broker holds too."""
    monkeypatch.setattr("tieline.engine.brokering.records.RECORDS_MAX", 3)
    records = Records()
    for sender in ("a", "b", "c", "d", "d"):
        records.add(record(f"of {sender} {len(records)}", sender))
    assert len(records) == 3
    assert records.find(Place(None, "a"), "of a 0", 0) is None
