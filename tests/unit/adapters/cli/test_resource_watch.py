"""`tieline resource watch`: what it shows as it happens, and to whom."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.adapters.cli.fake import Result
from tests.unit.runtime.resources.kit import KEY, begin, claim, principal
from tieline.engine.coordination import SetPolicy
from tieline.model.identity import Peer
from tieline.runtime.resources.coordinator import Coordinator

Command = Callable[..., Result]


@pytest.fixture
def held(place: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Give a resource that a command holds; a watch ends at its first wait."""

    def interrupt(*_words: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("tieline.runtime.resources.watching.DirectoryWatch.wait", interrupt)
    coordinator = Coordinator(str(place))
    claim(coordinator, "a", KEY)
    begin(coordinator, "a", 1)
    return coordinator


def test_watch_tells_events_and_states_until_interrupted(run: Command, held: Coordinator) -> None:
    """What happened since --after comes first, then the state; JSON lines are versioned."""
    result = run("resource", "watch", KEY, "--after", "0", "--json")
    assert result.code == 130
    lines = [json.loads(text) for text in result.out.splitlines()]
    assert [one["event"]["state"] for one in lines if "event" in one] == ["queued", "reserved", "starting"]
    assert lines[-1]["state"] == "starting"
    assert all(one["version"] == 1 for one in lines)
    assert "#2  reserved" in run("resource", "watch", KEY, "--after", "1").out


def test_watch_without_a_place_begins_now(run: Command, held: Coordinator) -> None:
    """What was is not told again; every resource is followed."""
    assert run("resource", "watch").out == f"{KEY} is starting\n"


def test_watch_follows_what_happens(run: Command, held: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change is told once, when the directory has changed."""
    steps = [lambda: claim(held, "b", KEY), lambda: None]

    def next_step(*_words: object) -> bool:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()
        return True

    monkeypatch.setattr("tieline.runtime.resources.watching.DirectoryWatch.wait", next_step)
    lines = run("resource", "watch", KEY).out.splitlines()
    assert lines[0] == f"{KEY} is starting"
    assert [text.split("  ")[3] for text in lines[1:]] == ["queued"]


def test_watch_of_a_governed_resource_tells_others_free_or_busy(run: Command, held: Coordinator) -> None:
    """Who is not enrolled sees no event of it."""
    lead = Peer("lead").id
    policy = SetPolicy(principal("lead", "resource.control"), KEY, lead)
    held.decide([KEY], policy, peers={lead: "alive"})
    assert run("resource", "watch", KEY, "--after", "0").out == f"{KEY} is busy\n"
