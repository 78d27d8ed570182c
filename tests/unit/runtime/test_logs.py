"""A root's log: private, bounded, without content."""

import os
from pathlib import Path

import pytest

from tieline.errors import Refused
from tieline.runtime.logs import Log


@pytest.mark.clause("S2", "S14")
def test_log_is_private_and_holds_no_values_of_an_error(private_home: Path) -> None:
    """Mode 0600 in a 0700 directory; a failure shows place, type and code, never its text."""
    log = Log(str(private_home / "logs"), "i-1")
    log.note("opened", scope="machine")
    log.failure("somewhere", Refused("QUEUE_FULL", "secret text of a peer"))
    path = private_home / "logs" / "i-1.log"
    text = path.read_text()
    assert "opened scope=machine" in text
    assert "QUEUE_FULL" in text
    assert "secret" not in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    log.close()


@pytest.mark.clause("O32", "K7")
def test_log_of_the_same_failure_again_is_counted_not_written(private_home: Path) -> None:
    """A storm of one failure writes one line a second at most."""
    log = Log(str(private_home / "logs"), "i-1")
    error = ValueError("x")
    for _ in range(300):
        log.failure("accept", error)
    lines = (private_home / "logs" / "i-1.log").read_text().splitlines()
    assert len(lines) <= 3
    assert log.suppressed_count >= 297
    log.close()


def test_log_that_cannot_be_written_fails_nobody(private_home: Path) -> None:
    """An unwritable directory costs the line, not the root."""
    os.chmod(private_home, 0o500)
    log = Log(str(private_home / "logs"), "i-1")
    log.note("opened")
    assert log.suppressed_count == 1
    os.chmod(private_home, 0o700)
