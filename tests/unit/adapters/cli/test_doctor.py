"""`tieline doctor`: every check a line, and a next action where one is needed."""

from collections.abc import Callable

import pytest

from tests.unit.adapters.cli.fake import ESCAPE, FakeRoot, Result
from tieline import __version__
from tieline.runtime.checkup import Check, Checkup

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def test_doctor_on_an_empty_home_needs_no_root(run: Run) -> None:
    """Without any root everything can be examined, and is well."""
    result = run("doctor")
    assert result.code == 0
    assert all(row.startswith("ok  ") for row in result.out.splitlines())
    assert "all is well" in result.err


def test_doctor_bad_check_has_its_action_and_exit_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not well is said with what to do, safely."""
    found = Checkup([Check("a", True, "fine"), Check("b", False, ESCAPE, "do this")], [], {"roots": 0})
    monkeypatch.setattr("tieline.adapters.cli.doctor.checkup", lambda environment: found)
    result = run("doctor")
    assert result.code == 1
    assert "next: do this" in result.out
    assert "\x1b" not in result.out
    shape = run("doctor", "--json").json
    assert shape["ok"] is False
    assert shape["checks"][0] == {"name": "a", "ok": True, "text": "fine"}
    assert shape["checks"][1]["action"] == "do this"
    assert shape["counters"] == {"roots": 0}


def test_doctor_asks_every_root_that_runs(run: Run, fake_root: Make) -> None:
    """A root that answers is shown with its counters."""
    answer = {"version": __version__, "checks": [], "counters": {"sent": 3}, "limits": {}}
    fake_root({"local.doctor": answer})
    result = run("doctor", "--json")
    assert result.code == 0
    (root,) = result.json["roots"]
    assert (root["answers"], root["counters"]) == (True, {"sent": 3})
