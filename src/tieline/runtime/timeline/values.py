"""The lines of a timeline, what is asked of it, and how a line is shown.

Rule: the words about a line are those of a receipt: they say no more than is known.

Source: DESIGN.md 8; docs/json-shapes.md, "log".
"""

from typing import Any

import msgspec

from tieline.model.moment import to_iso
from tieline.model.receipt import Durability, Receipt, State
from tieline.runtime import render

__all__ = ["PeerName", "ReceiptStep", "TimelineEntry", "TimelinePage", "TimelineQuery", "shape"]


class PeerName(msgspec.Struct, frozen=True):
    """A peer: what routes, and its readable name, "" where nobody told it."""

    id: str
    alias: str = ""


class ReceiptStep(msgspec.Struct, frozen=True):
    """One receipt: the state, when, and the outcome that refines it."""

    state: str
    at_ms: int
    outcome: str | None = None


class TimelineEntry(msgspec.Struct, frozen=True):
    """One message, with both ends as far as they are known.

    Attributes:
        at_ms: When it was sent, wall milliseconds; when it came, where its sender's record is not known.
        text: Its whole text; empty while it waits for the recipient's person.
        receipts: Every receipt, oldest first.
        correlation: The first message of its chain; its own id where it began one.
        root: The instance whose record it is: the sender's, else the recipient's.
        is_ended: Its sender has ended: nothing retries it.
        durability: What the recipient said of its storage.
        place: Names this line as a cursor: lines before it are older.
    """

    at_ms: int
    message_id: str
    sender: PeerName
    recipient: PeerName
    topic: str | None
    text: str
    state: str
    outcome: str | None
    reply_to: str | None
    correlation: str
    thread: str | None
    receipts: tuple[ReceiptStep, ...]
    wire: str
    root: str
    is_ask: bool = False
    is_ended: bool = False
    durability: str | None = None
    place: str = ""

    def sentence(self) -> str:
        """Return what is known of it as one true sentence."""
        if self.is_ended and self.state == "unknown":
            return "Its sender ended before it was settled; nothing retries it: ask the recipient."
        durability = None if self.durability is None else Durability(self.durability)
        receipt = Receipt(
            self.message_id, self.sender.id, self.recipient.id, State(self.state), 0,
            outcome=self.outcome, durability=durability,
        )  # fmt: skip
        return render.receipt_text(receipt, self.wire)


class TimelineQuery(msgspec.Struct, frozen=True):
    """What is looked for.

    Attributes:
        text: Without regard to case, in text, topic, names and ids.
        peer: A peer id or an alias, of the sender or the recipient.
        states: Only these; empty is all.
        since_ms, until_ms: Wall milliseconds, the first included, the second not.
        limit: The newest so many, 1 to 1000.
        before: The `cursor` of a page: only older lines.
    """

    text: str = ""
    peer: str = ""
    states: frozenset[str] = frozenset()
    since_ms: int = 0
    until_ms: int | None = None
    limit: int = 200
    before: str | None = None


class TimelinePage(msgspec.Struct, frozen=True):
    """The lines that fit, oldest first.

    Attributes:
        cursor: Give it as `before` for older lines; None when there are none.
        faults: What could not be read, a sentence each.
        is_cut: The search ended before all was looked at, or older lines were let go.
        count: How many lines there are in all.
    """

    entries: tuple[TimelineEntry, ...]
    cursor: str | None = None
    faults: tuple[str, ...] = ()
    is_cut: bool = False
    count: int = 0


def shape(entry: TimelineEntry) -> dict[str, Any]:
    """Return one line as JSON shows it; what is not known is absent. Source: docs/json-shapes.md, "log"."""
    facts: dict[str, Any] = {
        "at": to_iso(entry.at_ms),
        "messageId": entry.message_id,
        "from": entry.sender.id,
        "fromAlias": entry.sender.alias or None,
        "to": entry.recipient.id,
        "toAlias": entry.recipient.alias or None,
        "topic": entry.topic,
        "text": entry.text,
        "state": entry.state,
        "outcome": entry.outcome,
        "durability": entry.durability,
        "said": entry.sentence(),
        "replyTo": entry.reply_to,
        "correlationId": entry.correlation,
        "thread": entry.thread,
        "ask": entry.is_ask,
        "wire": entry.wire,
        "root": entry.root,
        "ended": entry.is_ended,
        "receipts": [
            {"state": step.state, "at": to_iso(step.at_ms)}
            | ({} if step.outcome is None else {"outcome": step.outcome})
            for step in entry.receipts
        ],
        "cursor": entry.place,
    }
    return {name: value for name, value in facts.items() if value is not None}
