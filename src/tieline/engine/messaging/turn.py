"""One command's plan while it is made.

Rule 1: a row that is written here has taken effect here; what follows in the same turn sees it.
Rule 2: what a local asker or a peer is told of a record waits for its rows; only what we learn of our
    own sent messages may ride in a later group, because asking the recipient again learns it again.
Rule 3: the answer to an offer that came from this root itself goes to `own_answers`, not to a link.

Source: engine/contract.py rule 3; reference/reliability.md I2, I3, I18.
"""

from tieline.engine.contract import (
    Answer,
    Asked,
    Box,
    ContextRow,
    MoveRow,
    Plan,
    Recorded,
    Row,
    Send,
)
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.record import Record
from tieline.errors import Refusal
from tieline.machine.inbox import STATES, Stage, Step, step
from tieline.machine.outbox import ENDED, Known
from tieline.model.moment import Moment
from tieline.model.receipt import Durability, Event, Receipt

__all__ = ["OWN_LINK", "Body", "Turn"]

OWN_LINK = -1
"""The link of what this root asks itself: its runs write to each other through the same doors."""

Body = Receipt | Refusal | Recorded


class Turn:
    """Rows, sends and events of one command."""

    def __init__(self, custody: Custody, now: Moment) -> None:
        self.custody = custody
        self.now = now
        self.answer: object = None
        self.answer_record: Record | None = None  # its receipt at the end of the turn is the answer
        self.rows: list[Row] = []
        self.sends: list[Send] = []
        self.events: list[Event] = []
        self.is_urgent = False
        self.admits = False
        self.own_answers: dict[int, Body] = {}

    def plan(self) -> Plan:
        """Return what was decided."""
        answer = self.answer if self.answer_record is None else self.answer_record.receipt
        return Plan(
            answer=answer,
            rows=tuple(self.rows),
            sends=tuple(self.sends),
            events=tuple(self.events),
            is_urgent=self.is_urgent,
            admits=self.admits,
        )

    def write(self, row: Row, *, is_urgent: bool = True) -> None:
        """Write one row and let it take effect."""
        event = self.custody.apply(row, self.now, self.now.mono_ms)
        self.rows.append(row)
        if event is not None:
            self.events.append(event)
        self.is_urgent = self.is_urgent or is_urgent

    def next_cursor(self) -> int:
        """Return the cursor of the next row."""
        return self.custody.latest_cursor + 1

    def tell_peer(self, asked: Asked, body: Body, *, is_subscription: bool = False) -> None:
        """Answer a peer's request."""
        if isinstance(body, Refusal):
            self.custody.count("refused_" + body.code)
        if asked.link == OWN_LINK:
            assert isinstance(asked.request, int)
            self.own_answers[asked.request] = body
        else:
            self.sends.append(Answer(asked, body, is_subscription))

    def refuse(self, refusal: Refusal) -> None:
        """Tell the local asker no."""
        self.custody.count("refused_" + refusal.code)
        self.answer = refusal

    def move_sent(self, record: Record, known: Known) -> None:
        """Write what is known of a sent message now."""
        self.write(self._row(record, known, Box.OUT), is_urgent=False)

    def move_received(
        self, record: Record, taken: Step, *, token: str | None = None, outcome: str | None = None
    ) -> bool:
        """Write one step of a received message; return whether it changed anything."""
        after = step(record.stage, taken)
        if after is None:
            return False
        before = record.known
        known = Known(
            state=STATES[after],
            accepted_ms=self.now.wall_ms if taken is Step.ACCEPT else before.accepted_ms,
            consumed_ms=self.now.wall_ms if after is Stage.CONSUMED else before.consumed_ms,
            replied_ms=self.now.wall_ms if after is Stage.REPLIED else before.replied_ms,
            outcome=ENDED if taken is Step.END else outcome,
            durability=Durability.SYNCED if taken is Step.ACCEPT else before.durability,
        )
        note = {Step.PREPARE: "prepared", Step.RELEASE: "released"}.get(taken, "")
        count = record.exposure_count + (taken is Step.PREPARE)
        self.write(self._row(record, known, Box.IN, note=note, token=token, exposure_count=count))
        return True

    def record_context(self, record: Record, name: str, token: str) -> None:
        """Write that the model's context holds a message."""
        self.write(ContextRow(self.next_cursor(), record.cursor, name, token, self.now.wall_ms))

    def _row(
        self,
        record: Record,
        known: Known,
        box: Box,
        *,
        note: str = "",
        token: str | None = None,
        exposure_count: int = 0,
    ) -> MoveRow:
        assert record.box is box
        return MoveRow(
            cursor=self.next_cursor(),
            message=record.cursor,
            state=known.state,
            at_ms=self.now.wall_ms,
            accepted_ms=known.accepted_ms,
            consumed_ms=known.consumed_ms,
            replied_ms=known.replied_ms,
            outcome=known.outcome,
            durability=known.durability,
            is_retryable=known.is_retryable,
            note=note,
            token=token,
            exposure_count=exposure_count,
            recipient_cursor=known.recipient_cursor,
        )
