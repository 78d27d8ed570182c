"""`tieline log`: events in order, for people, as one object, or one a line."""

import json
from collections.abc import Callable

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, PEER, FakeRoot, Result

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]
EVENTS = [
    {
        "type": "message",
        "cursor": "1",
        "messageId": "m-1",
        "from": PEER,
        "to": PEER,
        "state": "accepted",
        "at": "2026-11-30T19:50:00.000Z",
        "content": f"hi{ESCAPE}\n9",
    },
    {"type": "receipt", "cursor": "2", "messageId": "m-1", "from": PEER, "to": PEER, "state": "consumed"},
]


def test_log_shows_one_event_a_line(run: Run, fake_root: Make) -> None:
    """Each event is one line, whatever its content holds."""
    root = fake_root({"local.log": {"events": EVENTS, "cursor": "2"}})
    result = run("log", "--query", "q", "--peer", ":api", "--after", "0", "--limit", "5")
    assert result.code == 0
    assert len(result.out.splitlines()) == 2
    assert "\x1b" not in result.out
    assert root.params("local.log") == {"query": "q", "peer": "api", "after": "0", "limit": 5}
    assert "cursor 2" in result.err


def test_log_counts_its_events_in_words(run: Run, fake_root: Make) -> None:
    """One is one event, two are events."""
    root = fake_root({"local.log": {"events": EVENTS[:1], "cursor": "1"}})
    assert "1 event; cursor 1" in run("log").err
    root.answers["local.log"] = {"events": EVENTS[:2], "cursor": "2"}
    assert "2 events; cursor 2" in run("log").err


def test_log_jsonl_is_one_versioned_object_a_line(run: Run, fake_root: Make) -> None:
    """--jsonl prints each event with its version; --json all of them in one shape."""
    fake_root({"local.log": {"events": EVENTS, "cursor": "2"}})
    lines = [json.loads(row) for row in run("log", "--jsonl").out.splitlines()]
    assert lines == [{"version": 1, **event} for event in EVENTS]
    shape = run("log", "--json").json
    assert (shape["events"], shape["cursor"]) == (EVENTS, "2")


@pytest.mark.parametrize("words", [["--after", "x"], ["--after=-1"], ["--limit", "0"], ["--limit", "1001"]])
def test_log_wrong_bounds_are_wrong_usage(run: Run, fake_root: Make, words: list[str]) -> None:
    """A cursor is a number, a limit 1 to 1000."""
    root = fake_root({})
    assert run("log", *words).code == 2
    assert root.requests == []
