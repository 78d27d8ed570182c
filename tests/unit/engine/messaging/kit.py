"""What the tests of custody share: engines with a clock, a journal, and short ways to say a command."""

from collections.abc import Iterable
from typing import Any

from tieline.config import Limits
from tieline.engine.contract import (
    Act,
    Answer,
    Asked,
    Command,
    Draft,
    Expose,
    Offer,
    Outcome,
    Plan,
    Row,
    Settle,
    Standing,
    Submit,
    Taken,
    Tick,
    Transmit,
)
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.model.identity import Capability, Peer
from tieline.model.message import Envelope
from tieline.model.moment import Moment
from tieline.model.receipt import Durability, Receipt, State

EVERY = frozenset(one.value for one in Capability)
FREE = Standing(EVERY, is_in_scope=True, alias="far", project="work")
WALL_MS = 1_700_000_000_000
A, B, C = Peer("a"), Peer("b"), Peer("c")


class Bench:
    """One engine, its clock and its journal."""

    def __init__(
        self, own: str = "a", *, idle_behavior: str = "notify", limits: Limits | None = None
    ) -> None:
        self.own = own
        self.root = Peer(own)
        self.limits = limits or Limits()
        self.idle_behavior = idle_behavior
        self.engine = Messaging(own, self.limits, idle_behavior=idle_behavior, alias=own, project="work")
        self.wall_ms = WALL_MS
        self.mono_ms = 1_000_000
        self.groups: list[tuple[Row, ...]] = []
        self.asked = 0

    @property
    def now(self) -> Moment:
        return Moment(self.wall_ms, self.mono_ms)

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group]

    def pass_ms(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms
        self.mono_ms += duration_ms

    def do(self, command: Command) -> Plan:
        plan = self.engine.handle(command, self.now)
        self.groups.append(plan.rows)
        return plan

    def tick(self, duration_ms: int = 0) -> Plan:
        self.pass_ms(duration_ms)
        return self.do(Tick())

    def restored(self, rows: Iterable[Row] | None = None) -> Messaging:
        """Return a new engine from the journal, or from part of it."""
        fresh = Messaging(
            self.own, self.limits, idle_behavior=self.idle_behavior, alias=self.own, project="work"
        )
        fresh.restore(self.rows if rows is None else rows, self.now)
        return fresh

    def submit(self, message_id: str = "m1", recipient: Peer = B, **fields: Any) -> Plan:
        return self.do(Submit(draft(message_id, fields.pop("sender", self.root), recipient, **fields)))

    def offer(
        self, message_id: str = "m1", sender: Peer = B, standing: Standing = FREE, **fields: Any
    ) -> Any:
        """Hand a message over; return the receipt or the refusal, or None while it waits."""
        return self.answer(self.offered(message_id, sender, standing, **fields))

    def offered(self, message_id: str, sender: Peer, standing: Standing = FREE, **fields: Any) -> Plan:
        self.asked += 1
        one = envelope(message_id, sender, fields.pop("recipient", self.root), **fields)
        return self.do(Offer(Asked(1, self.asked), sender.instance, standing, one))

    @staticmethod
    def answer(plan: Plan) -> Any:
        return next((send.body for send in plan.sends if isinstance(send, Answer)), None)

    def settle(self, attempt: int, body: Receipt | Refusal | Outcome, *, is_gone: bool = False) -> Plan:
        if isinstance(body, Outcome):
            return self.do(Settle(attempt, body, is_gone=is_gone))
        if isinstance(body, Refusal):
            return self.do(Settle(attempt, Outcome.REFUSED, refusal=body))
        return self.do(Settle(attempt, Outcome.ANSWERED, receipt=body))

    def expose(self, token: str = "t1", owner: Peer | None = None, **fields: Any) -> Any:
        given: dict[str, Any] = {"rung": "read", "count_max": 16, "bytes_max": 32_768, **fields}
        return self.do(Expose(owner=owner or self.root, token=token, **given)).answer

    def consume(self, token: str = "t1", owner: Peer | None = None, **fields: Any) -> Plan:
        self.expose(token, owner, **fields)
        return self.do(Taken(token))

    def state(self, message_id: str = "m1") -> State:
        return self.engine.sent(message_id, None)[0].receipt.state


def draft(message_id: str, sender: Peer, recipient: Peer, **fields: Any) -> Draft:
    given: dict[str, Any] = {
        "standing": FREE,
        "content": f"text of {message_id}",
        "act": Act.PERSON,
        **fields,
    }
    return Draft(message_id=message_id, sender=sender, recipient=recipient, **given)


def envelope(message_id: str, sender: Peer, recipient: Peer, **fields: Any) -> Envelope:
    given: dict[str, Any] = {"content": f"text of {message_id}", **fields}
    return Envelope(message_id=message_id, sender=sender, recipient=recipient, **given)


def transmitted(plan: Plan) -> list[Transmit]:
    return [send for send in plan.sends if isinstance(send, Transmit)]


def sends_of(plan: Plan, kind: type) -> list[Any]:
    return [send for send in plan.sends if isinstance(send, kind)]


def receipt(message_id: str, state: State, sender: Peer = A, recipient: Peer = B, **fields: Any) -> Receipt:
    given: dict[str, Any] = {"cursor": 1, "durability": Durability.SYNCED, **fields}
    return Receipt(message_id=message_id, sender=sender.id, recipient=recipient.id, state=state, **given)


def accepted(message_id: str = "m1", recipient: Peer = B, **fields: Any) -> Receipt:
    return receipt(message_id, State.ACCEPTED, recipient=recipient, accepted_ms=WALL_MS + 5, **fields)


def seen(engine: Messaging, owners: Iterable[Peer]) -> object:
    """Return all that a reader can learn of an engine's records, to compare two engines."""
    view: list[object] = [engine.storage_bytes, engine.worst_case_bytes, engine.live_runs()]
    for owner in owners:
        page = engine.page(owner, 0, 1_000_000)
        view.append(page)
        view.append(engine.held(owner, unread_only=False, count_max=1_000_000))
        view.append(
            [(one.cursor, one.receipt, one.envelope, one.has_content) for one in engine.outbox(owner)]
        )
        view.append([one.cursor for one in engine.outbox(owner, unresolved_only=True)])
        view.append(engine.inbox_counts(owner))
    return view
