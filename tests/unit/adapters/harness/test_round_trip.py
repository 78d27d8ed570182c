"""The proof of `doctor`: a message arrives, or the reason is said; nothing stays behind."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tieline.adapters.harness import round_trip as subject

OURS = (sys.executable, "-m", "tieline.adapters.cli.main", "mcp")


def test_round_trip_of_our_own_server_arrives(monkeypatch: pytest.MonkeyPatch, private_home: Path) -> None:
    """Started by the words that a harness has."""
    monkeypatch.setattr(tempfile, "tempdir", str(private_home))
    variables = (("PYTHONPATH", os.pathsep.join(sys.path)),)
    assert subject.round_trip(OURS, variables, os.environ["PATH"]) == ""
    assert os.listdir(private_home) == []


def test_round_trip_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the server's own words, where it has any."""
    path = "/usr/bin:/bin"
    assert (
        subject.round_trip(("/nowhere/tieline", "mcp"), (), path)
        == "/nowhere/tieline: No such file or directory"
    )
    assert subject.round_trip(("sh", "-c", "echo broken >&2"), (), path) == "the server ended: broken"
    assert (
        subject.round_trip(("sh", "-c", "read a; echo no; cat"), (), path) == "the server does not speak MCP"
    )
    error = 'read a; echo \'{"id":1,"error":{"message":"not today"}}\'; cat >/dev/null'
    assert subject.round_trip(("sh", "-c", error), (), path) == "not today"
    monkeypatch.setattr(subject, "SECONDS_MAX", 0.2)
    assert "no answer" in subject.round_trip(("sh", "-c", "cat >/dev/null"), (), path)
