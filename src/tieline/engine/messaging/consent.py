"""The person's word on mail that waits for it.

Theory. Held mail is stored, so that no crash loses it, and it has not arrived: no reader is shown it,
nothing wakes. It arrives when the person says yes. A person who says nothing is no yes.

Rule 1: each end of the waiting (yes, no, too late, recipient ended) is owed to the sender.
Rule 2: a reply that the person lets in tells, on a wire that tells no other way, that ours was replied to.

Source: reference/pi-peers-and-harness-doors.md 1.6 rule 35, 1.7 rule 40, U16.
"""

from tieline.engine.contract import Consent
from tieline.engine.messaging import courier, outgoing
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.turn import Turn
from tieline.errors import Refusal
from tieline.machine.inbox import Stage, Step
from tieline.model.message import Key
from tieline.model.receipt import DENIED, HELD_EXPIRED, Receipt, State
from tieline.model.traits import Traits

__all__ = ["consent", "lapse", "lapse_all", "reply_arrived"]


def consent(turn: Turn, command: Consent) -> None:
    """Let a held message in, or send it away."""
    custody = turn.custody
    mailbox = custody.mailboxes.get(command.owner.id)
    cursors = [] if mailbox is None else mailbox.by_id.get(command.message_id, [])
    for cursor in cursors:
        record = custody.records[cursor]
        if record.stage is not Stage.HELD:
            continue
        if record.due_ms <= turn.now.mono_ms:
            lapse(turn, record)
            continue
        if command.is_accepted:
            turn.move_received(record, Step.ACCEPT)
            custody.count("accepted")
            reply_arrived(turn, record, record.traits)
        else:
            turn.move_received(record, Step.DENY, outcome=DENIED)
            custody.count("denied")
        turn.answer_record = record
        courier.owe(turn, record)
        return
    turn.refuse(Refusal("UNKNOWN_TARGET", "no message with this id waits for consent here"))


def lapse(turn: Turn, record: Record) -> None:
    """The person said nothing in time."""
    if turn.move_received(record, Step.EXPIRE, outcome=HELD_EXPIRED):
        turn.custody.count("expired")
        courier.owe(turn, record)


def lapse_all(turn: Turn) -> None:
    """The root ends: nobody will be asked any more."""
    custody = turn.custody
    for cursor in sorted(cursor for mailbox in custody.mailboxes.values() for cursor in mailbox.held):
        lapse(turn, custody.records[cursor])


def reply_arrived(turn: Turn, record: Record, traits: Traits) -> None:
    """A message was let in: where its wire tells no other way, the one it names is replied to by that."""
    envelope = record.envelope
    if traits.has_status or envelope.reply_to is None:
        return
    original = turn.custody.sent(Key(turn.custody.own, envelope.reply_to, envelope.sender.id))
    if original is None:
        return
    told = Receipt(
        message_id=envelope.reply_to,
        sender=original.envelope.sender.id,
        recipient=envelope.sender.id,
        state=State.REPLIED,
        cursor=original.known.recipient_cursor or 0,
        replied_ms=turn.now.wall_ms,
    )
    outgoing.tell(turn, original, told)
