"""What peers hand over, ask and tell: admission, duplicates, and whose run a sender really is.

Theory. Custody passes here. A peer that heard `accepted` forgets its duty, so the record is written
before the answer exists; and a peer that did not hear it asks again, so the same message is answered
from the record, whatever the rules of admission say by now: they govern what is new.

Rule 1: the key is the authenticated instance, the id and the recipient; nothing a body claims.
Rule 2: a no is not remembered.
Rule 3: only the recipient that a message was sent to may state a receipt of it.
Rule 4: what is held for consent passes the same checks, and counts against room of its own.
Rule 5: what is not the asker's own is answered as if it did not exist.

Source: reference/native.md 1G, 1H, 2.6b, 2.8, 2.9, 3.4; reference/reliability.md I17, I21 to I25, I28, I47.
"""

from collections import OrderedDict

import msgspec

from tieline.engine import conversation
from tieline.engine.contract import (
    AskDirectory,
    AskedStatus,
    Box,
    DirectoryTold,
    MessageRow,
    Offer,
    ReceiptTold,
    Recorded,
)
from tieline.engine.messaging import consent, courier, outgoing
from tieline.engine.messaging.custody import Custody
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.turn import Turn
from tieline.engine.messaging.underway import Question, Verified
from tieline.errors import Refusal
from tieline.machine.admission import ARRIVAL, PRELIMINARY, Bucket, Facts, Target, refilled, verdict
from tieline.machine.inbox import HELD_MAX, Step
from tieline.model.identity import Capability, Peer
from tieline.model.message import Envelope, Key, digest
from tieline.model.moment import NEVER_MS
from tieline.model.receipt import THEIRS
from tieline.model.traits import TRAITS, Traits, traits_of

__all__ = ["VERIFIED_MS", "ask_again", "directory", "offer", "receipt", "status"]

VERIFIED_MS = 5_000
"""A run that its root named is taken as its own for so long: one heartbeat."""

REPLACED = "REPLACED"
"""Outcome of mail that its sender replaced before anybody read it."""
_NOT_YOURS = Refusal("SCOPE_DENIED", "no message of yours with this id and target")


def offer(turn: Turn, command: Offer) -> None:
    """Take a message into custody, answer with the recorded receipt, or refuse."""
    custody, envelope = turn.custody, command.envelope
    if envelope.sender.instance != command.sender_instance:
        turn.tell_peer(command.asked, Refusal("INVALID_PARAMS", "the sender is not who is connected"))
        return
    if envelope.reply_to is not None and not _traits(command).names_chain:
        command = _linked(custody, command)
        envelope = command.envelope
    wrong = outgoing.malformed(envelope)
    if wrong is None:
        recorded = custody.received(envelope.key)
        if recorded is not None and _is_same(recorded, envelope):
            custody.count("duplicates")
            turn.tell_peer(command.asked, recorded.receipt)
            return
    if envelope.sender.run is None or wrong is not None or _is_bound(turn, envelope.sender):
        _admit(turn, command, wrong)
        return
    standing = command.standing
    refusal = verdict(
        PRELIMINARY,
        Facts(is_in_scope=standing.is_in_scope, may_send=Capability.SEND.value in standing.capabilities),
    )
    if refusal is None:
        refusal = _wait(turn, command)
    if refusal is not None:
        turn.tell_peer(command.asked, refusal)


def _traits(command: Offer) -> Traits:
    """Return the traits of the wire that an offer came over."""
    return traits_of(command.sender_instance) if command.wire is None else TRAITS[command.wire]


def _linked(custody: Custody, command: Offer) -> Offer:
    """Return an offer with the correlation of the message it answers.

    Its wire names that message at most, and nobody vouches for the name: when it is none of ours to this
    sender, what came is a message and no reply.
    """
    envelope = command.envelope
    original = None
    if envelope.reply_to is not None:
        original = custody.sent(Key(custody.own, envelope.reply_to, envelope.sender.id))
    if original is None or original.envelope.sender != envelope.recipient:
        linked = msgspec.structs.replace(envelope, reply_to=None, correlation_id=None)
    else:
        linked = msgspec.structs.replace(envelope, correlation_id=original.envelope.chain)
    return msgspec.structs.replace(command, envelope=linked)


def _is_same(record: Record, envelope: Envelope) -> bool:
    """Return whether an attempt is the recorded message; times count where both attempts gave them."""
    for known, given in (
        (record.envelope.created_ms, envelope.created_ms),
        (record.envelope.expires_ms, envelope.expires_ms),
    ):
        if known is not None and given is not None and known != given:
            return False
    return record.digest == digest(envelope)


# ---------------------------------------------------------------- whose run


def _is_bound(turn: Turn, sender: Peer) -> bool:
    """Return whether a run is known to be its instance's."""
    custody = turn.custody
    if sender.instance == custody.own:
        return sender.id in custody.peers  # we know our own, live or ended
    verified = custody.verified.get(sender.instance)
    return (
        verified is not None
        and turn.now.mono_ms - verified.at_ms <= VERIFIED_MS
        and sender.run in verified.runs
    )


def _wait(turn: Turn, command: Offer) -> Refusal | None:
    """Let an offer wait until its sender's root named its runs."""
    custody, instance = turn.custody, command.sender_instance
    if instance == custody.own:
        return Refusal("INVALID_PARAMS", "senderRunId names no run of this root")
    waiting = custody.questions.get(instance, ())
    total = sum(len(one) for one in custody.questions.values())
    limits = custody.limits
    if len(waiting) >= limits.pending_requests or total >= limits.pending_requests * limits.connections:
        return Refusal("QUEUE_FULL", "too many messages wait for their run's proof", is_retryable=True)
    from_now = Question(command, custody.last_attempt)
    custody.questions.setdefault(instance, OrderedDict())[command.asked] = from_now
    ask_again(turn, instance)
    return None


def ask_again(turn: Turn, instance: str) -> None:
    """Ask a root for its runs, unless it is being asked."""
    custody = turn.custody
    if instance in custody.questions and instance not in custody.asking:
        custody.asking[instance] = custody.new_attempt(None)
        turn.sends.append(AskDirectory(custody.asking[instance], instance))


def directory(turn: Turn, command: DirectoryTold) -> None:
    """A root named its runs, or could not be asked: decide the offers that waited for it."""
    custody = turn.custody
    instance = next((one for one, asked in custody.asking.items() if asked == command.attempt), None)
    if instance is None:
        custody.count("settles_ignored")
        return
    del custody.asking[instance]
    waiting = custody.questions.pop(instance, None)
    if command.runs is not None:
        custody.verified[instance] = Verified(command.runs, turn.now.mono_ms)
    for question in (waiting or {}).values():
        asked, envelope = question.offer.asked, question.offer.envelope
        if command.runs is None:
            text = "the sender's root could not be asked for its runs"
            turn.tell_peer(asked, Refusal("PEER_OFFLINE", text, is_retryable=True))
        elif envelope.sender.run in command.runs:
            offer(turn, question.offer)
        elif command.attempt > question.after_attempt:
            turn.tell_peer(asked, Refusal("INVALID_PARAMS", "senderRunId names no live run of the sender"))
        else:  # the root was asked before this offer came: its run may be younger than the answer
            custody.questions.setdefault(instance, OrderedDict())[asked] = question
    ask_again(turn, instance)


# ---------------------------------------------------------------- admission


def _admit(turn: Turn, command: Offer, wrong: str | None) -> None:
    """Decide a new message."""
    custody, envelope, standing = turn.custody, command.envelope, command.standing
    instance = command.sender_instance
    limits, traits = custody.limits, _traits(command)
    bucket = refilled(
        custody.buckets.get(instance), turn.now.mono_ms, limits.rate_per_second, limits.rate_burst
    )
    refusal = verdict(ARRIVAL, _facts(turn, command, wrong, bucket, traits))
    is_charged = refusal is None or refusal.code == "QUEUE_FULL"  # asking at a full inbox costs too
    if is_charged and not traits.rates_itself:
        custody.buckets[instance] = Bucket(bucket.level - 1000, bucket.at_ms)
    if refusal is not None:
        turn.tell_peer(command.asked, refusal)
        return
    expires_ms = envelope.expires_ms
    if expires_ms is None:
        life_ms = limits.expiry_ms if traits.expiry_ms is None else traits.expiry_ms
        expires_ms = NEVER_MS if traits.is_kept_until_consumed else turn.now.wall_ms + life_ms
    row = MessageRow(
        cursor=turn.next_cursor(),
        box=Box.IN,
        envelope=msgspec.structs.replace(
            envelope, sender_alias=standing.alias, sender_project=standing.project
        ),
        digest=digest(envelope),
        at_ms=turn.now.wall_ms,
        expires_ms=expires_ms,
        deadline_ms=NEVER_MS if expires_ms == NEVER_MS else turn.now.mono_ms + expires_ms - turn.now.wall_ms,
        from_person=envelope.automatic_depth == 0,
        is_held=command.is_held,
    )
    turn.write(row)
    turn.admits = True
    record = custody.records[row.cursor]
    custody.count("held" if command.is_held else "accepted")
    if envelope.replaces and envelope.thread is not None:
        _supersede(turn, record)
    turn.tell_peer(command.asked, record.receipt)
    if envelope.reply_to is not None and not command.is_held:
        consent.reply_arrived(turn, record, traits)


def _supersede(turn: Turn, new: Record) -> None:
    """End the sender's older unread mail of this thread, as its sender asked; what a reader has stays."""
    custody, envelope = turn.custody, new.envelope
    for cursor in list(custody.mailbox(new.owner).unread):
        older = custody.records[cursor]
        is_same = older.envelope.sender == envelope.sender and older.envelope.thread == envelope.thread
        if older is not new and is_same and turn.move_received(older, Step.EXPIRE, outcome=REPLACED):
            custody.count("replaced")
            courier.owe(turn, older)


def _facts(turn: Turn, command: Offer, wrong: str | None, bucket: Bucket, traits: Traits) -> Facts:
    """Measure an offer."""
    custody, envelope, standing = turn.custody, command.envelope, command.standing
    limits, wall_ms = custody.limits, turn.now.wall_ms
    target, own = _target(custody, envelope.recipient)
    life_ms = 1 if envelope.expires_ms is None else envelope.expires_ms - wall_ms
    asked_life_ms = life_ms
    if envelope.expires_ms is not None and envelope.created_ms is not None:
        asked_life_ms = envelope.expires_ms - envelope.created_ms
    mailbox = custody.mailboxes.get(envelope.recipient.id)
    is_conflict = wrong is None and custody.received(envelope.key) is not None
    return Facts(
        malformed=wrong,
        is_in_scope=standing.is_in_scope,
        may_send=Capability.SEND.value in standing.capabilities,
        may_receive=Capability.RECEIVE.value in own,
        target=target,
        is_conflict=is_conflict,
        conversation=None if wrong else _conversation_fault(turn, envelope, may_cross=command.may_cross),
        content_bytes=0 if wrong else envelope.content_bytes,
        content_bytes_max=limits.message_bytes
        if traits.message_bytes_max is None
        else traits.message_bytes_max,
        life_ms=life_ms,
        asked_life_ms=asked_life_ms if life_ms > 0 else life_ms,
        life_ms_max=limits.max_expiry_ms,
        depth=envelope.automatic_depth,
        chain_count=custody.budgets.chain_count(envelope.chain),
        automatic_max=limits.automatic_replies,
        is_depth_bound=envelope.automatic_depth > 0,
        has_token=traits.rates_itself or bucket.level >= 1000,
        unread_count=0 if mailbox is None else mailbox.unconsumed_of(traits_of(command.sender_instance)),
        unread_max=limits.inbox_messages if traits.unconsumed_max is None else traits.unconsumed_max,
        held_count=len(mailbox.held) if command.is_held and mailbox is not None else 0,
        held_max=HELD_MAX,
        stored_bytes=0 if wrong else custody.with_new(envelope),
        stored_bytes_max=limits.storage_bytes,
    )


def _target(custody: Custody, recipient: Peer) -> tuple[Target, frozenset[str]]:
    """Return what is known of the peer that a message is for, and its capabilities."""
    if recipient.instance != custody.own or recipient.id not in custody.peers:
        return Target.UNKNOWN, frozenset()
    if not custody.is_live(recipient):
        return Target.ENDED, frozenset()
    return Target.LIVE, custody.standing_of(recipient).capabilities


def _conversation_fault(turn: Turn, envelope: Envelope, *, may_cross: bool) -> Refusal | None:
    custody = turn.custody
    if envelope.is_ask and not may_cross:
        ours = custody.open_ask(envelope.recipient.id, envelope.sender.id, turn.now)
        refusal = conversation.crossing_fault(None if ours is None else ours.envelope, envelope)
        if refusal is not None:
            return refusal
    if envelope.reply_to is None:
        return None
    original = custody.sent(Key(custody.own, envelope.reply_to, envelope.sender.id))
    return conversation.reply_fault(None if original is None else original.envelope, envelope)


# ---------------------------------------------------------------- questions and receipts


def status(turn: Turn, command: AskedStatus) -> None:
    """Answer a sender's question about its own message."""
    key = Key(command.sender_instance, command.message_id, command.recipient)
    record = turn.custody.received(key)
    if record is None or record.envelope.sender.run != command.sender_run:
        turn.tell_peer(command.asked, _NOT_YOURS)
        return
    turn.tell_peer(command.asked, record.receipt, is_subscription=command.is_subscription)


def receipt(turn: Turn, command: ReceiptTold) -> None:
    """Take in what a recipient states of a message of ours."""
    custody, told = turn.custody, command.receipt
    record = custody.sent(Key(custody.own, told.message_id, told.recipient))
    if (
        record is None
        or record.envelope.recipient.instance != command.from_instance
        or (told.sender and told.sender != record.envelope.sender.id)
    ):
        custody.count("receipts_ignored")
        turn.tell_peer(command.asked, _NOT_YOURS)
        return
    is_word = (told.is_held and record.traits.holds) or (told.is_note and not record.traits.has_status)
    if told.state not in THEIRS and not is_word:
        turn.tell_peer(command.asked, Refusal("INVALID_PARAMS", "that state is not a recipient's to say"))
        return
    turn.is_urgent = True
    outgoing.tell(turn, record, told)
    turn.tell_peer(command.asked, Recorded())
