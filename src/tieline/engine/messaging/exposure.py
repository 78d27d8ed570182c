"""How mail reaches a model: prepared under a token, then taken on evidence, or given back.

Rule 1: at most one exposure of a message is in flight.
Rule 2: the context journal is written before the consumed move, in one transaction.
Rule 3: a token without evidence is given back after the time that its reader named; showing its mail
again is counted. Evidence that comes later still counts: at once, or when whoever shows the mail by then
gives it back.

Source: DESIGN.md 3 "Exposure and consumption"; reference/native.md 2.8, 3.4 "context rendering";
reference/reliability.md I9, I16.
"""

from collections.abc import Iterable, Iterator

from tieline.engine import conversation
from tieline.engine.contract import Box, Expose, Held
from tieline.engine.messaging import courier
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.timers import TimerKind
from tieline.engine.messaging.turn import Turn
from tieline.engine.messaging.underway import Exposure
from tieline.errors import Refusal
from tieline.machine.inbox import BUSY, Stage, Step
from tieline.model.message import Delivery

__all__ = ["LAPSED_MAX", "expose", "lapse", "reconcile", "release", "take"]

LAPSED_MAX = 256
"""Tokens whose evidence may still come; it is a help, and the oldest goes."""


def expose(turn: Turn, command: Expose) -> None:
    """Prepare mail for the model and answer with it, oldest first."""
    custody = turn.custody
    owner = command.owner.id
    if command.token in custody.exposures:
        turn.refuse(Refusal("RESOURCE_BUSY", "this token holds another exposure", is_retryable=True))
        return
    chosen: list[Record] = []
    size_bytes = 0
    for record in _candidates(custody, command):
        if (record.stage, Step.PREPARE) in BUSY:
            turn.refuse(Refusal("RESOURCE_BUSY", "another reader has this message", is_retryable=True))
            return
        if len(chosen) >= command.count_max:
            break
        if not _fits(turn, record, command):
            continue
        size_bytes += record.envelope.content_bytes
        if chosen and size_bytes > command.bytes_max:
            break
        chosen.append(record)
    held: list[Held] = []
    for record in chosen:
        if record.exposure_count:
            custody.count("re_exposed")
        turn.move_received(record, Step.PREPARE, token=command.token)
        held.append(record.held())
    if chosen:
        due_ms = turn.now.mono_ms + command.evidence_ms
        cursors = tuple(record.cursor for record in chosen)
        custody.exposures[command.token] = Exposure(command.owner, cursors, due_ms)
        custody.timers.add(due_ms, TimerKind.TOKEN, name=command.token)
        custody.budgets.expose(owner, command.token, chosen[-1].envelope.automatic_depth)
        custody.count("exposed", len(chosen))
    turn.answer = tuple(held)


def _candidates(custody: Custody, command: Expose) -> Iterator[Record]:
    """Yield the records that a reader may mean, oldest first."""
    mailbox = custody.mailboxes.get(command.owner.id)
    if mailbox is None:
        return
    cursors: Iterable[int] = mailbox.unread if command.cursors is None else sorted(set(command.cursors))
    for cursor in cursors:
        record = custody.records.get(cursor)
        if record is not None and record.box is Box.IN and record.owner == command.owner.id:
            yield record


def _fits(turn: Turn, record: Record, command: Expose) -> bool:
    """Return whether a record may be shown by this reader now."""
    if record.stage is not Stage.ACCEPTED or record.deadline_ms <= turn.now.mono_ms:
        return False
    if record.cursor in turn.custody.recorded:  # the context has it; what is missing is the move
        return False
    if command.only_steer:
        return record.envelope.delivery is Delivery.STEER
    return command.with_passive or record.envelope.delivery is not Delivery.PASSIVE


def take(turn: Turn, token: str) -> int:
    """The context holds what a token prepared: consume it; return how many records that were."""
    custody = turn.custody
    late = custody.lapsed.pop(token, ())
    exposure = custody.exposures.pop(token, None)
    cursors = late if exposure is None else exposure.cursors
    taken = 0
    for record in [custody.records[cursor] for cursor in cursors if cursor in custody.records]:
        if late and record.stage is Stage.ACCEPTED:
            turn.move_received(record, Step.PREPARE, token=token)
        if record.token == token:
            taken += _consume(turn, record, token)
        elif record.stage is Stage.PREPARED:
            custody.evident.add(record.cursor)
    return taken


def _consume(turn: Turn, record: Record, token: str) -> bool:
    turn.record_context(record, conversation.context_record(record.envelope), token)
    if not turn.move_received(record, Step.CONSUME):
        return False
    turn.custody.evident.discard(record.cursor)
    turn.custody.count("consumed")
    courier.owe(turn, record)
    return True


def release(turn: Turn, token: str) -> int:
    """An exposure failed: give its mail back; return how many records that were."""
    custody = turn.custody
    exposure = custody.exposures.pop(token, None)
    if exposure is None:
        return 0
    custody.budgets.unexpose(exposure.owner.id, token)
    freed = 0
    for cursor in exposure.cursors:
        record = custody.records.get(cursor)
        if record is not None and record.token == token:
            if cursor in custody.evident:
                _consume(turn, record, token)
            else:
                freed += turn.move_received(record, Step.RELEASE)
    return freed


def lapse(turn: Turn, token: str) -> int:
    """An exposure shows no evidence in time: give its mail back; return how many records that were."""
    lapsed, exposure = turn.custody.lapsed, turn.custody.exposures.get(token)
    if exposure is None:
        return 0
    lapsed[token] = exposure.cursors
    while len(lapsed) > LAPSED_MAX:
        del lapsed[next(iter(lapsed))]
    return release(turn, token)


def reconcile(turn: Turn) -> None:
    """Consume what the stored context journal holds, though the move to `consumed` was lost."""
    custody = turn.custody
    for cursor, token in list(custody.recorded.items()):
        record = custody.records[cursor]
        if record.stage is Stage.ACCEPTED:
            turn.move_received(record, Step.PREPARE, token=token)
        if turn.move_received(record, Step.CONSUME):
            custody.count("reconciled")
            courier.owe(turn, record)
