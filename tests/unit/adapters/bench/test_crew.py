"""The processes of a measurement."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tieline.adapters.bench.crew import RAISED, BenchFailed, Crew, Member
from tieline.config import LIMITS


@pytest.fixture
def crew(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """Give a crew in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(private_home))
    with Crew(1_024) as made:
        yield made


def test_raised_limits_are_within_their_ranges() -> None:
    """Each is a limit that a person could configure, and higher than its default."""
    for name, value in RAISED.items():
        assert LIMITS[name].default < value <= LIMITS[name].high, name


def test_crew_that_ends_leaves_neither_process_nor_folder(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the measurement fails in between."""
    monkeypatch.setenv("TMPDIR", str(private_home))
    with pytest.raises(BenchFailed), Crew(64) as crew:  # noqa: PT012 - the failure inside is the point
        member = crew.start("one")
        assert os.path.isdir(crew.folder)
        raise BenchFailed("something")
    assert member.process.returncode is not None
    assert list(private_home.glob("tieline-bench-*")) == []


def test_member_that_ends_by_itself_is_told(crew: Crew) -> None:
    """Its last words say why; nobody waits for an answer that cannot come."""
    member = crew.start("one")
    member.process.kill()
    begun = time.monotonic()
    with pytest.raises(BenchFailed, match="one ended by itself"):
        member.do("resources")
    assert time.monotonic() - begun < 5


def test_member_command_that_fails_says_why(crew: Crew) -> None:
    """A refusal inside a worker becomes one sentence, and the worker goes on."""
    member = crew.start("one")
    with pytest.raises(BenchFailed, match="one: Refused"):
        member.do("hold", instance="11111111-2222-3333-4444-555555555555")
    assert member.do("resources")["pid"] == member.process.pid


def test_member_that_is_silent_is_given_up(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that does not come in time fails the run; the process is ended all the same."""
    monkeypatch.setattr(sys, "executable", "/bin/sleep")
    monkeypatch.setattr("tieline.adapters.bench.crew.END_S", 0.2)
    member = Member("one", str(private_home), {})
    with pytest.raises(BenchFailed):
        member.finish(0.2)
    member.end()
    assert member.process.returncode is not None


@pytest.mark.clause("native-204")
def test_members_of_a_crew_are_processes_of_their_own(crew: Crew) -> None:
    """Every root is an independent process, and none is this one."""
    members = [crew.start(name) for name in ("one", "two")]
    pids = {member.do("resources")["pid"] for member in members}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert len({member.instance for member in members}) == 2
