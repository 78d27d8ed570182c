"""Ending a process at a named place."""

import os
import signal
import subprocess
import sys

import pytest

from tieline.errors import UsageError
from tieline.runtime.seams import VARIABLE, of_environment
from tieline.store.files import no_seam

PASS = """
from tieline.runtime.seams import of_environment
import os
seam = of_environment(os.environ)
for name in ("a", "b", "a", "b", "a"):
    print(name, flush=True)
    seam(name)
"""


def test_seam_without_the_variable_does_nothing() -> None:
    """Nobody who did not ask for it pays or dies."""
    assert of_environment({}) is no_seam
    assert of_environment({VARIABLE: ""}) is no_seam


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:0", "a:-1", "a:1.5", "a:x", "a:1000001", "a:²"])
def test_seam_that_is_wrongly_named_stops_the_start(text: str) -> None:
    """A test that could not kill must not look like one that did."""
    with pytest.raises(UsageError, match="NAME:NUMBER"):
        of_environment({VARIABLE: text})


@pytest.mark.clause("K1")
@pytest.mark.parametrize(("text", "lines"), [("a:1", 1), ("a:3", 5), ("b:2", 4), ("*:2", 2)])
def test_seam_at_its_number_kills_the_process_at_once(text: str, lines: int) -> None:
    """The n-th passing of that name, or of any, is the last thing that the process does."""
    done = subprocess.run(
        [sys.executable, "-c", PASS], env={**os.environ, VARIABLE: text}, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == lines


def test_seam_beyond_the_last_passing_lets_the_process_end() -> None:
    """A number that is never reached kills nobody."""
    done = subprocess.run(
        [sys.executable, "-c", PASS], env={**os.environ, VARIABLE: "b:3"}, capture_output=True, check=False
    )
    assert (done.returncode, len(done.stdout.split())) == (0, 5)
