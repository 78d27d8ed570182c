"""What the tests of the harnesses share: a person's home, and programs that are there by name alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tieline.adapters.harness.base import Place

COMMAND = ("/opt/tieline",)


@pytest.fixture
def home(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it; no variable of a harness points elsewhere."""
    for name in ("PI_CODING_AGENT_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "TIELINE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return private_home


@pytest.fixture
def place(home: Path) -> Callable[..., Place]:
    """Make the place of one call; `programs` are on its PATH, `shims` in its package."""

    def make(*programs: str, project: str = "", shims: tuple[str, ...] = (), **variables: str) -> Place:
        for folder in ("bin", "package"):
            (home / folder).mkdir(exist_ok=True)
        for name in programs:
            (home / "bin" / name).write_text("#!/bin/sh\n")
            (home / "bin" / name).chmod(0o755)
        for name in shims:
            path = home / "package" / "shims" / name / "tieline.js"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('// ours\nconst TIELINE = ["tieline"];\n')
        environment = {"PATH": str(home / "bin"), "HOME": str(home), **variables}
        return Place(str(home), environment, project, COMMAND, str(home / "package"))

    return make
