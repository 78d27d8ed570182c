"""The demo as a command: it names what does not hold, and leaves nothing behind."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tieline.adapters import demo
from tieline.adapters.demo import agents, steps
from tieline.adapters.demo.agents import StepFailed
from tieline.adapters.demo.stage import Stage

STUB = "import sys; sys.stdin.read()"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every agent's process be the stub above."""
    monkeypatch.setattr(agents, "TIELINE", (sys.executable, "-c", STUB))


def test_failed_step_is_named_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stub: None
) -> None:
    """The exit code is 1, the sentence names the step; folder and processes are gone."""
    seen: list[Stage] = []

    def begin(stage: Stage) -> None:
        seen.append(stage)
        stage.begin_agent("one")

    def fail(stage: Stage) -> None:
        raise StepFailed("the receipt says pending")

    monkeypatch.setattr(steps, "STEPS", (("start", begin), ("message", fail), ("never", begin)))
    assert demo.main([]) == 1
    assert capsys.readouterr().err == "tieline demo: step 1 (message): the receipt says pending\n"
    assert not os.path.exists(seen[0].folder)
    assert [agent.process.poll() is None for agent in seen[0].started] == [False]


def test_answer_of_another_shape_is_a_failed_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing member fails the step with a sentence, not with a traceback."""

    def fail(stage: Stage) -> None:
        stage.facts["nothing"]

    monkeypatch.setattr(steps, "STEPS", (("start", fail),))
    assert demo.main(["--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["ok"] is False
    assert "step 0 (start): an answer is not what it should be: KeyError" in told.err


def test_kept_folder_stays_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], private_home: Path
) -> None:
    """With --keep the folder can be looked into."""
    monkeypatch.setattr(steps, "STEPS", ())
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(private_home))
    assert demo.main(["--keep"]) == 0
    assert f"the folder is kept: {private_home}" in capsys.readouterr().out
    assert private_home.exists()
