"""A root's journal and its writer thread, as the driver's port."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.rows import AT_MS, message, move
from tieline.errors import RecoveryRequired, Refused
from tieline.runtime.custody import Custody
from tieline.runtime.logs import Log
from tieline.shell.driver import Committed
from tieline.store.journal import Journal
from tieline.store.recovery import recover

pytestmark = pytest.mark.asyncio


LOGS: list[Log] = []


@pytest.fixture(autouse=True)
def closed_logs() -> Iterator[None]:
    """Close what a test logged to."""
    yield
    while LOGS:
        LOGS.pop().close()


def opened(home: Path, **more: Any) -> Custody:
    """Return a store of instance `i-1`."""
    log = Log(str(home / "logs"), "i-1")
    LOGS.append(log)
    return Custody.open(str(home / "peer-messages"), "i-1", "s-1", asyncio.get_running_loop(), log, **more)


async def committed(custody: Custody, *rows: Any) -> Committed:
    """Return how the store ended one group."""
    future: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
    custody.commit(rows, admits=True, reserve_bytes=0, done=future.set_result)
    async with asyncio.timeout(5):
        return await future


@pytest.mark.clause("I2", "native-99")
async def test_custody_tells_on_the_loop_once_rows_are_stored(private_home: Path) -> None:
    """The word comes on the loop's thread, and then the rows are there, and survive the end."""
    custody = opened(private_home)
    try:
        assert await committed(custody, message(1)) is Committed.STORED
        assert list(custody.load()) == [message(1)]
        assert custody.content(1) == message(1).envelope
        custody.rename_session("s-2")
    finally:
        custody.close()
    found = recover(str(private_home), "i-1")
    assert [item.cursor for item in found.unread] == [1]
    assert found.identity.session_id == "s-2"


@pytest.mark.clause("I8", "K4")
async def test_custody_in_doubt_stores_nothing_until_it_is_opened_again(private_home: Path) -> None:
    """A failure in the midst is doubt, and so is all after it; reopened, the truth on disk is loaded."""
    failing: list[str] = []

    def seam(name: str) -> None:
        if name in failing:
            raise OSError(5, "Input/output error")

    custody = opened(private_home, seam=seam)
    try:
        assert await committed(custody, message(1)) is Committed.STORED
        failing.append("journal.synced")
        assert await committed(custody, message(2)) is Committed.IN_DOUBT
        failing.clear()
        assert await committed(custody, message(3)) is Committed.IN_DOUBT
        rows = await asyncio.to_thread(custody.reopen)
        assert next(iter(rows)) == message(1)
        assert message(3) not in rows
        assert await committed(custody, message(4)) is Committed.STORED
    finally:
        custody.close()


async def test_custody_of_a_forgotten_record_says_so(private_home: Path) -> None:
    """Content that was pruned is never an empty text."""
    custody = opened(private_home)
    try:
        with pytest.raises(RecoveryRequired, match="forgotten"):
            custody.content(99)
    finally:
        custody.close()


@pytest.mark.clause("S1")
async def test_custody_in_a_broad_directory_is_refused(private_home: Path) -> None:
    """A store that others could read is not opened, and its directory is left as it is."""
    (private_home / "peer-messages").mkdir(mode=0o755)
    (private_home / "peer-messages").chmod(0o777)
    with pytest.raises(Refused) as caught:
        opened(private_home)
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert (private_home / "peer-messages").stat().st_mode & 0o777 == 0o777


async def test_custody_looks_after_what_ended_roots_left(private_home: Path) -> None:
    """Housekeeping takes a finished store past its retention, and leaves the one that is alive."""
    stores = private_home / "peer-messages"
    old = Journal.open(str(stores / "old"), "old", "s", created_ms=AT_MS)
    old.commit([message(1), move(2, 1)], admits=False)
    old.close()
    custody = opened(private_home)
    try:
        custody.housekeep(86_400_000)
        assert (stores / "old").exists()
        custody.housekeep(-1_000)
        assert not (stores / "old").exists()
        assert (stores / "i-1").exists()
    finally:
        custody.close()


@pytest.mark.clause("I7")
async def test_custody_at_its_orderly_end_leaves_nothing_but_messages(private_home: Path) -> None:
    """A store without a message goes with its log when it is closed; one message keeps all of it."""
    stores = private_home / "peer-messages"
    for rows in ([], [message(1)]):
        custody = opened(private_home)
        (private_home / "logs").mkdir(mode=0o700, exist_ok=True)
        log = private_home / "logs" / "i-1.log"
        log.write_text("")
        log.chmod(0o600)
        if rows:
            assert await committed(custody, *rows) is Committed.STORED
        custody.close()
        assert (stores / "i-1").exists() == bool(rows)
        assert log.exists() == bool(rows)
    assert recover(str(private_home), "i-1").message_count == 1


async def test_custody_that_could_not_be_made_leaves_nothing(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root that a full disk kept from starting leaves no half-made store behind."""

    def full(name: str) -> None:
        if name == "journal.database_created":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = Log(str(private_home / "logs"), "i-1")
    loop = asyncio.get_running_loop()
    with pytest.raises(Refused) as caught:
        Custody.open(str(private_home / "peer-messages"), "i-1", "s", loop, log, full)
    assert caught.value.code == "QUEUE_FULL"
    assert os.listdir(private_home / "peer-messages") == []
