"""Rows of the contract as rows of the database, and back.

Rule 1: what is bound is what is read: `restored(bound(row))` is the same row.
Rule 2: every row carries a checksum over all it says; one that does not match is damage, never a value.
Rule 3: a row that is whole but says something this version does not know is newer, not damaged.
Rule 4: mail that waits for consent is a box of its own here, so that a version which does not know it takes
    the store for newer, never the mail for accepted.
Rule 5: this module opens nothing and decides nothing.

Source: engine/contract.py "what is stored"; reference/reliability.md K17, K26, I5.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, assert_never

import apsw
import msgspec

from tieline.engine.contract import Box, ContextRow, MessageRow, MoveRow, MuteRow, PruneRow, Row, RunRow
from tieline.errors import RecoveryRequired, Refused
from tieline.model.message import Envelope
from tieline.model.receipt import Durability, State

__all__ = [
    "Bound",
    "Portion",
    "Stored",
    "Value",
    "bound",
    "content_size",
    "insert",
    "message_envelope",
    "read_portion",
    "read_rows",
    "remove_pruned",
]

Value = int | str | bytes | None
CHECKSUM_BYTES = 8
_HELD_BOX = "held"
ROW_BYTES = 128
"""What a row takes besides its texts and bytes, at most."""
PORTION_ROWS_MAX = 2_000
PORTION_BYTES = 1_048_576
"""Of envelopes in one portion, about: the last one may lie beyond."""
INSERT_ROWS_MAX = 64
"""Rows of one statement: the interpreter's lock is freed once for all of them."""

_encode_envelope = msgspec.json.Encoder().encode
_decode_words = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_encode_columns = msgspec.msgpack.Encoder().encode


class Bound(NamedTuple):
    """One row as the database takes it: its table, and its columns with the checksum last."""

    table: str
    columns: tuple[Value, ...]


class Stored(NamedTuple):
    """What a database holds: rows in the order of their commits, and the number of the last one."""

    rows: list[Row]
    position: int


class Portion(NamedTuple):
    """Some messages and moves, each in its order; the two places are where to read on."""

    messages: tuple[MessageRow, ...]
    moves: tuple[MoveRow, ...]
    message_after: int
    move_after: int
    is_last: bool


def bound(row: Row, position: int) -> Bound:
    """Return `row` as the database takes it, numbered `position`."""
    table: str
    columns: tuple[Value, ...]
    match row:
        case MessageRow():
            table = "message"
            box = _HELD_BOX if row.is_held else row.box.value
            columns = (
                row.cursor, position, box, row.envelope.message_id, _encode_envelope(row.envelope),
                row.digest, row.at_ms, row.expires_ms, row.deadline_ms, int(row.from_person),
            )  # fmt: skip
        case MoveRow():
            table = "move"
            columns = (
                position, row.cursor, row.message, row.state.value, row.at_ms, row.accepted_ms,
                row.consumed_ms, row.replied_ms, row.outcome,
                None if row.durability is None else row.durability.value,
                int(row.is_retryable), row.note, row.token, row.exposure_count, row.recipient_cursor,
            )  # fmt: skip
        case ContextRow():
            table = "context"
            columns = (position, row.cursor, row.message, row.record, row.token, row.at_ms)
        case RunRow():
            table = "run"
            capabilities = msgspec.json.encode(row.capabilities).decode()
            columns = (position, row.run, row.alias, capabilities, int(row.is_live), row.at_ms)
        case MuteRow():
            table = "mute"
            columns = (position, row.peer, int(row.is_muted))
        case PruneRow():
            table = "prune"
            columns = (position, row.moves_through, row.oldest_cursor)
        case _:
            assert_never(row)
    return Bound(table, (*columns, _checksum(table, columns)))


def content_size(row: Bound) -> int:
    """Return about how many bytes the row takes in the database, at most."""
    size = ROW_BYTES
    for value in row.columns:
        if isinstance(value, bytes | str):
            size += len(value)
    return size


def _checksum(table: str, columns: Sequence[Value]) -> bytes:
    return hashlib.blake2b(_encode_columns((table, *columns)), digest_size=CHECKSUM_BYTES).digest()


# ---------------------------------------------------------------- writing


def insert(connection: apsw.Connection, rows: Iterable[Bound]) -> None:
    """Insert rows with as few statements as their tables allow; the caller holds the transaction."""
    tables: dict[str, list[tuple[Value, ...]]] = {}
    for table, columns in rows:
        tables.setdefault(table, []).append(columns)
    for table, lines in tables.items():
        start = 0
        while start < len(lines):
            # Powers of two, so that the statement cache holds few texts and meets them often.
            count = min(1 << ((len(lines) - start).bit_length() - 1), INSERT_ROWS_MAX)
            values = [value for line in lines[start : start + count] for value in line]
            connection.execute(_insert_text(table, len(lines[start]), count), values)
            start += count


@lru_cache(maxsize=128)
def _insert_text(table: str, column_count: int, row_count: int) -> str:
    line = "(" + ",".join("?" * column_count) + ")"
    return f"INSERT INTO {table} VALUES " + ",".join([line] * row_count)  # noqa: S608 - names of our own tables


def remove_pruned(connection: apsw.Connection, row: PruneRow, position: int) -> None:
    """Remove what `row` forgets, and every row that a later one replaced; its own row stays."""
    messages = msgspec.json.encode(row.messages).decode()
    for table, column in (("message", "cursor"), ("move", "message"), ("context", "message")):
        connection.execute(
            f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))",  # noqa: S608 - our names
            (messages,),
        )
    connection.execute(
        "WITH latest AS MATERIALIZED (SELECT max(position) FROM move GROUP BY message) "
        "DELETE FROM move WHERE cursor <= ? AND position NOT IN latest",
        (row.moves_through,),
    )
    connection.execute(
        "DELETE FROM run WHERE position < ? AND position NOT IN (SELECT max(position) FROM run GROUP BY run)",
        (position,),
    )
    connection.execute(
        "DELETE FROM mute WHERE position < ? AND position NOT IN "
        "(SELECT max(position) FROM mute GROUP BY peer)",
        (position,),
    )
    connection.execute("DELETE FROM prune WHERE position < ?", (position,))


# ---------------------------------------------------------------- reading


def read_rows(connection: apsw.Connection, name: str) -> Stored:
    """Return all rows in the order of their commits, each one verified.

    Args:
        connection: On the database.
        name: Of the file, for messages.

    Raises:
        RecoveryRequired: a row is damaged or missing, or names a message that is not there.
        Refused: `VERSION_SKEW`, a whole row says what only a newer version knows.
        apsw.Error: the database itself cannot be read.

    Source: reference/reliability.md K17, K26.
    """
    numbered: list[tuple[int, Row]] = []
    messages: set[int] = set()
    for table, (at, restore) in _RESTORED.items():
        for columns in connection.execute(f"SELECT * FROM {table} ORDER BY 1"):  # noqa: S608 - our own names
            try:
                row = restore(_verified(table, columns, name))
            except (ValueError, msgspec.MsgspecError) as error:
                raise Refused("VERSION_SKEW", f"{name} holds what a newer version wrote: {error}") from error
            if isinstance(row, MessageRow):
                messages.add(row.cursor)
            numbered.append((columns[at], row))
    numbered.sort(key=lambda pair: pair[0])
    _refuse_gaps(numbered, name)
    for _, row in numbered:
        if isinstance(row, MoveRow | ContextRow) and row.message not in messages:
            raise RecoveryRequired(f"{name}: message {row.message} is missing, which a later row names")
    return Stored([row for _, row in numbered], numbered[-1][0] if numbered else 0)


def _refuse_gaps(numbered: Sequence[tuple[int, Row]], name: str) -> None:
    """Refuse a store from which rows are missing that no prune took."""
    pruned = max((position for position, row in numbered if isinstance(row, PruneRow)), default=0)
    expected = pruned + 1
    for position, _ in numbered:
        if position > pruned:
            if position != expected:
                raise RecoveryRequired(f"{name}: row {expected} is missing")
            expected += 1


def message_envelope(connection: apsw.Connection, cursor: int, name: str) -> Envelope | None:
    """Return the envelope of one message, or None when it was pruned.

    Raises:
        RecoveryRequired: its row is damaged.
    """
    for columns in connection.execute("SELECT * FROM message WHERE cursor = ?", (cursor,)):
        return _decode_envelope(_verified("message", columns, name)[4])
    return None


def read_portion(connection: apsw.Connection, name: str, message_after: int, move_after: int) -> Portion:
    """Return the next messages behind a cursor and the next moves behind a position, as many as are bearable.

    Raises:
        RecoveryRequired: one of these rows is damaged.
    """
    messages: list[MessageRow] = []
    moves: list[MoveRow] = []
    size_bytes = 0
    is_last = True
    text = "SELECT * FROM message WHERE cursor > ? ORDER BY cursor LIMIT ?"
    for columns in connection.execute(text, (message_after, PORTION_ROWS_MAX + 1)):
        if len(messages) == PORTION_ROWS_MAX or size_bytes > PORTION_BYTES:
            is_last = False
            break
        messages.append(_message(_verified("message", columns, name)))
        message_after = columns[0]
        size_bytes += len(columns[4])
    text = "SELECT * FROM move WHERE position > ? ORDER BY position LIMIT ?"
    for columns in connection.execute(text, (move_after, PORTION_ROWS_MAX + 1)):
        if len(moves) == PORTION_ROWS_MAX:
            is_last = False
            break
        moves.append(_move(_verified("move", columns, name)))
        move_after = columns[0]
    return Portion(tuple(messages), tuple(moves), message_after, move_after, is_last)


def _verified(table: str, columns: Sequence[Any], name: str) -> Sequence[Any]:
    if _checksum(table, columns[:-1]) != columns[-1]:
        raise RecoveryRequired(f"{name}: row {columns[0]} of {table} is damaged")
    return columns


def _message(columns: Sequence[Any]) -> MessageRow:
    cursor, _, box, _, envelope, digest, at_ms, expires_ms, deadline_ms, from_person, _ = columns
    return MessageRow(
        cursor,
        Box.IN if box == _HELD_BOX else Box(box),
        _decode_envelope(envelope),
        digest,
        at_ms,
        expires_ms,
        deadline_ms,
        bool(from_person),
        box == _HELD_BOX,
    )


def _move(columns: Sequence[Any]) -> MoveRow:
    fields = dict(zip(MoveRow.__struct_fields__, columns[1:-1], strict=True))
    fields["state"] = State(fields["state"])
    fields["durability"] = None if fields["durability"] is None else Durability(fields["durability"])
    fields["is_retryable"] = bool(fields["is_retryable"])
    return MoveRow(**fields)


def _context(columns: Sequence[Any]) -> Row:
    _, cursor, message, record, token, at_ms, _ = columns
    return ContextRow(cursor, message, record, token, at_ms)


def _run(columns: Sequence[Any]) -> Row:
    _, run, alias, capabilities, is_live, at_ms, _ = columns
    return RunRow(run, alias, _decode_words(capabilities), bool(is_live), at_ms)


def _mute(columns: Sequence[Any]) -> Row:
    return MuteRow(columns[1], bool(columns[2]))


def _prune(columns: Sequence[Any]) -> Row:
    return PruneRow((), columns[1], columns[2])


_RESTORED: dict[str, tuple[int, Callable[[Sequence[Any]], Row]]] = {
    "message": (1, _message),
    "move": (0, _move),
    "context": (0, _context),
    "run": (0, _run),
    "mute": (0, _mute),
    "prune": (0, _prune),
}
"""Each table: which column holds the position, and what makes a row of the contract of its columns."""
