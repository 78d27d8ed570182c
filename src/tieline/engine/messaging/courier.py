"""Tell a sender's root where its mail stands, and ask a recipient's root what became of ours.

Theory. Both are small, may be repeated, and concern one instance; so they share its queue, its window
and its patience. A root that does not answer costs one attempt at a time, not one per message.

Rule 1: per instance at most `WINDOW` attempts are under way, one while it fails; per message one.
Rule 2: only the latest receipt of a message is told; what changed meanwhile is told next.
Rule 3: a proven dead instance is told nothing more; of a message that it never answered for we then
    know that it was not delivered, once that message has expired.

Source: reference/native.md 2.6b, 3.3, 3.4; reference/reliability.md I18, I49.
"""

from tieline.engine.contract import AskStatus, Outcome, PushReceipt, Settle
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.timers import TimerKind
from tieline.engine.messaging.turn import Turn
from tieline.engine.messaging.underway import Courier, Errand, Flight
from tieline.machine.outbox import KEPT_CODES, TRANSIENT_CODES, retry_delay_ms, undelivered

__all__ = ["WINDOW", "ask", "owe", "pump", "settle"]

WINDOW = 8
"""Attempts under way per instance, well below the 32 requests that a connection bears."""

UNKNOWN_CODES = frozenset({"SCOPE_DENIED", "UNKNOWN_TARGET"})
"""A recipient that answers so does not know the message id."""


def owe(turn: Turn, record: Record) -> None:
    """The sender of a received message is to be told its present receipt."""
    _queue(turn, record.envelope.sender.instance, Errand.RECEIPT, record.cursor)


def ask(turn: Turn, record: Record) -> None:
    """The recipient of a sent message is to be asked what became of it."""
    _queue(turn, record.envelope.recipient.instance, Errand.STATUS, record.cursor)


def _queue(turn: Turn, instance: str, errand: Errand, cursor: int) -> None:
    courier = turn.custody.courier(instance)
    if (errand, cursor) not in courier.carried:
        courier.queue[errand, cursor] = None
    pump(turn, instance)


def pump(turn: Turn, instance: str) -> None:
    """Send what may be sent to an instance now."""
    custody = turn.custody
    courier = custody.couriers.get(instance)
    if courier is None:
        return
    if courier.retry_at_ms is not None and courier.retry_at_ms > turn.now.mono_ms:
        return
    courier.retry_at_ms = None
    window = 1 if courier.failure_count else WINDOW
    while courier.queue and len(courier.carried) < window:
        (errand, cursor), _ = courier.queue.popitem(last=False)
        record = custody.records.get(cursor)
        if record is None:
            continue
        if errand is Errand.RECEIPT and record.owes_receipt:
            receipt = record.receipt
            attempt = custody.new_attempt(Flight(errand, cursor, instance, receipt.cursor))
            turn.sends.append(PushReceipt(attempt, instance, receipt))
        elif errand is Errand.STATUS and record.is_unsettled:
            envelope = record.envelope
            attempt = custody.new_attempt(Flight(errand, cursor, instance))
            turn.sends.append(
                AskStatus(attempt, instance, envelope.message_id, envelope.recipient.id, envelope.sender.run)
            )
        else:
            continue
        courier.carried[errand, cursor] = None
    if not courier.queue and not courier.carried:
        del custody.couriers[instance]


def settle(turn: Turn, flight: Flight, command: Settle) -> None:
    """End one attempt. What a recipient answered when asked has been taken in before."""
    custody = turn.custody
    courier = custody.courier(flight.instance)
    if not flight.is_earlier:
        courier.carried.pop((flight.errand, flight.cursor), None)
    record = custody.records.get(flight.cursor)
    is_failed = command.outcome in (Outcome.LOST, Outcome.UNREACHED)
    if command.outcome is Outcome.ANSWERED and record is not None:
        if flight.errand is Errand.RECEIPT:
            record.told_cursor = max(record.told_cursor, flight.told_cursor)
        else:
            is_failed = record.is_unsettled  # the answer did not say
    elif command.outcome is Outcome.REFUSED and record is not None:
        is_failed = _refused(turn, record, flight, command)
    if command.is_gone:
        _gone(turn, courier, flight)
    elif is_failed:
        _fail(turn, courier, flight, record)
    else:
        courier.failure_count = 0
        courier.retry_at_ms = None
        if record is not None and record.owes_receipt:
            courier.queue[Errand.RECEIPT, flight.cursor] = None
    pump(turn, flight.instance)


def _refused(turn: Turn, record: Record, flight: Flight, command: Settle) -> bool:
    """A root said no; return whether to try again."""
    refusal = command.refusal
    code = "INVALID_RPC" if refusal is None else refusal.code
    if flight.errand is Errand.STATUS:
        if code in UNKNOWN_CODES:
            known = undelivered(record.known)
            if known is not None:
                turn.custody.count("expired")
                turn.move_sent(record, known)
            return False
        return True
    if code in KEPT_CODES or code in TRANSIENT_CODES or (refusal is not None and refusal.is_retryable):
        return True
    record.told_cursor = max(record.told_cursor, flight.told_cursor)  # it does not want to know
    return False


def _fail(turn: Turn, courier: Courier, flight: Flight, record: Record | None) -> None:
    """Nothing was told; wait, then try again."""
    if record is not None:  # at the end: a message that the far end cannot answer for holds up no other
        courier.queue[flight.errand, flight.cursor] = None
    turn.custody.count("retries")
    if courier.retry_at_ms is not None and courier.retry_at_ms > turn.now.mono_ms:
        return  # several attempts that were under way together are one failure: the wait is set
    courier.failure_count += 1
    delay_ms = retry_delay_ms(flight.instance, courier.failure_count)
    courier.retry_at_ms = turn.now.mono_ms + delay_ms
    turn.custody.timers.add(courier.retry_at_ms, TimerKind.COURIER, name=flight.instance)


def _gone(turn: Turn, courier: Courier, flight: Flight) -> None:
    """The instance is proven dead: nobody is left to tell, and what it was asked for did not arrive."""
    custody = turn.custody
    waiting = [(flight.errand, flight.cursor), *courier.carried, *courier.queue]
    for errand, cursor in waiting:
        record = custody.records.get(cursor)
        if record is None:
            continue
        if errand is Errand.RECEIPT:
            record.told_cursor = record.receipt_cursor
        else:
            known = undelivered(record.known)
            if known is not None:
                custody.count("expired")
                turn.move_sent(record, known)
    courier.queue.clear()
    courier.failure_count = 0
    courier.retry_at_ms = None
