"""Failures in the background: one word each, where somebody hears it."""

import os
from pathlib import Path

import pytest

from tieline.runtime.intercom.failures import FILE_BYTES_MAX, Failures, errors_path


def test_path_is_in_the_agent_directory_that_is_set_else_in_the_home() -> None:
    """An agent directory that nobody named is not written to."""
    assert errors_path({}, "/h") == "/h/intercom/background-errors.log"
    assert errors_path({"PI_CODING_AGENT_DIR": " /a "}, "/h") == "/a/intercom/background-errors.log"


def test_failure_is_told_once_until_its_operation_recovered(
    private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the host, else on standard error, at the end in a private file of bounded size; never in two."""
    told: list[tuple[str, str]] = []
    path = private_home / "d" / "intercom" / "background-errors.log"
    failures = Failures(str(path), lambda *news: told.append(news), lambda: 0)
    assert failures.failed("shared", "no\nbroker", has_host=True, is_ending=False)
    assert not failures.failed("shared", "no broker", has_host=True, is_ending=False)
    assert told == [("shared", "no broker")]
    failures.recovered("shared")
    assert failures.failed("shared", "no broker", has_host=False, is_ending=False)
    assert capsys.readouterr().err == "tieline: intercom shared: no broker\n"
    assert failures.known == {"shared": "no broker"}
    failures.failed("shared", "gone", has_host=True, is_ending=True)
    assert path.read_text() == "1970-01-01T00:00:00.000Z shared: gone\n"
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("a") as stream:
        stream.write("x" * FILE_BYTES_MAX)
    size = path.stat().st_size
    failures.failed("shared", "again", has_host=True, is_ending=True)
    assert path.stat().st_size == size
    assert len(told) == 1


def test_file_that_cannot_be_written_fails_nobody(private_home: Path) -> None:
    """A link where the file should be is not followed."""
    (private_home / "intercom").mkdir()
    path = private_home / "intercom" / "background-errors.log"
    os.symlink(private_home / "elsewhere", path)
    failures = Failures(str(path), lambda *_news: None, lambda: 0)
    assert failures.failed("shared", "x", has_host=False, is_ending=True)
    assert not (private_home / "elsewhere").exists()
