"""The durable record of one root's moves: stored, definitely not, or in doubt."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults.memory import memory_folder
from tests.faults.rows import every_kind, message, move
from tests.faults.vfs import FaultyVfs
from tieline.config import RECEIPT_RESERVE_BYTES
from tieline.engine.contract import ContextRow, MessageRow, PruneRow
from tieline.errors import RecoveryRequired, Refused, UsageError
from tieline.model.receipt import State
from tieline.store.journal import journal as module
from tieline.store.journal.headroom import FILLER_BYTES
from tieline.store.journal.journal import PAUSE_BYTES, SEAMS, Journal, StoreFull
from tieline.store.recovery import recover

INSTANCE = "ended-1"
Opener = Callable[..., Journal]


@pytest.fixture
def home() -> Iterator[Path]:
    """Give TIELINE_HOME, in memory: these tests count syncs, they do not need them."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def place(home: Path) -> Path:
    """Return where the instance's directory will be."""
    return home / "peer-messages" / INSTANCE


@pytest.fixture
def layer() -> Iterator[FaultyVfs]:
    """Give a disk that fails on demand."""
    opened = FaultyVfs()
    yield opened
    opened.close()


@pytest.fixture
def opener(place: Path) -> Iterator[Opener]:
    """Give a function that opens the journal; all are closed in the end."""
    opened: list[Journal] = []

    def opening(**options: object) -> Journal:
        journal = Journal.open(str(place), INSTANCE, "session", **options)  # type: ignore[arg-type]
        opened.append(journal)
        return journal

    yield opening
    for journal in opened:
        journal.close()


# ---------------------------------------------------------------- stored


@pytest.mark.clause("I50", "native-176")
def test_rows_committed_load_in_order_also_after_reopening(opener: Opener) -> None:
    """Rows of every kind come back as they were stored, from the open journal and from a reopened one."""
    journal = opener()
    rows = every_kind()
    journal.commit(rows[:2], admits=True, reserve_bytes=4_096)
    journal.commit(rows[2:], admits=False)
    assert journal.load() == rows
    assert journal.reopen() == rows
    assert journal.reopen() == rows
    journal.commit([move(30, 1)], admits=False)
    assert journal.load() == [*rows, move(30, 1)]


def test_prune_committed_forgets_and_the_numbers_go_on(opener: Opener) -> None:
    """After everything was forgotten, the next row has a number that was never used."""
    journal = opener()
    journal.commit([message(1), move(2, 1)], admits=True)
    journal.commit([PruneRow((1,), 2, 3)], admits=False)
    assert journal.reopen() == [PruneRow((), 2, 3)]
    assert journal.position == 3
    journal.commit([message(4)], admits=True)
    assert journal.reopen() == [PruneRow((), 2, 3), message(4)]


def test_content_of_a_message_is_read_alone(opener: Opener) -> None:
    """Finished records' texts can be fetched one by one."""
    journal = opener()
    journal.commit([message(1, size=5_000)], admits=True)
    envelope = journal.content(1)
    assert envelope is not None
    assert envelope.content == message(1, size=5_000).envelope.content
    assert journal.content(2) is None


@pytest.mark.clause("native-175")
def test_session_learned_later_is_associated(opener: Opener, place: Path, home: Path) -> None:
    """The saved session that a root serves may be told after it was opened."""
    journal = opener(process={"pid": 1}, created_ms=9)
    journal.associate("later")
    journal.close()
    identity = recover(str(home), INSTANCE, session="later").identity
    assert (identity.session_id, identity.process, identity.created_ms) == ("later", {"pid": 1}, 9)


@pytest.mark.clause("S2")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files_are_private_under_any_umask(opener: Opener, place: Path, mask: int) -> None:
    """Directory and files are readable by their owner alone, from the first instant to the last."""
    seen: dict[str, int] = {}

    def look(seam: str) -> None:
        for path in place.glob("*") if place.exists() else ():
            seen[f"{seam} {path.name}"] = path.stat().st_mode & 0o777

    before = os.umask(mask)
    try:
        journal = opener(seam=look)
        journal.commit([message(1)], admits=True)
        journal.reopen()
        journal.close()
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o777 == 0o700
    assert {"messages.db", "messages.db-wal", "identity.json", "lock", "witness"} <= {
        name.split()[1] for name in seen
    }
    assert set(seen.values()) == {0o600}


def test_identity_is_written_last_of_all(opener: Opener, place: Path) -> None:
    """A directory without identity.json never held a message."""
    names: dict[str, list[str]] = {}
    opener(seam=lambda seam: names.update({seam: sorted(os.listdir(place))} if place.exists() else {}))
    assert "identity.json" not in names["journal.database_created"]
    assert "identity.json" in names["journal.created"]


def test_seams_are_all_named_and_all_met(opener: Opener) -> None:
    """Every effect lies between two seams of the published list, and each of them exists."""
    met: list[str] = []
    journal = opener(seam=met.append)
    journal.commit([message(1)], admits=True)
    journal.checkpoint()
    journal.reopen()
    journal.close()
    ours = {name for name in met if name.startswith("journal.")}
    assert ours == set(SEAMS)


@pytest.mark.clause("I2", "mutant-1")
def test_commit_returns_only_after_its_sync(opener: Opener, layer: FaultyVfs) -> None:
    """Between the last write of a commit and its return there is a sync."""
    journal = opener(vfs=layer.name)
    journal.commit([message(1)], admits=True)
    before = layer.counts["sync"]
    journal.commit([message(2)], admits=True)
    assert layer.counts["sync"] > before
    assert not any(disk.pending for disk in layer._disks.values())


# ---------------------------------------------------------------- one owner


def test_directory_held_by_another_is_refused(opener: Opener, place: Path) -> None:
    """Two owners of one journal are impossible."""
    opener()
    with pytest.raises(Refused) as refused:
        Journal.open(str(place), INSTANCE, "session")
    assert refused.value.code == "RESOURCE_BUSY"


@pytest.mark.clause("I6", "native-182")
def test_directory_that_held_mail_is_never_taken_over(opener: Opener, place: Path) -> None:
    """A successor cannot open its predecessor's journal."""
    opener().close()
    with pytest.raises(UsageError, match="used once"):
        Journal.open(str(place), INSTANCE, "session")


def test_closed_journal_refuses_everything_and_closes_again(opener: Opener) -> None:
    """After closing nothing is stored, read or reopened."""
    journal = opener()
    journal.close()
    journal.close()
    for act in (
        lambda: journal.commit([message(1)], admits=True),
        journal.load,
        journal.reopen,
        journal.checkpoint,
    ):
        with pytest.raises(RecoveryRequired):
            act()


def test_close_leaves_everything_in_one_file(opener: Opener, place: Path) -> None:
    """After an orderly end the log is empty and the database holds all."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    journal.close()
    assert (place / "messages.db-wal").stat().st_size == 0


# ---------------------------------------------------------------- in doubt


@pytest.mark.clause("K4", "I4", "mutant-4")
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_commit_with_any_operation_failing_is_in_doubt_and_poisons(
    place: Path, operation: str, home: Path
) -> None:
    """An I/O error at the n-th sync or write (every second one) never says "not stored" and never goes on."""
    number = 0
    while True:
        shutil.rmtree(place, ignore_errors=True)
        layer = FaultyVfs(seed=number)
        journal = Journal.open(str(place), INSTANCE, "s", vfs=layer.name)
        acknowledged: list[MessageRow] = [message(1)]
        journal.commit(acknowledged, admits=True, reserve_bytes=2_048)
        layer.fail(operation, number, errno.EIO)
        is_failed = False
        for cursor in range(2, 7):
            try:
                journal.commit([message(cursor, size=3_000)], admits=True, reserve_bytes=2_048)
                if cursor % 3 == 0:
                    journal.checkpoint()
            except RecoveryRequired:
                is_failed = True
                break
            acknowledged.append(message(cursor, size=3_000))
        if is_failed:
            for _ in range(3):
                with pytest.raises(RecoveryRequired):
                    journal.commit([message(90)], admits=True)
            with pytest.raises(RecoveryRequired):
                journal.load()
            rows = journal.reopen()
            assert rows[: len(acknowledged)] == acknowledged
            assert len(rows) <= len(acknowledged) + 1
            journal.commit([message(50)], admits=True, reserve_bytes=2_048)
            layer.cut_power()
            journal.close()
            found = {unread.cursor for unread in recover(str(home), INSTANCE).unread}
            assert {row.cursor for row in acknowledged} | {50} <= found
        journal.close()
        layer.close()
        if not is_failed:
            assert number > 5
            return
        number += 1 if operation == "sync" else 2


@pytest.mark.clause("K2", "K4", "I1", "I50")
@pytest.mark.parametrize("seed", range(2))
def test_power_cut_at_any_operation_of_a_reopening_loses_nothing(place: Path, home: Path, seed: int) -> None:
    """A failed sync, and a power cut while the doubt is being ended: every acknowledged message is there."""
    number = 0
    while True:
        shutil.rmtree(place, ignore_errors=True)
        layer = FaultyVfs(seed=seed * 1_000 + number)
        journal = Journal.open(str(place), INSTANCE, "s", vfs=layer.name)
        journal.commit([message(1), message(2), move(3, 1)], admits=True)
        journal.checkpoint()
        # The log now holds the pages of messages and not those of moves. A commit of both, of which
        # the log lost a part and the database did not, would leave a move without its message.
        journal.commit([message(4, size=1_500)], admits=True)
        layer.fail("sync", 0)
        with pytest.raises(RecoveryRequired):
            journal.commit([message(5), move(6, 2)], admits=True)
        layer.cut_power_at(number)
        try:
            journal.reopen()
            is_cut = False
        except RecoveryRequired:
            is_cut = True
            journal.close()
            found = {unread.cursor for unread in recover(str(home), INSTANCE).unread}
            assert found in ({2, 4}, {4, 5})
        journal.close()
        layer.close()
        if not is_cut:
            assert number > 20
            return
        number += 1


@pytest.mark.clause("K4")
def test_reopening_on_a_disk_that_still_fails_keeps_the_doubt(opener: Opener, layer: FaultyVfs) -> None:
    """A reopening is believed only when the disk takes writes again; it may be tried again."""
    journal = opener(vfs=layer.name)
    journal.commit([message(1)], admits=True)
    layer.fail("sync", 0, is_sticky=True)
    with pytest.raises(RecoveryRequired):
        journal.commit([message(2)], admits=True)
    for _ in range(2):
        with pytest.raises(RecoveryRequired):
            journal.reopen()
        with pytest.raises(RecoveryRequired):
            journal.commit([message(3)], admits=True)
        assert journal.doubt
    layer.heal()
    assert journal.reopen()[0] == message(1)
    journal.commit([message(4)], admits=True)
    assert journal.doubt == ""


@pytest.mark.clause("O46", "K17")
@pytest.mark.parametrize("name", ["messages.db", "messages.db-wal"])
@pytest.mark.parametrize("act", ["remove", "replace"])
def test_file_taken_away_in_use_is_noticed_before_the_next_answer(
    opener: Opener, place: Path, name: str, act: str
) -> None:
    """A journal whose files were removed or exchanged acknowledges nothing, and does not reopen others'."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    path = place / name
    copy = path.read_bytes()
    path.rename(place / "taken")
    if act == "replace":
        path.write_bytes(copy)
        path.chmod(0o600)
    for _ in range(2):
        with pytest.raises(RecoveryRequired):
            journal.commit([message(2)], admits=True)
    with pytest.raises(RecoveryRequired):
        journal.reopen()
    assert (place / "taken").exists()


@pytest.mark.clause("K17", "I38")
def test_reopening_an_older_copy_is_refused(opener: Opener, place: Path) -> None:
    """Content put back in place from an earlier moment, in the same files, is not believed."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    old = {name: (place / name).read_bytes() for name in ("messages.db", "messages.db-wal")}
    journal.commit([message(2)], admits=True)
    for name, content in old.items():
        with (place / name).open("r+b") as stream:
            stream.write(content)
            stream.truncate()
    with pytest.raises(RecoveryRequired, match="row 2"):
        journal.reopen()
    with pytest.raises(RecoveryRequired):
        journal.commit([message(3)], admits=True)


def test_commit_interrupted_by_a_defect_poisons(opener: Opener) -> None:
    """A row that no table takes leaves a journal that says nothing until it is reopened."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    with pytest.raises(OverflowError):
        journal.commit([message(2**63)], admits=True)
    with pytest.raises(RecoveryRequired):
        journal.load()
    assert journal.reopen() == [message(1)]
    with pytest.raises(RecoveryRequired):
        journal.commit([message(1)], admits=True)  # a cursor is used once
    assert journal.reopen() == [message(1)]


def test_damage_found_while_reading_poisons(opener: Opener) -> None:
    """A damaged row stops the journal instead of being passed over."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    journal._connection.execute("UPDATE message SET at_ms = 7")
    with pytest.raises(RecoveryRequired):
        journal.content(1)
    with pytest.raises(RecoveryRequired):
        journal.commit([message(2)], admits=True)


# ---------------------------------------------------------------- full


def finish(journal: Journal, number: int) -> None:
    """Move an accepted message through all that can happen to it, each step its own commit."""
    cursor = 10_000 + number * 4
    token = "t" * 64
    journal.commit([replace(move(cursor, number, State.ACCEPTED, "prepared"), token=token)], admits=False)
    record = ContextRow(cursor + 1, number, "r" * 64, token, 1)
    journal.commit([record, replace(move(cursor + 2, number), token=token, consumed_ms=1)], admits=False)
    journal.commit([replace(move(cursor + 3, number, State.REPLIED), outcome="x" * 200)], admits=False)


@pytest.mark.clause("K6", "I8", "mutant-5")
def test_transitions_of_all_accepted_mail_succeed_on_a_full_disk(place: Path) -> None:
    """With not one byte left, 32 of 32 accepted messages are prepared, recorded, consumed and replied."""
    layer = FaultyVfs()
    journal = Journal.open(str(place), INSTANCE, "s", vfs=layer.name)
    count = 32
    for number in range(1, count + 1):
        journal.commit(
            [message(number, size=8_000)], admits=True, reserve_bytes=number * RECEIPT_RESERVE_BYTES
        )
    layer.quota_bytes = layer.used_bytes
    for number in range(1, count + 1):
        finish(journal, number)
    assert len(journal.load()) == count * 5
    assert layer.used_bytes <= layer.quota_bytes
    rows = journal.load()
    assert journal.reopen() == rows
    journal.close()
    layer.close()


@pytest.mark.clause("K5", "I7")
def test_mail_on_a_full_disk_is_refused_and_taken_again_when_space_returns(place: Path) -> None:
    """A full disk refuses new mail before anything, keeps what it has, and serves on without a restart."""
    layer = FaultyVfs()
    journal = Journal.open(str(place), INSTANCE, "s", vfs=layer.name)
    journal.commit([message(1)], admits=True, reserve_bytes=2_048)
    layer.quota_bytes = layer.used_bytes
    number, refusal = 1, None
    while refusal is None:
        try:
            number += 1
            journal.commit([message(number, size=8_000)], admits=True, reserve_bytes=number * 2_048)
        except StoreFull as error:
            refusal = error
    assert (refusal.code, refusal.is_retryable) == ("QUEUE_FULL", True)
    assert len(journal.load()) == number - 1
    for finished in range(1, number):
        finish(journal, finished)
    assert journal.doubt == ""
    layer.quota_bytes = None
    journal.commit([message(number, size=8_000)], admits=True, reserve_bytes=2_048)
    assert journal.reopen()[-1] == message(number, size=8_000)
    journal.close()
    layer.close()


@pytest.mark.clause("K5")
def test_no_space_at_any_write_of_a_commit_is_definite(place: Path) -> None:
    """ENOSPC at the n-th write, for every n: stored or refused, and the next commit works."""
    counted = FaultyVfs()
    journal = Journal.open(str(place), INSTANCE, "s", vfs=counted.name)
    before = counted.counts["write"]
    journal.commit([message(1, size=9_000), message(2)], admits=True, reserve_bytes=4_096)
    write_count = counted.counts["write"] - before
    journal.close()
    counted.close()
    # Growing takes hundreds of writes that are alike; the transaction's own are the last ones.
    for number in [*range(0, write_count - 30, 17), *range(write_count - 30, write_count + 1)]:
        shutil.rmtree(place, ignore_errors=True)
        layer = FaultyVfs()
        journal = Journal.open(str(place), INSTANCE, "s", vfs=layer.name)
        layer.fail("write", number, errno.ENOSPC)
        try:
            journal.commit([message(1, size=9_000), message(2)], admits=True, reserve_bytes=4_096)
            is_stored = True
        except StoreFull:
            is_stored = False
        expected = [message(1, size=9_000), message(2)] if is_stored else []
        assert journal.load() == expected
        journal.commit([message(3)], admits=True)
        assert journal.reopen() == [*expected, message(3)]
        journal.close()
        layer.close()


@pytest.mark.clause("K5")
def test_file_size_limit_is_a_refusal_of_space(place: Path, home: Path) -> None:
    """A limit or quota, told as a failed write, is a definite no like a full disk."""
    journal = Journal.open(str(place), INSTANCE, "s")
    journal.commit([message(1)], admits=True)
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * FILLER_BYTES, kept[1]))
    try:
        with pytest.raises(StoreFull):
            journal.commit([message(2)], admits=True, reserve_bytes=4 * FILLER_BYTES)
        journal.commit([move(3, 1)], admits=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert journal.doubt == ""
    journal.commit([message(4)], admits=True, reserve_bytes=4 * FILLER_BYTES)
    assert journal.reopen() == [message(1), move(3, 1), message(4)]
    journal.close()


@pytest.mark.clause("K5", "K6")
def test_size_limit_at_the_log_lets_transitions_end(place: Path) -> None:
    """When the log may not grow by a byte, new mail and transitions both go on in the log's own space."""
    journal = Journal.open(str(place), INSTANCE, "s")
    journal.commit([message(1)], admits=True, reserve_bytes=200_000)
    journal.commit([message(2)], admits=True, reserve_bytes=200_000)
    size = (place / "messages.db-wal").stat().st_size
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, kept[1]))
    try:
        for cursor in range(3, 300):
            journal.commit([move(cursor, 1)], admits=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert journal.doubt == ""
    assert (place / "messages.db-wal").stat().st_size == size
    assert len(journal.reopen()) == 299
    journal.close()


def test_first_mail_grows_both_files_and_none_before(opener: Opener, place: Path) -> None:
    """A root that never gets mail keeps a small directory."""
    journal = opener()
    assert (place / "messages.db-wal").stat().st_size < 200_000
    journal.commit([message(1)], admits=True)
    for name in ("messages.db", "messages.db-wal"):
        assert (place / name).stat().st_size >= FILLER_BYTES


def test_log_in_steady_state_is_overwritten_not_grown(opener: Opener, place: Path) -> None:
    """With pauses between groups the log never grows, however many rows pass."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    size = (place / "messages.db-wal").stat().st_size
    for cursor in range(2, 400):
        journal.commit([message(cursor, size=500)], admits=True, reserve_bytes=2_048)
        if cursor % 20 == 0:
            journal.checkpoint()
    assert (place / "messages.db-wal").stat().st_size == size


def test_checkpoint_is_due_when_the_log_is_large(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is copied at a size, not after each group and not in each pause."""
    monkeypatch.setattr(module, "CHECKPOINT_BYTES", 100_000)
    journal = opener()
    journal.commit([message(1)], admits=True)
    assert not journal.is_pause_useful
    assert not journal.is_checkpoint_due
    journal.commit([message(cursor, size=2_000) for cursor in range(2, 45)], admits=True)
    assert journal.is_checkpoint_due
    assert not journal.is_pause_useful
    journal.commit([message(cursor, size=8_000) for cursor in range(45, 90)], admits=True)
    assert journal.is_pause_useful
    journal.checkpoint()
    assert not journal.is_pause_useful
    assert not journal.is_checkpoint_due


def test_pause_is_not_useful_again_while_a_full_disk_stops_the_copy(opener: Opener, layer: FaultyVfs) -> None:
    """A log that cannot be copied is tried again when it has grown, not in every pause."""
    journal = opener(vfs=layer.name)
    journal.commit([message(1)], admits=True)
    journal.commit([message(2, size=PAUSE_BYTES)], admits=True)
    assert journal.is_pause_useful
    layer.fail("write", 0, errno.ENOSPC)
    journal.checkpoint()
    assert journal.doubt == ""
    assert not journal.is_pause_useful
    journal.commit([message(3)], admits=True)
    assert journal.is_pause_useful
    journal.checkpoint()
    assert journal.load() == [message(1), message(2, size=PAUSE_BYTES), message(3)]


@pytest.mark.clause("O46", "K17")
def test_directory_exchanged_in_use_is_noticed(opener: Opener, place: Path) -> None:
    """A copy of the whole directory put in its place splits nothing: the next commit is in doubt."""
    journal = opener()
    journal.commit([message(1)], admits=True)
    place.rename(place.with_name("taken"))
    shutil.copytree(place.with_name("taken"), place)
    with pytest.raises(RecoveryRequired):
        journal.commit([message(2)], admits=True)
