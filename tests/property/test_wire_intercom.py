"""Laws of the intercom wire: values survive it exactly, and how bytes were cut changes nothing."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripts.room import Room
from tieline.wire.buffer import LengthBuffer
from tieline.wire.intercom.reading import dump, parse

TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda item: st.lists(item, max_size=4) | st.dictionaries(TEXT, item, max_size=4),
)


@pytest.mark.clause("intercom-12", "intercom-50")
@given(VALUE)
def test_value_survives_being_written_and_read(value: object) -> None:
    """Whatever JSON can say comes back the same, lone surrogates and all doubles included."""
    data = dump(value)
    assert parse(data) == value
    assert json.loads(data, parse_int=float) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_is_written_in_the_fewest_digits_that_read_back(number: float) -> None:
    """A printed double reads back as itself, and has the digits that Python prints."""
    text = dump(number).decode()
    assert float(text) == number
    digits = text.lstrip("-").split("e")[0].replace(".", "").strip("0")
    assert digits == f"{abs(number)!r}".split("e")[0].replace(".", "").strip("0")
    assert not math.copysign(1, number) < 0 or number == 0 or text.startswith("-")


@pytest.mark.clause("intercom-1", "intercom-2", "intercom-3")
@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(0, 150), max_size=8))
def test_frames_are_the_same_however_their_bytes_were_cut(payloads: list[bytes], cuts: list[int]) -> None:
    """Any cuts give the same payloads in the same order."""
    data = b"".join(len(one).to_bytes(4, "big") + one for one in payloads)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    buffer = LengthBuffer(64)
    found = [one for begin, end in pairwise(places) for one in buffer.feed(data[begin:end])]
    assert found == payloads
    assert buffer.rest_bytes == 0


@pytest.mark.clause("intercom-50")
@given(st.dictionaries(st.text("abcxyz_", min_size=1, max_size=6).map("x-".__add__), VALUE, max_size=4))
def test_message_reaches_its_recipient_with_all_it_bears(extra: dict[str, object]) -> None:
    """Members that nobody knows are forwarded as they mean."""
    room = Room()
    room.join("A")
    room.join("B")
    message = {"id": "m", "timestamp": 1, "content": {"text": "x", **extra}, **extra}
    room.send("A", {"type": "send", "to": "B", "message": message})
    assert room.heard("B")[0]["message"] == message
