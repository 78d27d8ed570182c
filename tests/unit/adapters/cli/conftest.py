"""What the tests of the commands share: private places, a fake root, and a way to run a command."""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.adapters.cli.fake import INSTANCE, Answer, FakeRoot, Result, own_life, write_owner
from tieline.adapters.cli.main import main


@pytest.fixture
def place(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private home, and a workspace as the current directory; nothing of the person's own."""
    home, workspace = private_home / "h", private_home / "w"
    for directory in (home, workspace, home / "peer-runtime", home / "active-agents"):
        directory.mkdir(mode=0o700)
    for name in list(os.environ):
        if name.startswith(("TIELINE_", "CLAUDE", "GEMINI_", "PI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TIELINE_HOME", str(home))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(workspace)
    return home


@pytest.fixture
def fake_root(place: Path) -> Iterator[Callable[..., FakeRoot]]:
    """Make a fake root; hosted by this process's parent, so that commands run here find it."""
    made: list[FakeRoot] = []

    def make(answers: dict[str, Answer], *, instance: str = INSTANCE, is_host: bool = True) -> FakeRoot:
        root = FakeRoot(
            place / "peer-runtime" / f"{instance}.control", {"local.who": {"runs": []}, **answers}
        )
        made.append(root)
        write_owner(place, instance, owner=own_life(), host=own_life(os.getppid()) if is_host else None)
        return root

    yield make
    for root in made:
        root.close()


@pytest.fixture
def run(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run a command in this process; `stdin` is what it reads."""

    def command(*words: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return command
