"""What the tests of what ended instances left share: stores in memory, closed or as after a kill."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.memory import memory_folder
from tests.faults.rows import AT_MS
from tieline.engine.contract import Row
from tieline.store.journal.journal import Journal

INSTANCE = "ended-1"
SESSION = "saved-session"
RETENTION_MS = 86_400_000
LATER_MS = AT_MS + 600_000 + RETENTION_MS + 1_000
Maker = Callable[..., Path]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give TIELINE_HOME, in memory as the private copies are: hundreds of stores are read here."""
    with memory_folder() as folder, memory_folder() as temporary:
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        yield folder


@pytest.fixture
def make(home: Path) -> Maker:
    """Return a function that leaves an instance's directory, closed or as after a kill."""

    def making(rows: list[Row], instance: str = INSTANCE, *, is_killed: bool = False) -> Path:
        place = home / "peer-messages" / instance
        journal = Journal.open(str(place), instance, SESSION, created_ms=AT_MS)
        for row in rows:
            journal.commit([row], admits=False)
        if not is_killed:
            journal.close()
            return place
        copy = home / "copy"
        shutil.copytree(place, copy)
        journal.close()
        shutil.rmtree(place)
        copy.rename(place)
        return place

    return making
