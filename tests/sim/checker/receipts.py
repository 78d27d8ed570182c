"""I15 to I20: receipts move forward, have a cause, and come from the recipient alone.

Source: reference/reliability.md 2.4 "Receipts"; reference/native.md 3.3.
"""

from collections.abc import Callable

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import NOT_YET, Fact, Reading, key_of

__all__ = ["INVARIANTS"]

SENT_MOVES = frozenset(
    {("pending", to) for to in ("unknown", "accepted", "consumed", "replied", "rejected", "expired")}
    | {("unknown", to) for to in ("accepted", "consumed", "replied", "rejected", "expired")}
    | {("accepted", to) for to in ("consumed", "replied", "expired", "accepted")}
    | {("consumed", "replied"), ("rejected", "pending")}
)
HELD_MOVES = frozenset(
    {("accepted", to) for to in ("accepted", "consumed", "replied", "expired")} | {("consumed", "replied")}
)
THEIRS = ("accepted", "consumed", "replied")
ENDED = "TARGET_ENDED"


def i15_lattice(reading: Reading, claim: Claim) -> None:
    """States move along the published table only; what is final never changes."""
    for root in reading.honest:
        for cursor, moves in reading.moves.get(root, {}).items():
            message = reading.messages.get(root, {}).get(cursor)
            if message is None:
                continue
            is_held = message.row["box"] == "in"
            state, was_retryable = "accepted" if is_held else "pending", False
            outcome: str | None = None
            for fact in moves:
                to = fact.row["state"]
                is_allowed = (state, to) in (HELD_MOVES if is_held else SENT_MOVES)
                if (state, to) == ("rejected", "pending"):
                    is_allowed = was_retryable
                elif (state, to) == ("accepted", "accepted"):
                    is_allowed = is_allowed and (outcome, fact.row["outcome"]) != (ENDED, None)
                claim(is_allowed, root, message.row["box"], cursor, "moved from", state, outcome, "to", to)
                state, was_retryable, outcome = to, fact.row["retryable"], fact.row["outcome"]


def i16_cause(reading: Reading, claim: Claim) -> None:
    """Consumed has a recorded context, replied has a reply in the asker's store."""
    for root in reading.honest:
        for cursor, moves in reading.moves.get(root, {}).items():
            message = reading.messages.get(root, {}).get(cursor)
            if message is None or message.row["box"] != "in":
                continue
            for fact in moves:
                if fact.row["state"] == "consumed":
                    recorded = reading.contexts.get(root, {}).get(cursor, [])
                    is_recorded = bool(recorded) and recorded[0].stored_at <= fact.stored_at
                    claim(is_recorded, root, "consumed", cursor, "without a recorded context")
                elif fact.row["state"] == "replied" and message.row["sender_instance"] in reading.honest:
                    replies = reading.received.get(message.row["sender_instance"], {})
                    is_there = any(
                        one.row["reply_to"] == message.row["message"]
                        and one.row["sender"] == message.row["recipient"]
                        and one.stored_at <= fact.stored_at
                        for facts in replies.values()
                        for one in facts
                    )
                    claim(
                        is_there, root, "says replied of", message.row["message"], "and no reply was accepted"
                    )


def _sent_moves(reading: Reading) -> list[tuple[str, Fact, Fact]]:
    """Return every move of every sent message of honest roots."""
    return [
        (root, reading.messages[root][cursor], fact)
        for root in reading.honest
        for cursor, moves in reading.moves.get(root, {}).items()
        if cursor in reading.messages.get(root, {}) and reading.messages[root][cursor].row["box"] == "out"
        for fact in moves
    ]


def i17_recipient_alone(reading: Reading, claim: Claim) -> None:
    """Only the recipient of a message may say what became of it, over a line that proves who it is."""
    heard: dict[tuple[str, str, str, str, str], int] = {}
    for words in reading.read:
        receipt = words.frame.get("receipt")
        if receipt is not None:
            name = (words.root, words.far, receipt["messageId"], receipt["to"], receipt["state"])
            heard.setdefault(name, words.place)
    for root, message, fact in _sent_moves(reading):
        row, state = message.row, fact.row["state"]
        if state in THEIRS and row["recipient_instance"] != root:
            place = heard.get(
                (root, row["recipient_instance"], row["message"], row["recipient"], state), NOT_YET
            )
            claim(
                place < fact.asked_at,
                root,
                "believes",
                state,
                "of",
                row["message"],
                "which nobody entitled said",
            )


def i18_no_phantom(reading: Reading, claim: Claim) -> None:
    """Every state that a sender knows was durable at the recipient before."""
    for root, message, fact in _sent_moves(reading):
        receiver = reading.receiver(message.row)
        state = fact.row["state"]
        if not receiver or state not in (*THEIRS, "expired") or fact.row["outcome"] == "NOT_DELIVERED":
            continue
        facts = reading.received.get(receiver, {}).get(key_of(message.row), [])
        limit = fact.asked_at if receiver != root else fact.stored_at + 1
        is_durable = any(one.stored_at < limit for one in facts)
        if is_durable and state != "accepted":
            is_durable = any(
                move.row["state"] == state and move.stored_at < limit
                for one in facts
                for move in reading.states(receiver, one.row["cursor"])
            )
        claim(
            is_durable, root, "knows", state, "of", message.row["message"], "which its recipient never stored"
        )


def i19_applied_once(reading: Reading, claim: Claim) -> None:
    """A receipt that comes twice or late makes no second event and wakes no forgotten record."""
    for root in reading.honest:
        gone = reading.pruned.get(root, {})
        for cursor, moves in reading.moves.get(root, {}).items():
            message = reading.messages.get(root, {}).get(cursor)
            claim(message is not None, root, "moved a record that it does not hold:", cursor)
            before: tuple[str, str | None] | None = None
            for fact in moves:
                is_early = cursor not in gone or fact.stored_at <= gone[cursor].stored_at
                claim(is_early, root, "moved", cursor, "after it was forgotten")
                if fact.row["note"]:
                    continue
                now = (fact.row["state"], fact.row["outcome"])
                claim(now != before, root, "told", now, "of", cursor, "twice")
                before = now


def i20_reason_stays(reading: Reading, claim: Claim) -> None:
    """The reason that a peer gave is not replaced by what happens here afterwards."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for told in reading.asked:
        frame = told.asked.frame
        if told.answer is not None and told.answer.frame["kind"] == "error" and "send" in frame:
            name = (told.asked.root, frame["send"]["message"], frame["send"]["to"])
            reasons.setdefault(name, []).append(told.answer.frame["code"])
    for root, message, fact in _sent_moves(reading):
        row = message.row
        is_theirs = row["recipient_instance"] in reading.honest and row["recipient_instance"] != root
        if fact.row["state"] == "rejected" and is_theirs:
            known = reasons.get((root, row["message"], row["recipient"]), [])
            claim(
                fact.row["outcome"] in known,
                root,
                "gives",
                fact.row["outcome"],
                "where its peer said",
                known,
            )
    for _, entry in reading.all_of("viewed"):
        data = entry.data
        if data["state"] == "rejected":
            claim(bool(data["outcome"]), entry.root, "forgot why", data["message"], "was refused")
        known = reasons.get((entry.root, data["message"], data["recipient"]), [])
        if data["refusal"] is not None and known:
            # A peer may use a code that no reader knows: it is then read as "outcome not known".
            is_theirs = data["refusal"] in (*known, "INVALID_RPC")
            claim(is_theirs, entry.root, "keeps", data["refusal"], "where its peer said", known)


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I15": i15_lattice,
    "I16": i16_cause,
    "I17": i17_recipient_alone,
    "I18": i18_no_phantom,
    "I19": i19_applied_once,
    "I20": i20_reason_stays,
}
