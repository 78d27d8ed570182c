"""What ended instances left is removed when nothing is lost by it, and never otherwise."""

import os
from pathlib import Path

import pytest

from tests.faults.rows import AT_MS, message, move
from tests.unit.store.conftest import INSTANCE, LATER_MS, RETENTION_MS, Maker
from tieline.engine.contract import Box, Row
from tieline.errors import RecoveryRequired, Refused
from tieline.store import removal
from tieline.store.files import open_directory
from tieline.store.recovery import ended, recover
from tieline.store.removal import discard, forget, housekeep


@pytest.mark.clause("native-3.6.18", "I7")
@pytest.mark.parametrize(
    "row", [message(1), message(1, box=Box.OUT)], ids=["unread mail", "an unsettled send"]
)
def test_forget_refuses_what_is_unread_unless_told(home: Path, make: Maker, row: Row) -> None:
    """Mail that nobody read goes only when somebody says so."""
    place = make([row])
    with pytest.raises(Refused) as refused:
        forget(str(home), INSTANCE, with_unread=False, now_ms=LATER_MS)
    assert refused.value.code == "UNREAD_MAIL"
    assert recover(str(home), INSTANCE).message_count == 1
    forget(str(home), INSTANCE, with_unread=True, now_ms=LATER_MS)
    assert not place.exists()


def test_forget_removes_an_instance_whose_mail_was_read(home: Path, make: Maker) -> None:
    """Finished records need no second word."""
    place = make([message(1), move(2, 1)])
    forget(str(home), INSTANCE, with_unread=False, now_ms=LATER_MS)
    assert not place.exists()
    assert ended(str(home)) == []


@pytest.mark.clause("native-3.6.18")
def test_housekeeping_removes_only_what_is_final_and_past_retention(home: Path, make: Maker) -> None:
    """Retention is counted from the moment at which the last record could still change."""
    make([message(1), move(2, 1)], "read-1")
    make([message(1)], "unread-1")
    make([], "empty-1")
    damaged = make([message(1), move(2, 1)], "damaged-1")
    (damaged / "messages.db").write_bytes(b"x")
    # An empty one holds nothing that anybody could ask for.
    assert housekeep(str(home), RETENTION_MS, AT_MS + RETENTION_MS) == ["empty-1"]
    assert housekeep(str(home), RETENTION_MS, AT_MS + RETENTION_MS + 1_000) == ["read-1"]
    assert housekeep(str(home), RETENTION_MS, LATER_MS) == ["unread-1"]
    assert damaged.exists()


@pytest.mark.clause("K1")
def test_housekeeping_finishes_an_interrupted_removal(
    home: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that died half-way is never seen as a damaged instance, and is ended later."""
    make([message(1), move(2, 1)])

    def die(path: Path) -> None:
        (path / "messages.db").unlink()
        raise OSError("died")

    with monkeypatch.context() as patched:
        patched.setattr(removal, "_remove_forgotten", die)
        with pytest.raises(RecoveryRequired):
            forget(str(home), INSTANCE, with_unread=False, now_ms=LATER_MS)
    assert ended(str(home)) == []
    housekeep(str(home), RETENTION_MS, AT_MS)
    assert os.listdir(home / "peer-messages") == []


def left_unfinished(home: Path, make: Maker, seam: str, instance: str = INSTANCE) -> Path:
    """Leave what a root leaves that was killed at `seam`, or before it took its lock."""
    place = make([], instance, is_killed=True)
    (place / "identity.json").unlink()
    if seam in ("journal.database_created", "no lock"):
        if seam == "no lock":
            (place / "lock").unlink()
        return place
    (place / "witness").unlink()
    if seam == "before the tables":
        (place / "messages.db").write_bytes(b"")
    return place


@pytest.mark.clause("native-3.6.18")
@pytest.mark.parametrize("seam", ["journal.database_created", "before the witness", "before the tables"])
def test_housekeeping_removes_what_was_never_finished(home: Path, make: Maker, seam: str) -> None:
    """What was cut off in the making held no mail: it is no ended instance, and goes within ten minutes."""
    place = left_unfinished(home, make, seam)
    made_ms = place.stat().st_mtime_ns // 1_000_000
    assert ended(str(home)) == []
    if seam != "journal.database_created":  # its tables and its lock show that nobody makes it any more
        assert housekeep(str(home), RETENTION_MS, made_ms + 599_000) == []
    assert housekeep(str(home), RETENTION_MS, made_ms + 601_000) == [INSTANCE]
    assert not place.exists()


def test_housekeeping_removes_an_unfinished_one_without_a_lock(home: Path, make: Maker) -> None:
    """Its maker takes the lock first of all: where there is none after ten minutes, nobody will."""
    place = home / "peer-messages" / "bare-1"
    place.mkdir(mode=0o700, parents=True)
    place.parent.chmod(0o700)
    made_ms = place.stat().st_mtime_ns // 1_000_000
    assert ended(str(home)) == []
    assert housekeep(str(home), RETENTION_MS, made_ms) == []
    assert housekeep(str(home), RETENTION_MS, made_ms + 601_000) == ["bare-1"]


@pytest.mark.clause("I6", "I7")
def test_housekeeping_keeps_what_lost_its_identity_and_has_mail(home: Path, make: Maker) -> None:
    """A missing file is no proof that there was no mail; it is listed as damaged."""
    with_mail = make([message(1)], "mail-1")
    (with_mail / "identity.json").unlink()
    grown = make([], "mail-2")
    (grown / "identity.json").unlink()
    (grown / "witness").unlink()
    with (grown / "messages.db").open("ab") as file:
        file.write(bytes(1_048_576))  # as the first stored message makes it
    assert housekeep(str(home), 0, 10 * LATER_MS) == []
    assert [one.instance for one in ended(str(home)) if one.damage] == ["mail-1", "mail-2"]
    for instance in ("mail-1", "mail-2"):
        with pytest.raises(RecoveryRequired):
            forget(str(home), instance, with_unread=True, now_ms=10 * LATER_MS)


def test_housekeeping_leaves_a_store_that_is_being_made_alone(home: Path, make: Maker) -> None:
    """A held lock is a life, however old the directory is."""
    place = left_unfinished(home, make, "journal.database_created")
    with open_directory(str(place), create=False) as directory, directory.lock("lock", 0):
        assert housekeep(str(home), 0, 10 * LATER_MS) == []
        with pytest.raises(Refused) as refused:
            forget(str(home), INSTANCE, with_unread=True, now_ms=10 * LATER_MS)
        assert refused.value.code == "STILL_ALIVE"
    assert place.exists()


def test_forget_removes_what_was_never_finished(home: Path, make: Maker) -> None:
    """A person may name it; what may still be in the making is told from it."""
    place = left_unfinished(home, make, "before the witness")
    made_ms = place.stat().st_mtime_ns // 1_000_000
    with pytest.raises(Refused) as refused:
        forget(str(home), INSTANCE, with_unread=False, now_ms=made_ms)
    assert (refused.value.code, refused.value.is_retryable) == ("RESOURCE_BUSY", True)
    assert forget(str(home), INSTANCE, with_unread=False, now_ms=made_ms + 601_000) is None
    assert not place.exists()
    with pytest.raises(Refused) as refused:
        forget(str(home), INSTANCE, with_unread=False, now_ms=made_ms)
    assert refused.value.code == "UNKNOWN_TARGET"
    assert "tieline recover --all" in refused.value.action


def log_of(home: Path, instance: str, number: str = "") -> Path:
    """Write a log file of an instance."""
    (home / "logs").mkdir(mode=0o700, exist_ok=True)
    path = home / "logs" / f"{instance}.log{number}"
    path.write_text("a line")
    path.chmod(0o600)
    return path


def test_removal_takes_the_log_of_that_instance_alone(home: Path, make: Maker) -> None:
    """Whoever forgets an instance forgets its log, every file of it; others keep theirs."""
    make([message(1), move(2, 1)])
    gone = [log_of(home, INSTANCE), log_of(home, INSTANCE, ".1")]
    kept = [log_of(home, INSTANCE + "0"), log_of(home, "other")]
    forget(str(home), INSTANCE, with_unread=False, now_ms=LATER_MS)
    assert [path.exists() for path in (*gone, *kept)] == [False, False, True, True]


def test_housekeeping_removes_old_logs_of_what_is_no_more(home: Path, make: Maker) -> None:
    """The log of an instance that left nothing else goes after the retention; others stay with the store."""
    make([message(1)])
    stored, alone = log_of(home, INSTANCE), log_of(home, "gone-1")
    foreign = home / "logs" / "notes.txt"
    foreign.write_text("a person's")
    written_ms = alone.stat().st_mtime_ns // 1_000_000
    housekeep(str(home), RETENTION_MS, written_ms + RETENTION_MS - 1)
    assert alone.exists()
    housekeep(str(home), RETENTION_MS, written_ms + RETENTION_MS + 1)
    assert (alone.exists(), foreign.exists()) == (False, True)
    assert stored.exists() == (home / "peer-messages" / INSTANCE).exists()


@pytest.mark.clause("I7")
def test_discard_takes_an_instance_without_a_message_and_no_other(home: Path, make: Maker) -> None:
    """A store goes at its orderly end only when no message was ever in it."""
    make([], "empty-1")
    make([message(1), move(2, 1)], "read-1")
    make([message(1, box=Box.OUT)], "sent-1")
    assert [discard(str(home), name) for name in ("empty-1", "read-1", "sent-1")] == [True, False, False]
    assert [one.instance for one in ended(str(home))] == ["read-1", "sent-1"]


def test_housekeeping_does_not_read_what_was_written_within_the_retention(
    home: Path, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd that ended today costs a root that starts one look at each, not one reading."""
    place = make([message(1), move(2, 1)])
    written_ms = (place / "messages.db").stat().st_mtime_ns // 1_000_000
    read: list[str] = []
    rows_of = removal.stored_rows
    monkeypatch.setattr(
        removal,
        "stored_rows",
        lambda directory, instance: (read.append(instance), rows_of(directory, instance))[1],
    )
    assert housekeep(str(home), RETENTION_MS, written_ms + RETENTION_MS // 2) == []
    assert read == []
    assert housekeep(str(home), RETENTION_MS, written_ms + 2 * RETENTION_MS) == [INSTANCE]
    assert read == [INSTANCE]
