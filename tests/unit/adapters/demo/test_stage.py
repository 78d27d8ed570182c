"""Where the demo happens."""

import os
import signal

import pytest

from tieline.adapters.demo.stage import Interrupts, columns, without_settings


def test_environment_of_agents_names_no_root_of_the_caller() -> None:
    """Neither settings nor sessions of the agent that runs the demo reach the demo's roots."""
    given = {"TIELINE_HOME": "/h", "TIELINE_ENABLED": "0", "PI_SESSION_ID": "s", "PATH": "/bin"}
    assert without_settings(given) == {"PATH": "/bin"}


def test_interrupt_during_a_start_waits_for_its_end() -> None:
    """A process that is being started is in the list before the interrupt counts."""
    reached = []

    def start(interrupts: Interrupts) -> None:
        with interrupts.held():
            os.kill(os.getpid(), signal.SIGTERM)
            reached.append("the end of the block")

    with Interrupts() as interrupts:
        with pytest.raises(SystemExit) as ended:
            start(interrupts)
        assert ended.value.code == 128 + signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGINT)
    assert reached == ["the end of the block"]


def test_columns_of_rows_are_aligned() -> None:
    """Every column begins at one place."""
    assert columns([("a", "b"), ("long", "c")], "") == "a     b\nlong  c"
