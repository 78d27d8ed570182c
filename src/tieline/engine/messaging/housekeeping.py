"""What time does: retries, expiries, tokens without evidence, retention.

Rule 1: unresolved records are never removed; finished ones leave after their retention.
Rule 2: a turn handles a bounded number of timers and records; what is left is due at once.

Source: reference/native.md 3.3, 3.4 "retention job"; reference/reliability.md I7, I12, I13, I23.
"""

import heapq

from tieline.config import PRUNE_MS
from tieline.engine.contract import Box, PruneRow
from tieline.engine.messaging import consent, courier, exposure, incoming, outgoing
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.timers import TimerKind
from tieline.engine.messaging.turn import Turn
from tieline.machine.inbox import Stage, Step

__all__ = ["PRUNED_MAX", "TIMERS_MAX", "deadline_ms", "plan_pruning", "tick"]

TIMERS_MAX = 256
PRUNED_MAX = 1_024


def deadline_ms(custody: Custody) -> int | None:
    """Return when the next `Tick` is due, in monotonic milliseconds, or None."""
    due_ms = custody.timers.next_ms(custody.is_armed)
    if custody.next_prune_ms is not None and (due_ms is None or custody.next_prune_ms < due_ms):
        return custody.next_prune_ms
    return due_ms


def tick(turn: Turn) -> None:
    """Do all that is due."""
    custody = turn.custody
    if custody.recorded:
        exposure.reconcile(turn)
    if custody.unsure:
        outgoing.reconcile(turn)
    for _ in range(TIMERS_MAX):
        timer = custody.timers.pop_due(turn.now.mono_ms, custody.is_armed)
        if timer is None:
            break
        _, kind, cursor, name = timer
        if kind is TimerKind.DEADLINE:
            _expire(turn, custody.records[cursor])
        elif kind is TimerKind.RETRY:
            outgoing.advance(turn, custody.records[cursor].route)
        elif kind is TimerKind.TOKEN:
            custody.count("released", exposure.lapse(turn, name))
        elif kind is TimerKind.COURIER:
            courier.pump(turn, name)
        else:
            incoming.ask_again(turn, name)
    if custody.next_prune_ms is not None and custody.next_prune_ms <= turn.now.mono_ms:
        _prune(turn)


def _expire(turn: Turn, record: Record) -> None:
    """The deadline of an open record has come."""
    if record.box is Box.IN:
        if record.stage is Stage.HELD:
            consent.lapse(turn, record)
        elif turn.move_received(record, Step.EXPIRE):
            turn.custody.count("expired")
            courier.owe(turn, record)
    elif record.is_unsettled:
        route = record.route
        outgoing.lapse(turn, record)
        outgoing.advance(turn, route)
    else:
        record.is_overdue = True
        turn.custody.reckon(record, turn.now)


def plan_pruning(custody: Custody, now_ms: int) -> None:
    """Set when something is to be forgotten, if there is anything."""
    if len(custody.history) > custody.limits.events_kept * 5 // 4:
        custody.next_prune_ms = now_ms
    elif custody.next_prune_ms is None:
        first_ms = [custody.prune_heap[0][0]] if custody.prune_heap else []
        oldest_ms = custody.history.oldest_ms()
        if oldest_ms is not None:
            first_ms.append(oldest_ms + custody.limits.retention_ms)
        if first_ms:
            custody.next_prune_ms = max(now_ms + PRUNE_MS, min(first_ms))


def _prune(turn: Turn) -> None:
    """Forget old events, then finished records past their retention."""
    custody, now_ms = turn.custody, turn.now.mono_ms
    through = custody.history.prunable_through(
        custody.limits.events_kept, now_ms - custody.limits.retention_ms
    )
    messages: dict[int, None] = {}
    while custody.prune_heap and custody.prune_heap[0][0] <= now_ms and len(messages) < PRUNED_MAX:
        due_ms, cursor = heapq.heappop(custody.prune_heap)
        record = custody.records.get(cursor)
        if record is not None and not record.is_open and record.prune_due_ms == due_ms:
            messages[cursor] = None
    if messages or through >= custody.history.oldest_cursor:
        turn.write(PruneRow(tuple(messages), through, through + 1), is_urgent=False)
        custody.count("pruned", len(messages))
    custody.next_prune_ms = now_ms if len(messages) >= PRUNED_MAX else None
    custody.budgets.sweep(now_ms)
    custody.pacing.sweep(now_ms)
    burst = custody.limits.rate_burst * 1000
    for instance in list(custody.buckets):
        bucket = custody.buckets[instance]
        if bucket.level + (now_ms - bucket.at_ms) * custody.limits.rate_per_second >= burst:
            del custody.buckets[instance]
    for instance in list(custody.verified):
        if now_ms - custody.verified[instance].at_ms > incoming.VERIFIED_MS:
            del custody.verified[instance]
