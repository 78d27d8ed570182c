"""One whole run."""

from pathlib import Path

import pytest

from tieline.adapters import bench
from tieline.adapters.bench import measure as measuring
from tieline.adapters.bench.crew import BenchFailed
from tieline.adapters.bench.rounds import Plan, Run
from tieline.errors import UsageError

PLAN = Plan(2, 64, 4, 2, 0.2, 10)


@pytest.fixture
def seen(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the order of the parts of a run whose parts do nothing."""
    found: list[str] = []

    def part(run: Run) -> None:
        assert Path(run.crew.folder).is_dir()
        found.append("part")

    monkeypatch.setenv("TMPDIR", str(private_home))
    monkeypatch.setattr(measuring, "parts", lambda: (("one", part), ("two", part)))
    monkeypatch.setattr(
        measuring, "start_up", lambda _crew, _rounds: {"python_pass": [1.0], "mcp_pss": [2.0]}
    )
    return found


def test_measure_of_a_plan_runs_every_part_and_leaves_nothing(
    seen: list[str], private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All parts in turn, progress beside the data, and no folder afterwards."""
    run, where = measuring.measure(PLAN, is_silent=False)
    assert seen == ["part", "part"]
    assert (run.figures["python_pass"].unit, run.figures["mcp_pss"].unit) == ("ms", "MiB")
    assert where["echo"]
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == ["measuring one ...", "measuring two ...", "measuring start-up ..."]
    assert list(private_home.glob("tieline-bench-*")) == []


def test_main_with_a_number_out_of_range_is_wrong_usage() -> None:
    """The range is named, and nothing was started."""
    with pytest.raises(UsageError, match="--peers is a whole number from 2 to 50"):
        bench.main(["--peers", "1"])


@pytest.mark.parametrize(("lost", "code"), [(0, 0), (1, 1)])
def test_main_with_a_lost_message_is_red(
    seen: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lost: int, code: int
) -> None:
    """A ratio never fails the command; a lost message does."""

    def part(run: Run) -> None:
        run.counts["lost"] += lost

    monkeypatch.setattr(measuring, "parts", lambda: (("one", part),))
    assert bench.main(["--quick"]) == code
    assert f"{lost} lost" in capsys.readouterr().out


def test_main_with_a_process_that_fails_says_so(
    seen: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, exit code 1, no figures."""

    def part(_run: Run) -> None:
        raise BenchFailed("recipient ended by itself")

    monkeypatch.setattr(measuring, "parts", lambda: (("one", part),))
    assert bench.main([]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()[-1]) == ("", "tieline bench: recipient ended by itself")
