"""Rows of a store, as short as a test needs them."""

from tieline.engine.contract import Box, ContextRow, MessageRow, MoveRow, MuteRow, Row, RunRow
from tieline.model.identity import Peer
from tieline.model.message import Envelope, digest
from tieline.model.receipt import Durability, State

__all__ = ["every_kind", "message", "move"]

AT_MS = 1_700_000_000_000


def message(
    cursor: int, *, box: Box = Box.IN, size: int = 200, expires_ms: int = AT_MS + 600_000
) -> MessageRow:
    """Return a message of about `size` bytes whose content names its cursor."""
    content = (f"{cursor}:" + "x" * size)[: max(size, 12)]
    ours, theirs = Peer("ended-1"), Peer("other-2", "run-3")
    sender, recipient = (theirs, ours) if box is Box.IN else (ours, theirs)
    envelope = Envelope(message_id=f"m-{cursor}", sender=sender, recipient=recipient, content=content)
    return MessageRow(cursor, box, envelope, digest(envelope), AT_MS + cursor, expires_ms, 5_000)


def move(cursor: int, of: int, state: State = State.CONSUMED, note: str = "") -> MoveRow:
    """Return a move of the message whose cursor is `of`."""
    return MoveRow(cursor, of, state, AT_MS + cursor, note=note)


def every_kind() -> list[Row]:
    """Return rows of every kind with every field set."""
    full = MoveRow(
        9,
        1,
        State.REPLIED,
        AT_MS,
        1,
        2,
        3,
        "TARGET_ENDED",
        Durability.SYNCED,
        True,
        "prepared",
        "token",
        4,
        5,
    )
    return [
        message(1),
        message(2, box=Box.OUT, size=9_000),
        full,
        move(10, 2, State.UNKNOWN),
        ContextRow(11, 1, "record", "token", AT_MS),
        RunRow("run-1", "alias", ("message.send", "message.wait"), True, AT_MS),
        RunRow("run-1", "alias", (), False, AT_MS),
        MuteRow("peer-1", True),
        MuteRow("peer-1", False),
    ]
