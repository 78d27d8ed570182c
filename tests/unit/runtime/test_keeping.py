"""What a person's screen keeps between two starts."""

import os
from pathlib import Path

import pytest

from tieline.runtime import keeping


@pytest.mark.clause("native-125")
def test_kept_shape_comes_back_and_is_private(private_home: Path) -> None:
    """It is read back equal; nobody else may read it."""
    home = str(private_home)
    assert keeping.kept(home, "me") == {}
    assert keeping.keep(home, "me", {"draft": "\x1b \N{SNOWMAN}"})
    assert keeping.kept(home, "me") == {"draft": "\x1b \N{SNOWMAN}"}
    assert os.stat(f"{home}/desk/me.json").st_mode & 0o777 == 0o600
    assert os.stat(f"{home}/desk").st_mode & 0o777 == 0o700


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff"])
def test_kept_file_that_is_broken_is_nothing(private_home: Path, data: bytes) -> None:
    """A screen starts also with what it cannot read."""
    home = str(private_home)
    assert keeping.keep(home, "me", {})
    Path(f"{home}/desk/me.json").write_bytes(data)
    assert keeping.kept(home, "me") == {}


def test_shape_that_cannot_be_kept_is_said(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much, or a place that is not safe, is not written."""
    home = str(private_home)
    monkeypatch.setattr(keeping, "BYTES_MAX", 10)
    assert not keeping.keep(home, "me", {"text": "x" * 20})
    assert not keeping.keep("relative", "me", {})


def test_exported_text_is_private_and_at_the_path_that_is_told(private_home: Path) -> None:
    """An export is a file of mode 0600 whose path is returned."""
    path = keeping.export(str(private_home), "timeline.jsonl", "{}\n\ud800")
    assert Path(path).read_bytes() == b"{}\n\\ud800"
    assert os.stat(path).st_mode & 0o777 == 0o600
