"""Reads under private tokens; whole conversations are in tests/scripts/test_intercom_reads.py."""

from typing import Any

import pytest

from tests.unit.engine.brokering.kit import seated, session, turn
from tieline.engine.brokering.contract import (
    Output,
    ReadAnswered,
    ReadAsked,
    ReadKind,
    ReadReturned,
    ReadWanted,
)
from tieline.engine.brokering.features import Features
from tieline.engine.brokering.reads import READ_MS, Reads

ABLE = Features(needs_plain=True, last_reads=True, receipt_reads=True)


class Desk:
    """A reader, an owner, and the reads between them."""

    def __init__(self) -> None:
        self.reader, self.owner = session("a", 1, ABLE), session("b", 2, ABLE)
        self.sessions = seated(self.reader, self.owner, session("old", 3))
        self.reads = Reads()

    def ask(
        self, to: str = "b", kind: ReadKind = "last", token: str = "t", **body: Any
    ) -> list[tuple[int, Output]]:
        made = turn()
        whole = {"offset": 0, "limit": 4} | body
        asked = ReadAsked(link=1, kind=kind, request_id="r", to=to, body=whole, token=token)
        self.reads.ask(self.sessions, self.reader, asked, made)
        return made.outputs

    def answer(self, kind: ReadKind = "last", **body: Any) -> list[tuple[int, Output]]:
        made = turn()
        answered = ReadAnswered(link=2, kind=kind, token="t", body=body)
        self.reads.answer(self.sessions, self.owner, answered, made)
        return made.outputs


def error(text: str, kind: ReadKind = "last") -> list[tuple[int, Output]]:
    return [(1, ReadReturned(kind, "r", {"error": text}))]


@pytest.mark.clause("intercom-136")
def test_read_is_asked_once_and_answered_once() -> None:
    """The owner is asked under the token; a page goes to the reader; the token is then nobody's."""
    desk = Desk()
    ((link, wanted),) = desk.ask()
    assert link == 2
    assert isinstance(wanted, ReadWanted)
    assert desk.reads.due_ms == 1_000 + READ_MS
    page = {"entryId": "e", "text": "a😀", "offset": 0, "nextOffset": 3}
    assert desk.answer(**page) == [(1, ReadReturned("last", "r", page))]
    assert desk.answer(**page) == []
    assert (len(desk.reads), desk.reads.due_ms) == (0, None)


@pytest.mark.clause("intercom-136", "intercom-137")
def test_read_that_cannot_be_asked_is_answered_with_why() -> None:
    """An unknown owner, one without the capability, and a token that is in use."""
    desk = Desk()
    assert desk.ask(to="z") == error("not_found")
    assert desk.ask(to="old") == error("unsupported")
    assert desk.ask(to="old", kind="receipt") == error("unsupported", "receipt")
    desk.ask()
    desk.reads.expire(desk.sessions, turn(999 + READ_MS))
    late = turn(1_000 + READ_MS)
    desk.reads.expire(desk.sessions, late)
    assert late.outputs == error("timeout")


@pytest.mark.clause("intercom-136")
@pytest.mark.parametrize(
    "page",
    [
        {"entryId": "e", "text": "12345", "offset": 0, "nextOffset": None},
        {"entryId": "e", "text": "a😀😀", "offset": 0, "nextOffset": None},
        {"entryId": "e", "text": "a", "offset": 1, "nextOffset": None},
        {"entryId": "e", "text": "a", "offset": 0, "nextOffset": 2},
        {"entryId": "", "text": "a", "offset": 0, "nextOffset": None},
        {"entryId": "e", "offset": 0},
    ],
)
def test_page_out_of_its_bounds_is_no_answer(page: dict[str, Any]) -> None:
    """Units are UTF-16, the place is the one asked for, the next one follows it."""
    desk = Desk()
    desk.ask()
    assert desk.answer(**page) == error("invalid_answer")


@pytest.mark.clause("intercom-137")
def test_receipt_is_of_the_wanted_root_and_message() -> None:
    """Another root or message, another version, or no object is no receipt."""
    whole = {"version": 1, "rootSessionId": "r", "messageId": "m"}
    for receipt, expected in (
        (whole, {"receipt": whole}),
        (whole | {"rootSessionId": "q"}, {"error": "invalid_answer"}),
        (whole | {"version": 2}, {"error": "invalid_answer"}),
        (7, {"error": "invalid_answer"}),
    ):
        desk = Desk()
        desk.ask(kind="receipt", rootSessionId="r", messageId="m")
        assert desk.answer(kind="last") == []
        assert desk.answer(kind="receipt", receipt=receipt) == [(1, ReadReturned("receipt", "r", expected))]


def test_reads_end_with_either_end() -> None:
    """An owner who leaves ends the read with a word, a reader who leaves without."""
    desk = Desk()
    desk.ask()
    made = turn()
    desk.sessions.remove(desk.owner)
    desk.reads.left(desk.sessions, desk.owner, made)
    assert made.outputs == error("disconnected")
    desk = Desk()
    desk.ask()
    made = turn()
    desk.sessions.remove(desk.reader)
    desk.reads.left(desk.sessions, desk.reader, made)
    assert (made.outputs, len(desk.reads)) == ([], 0)


@pytest.mark.clause("intercom-136")
def test_empty_history_answers_a_read_of_no_named_entry_alone() -> None:
    """A pinned entry that is gone is never an empty history; too many reads are refused."""
    desk = Desk()
    desk.ask()
    nothing = {"entryId": None, "text": "", "offset": 0, "nextOffset": None, "empty": True}
    assert desk.answer(empty=True) == [(1, ReadReturned("last", "r", nothing))]
    desk.ask(entryId="e")
    assert desk.answer(empty=True) == error("invalid_answer")
    desk.ask(entryId="e")
    assert desk.answer(error="gone") == error("gone")
    for number in range(64):
        desk.ask(token=str(number))
    assert desk.ask(token="more") == error("busy")
