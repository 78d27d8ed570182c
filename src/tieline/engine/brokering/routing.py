"""One send: judged by its sender's features, delivered as its recipient's allow.

Rule 1: every send gets exactly one answer, and what was refused reached nobody.
Rule 2: the recipient's message is ordered before the sender's answer.
Rule 3: nothing is sent that its recipient would disconnect from: too large, or outside the strict form.

Source: reference/intercom.md 1.2 to 1.5, 4.2, 4.6; 43 to 69, 100, 101.
"""

from functools import partial
from typing import Final

from tieline.engine.brokering.asks import Ask
from tieline.engine.brokering.contract import (
    Controlled,
    Delivered,
    Delivery,
    Failed,
    Letter,
    MessageCancelled,
    Output,
    Queued,
    ReceiptPassed,
    ReceiptTold,
    Row,
    SendAsked,
)
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.engine.brokering.guards import guarded_target, is_conditional
from tieline.engine.brokering.records import Record
from tieline.engine.brokering.sessions import Session
from tieline.engine.brokering.staging import STAGING_MS, Staged
from tieline.engine.brokering.state import State
from tieline.engine.brokering.targets import Target, target_of
from tieline.engine.brokering.topology import is_visible
from tieline.engine.brokering.turn import Turn

__all__ = ["FRAME_BYTES_MAX", "cancel", "pass_receipt", "release_staged", "send"]

FRAME_BYTES_MAX: Final = 1_048_576
"""What one frame may hold, its length not counted. Source: reference/intercom.md 1.1."""
_STAGED: Final = "Queued for replace-mode delivery"
_STAGING_FULL: Final = "Replace-mode delivery queue is full; retry after pending updates are delivered."
_HELD: Final = "Recipient is away; held until it returns"
_INVALID: Final = "Invalid message format"
_NO_SPACE: Final = "No space on the disk to keep the message; nothing was delivered"


def send(state: State, sender: Session, asked: SendAsked, turn: Turn) -> None:
    """Route one send and answer it."""
    letter, to = asked.letter, asked.to
    turn.otherwise = (sender.link, Failed(asked.message_id, _NO_SPACE, "E_DELIVERY_FAILED"))
    if letter is None or to is None:
        turn.say(sender.link, Failed(asked.message_id, _INVALID, "E_INVALID_MESSAGE"))
        return
    if asked.is_target_broken:
        reason = "targetId and targetEpoch go together"
        turn.say(sender.link, Failed(asked.message_id, reason, "E_INVALID_TARGET"))
        return
    if is_conditional(sender, letter):
        target: Target | Failed = guarded_target(state.sessions, sender, to, letter)
    else:
        target = target_of(state, sender, asked, to)
    answer = _recorded_answer(state, sender, letter, to, target, asked.target_id, turn)
    if answer is None:
        if isinstance(target, Failed):
            answer = target
        else:
            answer = _carried(state, sender, target, letter, asked, turn)
            if sender.features.is_recorded and not isinstance(answer, Failed):
                record = Record(sender.place, target.id, to, letter, answer, turn.now.mono_ms)
                state.records.add(record)
                turn.undo.append(partial(state.records.remove, record))
    turn.say(sender.link, answer)


def _recorded_answer(
    state: State,
    sender: Session,
    letter: Letter,
    to: str,
    target: Target | Failed,
    target_id: str | None,
    turn: Turn,
) -> Output | None:
    """Return the answer of a send that was made before, or None for a new one."""
    if not sender.features.is_recorded:
        return None
    record = state.records.find(sender.place, letter.message_id, turn.now.mono_ms)
    if record is None:
        return None
    found_id = target_id if isinstance(target, Failed) else target.id
    if record.is_repeated_by(letter, to if target_id is None else None, found_id):
        return record.outcome
    return Failed(letter.message_id, "Message ID was used for another message", "E_MESSAGE_ID_REUSE")


def _carried(
    state: State, sender: Session, target: Target, letter: Letter, asked: SendAsked, turn: Turn
) -> Output:
    """Deliver, stage or hold a message; return what its sender is told."""
    answered = None
    if letter.reply_to is not None:
        answered = state.asks.answered_by(sender.id, target.id, letter.reply_to, turn.now)
    refusal = _judged(state, sender, target, letter, answered, turn)
    if refusal is not None:
        return refusal
    if isinstance(target, Session):
        outcome = _routed(state, sender, target, letter, turn)
    else:
        outcome = _held(state, sender, target, letter, asked.token, turn)
    if isinstance(outcome, Failed):
        return outcome
    if answered is not None:
        state.asks.close(answered, turn)
    is_watched = sender.features.keeps_asks or (isinstance(target, Session) and target.features.keeps_asks)
    if letter.is_ask and is_watched:
        state.asks.open(sender.id, target.id, letter, turn)
    return outcome


def _judged(
    state: State, sender: Session, target: Target, letter: Letter, answered: Ask | None, turn: Turn
) -> Failed | None:
    """Return why a message is refused by what its sender's and target's features promise, or None."""

    def refused(reason: str, code: str) -> Failed:
        return Failed(letter.message_id, reason, code)

    if isinstance(target, Session) and target.features.needs_plain and not letter.is_plain:
        return refused(_INVALID, "E_INVALID_MESSAGE")
    if not sender.features.keeps_asks:
        return None
    if letter.reply_to is not None and answered is None:
        return refused("Reply target does not match a pending ask", "E_REPLY_TARGET")
    if letter.supersedes is not None:
        record = state.records.find(sender.place, letter.supersedes, turn.now.mono_ms)
        if record is None or record.target_id != target.id or isinstance(record.outcome, Failed):
            return refused("Superseded message is not one to this target", "E_SUPERSEDE_TARGET")
    if letter.is_ask:
        if not isinstance(target, Session) and not target.is_parked:
            return refused("Recipient is not connected; asks are not held", "E_TARGET_DISCONNECTED")
        if state.asks.would_cross(sender.id, target.id, answered, turn.now):
            return refused("Recipient is waiting for an answer from this session", "E_MUTUAL_ASK")
        if not state.asks.has_room(sender.id):
            return refused("Too many asks are open", "E_DELIVERY_FAILED")
    return None


def _routed(state: State, sender: Session, target: Session, letter: Letter, turn: Turn) -> Output:
    """Stage a message or deliver it now."""
    if letter.thread_id is not None and sender.features.stages_replacements and letter.guard is None:
        thread = (sender.id, target.id, letter.thread_id)
        turn.undo.append(partial(_restage, state, thread, state.staging.waiting(*thread)))
        if letter.is_ask or target.is_idle:
            due_ms = turn.now.mono_ms + STAGING_MS
            staged = Staged(sender.row(), target.id, letter, due_ms, turn.now.wall_ms)
            if not state.staging.put(staged):
                return Failed(letter.message_id, _STAGING_FULL, "E_DELIVERY_FAILED")
            return Queued(letter.message_id, _STAGED)
        state.staging.replaced(sender.id, target.id, letter.thread_id)
    return _delivered(state, sender, target, letter, turn)


def _restage(state: State, thread: tuple[str, str, str], before: Staged | None) -> None:
    """Let that wait again in a thread which waited in it before."""
    state.staging.replaced(*thread)
    if before is not None:
        state.staging.put(before)


def _delivered(state: State, sender: Session, target: Session, letter: Letter, turn: Turn) -> Output:
    now_ms = turn.now.wall_ms
    for one in (sender, target):
        one.change({"lastIntercomActivity": now_ms})
    output = Delivery(sender.row(), letter.fields, now_ms, now_ms)
    too_large = _too_large(state, letter, output, target)
    if too_large is not None:
        return too_large
    if letter.supersedes is not None and sender.features.is_recorded:
        _supersede(state, sender, target, letter, turn)
    turn.say(target.link, output)
    return Delivered(letter.message_id)


def _too_large(state: State, letter: Letter, output: Delivery, target: Target) -> Failed | None:
    frame_bytes = state.codec.frame_bytes(_features_of(target), output)
    if frame_bytes <= FRAME_BYTES_MAX:
        return None
    reason = f"Intercom message too large ({frame_bytes} bytes; max {FRAME_BYTES_MAX})"
    return Failed(letter.message_id, reason, "E_INVALID_MESSAGE")


def _features_of(target: Target) -> Features:
    """Return how a target is served, or will be when it is back."""
    if isinstance(target, Session):
        return target.features
    return DIRECT if target.is_parked else RECORDED


def _held(state: State, sender: Session, target: Target, letter: Letter, token: str, turn: Turn) -> Output:
    """Hold a message for one that left, and ask for its wake."""
    assert not isinstance(target, Session), "who is live gets its message"
    output = Delivery(sender.row(), letter.fields, turn.now.wall_ms, turn.now.wall_ms)
    if target.is_parked and not letter.is_plain:
        return Failed(letter.message_id, _INVALID, "E_INVALID_MESSAGE")
    too_large = _too_large(state, letter, output, target)
    if too_large is not None:
        return too_large
    if not state.mailbox.hold(target, sender.row(), letter, turn):
        return Failed(letter.message_id, "Mailbox of the recipient is full", "E_DELIVERY_FAILED")
    if letter.supersedes is not None and sender.features.is_recorded:
        _supersede(state, sender, target, letter, turn)
    if not target.is_parked:
        return Delivered(letter.message_id, is_held=True)
    if not letter.is_passive:
        state.wakes.ask(state.sessions, target, letter.message_id, token, turn)
    return Queued(letter.message_id, _HELD)


def _supersede(state: State, sender: Session, target: Target, letter: Letter, turn: Turn) -> None:
    """Take back what a message supersedes: out of the mailbox, or by a word to who has it."""
    assert letter.supersedes is not None, "only what supersedes comes here"
    state.asks.cancel(sender.id, letter.supersedes, turn)
    state.mailbox.withdraw(sender.id, letter.supersedes, turn)
    record = state.records.find(sender.place, letter.supersedes, turn.now.mono_ms)
    if record is not None:
        turn.undo.append(partial(setattr, record, "outcome", record.outcome))
        record.outcome = Failed(letter.supersedes, "Message was superseded", "E_DELIVERY_SUPERSEDED")
    if isinstance(target, Session):
        word = Controlled(
            sender.row(), letter.supersedes, "supersede", turn.now.wall_ms, superseded_by=letter.message_id
        )
        turn.say(target.link, word)


def cancel(state: State, sender: Session, asked: MessageCancelled, turn: Turn) -> None:
    """Take a message back: out of the mailbox, or by a word to who has it; answer as for a send."""
    message_id = asked.message_id
    record = state.records.find(sender.place, message_id, turn.now.mono_ms)
    if record is None or isinstance(record.outcome, Failed):
        turn.say(
            sender.link, Failed(message_id, "Message is not one that can be cancelled", "E_INVALID_TARGET")
        )
        return
    state.asks.cancel(sender.id, message_id, turn)
    if state.mailbox.withdraw(sender.id, message_id, turn) is None:
        target = state.sessions.of_id(record.target_id)
        if target is None or target.features.needs_plain or not is_visible(sender, target):
            reason = "Recipient cannot be told to cancel"
            turn.say(sender.link, Failed(message_id, reason, "E_TARGET_DISCONNECTED"))
            return
        turn.say(target.link, Controlled(sender.row(), message_id, "cancel", turn.now.wall_ms))
    record.outcome = Failed(message_id, "Message was cancelled", "E_DELIVERY_CANCELLED")
    turn.say(sender.link, Delivered(message_id))


def pass_receipt(state: State, recipient: Session, told: ReceiptTold, turn: Turn) -> None:
    """Pass a recipient's word on to who sent it the message; nobody else's word is passed."""
    place = state.records.sender_of(recipient.id, told.message_id)
    sender = None if place is None else state.sessions.of_id(place.id)
    if sender is not None and sender.place == place and is_visible(sender, recipient):
        turn.say(sender.link, ReceiptPassed(recipient.row(), told.receipt))


def release_staged(state: State, turn: Turn, undecided_ms: int | None) -> None:
    """Deliver the staged updates whose time has come; one that cannot be is not reported.

    What came at `undecided_ms` or later stays: it is perhaps taken back.
    """
    until_ms = turn.now.mono_ms
    if undecided_ms is not None:
        until_ms = min(until_ms, undecided_ms + STAGING_MS - 1)
    for staged in state.staging.due(until_ms):
        target = state.sessions.of_id(staged.recipient_id)
        sender = state.sessions.of_id(staged.sender.session_id)
        if target is None:
            continue
        if sender is not None and sender.epoch == staged.sender.epoch:
            _delivered(state, sender, target, staged.letter, turn)
        else:
            _delivered_from(state, staged.sender, target, staged.letter, turn)


def _delivered_from(state: State, sender: Row, target: Session, letter: Letter, turn: Turn) -> None:
    """Deliver what a sender that left has staged."""
    target.change({"lastIntercomActivity": turn.now.wall_ms})
    output = Delivery(sender, letter.fields, turn.now.wall_ms, turn.now.wall_ms)
    if _too_large(state, letter, output, target) is None:
        turn.say(target.link, output)
