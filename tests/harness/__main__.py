"""Install the harnesses, run their tests as an ordinary user, and say at the end which ran and which not.

Rule 1: installing needs the network and runs as whoever started this; the tests need neither.
Rule 2: the last lines name every harness, also after a failure.
Rule 3: a test of somebody else's program that fails is run again, alone, up to `AGAIN_MAX` times; what then
    passes is named as unsteady and does not fail the run.

Usage: python -m tests.harness [PATH ...] [PYTEST OPTION ...]; a path below tests/harness takes the place of
all tests, with options alone all of them run with those.

Source: requirement "make test-harness"; reference/harnesses.md 1.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.harness import cache, report

SUITE = "tests/harness"
TAKES_A_PATH = ("--deselect", "--ignore", "--ignore-glob")
CHECKOUT = Path(__file__).resolve().parents[2]
RUNNER = CHECKOUT / "tests" / "run.py"
AGAIN_MAX = 2
FAILED_MAX = 30  # more failures than this are no accident; one window that does not open fails all its pairs


def run(asked: list[str], place: Path) -> tuple[int, list[str], list[str]]:
    """Run tests; return their exit code, what was said of each harness, and the tests that failed."""
    process = subprocess.Popen(
        [sys.executable, str(RUNNER), *asked],
        cwd=CHECKOUT,
        env={**os.environ, cache.CACHE_VARIABLE: str(place)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told: list[str] = []
    failed: list[str] = []
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.startswith(report.PREFIX):
            told.append(line.rstrip())
        elif line.startswith(("FAILED tests/", "ERROR tests/")):
            failed.append(line.split()[1])
    return process.wait(), told, failed


def words(options: list[str]) -> list[str]:
    """Return what `tests/run.py` is asked for: the suite, or the paths that are named, with options."""
    if not options:
        return ["harness"]
    named = [
        one
        for before, one in zip(["", *options], options, strict=False)
        if os.path.normpath(one).startswith(SUITE) and before not in TAKES_A_PATH
    ]
    return options if named else [SUITE, *options]


def main(options: list[str]) -> int:
    """Return the exit code: 0 where every test that could run is green."""
    place = cache.folder()
    found = cache.install(place)
    code, told, failed = run(words(options), place)
    unsteady: set[str] = set()
    for _ in range(AGAIN_MAX if len(failed) <= FAILED_MAX else 0):
        if not failed:
            break
        print(f"\nagain, alone: {' '.join(failed)}", flush=True)
        code, _, again = run(failed, place)
        unsteady |= set(failed) - set(again)
        failed = again
    for test in sorted(unsteady):
        print(f"unsteady, passed when run alone: {test}")
    if not told:
        told = [
            f"{report.PREFIX}{one.name}: NOT RUN: {one.reason or 'the tests did not end'}" for one in found
        ]
    reasons = {one.name: one.reason for one in found if one.reason}
    print()
    for line in told:
        name = line.removeprefix(report.PREFIX).split(":", 1)[0]
        # npm's own words, which the tests could not know.
        print(f"{report.PREFIX}{name}: NOT RUN: {reasons[name]}" if name in reasons else line)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
