"""`tieline log --all`: both ends of each message on one line, from live and from ended roots."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.adapters.cli.fake import Result
from tieline.adapters.cli.log_all import moment_ms
from tieline.errors import UsageError
from tieline.runtime.root import Root

Run = Callable[..., Result]
NOW_MS = 1_796_104_287_107


async def _talk(home: Path) -> str:
    """Let two roots exchange a question and its answer, and end; return the question's id."""
    options = {"home": str(home), "workspace": str(home)}
    async with Root.open(alias="web", **options) as web, Root.open(alias="api", **options) as api:
        sent = await web.send("api", "which port\x1b[2J\nserves?", topic="ports")
        (message,) = await api.inbox(consume=True)
        await api.reply(message.message_id, "8080")
        await web.inbox()
        await asyncio.sleep(0.2)
        return str(sent["messageId"])


@pytest.fixture
def question(place: Path) -> str:
    """The id of a question whose both ends have ended."""
    return asyncio.run(_talk(place))


def test_all_shows_each_message_once_with_both_ends(run: Run, question: str) -> None:
    """A line has who to whom, the state, the id, the text and every receipt, and no control character."""
    result = run("log", "--all")
    assert result.code == 0
    first, second = result.out.splitlines()
    for word in (":web > :api", "replied", question, "which port", "pending", "accepted", "consumed"):
        assert word in first
    assert ":api > :web" in second
    assert "\x1b" not in result.out
    assert "2 messages" in result.err


def test_all_narrows_by_text_state_peer_and_time(run: Run, question: str) -> None:
    """Each option leaves out what does not fit; nothing found is no error."""
    for words, count in (
        (["--query", "WHICH PORT"], 1),
        (["--query", "nobody wrote this"], 0),
        (["--state", "replied"], 1),
        (["--state", "rejected,expired"], 0),
        (["--peer", ":api"], 2),
        (["--peer", "nobody"], 0),
        (["--since", "today"], 2),
        (["--until", "1h"], 0),
        (["--limit", "1"], 1),
    ):
        result = run("log", "--all", *words)
        assert (result.code, len(result.out.splitlines())) == (0, count), words
    assert question


def test_all_as_json_lines_has_the_documented_members(run: Run, question: str) -> None:
    """One object a line, with its version; --before goes on where the page ended."""
    (entry,) = [
        json.loads(row) for row in run("log", "--all", "--jsonl", "--state", "replied").out.splitlines()
    ]
    assert (entry["version"], entry["type"], entry["messageId"]) == (1, "timeline", question)
    assert (entry["fromAlias"], entry["toAlias"], entry["topic"]) == ("web", "api", "ports")
    assert [step["state"] for step in entry["receipts"]] == ["pending", "accepted", "consumed", "replied"]
    assert entry["said"] == "The recipient replied."
    newest = run("log", "--all", "--json", "--limit", "1").json
    assert newest["entries"][0]["text"] == "8080"
    older = run("log", "--all", "--json", "--before", newest["before"]).json
    assert ([one["messageId"] for one in older["entries"]], older["before"]) == ([question], None)


@pytest.mark.parametrize(
    "words",
    [
        ["--since", "1h"],
        ["--state", "replied"],
        ["--before", "1-a"],
        ["--all", "--state", "lost"],
        ["--all", "--since", "soon"],
        ["--all", "--after", "3"],
        ["--all", "--limit", "0"],
    ],
)
def test_wrong_options_of_all_are_wrong_usage(run: Run, place: Path, words: list[str]) -> None:
    """What goes with --all needs it; states and moments are those that there are."""
    assert run("log", *words).code == 2
    assert place.exists()


def test_moment_is_a_span_a_day_or_a_time() -> None:
    """Spans count back from now; a time without a zone is UTC."""
    assert moment_ms("90s", NOW_MS) == NOW_MS - 90_000
    assert moment_ms("2d", NOW_MS) == NOW_MS - 172_800_000
    assert moment_ms("1970-01-01T00:00:01", NOW_MS) == moment_ms("1970-01-01T00:00:01Z", NOW_MS) == 1_000
    midnight = datetime.fromtimestamp(moment_ms("today", NOW_MS) / 1_000, UTC).astimezone()
    assert (midnight.hour, midnight.minute) == (0, 0)
    assert moment_ms("today", NOW_MS) <= NOW_MS
    with pytest.raises(UsageError, match="no moment"):
        moment_ms("1x", NOW_MS)
