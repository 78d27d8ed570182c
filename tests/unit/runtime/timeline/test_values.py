"""A line of the timeline in words and as JSON: no more than is known."""

import json
import re
from pathlib import Path

import pytest

from tieline.runtime.timeline import PeerName, ReceiptStep, TimelineEntry, shape

SHAPES = Path(__file__).parents[4] / "docs" / "json-shapes.md"
WEB, API = PeerName("peer-1", "web"), PeerName("peer-2", "api")
STEPS = (ReceiptStep("pending", 1_000), ReceiptStep("unknown", 2_000, "BROKER_ACCEPTED"))
FULL = TimelineEntry(
    1_000, "m-1", WEB, API, "ports", "which?", "unknown", "BROKER_ACCEPTED", "m-0", "m-0", "t", STEPS,
    "intercom", "i-1", is_ask=True, durability="synced", place="1000-ab",
)  # fmt: skip


def test_shape_has_the_documented_members() -> None:
    """What is known is there under the documented names, what is not is absent."""
    text = SHAPES.read_text(encoding="utf-8")
    paragraph = re.search(r"An \*\*entry\*\* has: (.*?)\n\n", text, re.DOTALL)
    assert paragraph is not None
    assert set(re.findall(r"`(\w+)`", paragraph[1])) == set(shape(FULL))
    bare = TimelineEntry(
        0, "m", PeerName("peer-1"), PeerName("peer-2"), None, "", "pending", None, None, "m", None, (),
        "native", "i",
    )  # fmt: skip
    assert not {"fromAlias", "toAlias", "topic", "outcome", "replyTo", "thread", "durability"} & set(
        shape(bare)
    )
    assert json.dumps(shape(FULL)["receipts"][1]) == (
        '{"state": "unknown", "at": "1970-01-01T00:00:02.000Z", "outcome": "BROKER_ACCEPTED"}'
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "The broker passed it on; whether the recipient took it is not told."),
        ({"state": "accepted", "outcome": None, "wire": "native"}, "the recipient has it on disk"),
        ({"outcome": None, "wire": "native", "is_ended": True}, "Its sender ended before it was settled"),
        ({"state": "replied", "outcome": None, "is_ended": True}, "The recipient replied."),
    ],
)
def test_sentence_is_that_of_the_receipt(changes: dict[str, object], words: str) -> None:
    """An ended sender's open message is nobody's to retry; all else is told as a receipt is."""
    fields = {name: getattr(FULL, name) for name in FULL.__struct_fields__}
    assert words in TimelineEntry(**{**fields, **changes}).sentence()
