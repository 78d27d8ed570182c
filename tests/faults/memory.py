"""A private folder in memory, where a real sync costs nothing: for tests whose disk is simulated anyway."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["memory_folder"]

MEMORY = Path("/dev/shm")


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Give an empty folder of mode 0700, in memory where the system has such a place."""
    folder = Path(tempfile.mkdtemp(prefix="p", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
