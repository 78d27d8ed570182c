"""What is seen of another process."""

import os
import sys
from pathlib import Path

from tieline.shell import looking

NOBODY = 2**31 - 1


def test_process_shows_its_program_its_words_and_the_files_of_one_folder(private_home: Path) -> None:
    """What it holds elsewhere, or below, is not told."""
    own = os.getpid()
    (private_home / "deep").mkdir()
    with (
        open(private_home / "b.lock", "w"),
        open(private_home / "a.lock", "w"),
        open(private_home / "deep/c", "w"),
    ):
        assert looking.held_files(own, str(private_home)) == ("a.lock", "b.lock")
    assert looking.held_files(own, str(private_home)) == ()
    assert os.path.samefile(looking.program(own), os.path.realpath(sys.executable))
    assert any("pytest" in word for word in looking.words(own))


def test_process_that_is_not_there_shows_nothing() -> None:
    """Nothing is no fault."""
    assert looking.program(NOBODY) == ""
    assert looking.words(NOBODY) == ()
    assert looking.held_files(NOBODY, "/") == ()
