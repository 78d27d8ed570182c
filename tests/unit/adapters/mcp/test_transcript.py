"""The model of a session, read from the end of its harness's own record."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tieline.adapters.mcp.transcript import TAIL_BYTES, last_model

CLAUDE = {"type": "assistant", "message": {"role": "assistant", "model": "claude-opus-5-5", "content": []}}
GEMINI = {"type": "gemini", "content": "Done.", "model": "gemini-2.5-flash"}
OTHERS = (
    {"type": "user", "message": {"model": "of-a-person"}},
    {"type": "assistant", "message": {"model": "<synthetic>"}},
    {"type": "assistant", "isSidechain": True, "message": {"model": "of-a-subagent"}},
    {"type": "assistant", "message": "no object"},
    {"type": "assistant", "message": {"model": "a\x1b[31m"}},
    {"$set": {"model": "x"}},
    ["model"],
)


def record(folder: Path, *documents: Any, end: str = "\n") -> str:
    """Return the path of a record of these lines."""
    path = folder / "record.jsonl"
    path.write_text("\n".join(map(json.dumps, documents)) + end)
    return str(path)


@pytest.mark.parametrize(("document", "model"), [(CLAUDE, "claude-opus-5-5"), (GEMINI, "gemini-2.5-flash")])
def test_last_answer_tells_the_model_whatever_stands_behind_it(
    document: dict[str, Any], model: str, private_home: Path
) -> None:
    """Lines that no model of the session wrote are passed over; an older answer does not count."""
    old = {"type": "gemini", "model": "old"}
    assert last_model(record(private_home, old, document, *OTHERS)) == model
    assert last_model(record(private_home, old, document, *OTHERS, end='\n{"type": "assis')) == model


def test_record_without_an_answer_at_its_end_tells_nothing(private_home: Path) -> None:
    """Nor does one whose last answer is longer than what is read, or that is no text."""
    assert last_model(record(private_home, *OTHERS)) == ""
    assert last_model(record(private_home, CLAUDE | {"more": "x" * TAIL_BYTES})) == ""
    Path(private_home / "bytes").write_bytes(b"\xff\xfe{}\n\x00")
    assert last_model(str(private_home / "bytes")) == ""


def test_what_is_no_file_is_not_waited_for(private_home: Path) -> None:
    """The path comes from a hook: a pipe without a writer, a folder, and nothing at all tell nothing."""
    os.mkfifo(private_home / "pipe")
    for path in (str(private_home / "pipe"), str(private_home), str(private_home / "none"), "a\0b", ""):
        assert last_model(path) == ""


def test_file_of_another_user_is_not_believed(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what this user's own harness wrote counts."""
    path = record(private_home, GEMINI)
    monkeypatch.setattr("tieline.adapters.mcp.transcript.os.geteuid", lambda: os.stat(path).st_uid + 1)
    assert last_model(path) == ""
