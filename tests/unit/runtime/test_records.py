"""What a root's journal says, portion by portion, and what it says to nobody."""

from pathlib import Path

import pytest

from tests.unit.runtime.roots import call, two
from tieline.engine.contract import Box, MessageRow
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.model.message import Attachment, Envelope
from tieline.runtime.records import _shown

pytestmark = pytest.mark.asyncio


async def test_records_are_read_on_from_where_the_reader_is(private_home: Path) -> None:
    """Messages, moves and names come once; behind the last place there is nothing."""
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        await bob.inbox(consume=True)
        read = await call(bob, "local.records")
        (message,) = read["messages"]
        assert (message["envelope"]["content"], message["digest"]) == ("one", "")
        assert [(move["state"], move["token"]) for move in read["moves"]] == [("consumed", None)]
        assert read["names"] == {Peer(bob.node.instance).id: "bob"}
        assert read["isLast"] is True
        places = {name: read[name] for name in ("messageAfter", "moveAfter")}
        more = await call(bob, "local.records", **places)
        assert (list(more["messages"]), list(more["moves"])) == ([], [])
        assert {name: more[name] for name in places} == places
        for name in places:
            with pytest.raises(Refused, match="whole number"):
                await call(bob, "local.records", **{name: -1})


async def test_text_that_waits_for_the_persons_word_is_left_out() -> None:
    """Until the person has let a message in, neither its text nor its topic is told; files never are."""
    envelope = Envelope("m", Peer("a"), Peer("b"), "secret", topic="t", attachments=(Attachment("n", "x"),))
    row = MessageRow(1, Box.IN, envelope, b"d", 1, 2, 3, is_held=True)
    hidden, shown = (_shown(row, is_waiting=is_waiting).envelope for is_waiting in (True, False))
    assert (hidden.content, hidden.topic, hidden.attachments) == ("", None, ())
    assert (shown.content, shown.topic, shown.attachments) == ("secret", "t", ())
