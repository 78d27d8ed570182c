"""The intercom post of one root: sessions behind brokers, and what the engine orders to them.

Theory. The driver orders sends to instances; this module knows at which broker a session is, sends once
and settles by the broker's answer. What sessions send becomes offers; an offer's answer comes back under
the number of its broker.

Rule 1: a message that may have left is never sent again; what did not leave is unreached.
Rule 2: a session that is at several brokers of ours is one, reached over the first of them.
Rule 3: link numbers begin at `FIRST_LINK`, so that an answer finds the carrier that asked.
Rule 4: a receipt is read, never asked for by a message: a few times after the broker took one, where the
    broker and the recipient announced that.
Rule 5: this module knows no event loop, no socket and no file.

Source: reference/intercom.md 1.3, 2, 4.4, 5; DESIGN.md 1.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec

from tieline.engine.contract import (
    Answer,
    AskDirectory,
    Asked,
    AskStatus,
    DirectoryTold,
    Offer,
    Outcome,
    PushReceipt,
    ReceiptTold,
    Send,
    Settle,
    Standing,
    Transmit,
)
from tieline.errors import Refusal, Refused
from tieline.model.identity import Capability
from tieline.model.message import Envelope
from tieline.model.traits import INTERCOM
from tieline.shell.intercom.member import Member
from tieline.shell.intercom.ports import Line, World
from tieline.wire.intercom import mapping
from tieline.wire.intercom.client import (
    Closed,
    Event,
    LastAsked,
    Left,
    Listed,
    MessageCame,
    ReadAnswered,
    ReceiptAsked,
    Registered,
    Sent,
    TimedOut,
    WakeAsked,
    WakeFailed,
)

__all__ = ["ABLE", "FIRST_LINK", "Post"]

FIRST_LINK: Final = INTERCOM.first_link
LINES_FROM: Final = 1_024
"""Below it are the numbers of brokers, under which offers are answered; from it on those of lines."""
ADDRESSES_MAX: Final = 16_384
COMING_BACK_MS: Final = 5_000
"""After a broker ended, each of its sessions returns by its own chain of pauses: 1 s, then 2 s more."""
OFFERS_MAX: Final = 1_024
LOOKS_MAX: Final = 512
LOOK_AFTER_MS: Final = (150, 1_000, 5_000, 30_000)
"""When a receipt is read after the broker took a message, each counted from the read before."""
ABLE: Final = (Capability.RECEIVE.value, Capability.SEND.value)

ReadDone = Callable[[dict[str, Any] | Refusal], None]


class _Look(msgspec.Struct, order=True):
    """A receipt read that is due."""

    due_ms: int
    number: int
    envelope: Envelope
    turn: int


class Post:
    """The connections of one root on this wire."""

    def __init__(self, world: World, brokers: Sequence[str]) -> None:
        """Belong to these brokers; the first is preferred."""
        self._world = world
        self.members = {
            name: Member(world, name, FIRST_LINK + place, self._adopt, self._heard)
            for place, name in enumerate(brokers)
        }
        self._lines: dict[int, Member] = {}
        self._line_number = FIRST_LINK + LINES_FROM
        self._addresses: dict[str, str] = {}  # instance to the session id of it
        self._attempts: dict[tuple[int, str], tuple[int, Envelope]] = {}
        self._offers: dict[str, tuple[Member, MessageCame]] = {}
        self._reads: dict[tuple[int, str], ReadDone] = {}
        self._looks: list[_Look] = []
        self._look_number = 0
        self._counts = {
            "intercom_offers_crowded_out": 0,
            "intercom_guards_refused": 0,
            "intercom_turned_away": 0,
        }

    @property
    def counters(self) -> dict[str, int]:
        """What was refused or dropped."""
        return dict(self._counts)

    @property
    def is_connected(self) -> bool:
        """Whether any broker has us."""
        return any(member.link is not None for member in self.members.values())

    @property
    def is_sending(self) -> bool:
        """Whether a broker's answer to something sent is awaited."""
        return bool(self._attempts)

    # ------------------------------------------------------------ who is there

    def rows(self) -> dict[str, tuple[Member, dict[str, Any]]]:
        """Return everybody that some broker of ours last listed, by session id, ourselves included."""
        found: dict[str, tuple[Member, dict[str, Any]]] = {}
        for member in self.members.values():
            for session_id, row in member.roster.items():
                found.setdefault(session_id, (member, row))
        for session_id in found:
            self._note(session_id)
        return found

    def _note(self, session_id: str) -> str:
        instance = mapping.instance_of(session_id)
        if instance not in self._addresses:
            self._addresses[instance] = session_id
            while len(self._addresses) > ADDRESSES_MAX:
                del self._addresses[next(iter(self._addresses))]
        return instance

    def session_of(self, instance: str) -> str | None:
        """Return the session id of an instance that was seen here."""
        return self._addresses.get(instance)

    def place_of(self, session_id: str) -> Member | None:
        """Return the broker at which a session is; one that has us where none lists it."""
        live = [member for member in self.members.values() if member.link is not None]
        for member in live:
            if session_id in member.roster:
                return member
        return live[0] if live else None

    def look(self, done: Callable[[], None]) -> None:
        """List anew at every broker; `done` is called once each has answered or cannot."""
        waiting = [member for member in self.members.values() if member.link is not None]
        left = len(waiting)
        if not left:
            done()
            return

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for member in waiting:
            member.look(one)

    # ------------------------------------------------------------ what the root asks

    def send(self, send: Send) -> None:
        """Carry out one send that the engine ordered."""
        match send:
            case Answer():
                self._answered(send)
            case Transmit():
                self._transmit(send)
            case PushReceipt():  # there is no such frame: whoever wants to know reads it
                self._settle(send.attempt, Outcome.ANSWERED)
            case AskStatus():
                self._settle(send.attempt, Outcome.LOST)
            case AskDirectory():
                self._world.submit(DirectoryTold(send.attempt, frozenset()))
            case _:
                assert_never(send)

    def _transmit(self, send: Transmit) -> None:
        session_id = self._addresses.get(send.instance)
        member = None if session_id is None else self.place_of(session_id)
        if member is None or member.link is None or session_id is None:
            for one in self.members.values():
                one.hurry()
            refusal = Refusal("PEER_OFFLINE", "no intercom broker has us now", is_retryable=True)
            self._settle(send.attempt, Outcome.UNREACHED, refusal)
            return
        now = self._world.now()
        if self._may_come_back(member, session_id, now.mono_ms):
            member.look()
            refusal = Refusal("PEER_OFFLINE", "this session has not come back yet", is_retryable=True)
            self._settle(send.attempt, Outcome.UNREACHED, refusal)
            return
        message = mapping.message(send.envelope, now.wall_ms)
        try:
            member.link.send(session_id, message, now.mono_ms)
        except Refused as error:
            is_final = error.code in ("INVALID_PARAMS", "MESSAGE_TOO_LARGE")
            self._settle(
                send.attempt,
                Outcome.REFUSED if is_final else Outcome.UNREACHED,
                Refusal(error.code, str(error), is_retryable=error.is_retryable),
            )
            return
        self._attempts[member.number, send.envelope.message_id] = (send.attempt, send.envelope)
        member.flush()

    @staticmethod
    def _may_come_back(member: Member, session_id: str, now_ms: int) -> bool:
        """Return whether a session may still be on its way back to a broker that we came back to just now."""
        is_recent = member.back_ms is not None and now_ms < member.back_ms + COMING_BACK_MS
        return is_recent and session_id not in member.roster

    def say(self, member: Member, session_id: str, message: Mapping[str, Any]) -> None:
        """Send words of our own that are no message of a peer: nobody waits for what becomes of them."""
        if member.link is not None:
            try:
                member.link.send(session_id, message, self._world.now().mono_ms)
            except Refused:
                self._counts["intercom_turned_away"] += 1
                return
            member.flush()

    def read(self, kind: str, session_id: str, body: Mapping[str, Any], done: ReadDone) -> None:
        """Read a session's last answer or a receipt; `done` gets the body or why there is none."""
        member = self.place_of(session_id)
        if member is None or member.link is None:
            done(Refusal("PEER_OFFLINE", "no intercom broker has us now", is_retryable=True))
            return
        request_id = self._world.new_id()
        try:
            member.link.read(kind, request_id, session_id, body, self._world.now().mono_ms)
        except Refused as error:
            done(Refusal(error.code, str(error), is_retryable=error.is_retryable))
            return
        self._reads[member.number, request_id] = done
        member.flush()

    def tell_presence(self, changes: Mapping[str, Any]) -> None:
        """Say at every broker what changed of us."""
        for member in self.members.values():
            if member.link is not None:
                member.link.tell_presence(changes)
                member.flush()

    def _settle(
        self, attempt: int, outcome: Outcome, refusal: Refusal | None = None, said: str | None = None
    ) -> None:
        """Tell the driver when what is being done now is done: it is in the middle of a turn."""
        settle = Settle(attempt, outcome, refusal=refusal, said=said)
        self._world.defer(lambda: self._world.submit(settle))

    # ------------------------------------------------------------ what brokers say

    def received(self, number: int, data: bytes) -> None:
        """Bytes came in."""
        member = self._lines.get(number)
        if member is not None:
            member.received(number, data)

    def lost(self, number: int) -> None:
        """A socket is closed."""
        member = self._lines.pop(number, None)
        if member is not None:
            member.lost(number)

    def _adopt(self, member: Member) -> int:
        self._line_number += 1
        self._lines[self._line_number] = member
        return self._line_number

    def accepted(self, line: Line) -> int | None:
        """Nobody connects to a session: there is nothing to take in."""
        line.close()
        return None

    def _heard(self, member: Member, event: Event) -> None:  # noqa: C901 - one line per event
        match event:
            case Registered():
                self._world.changed(member.broker)
            case Listed():
                self.rows()
            case MessageCame():
                self._offer(member, event)
            case Sent():
                self._sent(member, event)
            case TimedOut() | Closed():
                self._unanswered(member, event)
            case ReadAnswered():
                done = self._reads.pop((member.number, event.request_id), None)
                if done is not None:
                    done(event.body)
            case Left():
                if all(event.session_id not in one.roster for one in self.members.values()):
                    self._world.left(event.session_id)
            case LastAsked():
                self._world.asked_last(member.broker, event)
            case ReceiptAsked():
                self._world.asked_receipt(member.broker, event)
            case WakeAsked():
                self._world.asked_wake(member.broker, event)
            case WakeFailed():
                self._world.wake_failed(event)
            case _:
                assert_never(event)

    def _sent(self, member: Member, event: Sent) -> None:
        attempt, envelope = self._attempts.pop((member.number, event.message_id), (0, None))
        if envelope is None:
            return
        said = mapping.said_of(event)
        if said is not None:
            self._settle(attempt, Outcome.WRITTEN, said=said)
            self._look_later(envelope, 0)
        elif event.is_outcome_known:
            self._settle(attempt, Outcome.REFUSED, mapping.refusal_of(event))
        else:
            self._settle(attempt, Outcome.LOST)

    def _unanswered(self, member: Member, event: TimedOut | Closed) -> None:
        """End what has no answer: a send may have arrived, a read has not."""
        keys = event.unanswered if isinstance(event, Closed) else ((event.kind, event.name),)
        for kind, name in keys:
            if kind == "send":
                attempt, envelope = self._attempts.pop((member.number, name), (0, None))
                if envelope is not None:
                    self._settle(attempt, Outcome.LOST)
            else:
                done = self._reads.pop((member.number, name), None)
                if done is not None:
                    done(Refusal("PEER_OFFLINE", "no answer in time", is_retryable=True))
        if isinstance(event, Closed):
            self._world.changed(member.broker)

    # ------------------------------------------------------------ what sessions send

    def _offer(self, member: Member, came: MessageCame) -> None:
        """Hand a message to the engine, if it may come in at all."""
        member.know(came.sender)
        instance = self._note(came.sender["id"])
        if not self._world.admits(member.broker, came):
            self._counts["intercom_guards_refused"] += 1
            return
        if len(self._offers) >= OFFERS_MAX:
            self._counts["intercom_offers_crowded_out"] += 1
            refusal = Refusal("QUEUE_FULL", "too many messages wait to be stored", is_retryable=True)
            self._world.turned_away(member.broker, came, refusal)
            return
        asked = Asked(member.number, self._world.new_id())
        self._offers[str(asked.request)] = (member, came)
        envelope = mapping.envelope(came.sender, came.message, recipient=self._world.recipient(came))
        standing = Standing(frozenset(ABLE), is_in_scope=True, alias=envelope.sender_alias)
        may_cross = not self._world.is_waiting(envelope.recipient, envelope.sender)
        self._world.submit(Offer(asked, instance, standing, envelope, wire=mapping.WIRE, may_cross=may_cross))

    def _answered(self, answer: Answer) -> None:
        member, came = self._offers.pop(str(answer.asked.request), (None, None))
        if member is None or came is None:
            return
        if isinstance(answer.body, Refusal):
            self._counts["intercom_turned_away"] += 1
            self._world.turned_away(member.broker, came, answer.body)
        else:
            self._world.arrived(came)

    # ------------------------------------------------------------ receipts

    def _look_later(self, envelope: Envelope, turn: int) -> None:
        if turn < len(LOOK_AFTER_MS) and len(self._looks) < LOOKS_MAX:
            self._look_number += 1
            due_ms = self._world.now().mono_ms + LOOK_AFTER_MS[turn]
            heapq.heappush(self._looks, _Look(due_ms, self._look_number, envelope, turn))
            self._world.rearm()

    def look_at(self, envelope: Envelope, turn: int = len(LOOK_AFTER_MS)) -> None:
        """Read what the recipient recorded of a message of ours, where it can tell."""
        session_id = self._addresses.get(envelope.recipient.instance)
        member = None if session_id is None else self.place_of(session_id)
        row = None if member is None or session_id is None else member.roster.get(session_id)
        if row is None or session_id is None or not isinstance(row.get("rootSessionId"), str):
            return

        def done(body: dict[str, Any] | Refusal) -> None:
            facts = body.get("receipt") if isinstance(body, dict) else None
            told = mapping.receipt_told(facts, envelope) if isinstance(facts, dict) else None
            if told is not None:
                asked = Asked(FIRST_LINK, "receipt")  # of no offer: nobody waits for what became of it
                self._world.submit(ReceiptTold(asked, envelope.recipient.instance, told))
            if told is not None or (isinstance(body, dict) and body.get("error") == mapping.NOT_RECORDED):
                self._look_later(envelope, turn + 1)

        body = {"rootSessionId": row["rootSessionId"], "messageId": envelope.message_id}
        self.read("receipt", session_id, body, done)

    # ------------------------------------------------------------ time

    @property
    def deadline_ms(self) -> int | None:
        """The next monotonic moment at which something here is due."""
        dues = [member.deadline_ms for member in self.members.values()]
        dues += [self._looks[0].due_ms] if self._looks else []
        return min((due for due in dues if due is not None), default=None)

    def tick(self) -> None:
        """Time passed."""
        now_ms = self._world.now().mono_ms
        for member in self.members.values():
            due = member.deadline_ms
            if due is not None and due <= now_ms:
                member.tick(now_ms)
        while self._looks and self._looks[0].due_ms <= now_ms:
            look = heapq.heappop(self._looks)
            self.look_at(look.envelope, look.turn)

    def close(self, *, is_parked: bool = False) -> None:
        """Leave every broker."""
        for member in self.members.values():
            member.leave(is_parked=is_parked)
