"""The demo: it says only what it has seen, and leaves nothing behind."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters import demo

STUB = """
import json, sys
print(json.dumps({"jsonrpc": "2.0", "method": "attached", "params": {"instanceId": "i-1"}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "leave":
        sys.stderr.write("first\\nlast words\\n")
        break
    if asked["method"] == "hang":
        continue
    answer = {"result": asked["params"]}
    if asked["method"] == "refuse":
        answer = {"error": {"code": 1, "message": "no\\x1b[31m"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


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
def stage(private_home: Path) -> demo.Stage:
    """Give a stage whose agents a test puts there."""
    return demo.Stage(str(private_home), demo.Interrupts(), is_silent=True)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every agent's process be the stub above."""
    monkeypatch.setattr(demo, "TIELINE", (sys.executable, "-c", STUB))


def peer(name: str) -> dict[str, Any]:
    """Return a peer as a listing shows it."""
    return {"instanceId": f"instance-{name}", "alias": name, "availability": "available"}


def receipt(**changes: object) -> dict[str, Any]:
    """Return a receipt as the MCP tool returns it."""
    return {"messageId": "m-1", "state": "accepted", "durability": "synced", "from": "peer-1", **changes}


def test_environment_of_agents_names_no_root_of_the_caller() -> None:
    """Neither settings nor sessions of the agent that runs the demo reach the demo's roots."""
    given = {"TIELINE_HOME": "/h", "TIELINE_ENABLED": "0", "PI_SESSION_ID": "s", "PATH": "/bin"}
    assert demo.without_settings(given) == {"PATH": "/bin"}


def test_agent_process_answers_and_ends_in_order(private_home: Path, stub: None) -> None:
    """A request gets its own result, and closing the input ends the process."""
    agent = demo.Agent("one", ["attach"], dict(os.environ), str(private_home))
    agent.start()
    assert agent.instance == "i-1"
    first, second = agent.begin("a", {"x": 1}), agent.begin("b", {"x": 2})
    assert agent.finish(second) == {"x": 2}
    assert agent.finish(first) == {"x": 1}
    with pytest.raises(demo.StepFailed, match=r"refused: no\\x1b\[31m"):
        agent.call("refuse", {})
    assert agent.end() == 0


def test_agent_process_that_leaves_or_hangs_is_told(private_home: Path, stub: None) -> None:
    """Its last words are shown when it ends by itself; one that is silent is not waited for without end."""
    agent = demo.Agent("one", ["attach"], dict(os.environ), str(private_home))
    with pytest.raises(demo.StepFailed, match="did not answer in time"):
        agent.finish(agent.begin("hang", {}), 0.1)
    with pytest.raises(demo.StepFailed, match="ended by itself: last words"):
        agent.call("leave", {})
    assert agent.end() == 0


def test_agent_process_that_is_killed_says_the_signal(private_home: Path, stub: None) -> None:
    """A kill is seen as what it is."""
    agent = demo.Agent("one", ["attach"], dict(os.environ), str(private_home))
    assert agent.kill() == -signal.SIGKILL
    assert agent.end() == -signal.SIGKILL


def test_interrupt_during_a_start_waits_for_its_end() -> None:
    """A process that is being started is in the list before the interrupt counts."""
    reached = []

    def start(interrupts: demo.Interrupts) -> None:
        with interrupts.held():
            os.kill(os.getpid(), signal.SIGTERM)
            reached.append("the end of the block")

    with demo.Interrupts() as interrupts:
        with pytest.raises(SystemExit) as ended:
            start(interrupts)
        assert ended.value.code == 128 + signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGINT)
    assert reached == ["the end of the block"]


@pytest.mark.parametrize(
    "peers",
    [[], [peer("b")], [peer("b"), peer("c"), peer("d")], [peer("b"), {**peer("c"), "alias": "x"}]],
    ids=["nobody", "one missing", "a stranger", "another name"],
)
def test_discovery_of_others_than_the_started_fails(
    stage: demo.Stage, peers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent must list exactly the two others, by instance and by alias."""
    monkeypatch.setattr(demo, "ANSWER_S", 0.0)
    for name in "abc":
        others = [peer(other) for other in "abc" if other != name]
        stage.agents[name] = Puppet(name, {"list_peers": {"peers": others}})  # type: ignore[assignment]
    demo.discovery(stage)
    assert stage.facts["discovery"]["a"] == ["b", "c"]
    stage.agents["a"] = Puppet("a", {"list_peers": {"peers": peers}})  # type: ignore[assignment]
    with pytest.raises(demo.StepFailed, match="a lists"):
        demo.discovery(stage)


@pytest.mark.parametrize(
    "changes", [{"state": "pending"}, {"state": "unknown"}, {"durability": "unstated"}, {"durability": None}]
)
def test_message_without_synced_acceptance_fails(stage: demo.Stage, changes: dict[str, Any]) -> None:
    """Anything less than accepted on synced storage ends the demo."""
    answers = {"send_peer_message": receipt(**changes)}
    stage.agents = {"planner": Puppet("planner", answers), "builder": Puppet("builder", {})}  # type: ignore[dict-item]
    with pytest.raises(demo.StepFailed, match="receipt"):
        demo.message(stage)


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
    with pytest.raises(demo.StepFailed):
        demo.read_mail(agent, "m-1", "hello")  # type: ignore[arg-type]


def test_death_that_was_no_kill_fails(stage: demo.Stage) -> None:
    """A recipient that ended in order proves nothing."""
    planner = Puppet("planner", {"send_peer_message": receipt()})
    stage.agents = {"planner": planner, "builder": Puppet("builder", {"kill": 0})}  # type: ignore[dict-item]
    with pytest.raises(demo.StepFailed, match="not by signal 9"):
        demo.death(stage)


@pytest.mark.parametrize(
    "found",
    [
        [],
        [{"messageId": "m-2", "content": demo.LAST_TASK}],
        [{"messageId": "m-1", "content": "another"}],
        [{"messageId": "m-1", "content": demo.LAST_TASK}] * 2,
    ],
    ids=["lost", "another id", "another text", "twice"],
)
def test_recovery_of_anything_but_the_message_fails(
    stage: demo.Stage, found: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes back must be that message, once, under its own id, with its text."""
    said = json.dumps({"messages": found})
    monkeypatch.setattr(demo, "TIELINE", (sys.executable, "-c", f"print({said!r})"))
    stage.facts["death"] = {"receipt": receipt(), "endedInstanceId": "i-1"}
    with pytest.raises(demo.StepFailed):
        demo.recovery(stage)


def test_failed_step_is_named_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stub: None
) -> None:
    """The exit code is 1, the sentence names the step; folder and processes are gone."""
    seen: list[demo.Stage] = []

    def begin(stage: demo.Stage) -> None:
        seen.append(stage)
        stage.begin_agent("one")

    def fail(stage: demo.Stage) -> None:
        raise demo.StepFailed("the receipt says pending")

    monkeypatch.setattr(demo, "STEPS", (("start", begin), ("message", fail), ("never", begin)))
    assert demo.main([]) == 1
    assert capsys.readouterr().err == "tieline demo: step 1 (message): the receipt says pending\n"
    assert not os.path.exists(seen[0].folder)
    assert [agent.process.poll() is None for agent in seen[0].started] == [False]


def test_answer_of_another_shape_is_a_failed_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing member fails the step with a sentence, not with a traceback."""

    def fail(stage: demo.Stage) -> None:
        stage.facts["nothing"]

    monkeypatch.setattr(demo, "STEPS", (("start", fail),))
    assert demo.main(["--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["ok"] is False
    assert "step 0 (start): an answer is not what it should be: KeyError" in told.err


def test_kept_folder_stays_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], private_home: Path
) -> None:
    """With --keep the folder can be looked into."""
    monkeypatch.setattr(demo, "STEPS", ())
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(private_home))
    assert demo.main(["--keep"]) == 0
    assert f"the folder is kept: {private_home}" in capsys.readouterr().out
    assert private_home.exists()


def test_columns_of_rows_are_aligned() -> None:
    """Every column begins at one place."""
    assert demo.columns([("a", "b"), ("long", "c")], "") == "a     b\nlong  c"
