"""Rebuild one root's custody from its stored rows.

Rule 1: the same rows give the same records, in whatever order they were loaded.
Rule 2: what was under way goes on: every step of it may be repeated without harm.
Rule 3: what may not leave twice and may have left is off its route, as if it had.
Rule 4: the numbers of attempts, and what a far end has confirmed, outlive a restore.

Source: reference/reliability.md I1, I3, I50; reference/native.md 3.4.
"""

from collections.abc import Iterable

import msgspec

from tieline.config import PREPARED_MS
from tieline.engine.contract import Box, ContextRow, MessageRow, MoveRow, MuteRow, PruneRow, Row, RunRow
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.timers import TimerKind
from tieline.engine.messaging.underway import Errand, Exposure
from tieline.machine.inbox import Stage
from tieline.model.moment import Moment
from tieline.model.receipt import State

__all__ = ["rebuild"]


def rebuild(custody: Custody, rows: Iterable[Row], first_cursor: int, now: Moment) -> None:
    """Build all anew from stored rows, in whatever order they were loaded."""
    unsent = {cursor for cursor, record in custody.records.items() if _is_unsent(record)}
    told = {cursor: record.told_cursor for cursor, record in custody.records.items() if record.told_cursor}
    arrivals = {owner: mailbox.arrivals for owner, mailbox in custody.mailboxes.items()}
    generation = custody.arrival_generation
    moves: list[MessageRow | MoveRow | ContextRow] = []
    others: list[RunRow | MuteRow] = []
    prunes: list[PruneRow] = []
    # What was decided and not stored may have been read already: its numbers are never given again.
    latest = max(first_cursor, custody.latest_cursor)
    for row in rows:
        if isinstance(row, MessageRow | MoveRow | ContextRow):
            moves.append(row)
            latest = max(latest, row.cursor)
        elif isinstance(row, PruneRow):
            prunes.append(row)
            latest = max(latest, row.oldest_cursor - 1)
        else:
            others.append(row)
    moves.sort(key=lambda row: row.cursor)
    custody.forget(latest)
    custody.budgets.forget_records(latest)
    # A refused message may have been tried again: its text goes only when all its moves are known.
    custody.is_rebuilding = True
    custody.history.oldest_cursor = max((row.oldest_cursor for row in prunes), default=1)
    for other in others:
        custody.apply(other, now, now.mono_ms)
    for move in moves:
        custody.apply(move, now, min(now.mono_ms, _happened_ms(move, now)))
    for prune in prunes:
        custody.apply(prune, now, now.mono_ms)
    custody.is_rebuilding = False
    _resume(custody, told, unsent, now)
    custody.arrival_generation = generation + 1
    for owner, mailbox in custody.mailboxes.items():
        mailbox.arrivals = arrivals.get(owner, 0) + 1


def _happened_ms(row: MessageRow | MoveRow | ContextRow, now: Moment) -> int:
    """Return when a row was decided, in monotonic milliseconds."""
    if isinstance(row, MessageRow) and row.box is Box.OUT:
        # Both ends of its life were set by our own clocks, so no jump of the wall clock moves it (K9).
        return row.deadline_ms - (row.expires_ms - row.at_ms)
    # Other rows hold wall time only; their age against the wall clock of now is the best there is.
    return now.mono_ms - max(0, now.wall_ms - row.at_ms)


def _is_unsent(record: Record) -> bool:
    """Return whether it is certain that not one byte of a sent message ever left, nor is about to."""
    transit = record.transit
    return transit is not None and not transit.may_have_left and not transit.attempt


def _hold_back(custody: Custody, unsent: set[int]) -> None:
    """Take off its route what may not leave twice, unless this process knows that it never left.

    An attempt may have been ordered and its end not stored. It cannot be asked for where nobody answers, so
    it counts as made.
    """
    for cursor, record in custody.records.items():
        transit = record.transit
        if transit is None or not record.is_once:
            continue
        if cursor in unsent and record.known.state is State.PENDING:
            transit.may_have_left = transit.is_in_question = False
            continue
        transit.is_lapsed = True
        custody.leave_route(record)
        if record.known.state is State.PENDING:
            custody.unsure.append(cursor)


def _resume(custody: Custody, told: dict[int, int], unsent: set[int], now: Moment) -> None:
    """Set going again what was under way; every step of it may be repeated without harm."""
    # Attempts that began before may still end: their numbers stay known once, uncounted.
    custody.flights = {
        attempt: msgspec.structs.replace(flight, is_earlier=True)
        for attempt, flight in custody.flights.items()
        if not flight.is_earlier
    }
    custody.lapsed.clear()
    custody.evident.clear()
    prepared: dict[str, list[int]] = {}
    for cursor, record in custody.records.items():
        record.trim()
        # What our own root was told may have been lost with its rows. It is told again all the same:
        # the move that follows has a cursor above every one that was ever given.
        record.told_cursor = told.get(cursor, 0)
        if record.transit is not None:
            record.transit.may_have_left = True  # an attempt may have been under way
            record.transit.is_in_question = True
            record.transit.retry_at_ms = now.mono_ms
        if record.token is not None and record.stage is Stage.PREPARED:
            prepared.setdefault(record.token, []).append(cursor)
        if record.owes_receipt:
            instance = record.envelope.sender.instance
            custody.courier(instance).queue[Errand.RECEIPT, cursor] = None
    _hold_back(custody, unsent)
    for route in custody.routes.values():
        custody.timers.add(now.mono_ms, TimerKind.RETRY, cursor=route[0])
    for token, cursors in prepared.items():
        owner = custody.records[cursors[0]].envelope.recipient
        custody.exposures[token] = Exposure(owner, tuple(cursors), now.mono_ms + PREPARED_MS)
        custody.timers.add(now.mono_ms + PREPARED_MS, TimerKind.TOKEN, name=token)
    for instance, courier in custody.couriers.items():
        courier.retry_at_ms = now.mono_ms
        custody.timers.add(now.mono_ms, TimerKind.COURIER, name=instance)
    custody.asking.clear()
    for instance in custody.questions:
        custody.timers.add(now.mono_ms, TimerKind.DIRECTORY, name=instance)
    # The first tick also forgets what is old, consumes what only the context journal shows, and writes that
    # what may not leave twice may have left.
    is_due = len(custody.history) or custody.prune_heap or custody.recorded
    custody.next_prune_ms = now.mono_ms if is_due else None
