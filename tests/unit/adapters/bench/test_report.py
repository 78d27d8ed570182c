"""How a run is shown."""

import json
from typing import Any

import pytest

from tieline.adapters.bench import report
from tieline.adapters.bench.crew import Crew
from tieline.adapters.bench.figures import AIMS, Figure
from tieline.adapters.bench.rounds import Paths, Plan, Run

MACHINE: dict[str, Any] = {
    "host": "h",
    "system": "Linux 6",
    "fileSystem": "ext4 on /dev/x",
    "processors": 4,
    "load": [1.0],
}


@pytest.fixture
def run() -> Run:
    """Give a run with some figures and a failure."""
    made = Run(Plan(2, 1_024, 600, 12, 2.0, 100_000), Crew(1_024), Paths("", "", ""))
    made.figures = {"accept": Figure(330.0, 900.0, "us", 600), "limit": Figure(100.0, 300.0, "us", 600)}
    made.processes = [{"part": "serial", "process": "r", "pssKib": 1, "cpuS": 0.5, "descriptors": 7}]
    made.crew.failures["RATE_LIMITED"] = 2
    return made


def test_text_of_a_run_says_where_an_aim_is_missed(run: Run) -> None:
    """Every aim has one line: measured, limit, ratio, bound, and met or missed."""
    lines = report.text(run, MACHINE).splitlines()
    accepted = next(
        line for line in lines if line.startswith("accepted over a warm link  ") and "most" in line
    )
    assert accepted.split()[-7:] == ["3.30", "at", "most", "3.2", "(stretch", "2.5)", "missed"]
    assert sum("missed: not measured" in line for line in lines) == len(AIMS) - 1


@pytest.mark.clause("native-206")
def test_text_of_a_run_names_machine_limits_and_failures(run: Run) -> None:
    """Where it ran, with which limits, and what went wrong stand in the same output."""
    text = report.text(run, MACHINE)
    for words in ("ext4 on /dev/x", "raised: inbox_messages 1000000", "2 sends failed (RATE_LIMITED 2)"):
        assert words in text
    assert "no provider's time is in it" in text


def test_text_of_a_run_on_a_busy_machine_says_so(run: Run) -> None:
    """No verdict stands unqualified where other work took the processors."""
    assert "the machine was busy" not in report.text(run, MACHINE)
    assert "the machine was busy when this began (load 3 on 4" in report.text(run, {**MACHINE, "load": [3.0]})


def test_shape_of_a_run_is_versioned_json(run: Run) -> None:
    """A program reads every figure, every aim and every count."""
    shape = json.loads(json.dumps(report.shape(run, MACHINE)))
    assert (shape["version"], shape["command"]) == (1, "bench")
    assert shape["figures"]["accept"] == {"p50": 330.0, "p99": 900.0, "unit": "us", "samples": 600}
    assert [aim["verdict"] for aim in shape["aims"]] == ["missed"] * len(AIMS)
    assert shape["counts"] == {"accepted": 0, "lost": 0, "duplicates": 0, "failures": {"RATE_LIMITED": 2}}


def test_rows_of_the_table_hold_every_figure_that_an_aim_needs() -> None:
    """No aim compares a figure that is not shown."""
    shown = {name for name, _ in report.ROWS}
    assert {name for aim in AIMS for name in (aim.measured, aim.limit) if name} <= shown


@pytest.mark.parametrize(("value", "shown"), [(0.04, "0.0"), (9.96, "10.0"), (99.94, "99.9"), (100.4, "100")])
def test_number_of_a_figure_has_the_digits_that_it_is_worth(value: float, shown: str) -> None:
    """One digit behind the point below a hundred, none above."""
    assert report.number(value) == shown
