"""What our peers send: admission, intent, the order of a route, and what became of each attempt.

Theory. A route's messages leave one at a time. The head is tried again until the recipient said
something; only then may the next one go. A head past its expiry can no longer be accepted, so it
gives way, and its recipient is asked what became of it.

Rule 1: nothing leaves before its intent is written; the intent is written before the answer is given.
Rule 2: a repeated send with the same id and content is the same send.
Rule 3: where a repeat would be a second message, what may have left is off its route for good, and nobody
    is asked about it: only a receipt moves it.
Rule 4: what cannot be known is `unknown`; `NOT_DELIVERED` needs proof, or a recipient that does not
    know the id once the message has expired.

Source: reference/native.md 1H, 1I, 2.6b, 3.3, 3.4; reference/reliability.md I3, I4, I10, I13, I20.
"""

import msgspec

from tieline.engine import conversation
from tieline.engine.contract import Act, Box, Draft, MessageRow, Outcome, Settle, Submit, Transmit
from tieline.engine.messaging import courier
from tieline.engine.messaging.pacing import Wait
from tieline.engine.messaging.record import Record
from tieline.engine.messaging.timers import TimerKind
from tieline.engine.messaging.turn import Turn
from tieline.engine.messaging.underway import Errand, Flight
from tieline.errors import Refusal
from tieline.machine import outbox
from tieline.machine.admission import DEPARTURE, Facts, Target, verdict
from tieline.machine.inbox import Step
from tieline.model.identity import Capability, is_plain_id
from tieline.model.message import Envelope, Key, digest
from tieline.model.receipt import THEIRS, Receipt, State
from tieline.model.traits import Traits, traits_of

__all__ = ["advance", "lapse", "malformed", "reconcile", "settle", "submit", "tell"]

TOPIC_CHARACTERS_MAX = 256
NO_WAIT = Wait()
FINAL_FOR_REPLY = frozenset({State.ACCEPTED, State.CONSUMED, State.REPLIED})


def malformed(envelope: Envelope) -> str | None:
    """Return what is wrong with the form of a message, a sentence, or None."""
    if not is_plain_id(envelope.message_id):
        return "messageId is not an id of 1 to 256 characters"
    if envelope.reply_to is not None and not is_plain_id(envelope.reply_to):
        return "replyTo is not an id of 1 to 256 characters"
    if envelope.correlation_id is not None and not is_plain_id(envelope.correlation_id):
        return "correlationId is not an id of 1 to 256 characters"
    if not envelope.content:
        return "content is empty"
    if envelope.topic is not None and not 0 < len(envelope.topic) <= TOPIC_CHARACTERS_MAX:
        return f"topic is not of 1 to {TOPIC_CHARACTERS_MAX} characters"
    if not 0 <= envelope.automatic_depth <= conversation.DEPTH_MAX:
        return f"automaticDepth is not 0 to {conversation.DEPTH_MAX}"
    texts = [envelope.content, envelope.topic or "", envelope.thread or ""]
    for item in envelope.attachments:
        texts += [item.name, item.text, item.media_type]
    for text in texts:
        if "\0" in text or not _is_unicode(text):
            return "a text holds NUL or half of a surrogate pair"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- sending


def submit(turn: Turn, command: Submit) -> None:
    """Take a local send into custody, or answer for the same send again."""
    custody, draft = turn.custody, command.draft
    turn.is_urgent = True  # even a repeat is answered only when the intent it repeats is durable
    if draft.sender.instance != custody.own or draft.sender.id not in custody.peers:
        turn.refuse(Refusal("INVALID_PARAMS", "the sender is no peer of this root"))
        return
    recorded = custody.sent(Key(custody.own, draft.message_id, draft.recipient.id))
    original = _original(turn, draft)
    depth = conversation.depth_of(draft.act, original, custody.budgets.exposed_depth(draft.sender.id))
    envelope = _envelope(turn, draft, None if original is None else original.chain, depth)
    if recorded is not None:
        _repeat(turn, recorded, draft, envelope)
        return
    refusal = verdict(DEPARTURE, _facts(turn, draft, envelope, _fault(turn, draft, envelope, original)))
    if refusal is not None:
        turn.refuse(refusal)
        return
    life_ms = custody.limits.expiry_ms if draft.expiry_ms is None else draft.expiry_ms
    row = MessageRow(
        cursor=turn.next_cursor(),
        box=Box.OUT,
        envelope=envelope,
        digest=digest(envelope),
        at_ms=turn.now.wall_ms,
        expires_ms=turn.now.wall_ms + life_ms,
        deadline_ms=turn.now.mono_ms + life_ms,
        from_person=draft.act is Act.PERSON,
    )
    turn.write(row)
    turn.admits = True
    custody.count("submitted")
    custody.pacing.charge(envelope, turn.now.mono_ms)
    record = custody.records[row.cursor]
    turn.answer_record = record
    _hasten(turn, record.route)
    advance(turn, record.route)


def _original(turn: Turn, draft: Draft) -> Envelope | None:
    """Return the received message that a draft answers, if there is one."""
    if draft.reply_to is None:
        return None
    found = turn.custody.received(Key(draft.recipient.instance, draft.reply_to, draft.sender.id))
    return None if found is None else found.envelope


def _fault(turn: Turn, draft: Draft, envelope: Envelope, original: Envelope | None) -> Refusal | None:
    """Return why a draft may not be sent as the act and the reply that it is, or None."""
    is_reply = draft.reply_to is not None
    refusal = conversation.act_fault(draft.act, is_reply=is_reply, idle_behavior=turn.custody.idle_behavior)
    if refusal is None and is_reply:
        refusal = conversation.answer_fault(original, envelope)
    if refusal is None and not turn.custody.is_live(draft.sender):
        refusal = Refusal("TARGET_ENDED", "the sending run has ended")
    if refusal is None and draft.is_ask and not draft.may_cross:
        theirs = turn.custody.open_ask(draft.recipient.id, draft.sender.id, turn.now)
        refusal = conversation.ask_back_fault(None if theirs is None else theirs.envelope)
    return refusal


def _envelope(turn: Turn, draft: Draft, correlation_id: str | None, depth: int) -> Envelope:
    custody = turn.custody
    standing = custody.standing_of(draft.sender)
    life_ms = custody.limits.expiry_ms if draft.expiry_ms is None else draft.expiry_ms
    return Envelope(
        message_id=draft.message_id,
        sender=draft.sender,
        recipient=draft.recipient,
        content=draft.content,
        topic=draft.topic,
        reply_to=draft.reply_to,
        correlation_id=correlation_id,
        automatic_depth=depth,
        created_ms=turn.now.wall_ms,
        expires_ms=turn.now.wall_ms + life_ms,
        sender_alias=standing.alias,
        sender_project=standing.project,
        delivery=draft.delivery,
        thread=draft.thread,
        replaces=draft.replaces,
        is_ask=draft.is_ask,
        notify_when_idle=draft.notify_when_idle,
        attachments=draft.attachments,
    )


def _facts(turn: Turn, draft: Draft, envelope: Envelope, fault: Refusal | None) -> Facts:
    """Measure a draft."""
    custody, limits = turn.custody, turn.custody.limits
    traits = traits_of(draft.recipient.instance)
    wrong = malformed(envelope)
    if wrong is None and draft.is_ask and draft.sender == draft.recipient:
        wrong = "a peer cannot ask itself: nobody would answer"
    life_ms = limits.expiry_ms if draft.expiry_ms is None else draft.expiry_ms
    sender, recipient = draft.sender.id, draft.recipient.id
    wait = NO_WAIT if wrong else custody.pacing.wait(envelope, turn.now.mono_ms)
    return Facts(
        malformed=wrong,
        is_in_scope=draft.standing.is_in_scope,
        may_send=Capability.SEND.value in custody.standing_of(draft.sender).capabilities,
        may_receive=Capability.RECEIVE.value in draft.standing.capabilities,
        unsaid=_unsaid(draft, envelope, traits) if envelope.needs_tieline else (),
        target=Target.LIVE,
        conversation=fault,
        content_bytes=0 if wrong else envelope.content_bytes,
        content_bytes_max=limits.message_bytes
        if traits.message_bytes_max is None
        else traits.message_bytes_max,
        life_ms=life_ms,
        asked_life_ms=life_ms,
        life_ms_max=limits.max_expiry_ms,
        depth=envelope.automatic_depth,
        chain_count=custody.budgets.chain_count(envelope.chain),
        automatic_max=limits.automatic_replies,
        is_depth_bound=envelope.automatic_depth > 0
        and (draft.act is Act.AUTOMATIC or custody.idle_behavior == "auto"),
        pair_count=custody.budgets.pair_count(sender, recipient, turn.now.mono_ms),
        pair_max=limits.agent_sends_max,
        is_pair_bound=draft.act is not Act.PERSON,
        stored_bytes=0 if wrong else custody.with_new(envelope),
        stored_bytes_max=limits.storage_bytes,
        wait_ms=wait.ms,
        is_repeat=wait.is_repeat,
    )


def _unsaid(draft: Draft, envelope: Envelope, traits: Traits) -> tuple[str, ...]:
    """Return the options of a message that its recipient cannot be told."""
    said = traits.carries
    if draft.is_recipient_tieline is not False:
        said |= traits.extends
    return tuple(sorted(envelope.options - said))


def _repeat(turn: Turn, record: Record, draft: Draft, envelope: Envelope) -> None:
    """Answer a send whose id is known: the recorded receipt, or a conflict."""
    custody = turn.custody
    # Correlation and depth were decided at the first attempt; what the sender owns must be the same.
    again = msgspec.structs.replace(
        envelope,
        correlation_id=record.envelope.correlation_id,
        automatic_depth=record.envelope.automatic_depth,
    )
    if malformed(again) is not None or digest(again) != record.digest:
        turn.refuse(Refusal("MESSAGE_ID_CONFLICT", "this message id names another message"))
        return
    if again.is_ask is not record.envelope.is_ask:
        # Whoever waits for the answer to a message that asks nothing would wait for nothing.
        kind = "a question" if record.envelope.is_ask else "a message that asks nothing"
        turn.refuse(Refusal("MESSAGE_ID_CONFLICT", f"this message id names {kind}"))
        return
    turn.answer_record = record
    custody.count("repeated")
    known = None if record.is_once else outbox.reenter(record.known)
    if known is not None and record.deadline_ms > turn.now.mono_ms:
        refusal = verdict(DEPARTURE[:4], _facts(turn, draft, again, None))
        if refusal is not None:
            turn.answer_record = None
            turn.refuse(refusal)
            return
        record.envelope = msgspec.structs.replace(
            record.envelope, content=draft.content, attachments=draft.attachments
        )
        record.has_content = True
        turn.move_sent(record, known)
        turn.is_urgent = True
    _hasten(turn, record.route)
    advance(turn, record.route)


def _hasten(turn: Turn, route: tuple[str, str]) -> None:
    """Somebody waits on this route: try its head now instead of later."""
    waiting = turn.custody.routes.get(route)
    transit = turn.custody.records[waiting[0]].transit if waiting else None
    if transit is not None and not transit.attempt:
        transit.retry_at_ms = turn.now.mono_ms


# ---------------------------------------------------------------- the route


def advance(turn: Turn, route: tuple[str, str]) -> None:
    """Transmit the head of a route if it may go now."""
    custody = turn.custody
    while True:
        waiting = custody.routes.get(route)
        if not waiting:
            return
        record = custody.records[waiting[0]]
        transit = record.transit
        assert transit is not None
        if transit.attempt:
            return
        if record.deadline_ms <= turn.now.mono_ms:
            lapse(turn, record)
            continue
        if transit.retry_at_ms > turn.now.mono_ms:
            return
        instance = record.envelope.recipient.instance
        transit.attempt = custody.new_attempt(Flight(Errand.TRANSMIT, record.cursor, instance))
        record.attempt_count += 1
        custody.count("retries" if record.attempt_count > 1 else "transmitted")
        turn.sends.append(Transmit(transit.attempt, instance, record.envelope, record.envelope.needs_tieline))
        return


def lapse(turn: Turn, record: Record) -> None:
    """A sent message that nobody answered for has expired: it blocks its route no longer."""
    transit = record.transit
    if transit is None:
        return
    record.is_overdue = True
    if not record.traits.has_status:
        turn.custody.reckon(record, turn.now)
    if transit.attempt or transit.is_lapsed:
        return
    if not transit.may_have_left:
        _not_delivered(turn, record)
        return
    transit.is_lapsed = True
    turn.custody.leave_route(record)
    if record.traits.has_status:
        courier.ask(turn, record)


def _not_delivered(turn: Turn, record: Record) -> None:
    known = outbox.undelivered(record.known)
    if known is not None:
        turn.custody.count("expired")
        turn.move_sent(record, known)


def _back_off(turn: Turn, record: Record) -> None:
    transit = record.transit
    if transit is None or transit.attempt or transit.is_lapsed:
        return
    transit.failure_count += 1
    delay_ms = outbox.retry_delay_ms(record.envelope.message_id, transit.failure_count)
    transit.retry_at_ms = turn.now.mono_ms + delay_ms
    turn.custody.timers.add(transit.retry_at_ms, TimerKind.RETRY, cursor=record.cursor)


# ---------------------------------------------------------------- what became of it


def settle(turn: Turn, command: Settle) -> None:
    """End an attempt of any errand."""
    custody = turn.custody
    flight = custody.flights.pop(command.attempt, None)
    if flight is None:
        custody.count("settles_ignored")
        return
    record = custody.records.get(flight.cursor)
    if flight.errand is Errand.RECEIPT:
        courier.settle(turn, flight, command)
    elif flight.errand is Errand.STATUS:
        if record is not None and command.outcome is Outcome.ANSWERED:
            _answered(turn, record, command.receipt)
        courier.settle(turn, flight, command)
    elif record is not None:
        _settle_transmit(turn, record, command)


def _settle_transmit(turn: Turn, record: Record, command: Settle) -> None:
    transit = record.transit
    is_present = transit is not None and transit.attempt in (0, command.attempt)
    if transit is not None and transit.attempt == command.attempt:
        transit.attempt = 0
    route = record.route
    match command.outcome:
        case Outcome.ANSWERED:
            if not _answered(turn, record, command.receipt):
                _lost(turn, record)
        case Outcome.REFUSED:
            _refused(turn, record, command.refusal, is_present=is_present)
        case Outcome.LOST:
            _lost(turn, record)
        case Outcome.WRITTEN:
            _written(turn, record, command.said)
            if command.said is not None:  # more will not be told of a reply where brokers answer
                _answer_arrived(turn, record.envelope)
        case Outcome.UNREACHED:
            _unreached(turn, record, command, is_present=is_present)
    if record.is_overdue or record.deadline_ms <= turn.now.mono_ms:
        lapse(turn, record)
    advance(turn, route)


def _unreached(turn: Turn, record: Record, command: Settle, *, is_present: bool) -> None:
    """Not one byte of an attempt left."""
    if record.is_once:  # where no recipient refuses an attempt our own reason is the only one (I20)
        record.last_refusal = command.refusal or record.last_refusal
    if command.is_gone:
        _gone(turn, record.route)
    if record.is_once and record.known.state is State.UNKNOWN:
        _written(turn, record)  # a receipt came: it left some other way
    elif is_present:
        _back_off(turn, record)


def _answered(turn: Turn, record: Record, receipt: Receipt | None) -> bool:
    """Take in a receipt that came as an answer; return whether it is one for this message."""
    if (
        receipt is None
        or receipt.state not in THEIRS
        or receipt.message_id != record.envelope.message_id
        or receipt.recipient != record.envelope.recipient.id
    ):
        turn.custody.count("answers_malformed")
        return False
    tell(turn, record, receipt)
    return True


def _refused(turn: Turn, record: Record, refusal: Refusal | None, *, is_present: bool) -> None:
    """A typed refusal ended an attempt."""
    if refusal is None:
        _lost(turn, record)
        return
    record.last_refusal = refusal
    turn.custody.count("sent_refused_" + refusal.code)
    if record.transit is None or not is_present:
        return
    if record.is_once and refusal.code == "PEER_OFFLINE" and record.known.state is State.PENDING:
        _back_off(turn, record)  # nothing left: nobody was there to take it
        return
    record.transit.may_have_left = True
    # A link refuses without looking at any record: that says nothing of an attempt before this one.
    is_in_question = record.transit.is_in_question and refusal.code in outbox.LINK_CODES
    known = None if is_in_question else outbox.refused(record.known, refusal)
    if known is None and record.is_once:
        _written(turn, record)
    elif known is None:
        record.transit.is_in_question |= refusal.code in outbox.KEPT_CODES
        _back_off(turn, record)
    else:
        turn.move_sent(record, known)


def _lost(turn: Turn, record: Record) -> None:
    """Transmitted, and no answer: only the same id may ask again, where it may."""
    if record.transit is None:
        return
    if record.is_once:
        _written(turn, record)
        return
    record.transit.may_have_left = True
    known = outbox.lost(record.known)
    if known is not None:
        turn.move_sent(record, known)
    _back_off(turn, record)


def _written(turn: Turn, record: Record, said: str | None = None) -> None:
    """It left, and no answer comes on its link: nobody knows, it is not sent again, the next one may go."""
    transit = record.transit
    if transit is None:
        return
    transit.may_have_left = True
    if not transit.is_lapsed:
        transit.is_lapsed = True
        turn.custody.leave_route(record)
    known = outbox.lost(record.known, said)
    if known is not None:
        turn.move_sent(record, known)


def reconcile(turn: Turn) -> None:
    """Write that nobody knows of what may have left before a restore and may not leave twice."""
    custody = turn.custody
    unsure, custody.unsure = custody.unsure, []
    for cursor in unsure:
        record = custody.records.get(cursor)
        if record is not None:
            _written(turn, record)


def _gone(turn: Turn, route: tuple[str, str]) -> None:
    """The recipient's instance is proven dead: what never left for it will never arrive."""
    custody = turn.custody
    for cursor in list(custody.routes.get(route, ())):
        record = custody.records[cursor]
        if record.transit is not None and not record.transit.may_have_left and not record.transit.attempt:
            _not_delivered(turn, record)


def tell(turn: Turn, record: Record, receipt: Receipt) -> None:
    """Take in what the recipient states of a sent message."""
    known = outbox.step(record.known, receipt, record.traits.durability)
    if known is None:
        turn.custody.count("receipts_ignored")
        return
    was_unsettled = record.is_unsettled
    turn.move_sent(record, known)
    if was_unsettled and (known.state in FINAL_FOR_REPLY or known.accepted_ms is not None):
        _answer_arrived(turn, record.envelope)
    if was_unsettled:
        advance(turn, record.route)


def _answer_arrived(turn: Turn, envelope: Envelope) -> None:
    """Our message was accepted; when it is a reply, its original is replied, and its sender told so."""
    if envelope.reply_to is None:
        return
    key = Key(envelope.recipient.instance, envelope.reply_to, envelope.sender.id)
    original = turn.custody.received(key)
    if original is None or original.envelope.sender != envelope.recipient:
        return
    if turn.move_received(original, Step.REPLY):
        courier.owe(turn, original)
