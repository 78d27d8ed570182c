"""What the tests of the harnesses get: a model, sessions of real programs, and the report at the end.

Rule 1: a test names the harnesses it runs by `@pytest.mark.harness(...)`, or by parameters whose
names begin so; where one of them is not installed the test does not run, and the report says which and why.
Rule 2: the tests without that mark need no harness: they show that the bench itself holds.

Source: reference/harnesses.md 1.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.harness import cache, report
from tests.harness.model import ModelServer
from tests.harness.programs import PROGRAMS, Place, Program

TEST_SECONDS_MAX = 240
FIRST = ("test_pairs", "test_conformance")
"""What shows most runs first: a run may be cut when its time is over."""

# Read before any test hides the variables of the caller.
FOUND = {recipe.name: cache.find(recipe, cache.folder()) for recipe in cache.HARNESSES}
OUTCOMES: dict[str, Counter[str]] = {}
SELECTED: Counter[str] = Counter()

Opener = Callable[..., Program]


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark."""
    config.addinivalue_line("markers", "harness(*names): the real programs that this test runs")


def harnesses_of(item: pytest.Item) -> list[str]:
    """Return the harnesses that a test runs."""
    names = [name for mark in item.iter_markers("harness") for name in mark.args]
    callspec = getattr(item, "callspec", None)
    given = callspec.params if callspec is not None else {}
    return sorted({*names, *(value for key, value in given.items() if key.startswith("harness"))})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give real programs the time that they need on a busy machine."""
    for item in items:
        if Path(__file__).parent in item.path.parents and harnesses_of(item):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))
            SELECTED.update(harnesses_of(item))
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Do not run a test whose program is not there."""
    for name in harnesses_of(item):
        if not FOUND[name].command:
            pytest.skip(f"{name} is not installed: {FOUND[name].reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count how the tests of each harness went."""
    told = yield
    if told.when == "call" or told.failed:
        for name in harnesses_of(item):
            OUTCOMES.setdefault(name, Counter())[told.outcome] += 1
    return told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say of every harness how its tests went."""
    terminalreporter.section("harnesses")
    for line in report.lines(FOUND.values(), OUTCOMES, SELECTED):
        terminalreporter.write_line(line)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """Give a scripted model; where the test fails, what it was shown is part of the failure."""
    with ModelServer() as server:
        yield server
        print(server.story())


@pytest.fixture
def open_program(private_home: Path, model: ModelServer) -> Opener:
    """Give a way to configure one session: `open_program(harness, label)` with the MCP server of ours.

    Sessions of a test share `TIELINE_HOME`; each has a home and a working directory of its own label.
    """

    def prepare(harness: str, label: str = "one", *options: str, is_wired: bool = True) -> Program:
        place = Place(private_home / f"{label}-home", private_home / label, private_home / "t", model.url)
        program = PROGRAMS[harness](FOUND[harness].command, place)
        program.configure(program.mcp_server(*options) if is_wired else None)
        return program

    return prepare


@pytest.fixture
def shared(private_home: Path) -> Path:
    """Give the `TIELINE_HOME` that the sessions of this test share."""
    return private_home / "t"
