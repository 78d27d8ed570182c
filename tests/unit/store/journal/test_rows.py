"""Rows of the contract as rows of the database."""

import apsw
import pytest
from msgspec.structs import replace

from tests.faults.rows import every_kind, message, move
from tieline.engine.contract import MoveRow, MuteRow, PruneRow, RunRow
from tieline.errors import RecoveryRequired, Refused
from tieline.store.journal import rows
from tieline.store.journal.database import create_schema
from tieline.store.journal.rows import (
    Bound,
    _checksum,
    bound,
    content_size,
    insert,
    message_envelope,
    read_portion,
    read_rows,
    remove_pruned,
)


@pytest.fixture
def connection() -> apsw.Connection:
    """Return a database in memory with the tables."""
    opened = apsw.Connection(":memory:")
    create_schema(opened, "i")
    return opened


def store(connection: apsw.Connection, rows: list, after: int = 0) -> None:
    """Insert rows, numbered on from `after`."""
    insert(connection, [bound(row, after + at) for at, row in enumerate(rows, 1)])


@pytest.mark.clause("I5", "native-176")
def test_rows_of_every_kind_read_back_equal(connection: apsw.Connection) -> None:
    """What is read is what was written, field for field and in order."""
    rows = every_kind()
    store(connection, rows)
    assert read_rows(connection, "f") == (rows, len(rows))


def test_rows_of_held_mail_read_back_held(connection: apsw.Connection) -> None:
    """What waits for a person's consent is never read as accepted."""
    rows = [replace(message(1), is_held=True), message(2)]
    store(connection, rows)
    assert read_rows(connection, "f").rows == rows


def test_rows_of_a_box_that_only_a_newer_version_knows_are_refused(connection: apsw.Connection) -> None:
    """As an older version refuses held mail: whole, and not understood."""
    table, columns = bound(message(1), 1)
    changed = (*columns[:2], "elsewhere", *columns[3:-1])
    insert(connection, [Bound(table, (*changed, _checksum(table, changed)))])
    with pytest.raises(Refused) as caught:
        read_rows(connection, "f")
    assert caught.value.code == "VERSION_SKEW"


def test_rows_in_a_large_group_read_back_equal(connection: apsw.Connection) -> None:
    """Groups of any size take statements of several lengths and lose nothing."""
    rows = [message(cursor) for cursor in range(1, 204)]
    store(connection, rows)
    assert read_rows(connection, "f").rows == rows


@pytest.mark.parametrize("table", ["message", "move", "context", "run", "mute"])
@pytest.mark.clause("K17")
def test_rows_changed_in_any_column_are_refused(connection: apsw.Connection, table: str) -> None:
    """No column of any table can be changed without the checksum telling."""
    store(connection, every_kind())
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        connection.execute("SAVEPOINT before")
        connection.execute(
            f"UPDATE {table} SET {column} = CASE typeof({column}) WHEN 'integer' THEN {column} + 1000"
            f" WHEN 'blob' THEN CAST({column} || 'x' AS BLOB) ELSE coalesce({column}, '') || '7' END"
            f" WHERE rowid = (SELECT max(rowid) FROM {table})"
        )
        with pytest.raises(RecoveryRequired, match="f: "):
            read_rows(connection, "f")
        connection.execute("ROLLBACK TO before")
        connection.execute("RELEASE before")
    assert read_rows(connection, "f").position == len(every_kind())


@pytest.mark.clause("K17", "I1")
def test_rows_with_one_missing_are_refused(connection: apsw.Connection) -> None:
    """A row that vanished is noticed although each of the others is whole."""
    store(connection, [message(1), move(2, 1), message(3)])
    connection.execute("DELETE FROM move")
    with pytest.raises(RecoveryRequired, match="row 2 is missing"):
        read_rows(connection, "f")


@pytest.mark.clause("K26")
def test_row_of_an_unknown_state_is_newer_not_damaged(connection: apsw.Connection) -> None:
    """A whole row that says an unknown word is a newer version's."""
    store(connection, [message(1)])
    columns = [*bound(move(2, 1), 2).columns[:-1]]
    columns[3] = "teleported"
    connection.execute(
        "INSERT INTO move VALUES (" + ",".join("?" * 16) + ")", (*columns, _checksum("move", columns))
    )
    with pytest.raises(Refused) as refused:
        read_rows(connection, "f")
    assert refused.value.code == "VERSION_SKEW"


@pytest.mark.clause("native-3.6.1", "I7")
def test_prune_removes_what_it_names_and_keeps_last_moves(connection: apsw.Connection) -> None:
    """A prune takes the named messages with all their rows, and only moves that a later one replaced."""
    rows = [
        message(1), move(2, 1, note="prepared"), move(3, 1),
        message(4), move(5, 4, note="prepared"), move(6, 4, note="released"), move(7, 4),
        RunRow("r", "a", (), True, 1), RunRow("r", "a", (), False, 2),
        MuteRow("p", True), MuteRow("p", False),
    ]  # fmt: skip
    store(connection, rows)
    prune = PruneRow((1,), 6, 5)
    store(connection, [prune, message(8)], after=len(rows))
    remove_pruned(connection, prune, len(rows) + 1)
    kept = read_rows(connection, "f")
    assert kept.rows == [message(4), move(7, 4), rows[8], rows[10], PruneRow((), 6, 5), message(8)]
    assert kept.position == 13


def test_prune_keeps_an_only_move_however_old(connection: apsw.Connection) -> None:
    """The last move of a record is its state and stays."""
    store(connection, [message(1), move(2, 1)])
    prune = PruneRow((), 1_000, 1_000)
    store(connection, [prune], after=2)
    remove_pruned(connection, prune, 3)
    assert any(isinstance(row, MoveRow) for row in read_rows(connection, "f").rows)


@pytest.mark.clause("I12")
def test_second_prune_replaces_the_first(connection: apsw.Connection) -> None:
    """One prune row is kept, so that it does not grow with the years."""
    for position in (1, 2):
        prune = PruneRow((), position, position)
        store(connection, [prune], after=position - 1)
        remove_pruned(connection, prune, position)
    assert read_rows(connection, "f").rows == [PruneRow((), 2, 2)]


def test_move_of_a_missing_message_is_refused(connection: apsw.Connection) -> None:
    """A row that names a message which is not there is damage."""
    store(connection, [move(2, 1)])
    with pytest.raises(RecoveryRequired, match="message 1 is missing"):
        read_rows(connection, "f")


def test_envelope_is_read_alone_and_none_when_pruned(connection: apsw.Connection) -> None:
    """One message's envelope can be read by its cursor; a damaged one is refused."""
    store(connection, [message(1)])
    assert message_envelope(connection, 1, "f") == message(1).envelope
    assert message_envelope(connection, 2, "f") is None
    connection.execute("UPDATE message SET envelope = CAST('{}' AS BLOB)")
    with pytest.raises(RecoveryRequired):
        message_envelope(connection, 1, "f")


def test_content_size_is_not_below_what_is_bound() -> None:
    """The estimate of room covers every text and every byte string of a row."""
    for position, row in enumerate(every_kind(), 1):
        line = bound(row, position)
        assert content_size(line) > sum(
            len(value) for value in line.columns if isinstance(value, bytes | str)
        )


def test_portions_read_on_until_all_is_read(
    monkeypatch: pytest.MonkeyPatch, connection: apsw.Connection
) -> None:
    """Messages and moves come in their orders, each once, also when both are cut; then nothing is left."""
    monkeypatch.setattr(rows, "PORTION_ROWS_MAX", 2)
    messages = [message(at, size=50) for at in (1, 2, 3, 4, 5)]
    moves = [move(at, at - 5) for at in (6, 7, 8)]
    store(connection, [*messages, *moves])
    found: list = []
    places = (0, 0)
    for _ in range(9):
        read = read_portion(connection, "f", *places)
        found += [*read.messages, *read.moves]
        places = (read.message_after, read.move_after)
        if read.is_last:
            break
    assert sorted(found, key=lambda row: row.cursor) == [*messages, *moves]
    assert read_portion(connection, "f", *places)[:2] == ((), ())
    monkeypatch.setattr(rows, "PORTION_ROWS_MAX", 100)
    monkeypatch.setattr(rows, "PORTION_BYTES", 10)
    assert len(read_portion(connection, "f", 0, 0).messages) == 1


def test_portion_with_a_damaged_row_is_refused(connection: apsw.Connection) -> None:
    """What does not match its checksum is shown to nobody."""
    store(connection, [message(1), move(2, 1)])
    connection.execute("UPDATE move SET outcome = 'other'")
    with pytest.raises(RecoveryRequired, match="row 2 of move"):
        read_portion(connection, "f", 0, 0)
