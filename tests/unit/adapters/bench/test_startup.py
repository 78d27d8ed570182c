"""What a person pays at every start."""

from pathlib import Path

import pytest

from tieline.adapters.bench import startup
from tieline.adapters.bench.crew import BenchFailed, Crew


def test_start_of_the_mcp_door_is_answered_in_order(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer comes before the first tool call's, and the idle root tells its memory."""
    monkeypatch.setenv("TMPDIR", str(private_home))
    monkeypatch.setattr(startup, "IDLE_S", 0.1)
    with Crew(64) as crew:
        found = startup.mcp_start(crew, is_weighed=True)
    assert 0 < found["initialize"] < found["firstCall"]
    assert 5 < found["pssMib"] < 200


def test_start_up_takes_one_of_each_in_every_round(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round, which compiles, is not counted."""
    monkeypatch.setenv("TMPDIR", str(private_home))
    monkeypatch.setattr(startup, "IDLE_S", 0.1)
    with Crew(64) as crew:
        taken = startup.start_up(crew, 1)
    assert {name: len(samples) for name, samples in taken.items()} == {
        "python_pass": 1, "mcp_initialize": 1, "mcp_first_call": 1, "cli_peers": 1, "mcp_pss": 1,
    }  # fmt: skip


def test_command_that_fails_is_no_figure(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ends with an error fails the run instead of being called fast."""
    monkeypatch.setattr(startup, "TIELINE", ("/bin/false",))
    monkeypatch.setattr(startup, "_command", lambda *words: ["/bin/false", *words])
    monkeypatch.setenv("TMPDIR", str(private_home))
    with Crew(64) as crew, pytest.raises(BenchFailed):
        startup.start_up(crew, 1)
