"""Records of several roots, put together by message: live ones, ended ones, and those that do not answer."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.roots import two
from tieline.engine.contract import Box, MessageRow, MoveRow
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.model.message import Envelope
from tieline.model.receipt import State
from tieline.runtime.timeline import Timeline, TimelineQuery, reader, timeline

A, B = Peer("i-a"), Peer("i-b")


def sent(cursor: int, text: str = "hello", **changes: Any) -> MessageRow:
    """Return the sender's record of a message."""
    envelope = Envelope(f"m-{cursor}", A, B, text, topic="ports")
    return MessageRow(cursor, changes.pop("box", Box.OUT), envelope, b"", 1_000 * cursor, 0, 0, **changes)


def told(cursor: int, message: int, state: State, **changes: Any) -> MoveRow:
    """Return a move of a record."""
    return MoveRow(cursor, message, state, 1_000 * cursor, **changes)


def filled(*rows: tuple[str, Any]) -> Timeline:
    """Return a timeline of these rows, each of the instance beside it."""
    made = Timeline("/nowhere", "/nowhere")
    for instance, row in rows:
        is_message = isinstance(row, MessageRow)
        made._take(instance, [row] if is_message else [], [] if is_message else [row])
    made._arrange()
    return made


async def home_of(home: Path) -> str:
    """Return where the roots of `two` are."""
    return str(home / "h")


@pytest.mark.asyncio
async def test_message_of_two_live_roots_is_one_line_with_both_ends(private_home: Path) -> None:
    """Sender and recipient each know a part; the line has names, text, and every receipt in its order."""
    async with two(private_home) as (alice, bob):
        first = await alice.send("bob", "Which PORT?", topic="ports")
        (message,) = await bob.inbox(consume=True)
        await bob.reply(message.message_id, "8080")
        await asyncio.sleep(0.2)
        home = await home_of(private_home)
        page = await timeline(home, home, TimelineQuery())
        question, answer = page.entries
        assert (question.message_id, question.text, question.topic) == (
            first["messageId"],
            "Which PORT?",
            "ports",
        )
        assert (question.sender.alias, question.recipient.alias) == ("alice", "bob")
        assert [step.state for step in question.receipts] == ["pending", "accepted", "consumed", "replied"]
        assert (question.state, answer.state, answer.reply_to) == ("replied", "accepted", question.message_id)
        assert answer.correlation == question.message_id
        assert (page.faults, page.cursor, page.count) == ((), None, 2)
        assert (await alice.status(question.message_id))["sent"][0]["receipt"]["state"] == "replied"
        assert len(await alice.inbox()) == 1  # nothing was consumed by looking


@pytest.mark.asyncio
async def test_refresh_reads_only_what_is_new_and_follows_a_root_to_its_end(private_home: Path) -> None:
    """A line moves on with later receipts; what an ended root left stays, and says that nobody retries it."""
    home = await home_of(private_home)
    made = Timeline(home, home)
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        assert await asyncio.to_thread(made.refresh)
        assert not await asyncio.to_thread(made.refresh)
        (line,) = made.page(TimelineQuery()).entries
        assert (line.state, line.is_ended) == ("accepted", False)
        await bob.inbox(consume=True)
        assert await asyncio.to_thread(made.refresh)
        assert made.page(TimelineQuery()).entries[0].state == "consumed"
    assert await asyncio.to_thread(made.refresh)
    (line,) = made.page(TimelineQuery()).entries
    assert (line.state, line.is_ended, line.sender.alias) == ("consumed", True, "alice")
    assert (await timeline(home, home, TimelineQuery())).count == 1


@pytest.mark.asyncio
async def test_store_that_cannot_be_read_is_named_and_the_rest_is_shown(private_home: Path) -> None:
    """One damaged store takes nothing from the others; it is named each time until it was seen."""
    home = await home_of(private_home)
    async with two(private_home) as (alice, bob):
        await alice.send("bob", "one")
        broken = Path(home) / "peer-messages" / bob.node.instance / "messages.db"
    broken.write_bytes(b"nothing that a store would hold" * 400)
    page = await timeline(home, home, TimelineQuery())
    assert [line.state for line in page.entries] == ["accepted"]
    (fault,) = page.faults
    assert bob.node.instance in fault
    later = await timeline(home, home, TimelineQuery(since_ms=time.time_ns() // 1_000_000 + 60_000))
    assert (later.entries, later.faults) == ((), ())


def test_line_says_what_the_recipient_says_and_of_an_ended_sender_nothing_more() -> None:
    """The recipient's record wins; what an ended sender had not settled is unknown."""
    alone = filled(("i-a", sent(1)))
    assert alone.page(TimelineQuery()).entries[0].state == "pending"
    alone._ended.add("i-a")
    assert alone.page(TimelineQuery()).entries[0].state == "unknown"
    late = filled(
        ("i-a", told(2, 1, State.UNKNOWN)), ("i-a", sent(1)), ("i-a", told(3, 1, State.REJECTED, outcome="X"))
    )
    (line,) = late.page(TimelineQuery()).entries
    assert (line.state, line.outcome) == ("rejected", "X")
    assert [step.state for step in line.receipts] == ["pending", "unknown", "rejected"]
    both = filled(
        ("i-a", sent(1)), ("i-a", told(5, 1, State.UNKNOWN)), ("i-b", sent(1, box=Box.IN, is_held=True))
    )
    assert (both.page(TimelineQuery()).entries[0].state, both.page(TimelineQuery()).entries[0].outcome) == (
        "pending", "HELD",
    )  # fmt: skip


def test_page_narrows_and_goes_on_where_it_ended() -> None:
    """Text, peer, state and time each leave out what does not fit; the cursor gives what is older, once."""
    made = filled(
        *(("i-a", sent(number, f"text {number}")) for number in range(1, 8)),
        ("i-a", told(9, 3, State.UNKNOWN)),
    )
    texts = lambda **query: [line.text for line in made.page(TimelineQuery(**query)).entries]  # noqa: E731 - short
    assert texts(text="TEXT 4") == ["text 4"]
    assert texts(text="PORTS", limit=2) == ["text 6", "text 7"]
    assert texts(states=frozenset({"unknown"})) == ["text 3"]
    assert texts(since_ms=6_000) == ["text 6", "text 7"]
    assert texts(until_ms=2_000) == ["text 1"]
    assert texts(peer=A.id, limit=1) == ["text 7"]
    assert texts(peer=":nobody") == []
    seen, before = [], None
    while True:
        page = made.page(TimelineQuery(limit=3, before=before))
        seen = [line.text for line in page.entries] + seen
        before = page.cursor
        if before is None:
            break
    assert seen == [f"text {number}" for number in range(1, 8)]
    for query in (TimelineQuery(limit=0), TimelineQuery(limit=1_001), TimelineQuery(before="soon")):
        with pytest.raises(Refused):
            made.page(query)


def test_search_is_bounded_and_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bytes of one search the page is cut; its cursor leads to what was not looked at."""
    monkeypatch.setattr(reader, "SEARCH_BYTES", 400)
    made = filled(*(("i-a", sent(number, f"text {number}")) for number in range(1, 40)))
    page = made.page(TimelineQuery(text="text 1\n"))
    assert (page.entries, page.is_cut) == ((), True)
    count = 0
    while page.cursor is not None:
        page = made.page(TimelineQuery(text="text 1\n", before=page.cursor))
        count += 1
    assert [line.text for line in page.entries] == ["text 1"]
    assert count > 3


def test_oldest_lines_go_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines and their text are bounded; the page says that there were more."""
    monkeypatch.setattr(reader, "LINES_MAX", 3)
    made = filled(*(("i-a", sent(number)) for number in range(1, 6)))
    page = made.page(TimelineQuery())
    assert ([line.message_id for line in page.entries], page.is_cut) == (["m-3", "m-4", "m-5"], True)
    monkeypatch.setattr(reader, "TEXT_BYTES_MAX", 8)
    made = filled(*(("i-a", sent(number)) for number in range(1, 3)))
    assert [line.message_id for line in made.page(TimelineQuery()).entries] == ["m-2"]


def test_ten_thousand_messages_are_searched_in_the_time_of_a_key_press() -> None:
    """Neither a common nor an unknown word costs more than a moment; the best of five counts."""
    words = " ".join(f"word{number}" for number in range(40))
    made = filled(*(("i-a", sent(number, f"{words} {number}")) for number in range(1, 10_001)))
    made.page(TimelineQuery(text="nobody wrote this"))  # the first search makes what is searched
    for text in ("nobody wrote this", "word1", "w"):
        spans = []
        for _ in range(5):
            begun = time.perf_counter()
            made.page(TimelineQuery(text=text))
            spans.append(time.perf_counter() - begun)
        assert min(spans) < 0.1, (text, spans)
