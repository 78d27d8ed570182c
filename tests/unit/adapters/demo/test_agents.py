"""The processes that play the agents."""

import os
import signal
from pathlib import Path

import pytest

from tieline.adapters.demo.agents import Agent, StepFailed


def test_agent_process_answers_and_ends_in_order(private_home: Path, stub: None) -> None:
    """A request gets its own result, and closing the input ends the process."""
    agent = Agent("one", ["attach"], dict(os.environ), str(private_home))
    agent.start()
    assert agent.instance == "i-1"
    first, second = agent.begin("a", {"x": 1}), agent.begin("b", {"x": 2})
    assert agent.finish(second) == {"x": 2}
    assert agent.finish(first) == {"x": 1}
    with pytest.raises(StepFailed, match=r"refused: no\\x1b\[31m"):
        agent.call("refuse", {})
    assert agent.end() == 0


def test_agent_process_that_leaves_or_hangs_is_told(private_home: Path, stub: None) -> None:
    """Its last words are shown when it ends by itself; one that is silent is not waited for without end."""
    agent = Agent("one", ["attach"], dict(os.environ), str(private_home))
    with pytest.raises(StepFailed, match="did not answer in time"):
        agent.finish(agent.begin("hang", {}), 0.1)
    with pytest.raises(StepFailed, match="ended by itself: last words"):
        agent.call("leave", {})
    assert agent.end() == 0


def test_agent_process_that_is_killed_says_the_signal(private_home: Path, stub: None) -> None:
    """A kill is seen as what it is."""
    agent = Agent("one", ["attach"], dict(os.environ), str(private_home))
    assert agent.kill() == -signal.SIGKILL
    assert agent.end() == -signal.SIGKILL
