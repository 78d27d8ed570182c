"""The agents around the demo's desk."""

import threading
from typing import Any

import pytest

from tieline.adapters import demo
from tieline.adapters.demo import desk
from tieline.adapters.demo.agents import StepFailed
from tieline.adapters.demo.desk import PERSON, Player


class FakeAgent:
    """An agent's process that is a table: what was called, and what is answered."""

    def __init__(self, name: str, mail: list[list[dict[str, Any]]], stop: threading.Event) -> None:
        self.name, self.mail, self.stop = name, mail, stop
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((method, params))
        if method == "list_peers":
            return {"peers": [{"alias": PERSON, "peerId": "peer-person"}]}
        if method == "local.send":
            return {"receipts": [{"messageId": "m-question"}]}
        if method == "peer_messages":
            if not self.mail:
                self.stop.set()
                return {"messages": []}
            return {"messages": self.mail.pop(0)}
        return {}

    def begin(self, method: str, params: dict[str, Any]) -> int:
        self.calls.append((method, params))
        return 1

    def is_answered(self, _number: int) -> bool:
        return False

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.calls if name == method]


def played(name: str, *mail: list[dict[str, Any]]) -> FakeAgent:
    stop = threading.Event()
    agent = FakeAgent(name, list(mail), stop)
    player = Player(agent, stop)  # type: ignore[arg-type]
    player.run()
    assert player.failure == ""
    return agent


def test_planner_asks_the_person_and_thanks_for_the_answer() -> None:
    """The question is a question to the person; the answer to it is told back in its words."""
    agent = played("planner", [{"from": "peer-person", "replyTo": "m-question", "content": "azure"}])
    asked, thanked = agent.sent("local.send")
    assert (asked["to"], asked["ask"]) == ("peer-person", True)
    assert thanked["content"].endswith("azure")
    assert [one["to"] for one in agent.sent("local.ask")] == ["builder"]


def test_agent_answers_what_it_was_asked_only_when_the_person_says_so() -> None:
    """A question of another agent stays open, so that the ring stands, until the person writes."""
    question = {"from": "peer-planner", "messageId": "m-1", "ask": True, "content": "green?"}
    assert played("builder", [question]).sent("local.reply") == []
    agent = played("builder", [question], [{"from": "peer-person", "messageId": "m-2", "content": "do"}])
    assert [one["messageId"] for one in agent.sent("local.reply")] == ["m-1"]


def test_agent_that_stops_playing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that fails while the desk is shown fails the demo, with its name."""
    stop = threading.Event()
    agent = FakeAgent("builder", [], stop)

    def broken(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        raise StepFailed("builder did not answer in time")

    monkeypatch.setattr(agent, "call", broken)
    player = Player(agent, stop)  # type: ignore[arg-type]
    player.run()
    assert player.failure == "builder stopped playing: builder did not answer in time"


def test_demo_with_desk_ends_as_the_desk_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the desk refuses is the demo's failure; nothing is left."""
    monkeypatch.setattr(desk, "play", lambda _stage: 1)
    assert demo.main(["--desk"]) == 1
    assert "the desk ended with 1" in capsys.readouterr().err
    monkeypatch.setattr(desk, "play", lambda _stage: 0)
    assert demo.main(["--desk"]) == 0
