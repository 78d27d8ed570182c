"""The hub: one command in, one plan out.

Rule 1: same commands and moments, same plans, byte for byte.
Rule 2: this module gives each command to the room that knows its rule, and watches the times of all rooms.
Rule 3: what comes over a link without a session is nobody's word: it changes nothing.

Source: specification of the intercom; reference/intercom.md 1.2 to 1.7, 6.3.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from tieline.engine.brokering import arrival, routing
from tieline.engine.brokering.contract import (
    AskCancelled,
    BusPublished,
    Codec,
    Command,
    Delivered,
    Drop,
    ExtensionsTold,
    Failed,
    Join,
    Kept,
    Leave,
    Letter,
    ListAsked,
    Listing,
    Lost,
    MessageCancelled,
    Opened,
    Plan,
    PresenceTold,
    Put,
    ReadAnswered,
    ReadAsked,
    ReceiptPassed,
    ReceiptTold,
    Row,
    SendAsked,
    StateCommitted,
    Tick,
    Unkept,
    WakeTold,
)
from tieline.engine.brokering.features import RECORDED
from tieline.engine.brokering.mailbox import Held
from tieline.engine.brokering.raw import RawSockets
from tieline.engine.brokering.records import Place, Record
from tieline.engine.brokering.sessions import Session
from tieline.engine.brokering.staging import STAGING_MS
from tieline.engine.brokering.state import State
from tieline.engine.brokering.turn import Turn
from tieline.errors import ProtocolError
from tieline.model.moment import Moment

__all__ = ["SWEEP_MS", "Hub"]

SWEEP_MS: Final = 30_000
"""How often what has no timer of its own is looked through for what is over."""


def _leave(state: State, session: Session, said: Leave, turn: Turn) -> None:
    arrival.leave(state, session, turn, is_parked=said.is_parked)


def _list(state: State, session: Session, said: ListAsked, turn: Turn) -> None:
    rows = tuple(one.row() for one in state.sessions.seen_by(session))
    turn.say(session.link, Listing(said.request_id, rows))


def _cancel_ask(state: State, session: Session, said: AskCancelled, turn: Turn) -> None:
    state.asks.cancel(session.id, said.message_id, turn)


def _publish(state: State, session: Session, said: BusPublished, turn: Turn) -> None:
    state.bus.publish(state.sessions, session, said, turn)


def _commit(state: State, session: Session, said: StateCommitted, turn: Turn) -> None:
    state.bus.commit(state.sessions, session, said, turn)


def _ask_read(state: State, session: Session, said: ReadAsked, turn: Turn) -> None:
    state.reads.ask(state.sessions, session, said, turn)


def _answer_read(state: State, session: Session, said: ReadAnswered, turn: Turn) -> None:
    state.reads.answer(state.sessions, session, said, turn)


def _take_wake(state: State, session: Session, said: WakeTold, turn: Turn) -> None:
    state.wakes.told(state.sessions, state.mailbox, session, said, turn)


# Each entry takes the very command that it stands under.
_SAID: Final[dict[type, Callable[[State, Session, Any, Turn], None]]] = {
    Leave: _leave,
    ListAsked: _list,
    PresenceTold: arrival.change,
    SendAsked: routing.send,
    AskCancelled: _cancel_ask,
    MessageCancelled: routing.cancel,
    ReceiptTold: routing.pass_receipt,
    ExtensionsTold: arrival.extend,
    BusPublished: _publish,
    StateCommitted: _commit,
    ReadAsked: _ask_read,
    ReadAnswered: _answer_read,
    WakeTold: _take_wake,
}

# They change only what is their sender's, and order nothing for who came or left.
_FREE: Final = (SendAsked, ListAsked, PresenceTold, ReceiptTold, BusPublished, ReadAsked, ReadAnswered)


class Hub:
    """Everything that one broker knows, and what it decides."""

    def __init__(self, codec: Codec, now: Moment) -> None:
        """Start without sessions; the idle time counts from here."""
        self._state = State(codec)
        self._raw = RawSockets()
        self._idle_since_ms: int | None = now.mono_ms
        self._sweep_ms = now.mono_ms + SWEEP_MS
        self._undecided: dict[int, Turn] = {}  # by the numbers of their plans
        self._refusable_count = 0

    @property
    def sessions_count(self) -> int:
        """How many sessions are registered."""
        return len(self._state.sessions)

    @property
    def held_count(self) -> int:
        """How many messages wait for who is gone."""
        return len(self._state.mailbox)

    def restore(self, rows: Iterable[Put], now: Moment) -> Plan:
        """Take what an earlier broker kept, before the first command; rows that cannot be read go."""
        turn = Turn(now)
        state = self._state
        takers: dict[str, Callable[[object], None]] = {
            "mail": lambda document: self._restore_held(document, now),
            "parked": state.mailbox.restore_absent,
            "ask": state.asks.restore,
            "extension_state": state.bus.restore,
        }
        for row in sorted(rows, key=lambda row: (row.kind, row.key)):
            take = takers.get(row.kind)
            if take is None:
                continue  # of a later version: it is not ours to judge
            try:
                take(state.codec.parse(row.body))
            except (ValueError, AttributeError, ProtocolError):
                turn.rows.append(Drop(row.kind, row.key))
        self._sweep(turn)
        return self._planned(turn)

    def _restore_held(self, document: object, now: Moment) -> None:
        """Take mail back, and the record of it: its sender may have heard nothing, and repeat it."""
        held = self._state.mailbox.restore_held(document)
        if held.sender.features.is_recorded:
            letter = Letter(message_id=held.message_id, fields=held.fields, content_key=held.content_key)
            outcome = Delivered(held.message_id, is_held=True)
            place = Place(held.scope, held.sender.session_id)
            record = Record(place, held.recipient_id, held.recipient_id, letter, outcome, now.mono_ms)
            self._state.records.add(record)

    def handle(self, command: Command, now: Moment) -> Plan:
        """Return what `command` orders."""
        turn = Turn(now)
        match command:
            case Opened():
                turn.closes += self._raw.opened(command.link, command.process_id, now.mono_ms)
            case Tick():
                self._tick(command, turn)
            case Kept():
                for number in [one for one in self._undecided if one <= command.number]:
                    del self._undecided[number]
            case Unkept():
                self._take_back(command.number, turn)
            case Join():
                if self._state.sessions.of_link(command.link) is None:
                    arrival.join(self._state, command, self._raw.ended(command.link), turn)
            case Lost():
                self._raw.ended(command.link)
                session = self._state.sessions.of_link(command.link)
                if session is not None:
                    arrival.leave(self._state, session, turn, is_parked=False)
            case _:
                session = self._state.sessions.of_link(command.link)
                if session is not None:
                    session.change({"lastSeen": now.wall_ms})
                    _SAID[type(command)](self._state, session, command, turn)
        if turn.is_refusable:
            self._refusable_count += 1
            self._undecided[self._refusable_count] = turn
        return self._planned(turn)

    def may_be_heard(self, command: Command) -> bool:
        """Return whether a command rests on nothing that may yet be taken back.

        Its sender is none of those whom such a plan is for.
        """
        return not self._undecided or isinstance(command, _FREE)

    def _take_back(self, number: int, turn: Turn) -> None:
        """Undo what could not be kept, and tell who asked for it."""
        refused = self._undecided.pop(number, None)
        if refused is not None and refused.otherwise is not None:
            for undo in reversed(refused.undo):
                undo()
            turn.say(*refused.otherwise)

    def _tick(self, command: Tick, turn: Turn) -> None:
        turn.closes += self._raw.expire(turn.now.mono_ms)
        routing.release_staged(self._state, turn, self._undecided_ms)
        self._state.reads.expire(self._state.sessions, turn)
        self._state.mailbox.settle(command.unread, turn)
        if turn.now.mono_ms >= self._sweep_ms:
            self._sweep(turn)

    @property
    def _undecided_ms(self) -> int | None:
        """Since when there is something undecided, monotonic milliseconds; None where there is nothing."""
        first = next(iter(self._undecided.values()), None)
        return None if first is None else first.now.mono_ms

    def _sweep(self, turn: Turn) -> None:
        self._sweep_ms = turn.now.mono_ms + SWEEP_MS
        self._state.asks.sweep(turn)
        self._state.records.sweep(turn.now.mono_ms)
        for held in self._state.mailbox.sweep(turn):
            self._expired(held, turn)

    def _expired(self, held: Held, turn: Turn) -> None:
        """Record that mail was never taken, and tell its sender."""
        place = Place(held.scope, held.sender.session_id)
        record = self._state.records.find(place, held.message_id, turn.now.mono_ms)
        if record is not None:
            record.outcome = Failed(held.message_id, "Message expired", "E_DELIVERY_EXPIRED")
        sender = self._state.sessions.of_id(place.id)
        if sender is not None and sender.place == place:
            receipt = {"messageId": held.message_id, "status": "expired", "timestamp": turn.now.wall_ms}
            recipient = Row(
                fields={"cwd": "", "model": "", "id": held.recipient_id},
                features=RECORDED,
                epoch="",
                process_id=0,
                joined_ms=held.received_ms,
            )
            turn.say(sender.link, ReceiptPassed(recipient, receipt))

    def _planned(self, turn: Turn) -> Plan:
        state = self._state
        if len(state.sessions) or len(state.mailbox):
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = turn.now.mono_ms
        staged_ms, since_ms = state.staging.due_ms, self._undecided_ms
        if staged_ms is not None and since_ms is not None and staged_ms >= since_ms + STAGING_MS:
            staged_ms = None  # it is perhaps taken back
        times = [self._raw.due_ms, staged_ms, state.reads.due_ms, state.mailbox.handover_due_ms]
        if len(state.asks) or len(state.records) or state.mailbox.remembers_anybody:
            times.append(self._sweep_ms)
        due_ms = min((time for time in times if time is not None), default=None)
        return turn.plan(due_ms, self._idle_since_ms, self._refusable_count if turn.is_refusable else 0)
