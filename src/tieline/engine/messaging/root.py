"""One root's custody of messages: `handle(command, now) -> Plan`.

Rule 1: `handle` decides and does nothing else; the same commands at the same moments give the same
    plans, byte for byte.
Rule 2: questions change nothing.
Rule 3: what this root sends to itself is handed over within the same turn, through the same admission
    as a peer's: one transaction holds both ends of it.

Source: engine/contract.py; reference/native.md 2.8 to 2.10, 3.3, 3.4.
"""

from collections.abc import Iterable
from typing import NamedTuple, assert_never

from tieline.config import Limits
from tieline.engine.contract import (
    Asked,
    AskedStatus,
    AskStatus,
    BeginRun,
    Command,
    Consent,
    DirectoryTold,
    EndRun,
    Expose,
    Held,
    Lapse,
    Mute,
    MuteRow,
    Offer,
    Outcome,
    Page,
    Plan,
    PushReceipt,
    ReceiptTold,
    Row,
    RunRow,
    Send,
    Sent,
    Settle,
    Submit,
    Taken,
    Tick,
    Transmit,
    Untaken,
    UserPrompt,
)
from tieline.engine.messaging import consent, exposure, housekeeping, incoming, outgoing, runs
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.record import Mailbox
from tieline.engine.messaging.restore import rebuild
from tieline.engine.messaging.turn import OWN_LINK, Turn
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.model.moment import Moment
from tieline.model.receipt import Event

__all__ = ["InboxCounts", "Messaging"]


class InboxCounts(NamedTuple):
    """What waits in one mailbox: messages not consumed, those of them in an exposure, the oldest's time."""

    unread: int
    prepared: int
    oldest_ms: int | None  # wall milliseconds of its arrival


class Messaging:
    """The custody of one root."""

    def __init__(
        self,
        own: str,
        limits: Limits,
        *,
        idle_behavior: str,
        alias: str = "",
        project: str = "",
        first_cursor: int = 0,
    ) -> None:
        self._first_cursor = first_cursor
        self._custody = Custody(own, limits, idle_behavior, alias, project)
        self._custody.latest_cursor = first_cursor

    def handle(self, command: Command, now: Moment) -> Plan:
        """Decide one command; its answer is what the command's docstring says."""
        turn = Turn(self._custody, now)
        self._dispatch(turn, command)
        self._deliver_own(turn)
        housekeeping.plan_pruning(self._custody, now.mono_ms)
        return turn.plan()

    def restore(self, rows: Iterable[Row], now: Moment) -> None:
        """Become what the stored rows say; the order in which they were loaded does not matter.

        What was under way is begun again. Numbers of attempts, what far ends confirmed, rates and
        counters go on.
        """
        rebuild(self._custody, rows, self._first_cursor, now)

    @property
    def deadline_ms(self) -> int | None:
        """When the next `Tick` is due, in monotonic milliseconds; None while nothing waits for time."""
        return housekeeping.deadline_ms(self._custody)

    # ------------------------------------------------------------ questions

    def page(self, owner: Peer, after: int, count_max: int) -> Page | Refusal:
        """Return the events of a mailbox after a cursor, or INVALID_PARAMS above the latest."""
        return self._custody.history.page(owner.id, after, count_max, self._custody.latest_cursor)

    def held(
        self,
        owner: Peer,
        *,
        from_peer: Peer | str | None = None,
        reply_to: str | None = None,
        message_id: str | None = None,
        unread_only: bool = True,
        count_max: int,
    ) -> tuple[Held, ...]:
        """Return received messages that fit, oldest first; consumes nothing.

        Args:
            owner: Whose mailbox.
            from_peer: Only from this peer, or peer id.
            reply_to: Only answers to this message id.
            message_id: Only this id.
            unread_only: Leave out what was consumed, replied, expired, or ended unread. What was never let in
                is left out in any case: `awaiting` names it.
            count_max: At most so many: the oldest unread ones, or the newest of all.
        """
        mailbox = self._custody.mailboxes.get(owner.id)
        if mailbox is None:
            return ()
        sender = from_peer.id if isinstance(from_peer, Peer) else from_peer
        cursors = _candidates(mailbox, reply_to, message_id, unread_only=unread_only)
        found: list[Held] = []
        for cursor in cursors if unread_only else reversed(cursors):
            if len(found) >= count_max:
                break
            record = self._custody.records[cursor]
            envelope = record.envelope
            if (
                (sender is None or envelope.sender.id == sender)
                and (reply_to is None or envelope.reply_to == reply_to)
                and (message_id is None or envelope.message_id == message_id)
                and (record.is_unread if unread_only else record.is_let_in)
            ):
                found.append(record.held())
        return tuple(found if unread_only else reversed(found))

    def awaiting(self, owner: Peer) -> tuple[Held, ...]:
        """Return what waits for the person's consent, oldest first; `expires_ms` is when that is too late."""
        mailbox = self._custody.mailboxes.get(owner.id)
        return () if mailbox is None else tuple(self._custody.records[one].held() for one in mailbox.held)

    def sent(self, message_id: str, sender: Peer | None) -> tuple[Sent, ...]:
        """Return what this root sent under an id, one per recipient; of one sender, or (None) of all."""
        cursors = self._custody.sent_by_id.get(message_id, ())
        records = [self._custody.records[cursor] for cursor in cursors]
        return tuple(one.sent() for one in records if sender is None or one.envelope.sender == sender)

    def outbox(
        self, owner: Peer, *, unresolved_only: bool = False, count_max: int = 1_000
    ) -> tuple[Sent, ...]:
        """Return the newest `count_max` messages that a peer sent, oldest first."""
        mailbox = self._custody.mailboxes.get(owner.id)
        if mailbox is None or count_max <= 0:
            return ()
        cursors = mailbox.unresolved if unresolved_only else mailbox.sent
        return tuple(self._custody.records[cursor].sent() for cursor in cursors[-count_max:])

    def moves(self, cursor: int) -> tuple[Event, ...]:
        """Return the events of the record with this cursor, oldest first, as far as they are kept."""
        record = self._custody.records.get(cursor)
        if record is None:
            return ()
        sender, recipient = record.route
        events = self._custody.history.of(record.owner, cursor, record.envelope.message_id, sender)
        return tuple(event for event in events if event.recipient == recipient)

    def inbox_counts(self, owner: Peer) -> InboxCounts:
        """Return what waits in a mailbox."""
        mailbox = self._custody.mailboxes.get(owner.id)
        if mailbox is None or not mailbox.unconsumed_count:
            return InboxCounts(0, 0, None)
        first = min([*mailbox.unread[:1], *mailbox.prepared[:1]])
        return InboxCounts(
            mailbox.unconsumed_count, len(mailbox.prepared), self._custody.records[first].at_ms
        )

    def run(self, run_id: str) -> RunRow | None:
        """Return a run of this root, live or ended, or None."""
        return self._custody.runs.get(run_id)

    def live_runs(self) -> tuple[RunRow, ...]:
        """Return the live runs, in the order they began."""
        return tuple(row for row in self._custody.runs.values() if row.is_live)

    def own_peer(self, peer_id: str) -> Peer | None:
        """Return the root or the run, live or ended, with this peer id, or None."""
        return self._custody.peers.get(peer_id)

    def is_muted(self, peer_id: str, alias: str = "") -> bool:
        """Return whether a peer is silenced, by its id or its alias."""
        return peer_id in self._custody.mutes or (bool(alias) and alias in self._custody.mutes)

    def arrivals(self, owner: Peer) -> int:
        """Return a number that grows with every arrival for a peer."""
        mailbox = self._custody.mailboxes.get(owner.id)
        return 0 if mailbox is None else mailbox.arrivals

    @property
    def arrival_generation(self) -> int:
        """A number that grows with every arrival."""
        return self._custody.arrival_generation

    @property
    def latest_cursor(self) -> int:
        """The cursor of the newest row."""
        return self._custody.latest_cursor

    @property
    def counters(self) -> dict[str, int]:
        """What was counted since this root began, by name."""
        return dict(sorted(self._custody.counters.items()))

    @property
    def storage_bytes(self) -> int:
        """Bytes of all that is stored, without reserves."""
        return self._custody.state_bytes

    @property
    def worst_case_bytes(self) -> int:
        """Bytes that must stay free so that every open record can end."""
        return self._custody.worst_case_bytes

    # ------------------------------------------------------------ deciding

    def _dispatch(self, turn: Turn, command: Command) -> None:  # noqa: C901 - one line per command
        match command:
            case Submit():
                outgoing.submit(turn, command)
            case Offer():
                incoming.offer(turn, command)
            case Consent():
                consent.consent(turn, command)
            case Lapse():
                consent.lapse_all(turn)
            case AskedStatus():
                incoming.status(turn, command)
            case ReceiptTold():
                incoming.receipt(turn, command)
            case Settle():
                outgoing.settle(turn, command)
            case DirectoryTold():
                incoming.directory(turn, command)
            case BeginRun():
                runs.begin(turn, command)
            case EndRun():
                runs.end(turn, command)
            case Expose():
                exposure.expose(turn, command)
            case Taken():
                turn.answer = exposure.take(turn, command.token)
            case Untaken():
                end = exposure.lapse if command.may_come else exposure.release
                turn.answer = end(turn, command.token)
            case UserPrompt():
                self._custody.budgets.prompt(command.owner.id, self._custody.latest_cursor)
            case Mute():
                if self.is_muted(command.peer) is not command.is_muted:
                    turn.write(MuteRow(command.peer, command.is_muted))
            case Tick():
                housekeeping.tick(turn)
            case _:
                assert_never(command)

    def _deliver_own(self, turn: Turn) -> None:
        """Carry out what this root ordered of itself, and what that orders in turn."""
        own = self._custody.own
        place = 0
        while place < len(turn.sends):
            send = turn.sends[place]
            if getattr(send, "instance", None) != own:
                place += 1
                continue
            del turn.sends[place]
            attempt = self._ask_self(turn, send)
            body = turn.own_answers.pop(attempt)
            if isinstance(body, Refusal):
                settled = Settle(attempt, Outcome.REFUSED, refusal=body)
            else:
                given = body if not isinstance(send, PushReceipt) else None
                settled = Settle(attempt, Outcome.ANSWERED, receipt=given)  # type: ignore[arg-type]
            outgoing.settle(turn, settled)

    def _ask_self(self, turn: Turn, send: Send) -> int:
        """Ask this root what a send of its own would ask; the answer is in `turn.own_answers`."""
        own = self._custody.own
        if isinstance(send, Transmit):
            envelope = send.envelope
            standing = self._custody.standing_of(envelope.sender)
            asked = Asked(OWN_LINK, send.attempt)
            incoming.offer(turn, Offer(asked, own, standing, envelope))
        elif isinstance(send, AskStatus):
            asked = Asked(OWN_LINK, send.attempt)
            incoming.status(turn, AskedStatus(asked, own, send.message_id, send.recipient, send.sender_run))
        else:
            assert isinstance(send, PushReceipt)  # this root never asks itself for its runs
            asked = Asked(OWN_LINK, send.attempt)
            incoming.receipt(turn, ReceiptTold(asked, own, send.receipt))
        return send.attempt


def _candidates(
    mailbox: Mailbox, reply_to: str | None, message_id: str | None, *, unread_only: bool
) -> list[int]:
    """Return the cursors, rising, among which the messages asked for are."""
    if message_id is not None:
        return mailbox.by_id.get(message_id, [])
    if reply_to is not None:
        return mailbox.by_reply.get(reply_to, [])
    if unread_only:
        return sorted([*mailbox.unread, *mailbox.prepared]) if mailbox.prepared else mailbox.unread
    return mailbox.received
