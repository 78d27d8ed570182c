"""What a root's journal says, portion by portion, for a reader who puts several roots together.

Rule 1: a reader names the places up to which it has read, and is told only what came behind them.
Rule 2: the text of a message that waits for the person's word is nobody's yet: it is left out.

Source: DESIGN.md 2 "Doors of a root"; reference/native.md 2.8.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from tieline.engine.contract import MessageRow, MoveRow
from tieline.errors import Refused
from tieline.model.identity import Peer
from tieline.runtime.calls import Actor, Params, Reply

if TYPE_CHECKING:
    from tieline.runtime.node import Node

__all__ = ["TABLE", "Records", "moves_of", "names_of", "records"]


class Records(Params, frozen=True):
    """`local.records`: what is behind these two places; 0 is the beginning."""

    message_after: int = 0
    move_after: int = 0


class Read(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The answer of `local.records`: rows as the engine stores them, and where to read on."""

    messages: tuple[MessageRow, ...]
    moves: tuple[MoveRow, ...]
    names: dict[str, str]
    message_after: int
    move_after: int
    is_last: bool


def names_of(node: "Node") -> dict[str, str]:
    """Return the aliases of this root and its live runs, by peer id."""
    runs = {Peer(node.instance, item.run).id: item.alias for item in node.engine.live_runs()}
    return {Peer(node.instance).id: node.alias, **runs}


def moves_of(moves: Iterable[MoveRow]) -> tuple[MoveRow, ...]:
    """Return the moves that a receipt states, without those of an exposure."""
    return tuple(move for move in moves if not move.note)


async def records(node: "Node", _actor: Actor, asked: Records, _call: str | None) -> Reply:
    """Return the next messages and moves of this root's journal.

    Raises:
        Refused: INVALID_PARAMS, a place is negative.
        RecoveryRequired: the journal is in doubt.
    """
    if asked.message_after < 0 or asked.move_after < 0:
        raise Refused("INVALID_PARAMS", "a place is a whole number from 0")
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(None, node.custody.portion, asked.message_after, asked.move_after)
    waiting = {item.cursor for owner in node.owners() for item in node.engine.awaiting(owner)}
    read = Read(
        messages=tuple(_shown(row, is_waiting=row.cursor in waiting) for row in found.messages),
        moves=tuple(msgspec.structs.replace(move, token=None) for move in moves_of(found.moves)),
        names=names_of(node),
        message_after=found.message_after,
        move_after=found.move_after,
        is_last=found.is_last,
    )
    shape: dict[str, Any] = msgspec.to_builtins(read)
    return Reply(shape)


def _shown(row: MessageRow, *, is_waiting: bool) -> MessageRow:
    """Return a row without its digest, and without its text while that waits for the person's word."""
    envelope = row.envelope
    if is_waiting:
        envelope = msgspec.structs.replace(envelope, content="", topic=None)
    return msgspec.structs.replace(
        row, digest=b"", envelope=msgspec.structs.replace(envelope, attachments=())
    )


TABLE: dict[str, Any] = {"local.records": (Records, records)}
