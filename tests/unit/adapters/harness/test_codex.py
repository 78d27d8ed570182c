"""Codex: which file holds what, and trust by the digests that Codex itself gives."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tieline.adapters.harness.base import Document, Place
from tieline.adapters.harness.codex import HARNESS, hooks_of, with_trust
from tieline.errors import UsageError

Make = Callable[..., Place]
ANSWERS = """#!/bin/sh
read one; read two; read three
echo '{"id":1,"result":{}}'
echo '{"method":"note"}'
echo '{"id":2,"result":{"data":[{"hooks":[
{"key":"k","currentHash":"h","server":"tieline","tool":"tieline_host","trustStatus":"untrusted"},
{"key":"g","currentHash":"i","command":"tieline hook codex pre-tool","trustStatus":"untrusted"},
{"key":"z","currentHash":"y","command":"mine"},
{"key":"x","currentHash":"y","server":"other","tool":"tieline_host"}]}]}}' | tr -d '\\n'
echo
"""


def program(home: Path, text: str) -> None:
    """Put a program in the place of Codex."""
    (home / "bin" / "codex").write_text(text)
    (home / "bin" / "codex").chmod(0o755)


def test_files_are_in_its_folder(place: Make, home: Path) -> None:
    """A variable moves it; a project has its own."""
    for made, folder in (
        (place(), f"{home}/.codex"),
        (place(CODEX_HOME="/c"), "/c"),
        (place(project="/p"), "/p/.codex"),
    ):
        assert [file.path for file in HARNESS.files(made)] == [
            f"{folder}/config.toml",
            f"{folder}/hooks.json",
        ]


def test_trust_is_written_for_our_hooks_alone(place: Make, home: Path) -> None:
    """By the key and the digest that Codex gave; the gate is a command, and one of them."""
    made = place("codex", PATH=f"{home}/bin:/usr/bin:/bin")
    program(home, ANSWERS)
    hooks = hooks_of(made)
    assert [one["key"] for one in hooks] == ["k", "g"]
    config, _ = with_trust(HARNESS.files(made), hooks)
    assert isinstance(config, Document)
    assert config.entries[-2].keys == ("hooks", "state", "k")
    assert config.entries[-2].value == {"trusted_hash": "h"}
    assert config.entries[-1].keys == ("hooks", "state", "g")


def test_trust_without_an_answer_is_refused(place: Make, home: Path) -> None:
    """Nobody guesses a digest."""
    with pytest.raises(UsageError, match="not on the PATH"):
        hooks_of(place())
    made = place("codex", PATH=f"{home}/bin:/usr/bin:/bin")
    for text, word in (("#!/bin/sh\nread one\n", "did not list"), ("#!/bin/sh\necho no\n", "not understood")):
        program(home, text)
        with pytest.raises(UsageError, match=word):
            hooks_of(made)


def test_code_mode_needs_consent(place: Make) -> None:
    """It concerns more than our tools."""
    entries = [
        entry for file in HARNESS.files(place()) if isinstance(file, Document) for entry in file.entries
    ]
    assert {entry.keys for entry in entries if entry.extra == "direct"} == {("features", "code_mode")}
    assert {entry.extra for entry in entries} == {"", "gate", "direct"}
