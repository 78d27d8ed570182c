"""Power cuts: unsynced bytes are lost, kept or torn at random; what was acknowledged is there.

Two disks: a file layer beneath SQLite that keeps books of what was synced (always), and a real ext4
file system on a loop device whose image is copied while the writer stands still (as root only; its
harness is in tests/system/power/, to be started by hand where this suite runs as another user).
"""

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.memory import memory_folder
from tests.faults.rows import message, move
from tests.faults.vfs import FaultyVfs
from tests.system.power import cut
from tieline.errors import RecoveryRequired
from tieline.store.journal import database, headroom
from tieline.store.journal.journal import Journal
from tieline.store.recovery import recover

INSTANCE = "ended-1"
CUTS = 200


@pytest.fixture
def home() -> Iterator[Path]:
    """Give TIELINE_HOME, in memory: the simulated disk alone decides what is durable."""
    with memory_folder() as folder:
        yield folder / "h"


@pytest.fixture(autouse=True)
def small_fillers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grow the files in small steps: growing happens often then, and a cut costs a tenth of the time."""
    monkeypatch.setattr(headroom, "FILLER_BYTES", 65_536)
    monkeypatch.setattr(headroom, "FILLER_PAGES", 16)


def cut_once(home: Path, seed: int) -> tuple[set[int], set[int] | None]:
    """Write, lose power at a random operation; return what was acknowledged, and what is there then.

    The second is None when damage was told instead.
    """
    chance = random.Random(seed)
    layer = FaultyVfs(seed)
    journal = Journal.open(str(home / "peer-messages" / INSTANCE), INSTANCE, "s", vfs=layer.name)
    acknowledged: set[int] = set()
    journal.commit([message(1)], admits=True, reserve_bytes=2_048)
    acknowledged.add(1)
    layer.cut_power_at(chance.randrange(5, 300))
    cursor = 1
    try:
        while True:
            cursor += 2
            rows = [message(cursor, size=chance.choice((50, 700, 3_000, 9_000))), move(cursor + 1, cursor)]
            journal.commit(rows[: chance.choice((1, 2))], admits=True, reserve_bytes=2_048)
            acknowledged.add(cursor)
            if chance.random() < 0.1:
                journal.checkpoint()
    except RecoveryRequired:
        pass
    assert layer.is_dead
    journal.close()
    layer.close()
    try:
        recovered = recover(str(home), INSTANCE)
    except RecoveryRequired:
        return acknowledged, None
    unread = {one.cursor for one in recovered.unread}
    # Consumed messages are not unread; their number is in the count.
    assert recovered.message_count >= len(unread)
    return acknowledged, set(range(1, 2 * recovered.message_count, 2))


@pytest.mark.clause("K2", "I1", "I2", "O14", "O44")
def test_power_cut_loses_nothing_that_was_acknowledged(home: Path) -> None:
    """In 200 cuts at random operations, not one acknowledged message is missing and no store is damaged."""
    total = 0
    for seed in range(CUTS):
        acknowledged, found = cut_once(home, seed)
        shutil.rmtree(home)
        assert found is not None, f"seed {seed}: damage was told"
        assert acknowledged <= found, f"seed {seed}: lost {sorted(acknowledged - found)}"
        assert len(found) <= len(acknowledged) + 1, f"seed {seed}: more than one unacknowledged commit"
        total += len(acknowledged)
    print(f"{CUTS} cuts, {total} acknowledged messages, 0 lost: below {3 / CUTS:.3f} per cut at 95 %")
    assert total > 10 * CUTS


@pytest.mark.clause("mutant-2")
def test_power_cut_with_a_weaker_sync_level_is_seen_to_lose(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same cuts convict a journal that does not sync every commit: the zero above means something."""
    monkeypatch.setattr(database, "SYNCHRONOUS", "NORMAL")
    monkeypatch.setattr(database, "SYNCHRONOUS_LEVEL_MIN", 1)
    lost = 0
    for seed in range(20):
        acknowledged, found = cut_once(home, seed)
        shutil.rmtree(home)
        lost += found is None or not acknowledged <= found
    assert lost > 10


@pytest.mark.clause("K2", "K6", "I1", "I8", "O44")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("harness", [["cut.py", "50"], ["full.py"]], ids=["power cut", "full disk"])
def test_journal_on_a_real_file_system_loses_nothing(harness: list[str]) -> None:
    """50 cuts of ext4, and a tmpfs and an ext4 without a free byte: nothing acknowledged is missing."""
    reason = cut.missing()
    if reason:
        pytest.skip(f"{reason}; run tests/system/power/{harness[0]} as root for this part")
    script = Path(cut.__file__).with_name(harness[0])
    command = [sys.executable, str(script), *harness[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    print(ended.stdout)
