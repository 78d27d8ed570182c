"""All that one root holds: records, indexes, events, runs; and how rows build them.

Theory. Rows are the only way in. A decision writes rows and applies them here; a restore applies the
stored ones. So what is rebuilt is what was decided, and there is no second way to be wrong.

Rule 1: `apply` is the only place where a record, a run or a muted peer changes durably.
Rule 2: no step looks at all records: every question has an index.
Rule 3: what lives beside the rows (attempts, retries, rates, questions) survives a restore only where
    forgetting it could repeat an attempt's number or a question's answer.

Source: reference/native.md 2.8, 3.4; reference/reliability.md I11, I12, I21, I23, I50.
"""

import heapq
from bisect import insort
from collections import OrderedDict, deque
from typing import TypeVar, assert_never

from tieline.config import RECEIPT_RESERVE_BYTES, Limits
from tieline.engine.contract import (
    Asked,
    Box,
    ContextRow,
    MessageRow,
    MoveRow,
    MuteRow,
    PruneRow,
    Row,
    RunRow,
    Standing,
)
from tieline.engine.conversation import Budgets
from tieline.engine.messaging.history import History
from tieline.engine.messaging.pacing import Pacing
from tieline.engine.messaging.record import Mailbox, Record, Transit, discard, record_bytes
from tieline.engine.messaging.timers import Timer, TimerKind, Timers
from tieline.engine.messaging.underway import Courier, Exposure, Flight, Question, Verified
from tieline.machine.admission import Bucket
from tieline.machine.inbox import HELD_MS, Stage
from tieline.model.identity import Capability, Peer
from tieline.model.message import Envelope, Key
from tieline.model.moment import NEVER_MS, Moment
from tieline.model.receipt import FINAL, Event

__all__ = ["Custody"]

RUN_BYTES = 256

_Name = TypeVar("_Name", str, tuple[str, str])


class Custody:
    """The state behind `Messaging`."""

    def __init__(self, own: str, limits: Limits, idle_behavior: str, alias: str, project: str) -> None:
        self.own = own
        self.root = Peer(own)
        self.limits = limits
        self.idle_behavior = idle_behavior
        self.alias = alias
        self.project = project
        # Beside the rows, kept through a restore.
        self.last_attempt = 0
        self.flights: dict[int, Flight] = {}
        self.arrival_generation = 0
        self.counters: dict[str, int] = {}
        self.buckets: dict[str, Bucket] = {}
        self.verified: dict[str, Verified] = {}
        self.questions: dict[str, OrderedDict[Asked, Question]] = {}
        self.asking: dict[str, int] = {}
        self.budgets = Budgets()
        self.pacing = Pacing()
        self.forget(0)

    def forget(self, latest_cursor: int) -> None:
        """Empty what rows build."""
        self.is_rebuilding = False
        self.latest_cursor = latest_cursor
        self.records: dict[int, Record] = {}
        self.received_keys: dict[Key, int] = {}
        self.sent_keys: dict[Key, int] = {}
        self.sent_by_id: dict[str, list[int]] = {}
        self.mailboxes: dict[str, Mailbox] = {}
        self.routes: dict[tuple[str, str], deque[int]] = {}
        self.runs: dict[str, RunRow] = {}
        self.live_count = 0
        self.ended_runs: deque[str] = deque()
        self.peers: dict[str, Peer] = {self.root.id: self.root}
        self.mutes: dict[str, None] = {}
        self.exposures: dict[str, Exposure] = {}
        self.lapsed: dict[str, tuple[int, ...]] = {}  # of tokens without evidence in time: it may still come
        self.evident: set[int] = set()  # prepared, and there was late evidence of an earlier exposure
        self.couriers: dict[str, Courier] = {}
        self.timers = Timers()
        self.history = History()
        self.prune_heap: list[tuple[int, int]] = []
        self.next_prune_ms: int | None = None
        self.asks: dict[tuple[str, str], list[int]] = {}  # (asker, asked): questions that may still wait
        self.recorded: dict[int, str] = {}  # in the context journal, and not consumed yet
        self.unsure: list[int] = []  # may have left before a restore, and may not leave twice
        self.state_bytes = 0
        self.open_count = 0

    # ------------------------------------------------------------ questions

    def count(self, name: str, by: int = 1) -> None:
        """Count something for the doctor."""
        self.counters[name] = self.counters.get(name, 0) + by

    def new_attempt(self, flight: Flight | None) -> int:
        """Return the number of a new attempt; it is never used again."""
        self.last_attempt += 1
        if flight is not None:
            self.flights[self.last_attempt] = flight
        return self.last_attempt

    @property
    def worst_case_bytes(self) -> int:
        """Room that the ends of all open records need."""
        return RECEIPT_RESERVE_BYTES * self.open_count

    def with_new(self, envelope: Envelope) -> int:
        """Return the bytes that the store would hold, every reserve included, with one message more."""
        return self.state_bytes + record_bytes(envelope) + self.worst_case_bytes + RECEIPT_RESERVE_BYTES

    def mailbox(self, owner: str) -> Mailbox:
        """Return the mailbox of a local peer, made when it was not there."""
        found = self.mailboxes.get(owner)
        if found is None:
            found = self.mailboxes[owner] = Mailbox()
        return found

    def courier(self, instance: str) -> Courier:
        """Return the courier to an instance, made when it was not there."""
        found = self.couriers.get(instance)
        if found is None:
            found = self.couriers[instance] = Courier()
        return found

    def received(self, key: Key) -> Record | None:
        """Return the received message with this key."""
        cursor = self.received_keys.get(key)
        return None if cursor is None else self.records[cursor]

    def sent(self, key: Key) -> Record | None:
        """Return the sent message with this key."""
        cursor = self.sent_keys.get(key)
        return None if cursor is None else self.records[cursor]

    def open_ask(self, asker: str, asked: str, now: Moment) -> Record | None:
        """Return the question with the least id between two peers that is neither answered nor over.

        Of several that wait it is the one that gives way to nobody. Looking forgets those that are over, so
        that the list stays as short as what waits.
        """
        waiting = [
            cursor
            for cursor in self.asks.get((asker, asked), ())
            if cursor in self.records
            and self.records[cursor].receipt.state not in FINAL
            and self.records[cursor].deadline_ms > now.mono_ms
        ]
        if waiting:
            self.asks[asker, asked] = waiting
            return min((self.records[cursor] for cursor in waiting), key=lambda one: one.envelope.message_id)
        self.asks.pop((asker, asked), None)
        return None

    def standing_of(self, peer: Peer) -> Standing:
        """Return what a peer of our own may do."""
        if peer.run is None:
            every = frozenset(one.value for one in Capability)
            return Standing(every, is_in_scope=True, alias=self.alias, project=self.project)
        run = self.runs.get(peer.run)
        if run is None:
            return Standing(frozenset(), is_in_scope=True)
        return Standing(frozenset(run.capabilities), is_in_scope=True, alias=run.alias, project=self.project)

    def is_live(self, peer: Peer) -> bool:
        """Return whether a peer of our own is the root or a run that has not ended."""
        if peer.instance != self.own:
            return False
        if peer.run is None:
            return True
        run = self.runs.get(peer.run)
        return run is not None and run.is_live

    def is_armed(self, timer: Timer) -> bool:
        """Return whether what a timer was set for still stands."""
        due_ms, kind, cursor, name = timer
        match kind:
            case TimerKind.DEADLINE:
                record = self.records.get(cursor)
                if record is None or record.is_overdue or not record.is_open:
                    return False
                if record.is_told_late and due_ms < record.due_ms:
                    return False  # the person's time is over, and they said yes
                return record.box is Box.OUT or record.token is None
            case TimerKind.RETRY:
                record = self.records.get(cursor)
                transit = None if record is None else record.transit
                return (
                    transit is not None
                    and not transit.attempt
                    and not transit.is_lapsed
                    and transit.retry_at_ms == due_ms
                )
            case TimerKind.TOKEN:
                exposure = self.exposures.get(name)
                return exposure is not None and exposure.due_ms == due_ms
            case TimerKind.COURIER:
                courier = self.couriers.get(name)
                return courier is not None and courier.retry_at_ms == due_ms
            case TimerKind.DIRECTORY:
                return name in self.questions and name not in self.asking
            case _:
                assert_never(kind)

    # ------------------------------------------------------------ rows

    def apply(self, row: Row, now: Moment, mono_ms: int) -> Event | None:
        """Let one row take effect and return the event it is, if it is one.

        `mono_ms` is when it happened, which is before `now` while rows are restored.
        """
        match row:
            case MessageRow():
                self.latest_cursor = max(self.latest_cursor, row.cursor)
                return self._message(row, now, mono_ms)
            case MoveRow():
                self.latest_cursor = max(self.latest_cursor, row.cursor)
                return self._move(row, now, mono_ms)
            case ContextRow():
                self.latest_cursor = max(self.latest_cursor, row.cursor)
                record = self.records.get(row.message)
                if record is not None and record.stage in (Stage.ACCEPTED, Stage.PREPARED):
                    self.recorded[row.message] = row.token
            case RunRow():
                self._run(row)
            case MuteRow():
                if row.is_muted:
                    self.mutes[row.peer] = None
                else:
                    self.mutes.pop(row.peer, None)
            case PruneRow():
                self.latest_cursor = max(self.latest_cursor, row.oldest_cursor - 1)
                self._prune(row)
            case _:
                assert_never(row)
        return None

    def _message(self, row: MessageRow, now: Moment, mono_ms: int) -> Event | None:
        record = Record(row)
        envelope = row.envelope
        self.records[row.cursor] = record
        self.state_bytes += record.size_bytes
        mailbox = self.mailbox(record.owner)
        self.budgets.count_stored(envelope)
        if envelope.is_ask:
            self.asks.setdefault((envelope.sender.id, envelope.recipient.id), []).append(row.cursor)
        if row.box is Box.IN:
            self.received_keys[envelope.key] = row.cursor
            mailbox.received.append(row.cursor)
            mailbox.by_id.setdefault(envelope.message_id, []).append(row.cursor)
            if envelope.reply_to is not None:
                mailbox.by_reply.setdefault(envelope.reply_to, []).append(row.cursor)
            mailbox.enter(record)
            if row.is_held:
                record.held_until_ms = min(row.deadline_ms, mono_ms + HELD_MS)
            else:
                self._arrive(mailbox)
        else:
            self.sent_keys[envelope.key] = row.cursor
            mailbox.sent.append(row.cursor)
            self.sent_by_id.setdefault(envelope.message_id, []).append(row.cursor)
            record.transit = Transit(may_have_left=False)
            self.routes.setdefault(record.route, deque()).append(row.cursor)
            if not row.from_person:
                self.budgets.count_sent(*record.route, row.cursor, mono_ms)
        self._arm(record)
        self.reckon(record, now)
        kind = "message" if row.box is Box.IN else "receipt"
        return self._event(record, kind, row.cursor, row.at_ms, mono_ms)

    def _move(self, row: MoveRow, now: Moment, mono_ms: int) -> Event | None:
        record = self.records.get(row.message)
        if record is None:
            return None
        kind = "receipt"
        if record.box is Box.IN:
            mailbox = self.mailbox(record.owner)
            before = record.stage
            record.take(row)
            after = record.stage
            if before is not after:
                mailbox.move(record, before, after)
            if before is Stage.HELD and after is Stage.ACCEPTED:
                kind = "message"
                self._arrive(mailbox)
            if after not in (Stage.ACCEPTED, Stage.PREPARED):
                self.recorded.pop(record.cursor, None)
            elif after is Stage.ACCEPTED:
                self._arm(record)
        else:
            record.take(row)
            if record.is_unsettled and record.transit is None:
                record.transit = Transit(may_have_left=True)
                self.routes.setdefault(record.route, deque()).append(record.cursor)
                self._arm(record)
            elif not record.is_unsettled and record.transit is not None:
                self.leave_route(record)
                record.transit = None
        self.reckon(record, now)
        if row.note:
            return None
        return self._event(record, kind, row.cursor, row.at_ms, mono_ms)

    def _arrive(self, mailbox: Mailbox) -> None:
        mailbox.arrivals += 1
        self.arrival_generation += 1

    def _arm(self, record: Record) -> None:
        due_ms = record.due_ms
        if due_ms < NEVER_MS:  # what has no end must not stay in the heap for ever
            self.timers.add(due_ms, TimerKind.DEADLINE, cursor=record.cursor)

    def _event(self, record: Record, kind: str, cursor: int, at_ms: int, mono_ms: int) -> Event:
        receipt = record.receipt
        event = Event(
            cursor=cursor,
            kind=kind,
            owner=record.owner,
            message_id=receipt.message_id,
            sender=receipt.sender,
            recipient=receipt.recipient,
            state=receipt.state,
            receipt=receipt,
            at_ms=at_ms,
        )
        if cursor >= self.history.oldest_cursor:
            self.history.add(event, mono_ms)
        return event

    def leave_route(self, record: Record) -> None:
        """Take a sent message off its route, so that the next one may go."""
        route = self.routes.get(record.route)
        if route is None:
            return
        if route[0] == record.cursor:
            route.popleft()
        elif record.cursor in route:
            route.remove(record.cursor)
        if not route:
            del self.routes[record.route]

    def reckon(self, record: Record, now: Moment) -> None:
        """Count a record as open or closed, and let go of what is needed no more."""
        is_open = record.is_open
        if is_open is not record.is_counted_open:
            record.is_counted_open = is_open
            self.open_count += 1 if is_open else -1
            if record.box is Box.OUT:
                change = insort if is_open else discard
                change(self.mailbox(record.owner).unresolved, record.cursor)
        if not self.is_rebuilding:
            record.trim()
        if not is_open:
            # Whoever may still repeat the message is answered from memory for a whole retention after
            # the longest life that any attempt of it can have (reliability.md I23).
            life_ms = record.deadline_ms + self.limits.max_expiry_ms if record.deadline_ms < NEVER_MS else 0
            last_ms = max(life_ms, now.mono_ms)
            record.prune_due_ms = last_ms + self.limits.retention_ms
            heapq.heappush(self.prune_heap, (record.prune_due_ms, record.cursor))

    def _run(self, row: RunRow) -> None:
        before = self.runs.get(row.run)
        was_live = before is not None and before.is_live
        self.runs[row.run] = row
        self.live_count += row.is_live - was_live
        peer = Peer(self.own, row.run)
        self.peers[peer.id] = peer
        if before is None:
            self.state_bytes += RUN_BYTES
        if not row.is_live and (before is None or was_live):
            self.ended_runs.append(row.run)
        while len(self.ended_runs) > self.limits.ended_runs_kept:
            oldest = self.ended_runs.popleft()
            del self.runs[oldest]
            del self.peers[Peer(self.own, oldest).id]
            self.state_bytes -= RUN_BYTES

    def _prune(self, row: PruneRow) -> None:
        gone = {cursor: self.records.pop(cursor) for cursor in row.messages if cursor in self.records}
        touched: dict[str, Mailbox] = {}
        for cursor, record in gone.items():
            touched[record.owner] = self.mailbox(record.owner)
            keys = self.received_keys if record.box is Box.IN else self.sent_keys
            if keys.get(record.envelope.key) == cursor:
                del keys[record.envelope.key]
            if record.is_counted_open:  # only a foreign row says so; the count must hold even then
                self.open_count -= 1
            if record.transit is not None:
                self.leave_route(record)
            self.state_bytes -= record.size_bytes
            self.budgets.count_forgotten(record.envelope)
            self.recorded.pop(cursor, None)
            if record.envelope.is_ask and cursor in self.asks.get(record.route, ()):
                _unlist(self.asks, record.route, cursor)
            if record.box is Box.OUT:
                _unlist(self.sent_by_id, record.envelope.message_id, cursor)
            else:
                touched[record.owner].move(record, record.stage, None)
                _unlist(touched[record.owner].by_id, record.envelope.message_id, cursor)
                if record.envelope.reply_to is not None:
                    _unlist(touched[record.owner].by_reply, record.envelope.reply_to, cursor)
        for owner, mailbox in touched.items():
            for name in ("received", "sent", "unresolved"):
                kept = [cursor for cursor in getattr(mailbox, name) if cursor not in gone]
                setattr(mailbox, name, kept)
            peer = self.peers.get(owner)
            if not mailbox.received and not mailbox.sent and (peer is None or not self.is_live(peer)):
                del self.mailboxes[owner]
        self.history.prune(row.oldest_cursor)


def _unlist(lists: dict[_Name, list[int]], name: _Name, cursor: int) -> None:
    discard(lists[name], cursor)
    if not lists[name]:
        del lists[name]
