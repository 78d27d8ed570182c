"""`tieline broker` on a disk whose room is one number: what it may fill with mail is the file's first word.

Source: reference/reliability.md K5.
"""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from tests.faults.vfs import FaultyVfs
from tieline.adapters.cli.main import main
from tieline.store.journal.database import connect
from tieline.store.mail import journal

LOOK_SECONDS = 0.02


def watch(layer: FaultyVfs, path: Path) -> None:
    """Let the disk have as much room as the file says, always."""
    while True:
        with contextlib.suppress(ValueError, FileNotFoundError):
            layer.quota_bytes = int(path.read_text())
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    disk = FaultyVfs()
    journal.connect = lambda path, _vfs: connect(path, disk.name)  # type: ignore[attr-defined]
    threading.Thread(target=watch, args=(disk, Path(os.environ["FULL_BROKER_ROOM"])), daemon=True).start()
    sys.exit(main(["broker"]))
