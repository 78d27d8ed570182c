"""The steps: each is handed a wrong answer once, and must end the demo."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.demo import agents, steps
from tieline.adapters.demo.agents import StepFailed
from tieline.adapters.demo.stage import Interrupts, Stage


class Puppet:
    """An agent that answers as it is told to."""

    def __init__(self, name: str, answers: dict[str, Any]) -> None:
        self.name, self.instance, self.pid, self.door = name, f"instance-{name}", 1, "tieline attach"
        self._answers = answers

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the prepared answer."""
        answer = self._answers[method]
        return dict(answer(params) if callable(answer) else answer)

    def told(self, _method: str, _fits: object) -> dict[str, Any]:
        """Tell at once."""
        return {}

    def kill(self) -> int:
        """Die as told."""
        return int(self._answers.get("kill", -signal.SIGKILL))


@pytest.fixture
def stage(private_home: Path) -> Stage:
    """Give a stage whose agents a test puts there."""
    return Stage(str(private_home), Interrupts(), is_silent=True)


def peer(name: str) -> dict[str, Any]:
    """Return a peer as a listing shows it."""
    return {"instanceId": f"instance-{name}", "alias": name, "availability": "available"}


def receipt(**changes: object) -> dict[str, Any]:
    """Return a receipt as the MCP tool returns it."""
    return {"messageId": "m-1", "state": "accepted", "durability": "synced", "from": "peer-1", **changes}


@pytest.mark.parametrize(
    "peers",
    [[], [peer("b")], [peer("b"), peer("c"), peer("d")], [peer("b"), {**peer("c"), "alias": "x"}]],
    ids=["nobody", "one missing", "a stranger", "another name"],
)
def test_discovery_of_others_than_the_started_fails(
    stage: Stage, peers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent must list exactly the two others, by instance and by alias."""
    monkeypatch.setattr(steps, "ANSWER_S", 0.0)
    for name in "abc":
        others = [peer(other) for other in "abc" if other != name]
        stage.agents[name] = Puppet(name, {"list_peers": {"peers": others}})  # type: ignore[assignment]
    steps.discovery(stage)
    assert stage.facts["discovery"]["a"] == ["b", "c"]
    stage.agents["a"] = Puppet("a", {"list_peers": {"peers": peers}})  # type: ignore[assignment]
    with pytest.raises(StepFailed, match="a lists"):
        steps.discovery(stage)


@pytest.mark.parametrize(
    "changes", [{"state": "pending"}, {"state": "unknown"}, {"durability": "unstated"}, {"durability": None}]
)
def test_message_without_synced_acceptance_fails(stage: Stage, changes: dict[str, Any]) -> None:
    """Anything less than accepted on synced storage ends the steps."""
    answers = {"send_peer_message": receipt(**changes)}
    stage.agents = {"planner": Puppet("planner", answers), "builder": Puppet("builder", {})}  # type: ignore[dict-item]
    with pytest.raises(StepFailed, match="receipt"):
        steps.message(stage)


@pytest.mark.parametrize(
    ("boundary", "consumed"),
    [
        ({"messageIds": ["m-2"], "text": "hello", "token": "t"}, 1),
        ({"messageIds": ["m-1", "m-1"], "text": "hello", "token": "t"}, 1),
        ({"messageIds": ["m-1"], "text": "other", "token": "t"}, 1),
        ({"messageIds": ["m-1"], "text": "hello", "token": "t"}, 0),
    ],
)
def test_reading_of_other_mail_fails(boundary: dict[str, Any], consumed: int) -> None:
    """The host must be given the one message, its text, and its consumption must be recorded."""
    agent = Puppet("b", {"host.boundary": boundary, "host.taken": {"consumed": consumed}})
    with pytest.raises(StepFailed):
        steps.read_mail(agent, "m-1", "hello")  # type: ignore[arg-type]


def test_death_that_was_no_kill_fails(stage: Stage) -> None:
    """A recipient that ended in order proves nothing."""
    planner = Puppet("planner", {"send_peer_message": receipt()})
    stage.agents = {"planner": planner, "builder": Puppet("builder", {"kill": 0})}  # type: ignore[dict-item]
    with pytest.raises(StepFailed, match="not by signal 9"):
        steps.death(stage)


@pytest.mark.parametrize(
    "found",
    [
        [],
        [{"messageId": "m-2", "content": steps.LAST_TASK}],
        [{"messageId": "m-1", "content": "another"}],
        [{"messageId": "m-1", "content": steps.LAST_TASK}] * 2,
    ],
    ids=["lost", "another id", "another text", "twice"],
)
def test_recovery_of_anything_but_the_message_fails(
    stage: Stage, found: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes back must be that message, once, under its own id, with its text."""
    said = json.dumps({"messages": found})
    monkeypatch.setattr(agents, "TIELINE", (sys.executable, "-c", f"print({said!r})"))
    stage.facts["death"] = {"receipt": receipt(), "endedInstanceId": "i-1"}
    with pytest.raises(StepFailed):
        steps.recovery(stage)
