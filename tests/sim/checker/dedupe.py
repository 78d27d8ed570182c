"""I21 to I25: one record per sender, id and recipient, for as long as anybody may ask again.

Source: reference/reliability.md 2.4 "Dedupe".
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import NOT_YET, Fact, Reading, Words

__all__ = ["INVARIANTS"]

FIELDS = ("sha", "topic", "reply_to", "correlation", "depth")
SAID_OF_A_REFUSAL = frozenset({"code", "retryable"})


def i21_one_record(reading: Reading, claim: Claim) -> None:
    """One sender, id and recipient make one record, whatever is repeated and restarted."""
    for root in reading.honest:
        gone = reading.pruned.get(root, {})
        for boxes in (reading.received, reading.sent):
            for key, facts in boxes.get(root, {}).items():
                for first, second in pairwise(facts):
                    pruned = gone.get(first.row["cursor"])
                    is_gone = pruned is not None and pruned.stored_at < second.stored_at
                    claim(is_gone, root, "holds", key, "twice")
                claim(len(facts) >= 1, root, "holds", key, "not at all")


def _offers(reading: Reading) -> Iterator[tuple[Words, Words, dict[str, object], list[Fact]]]:
    """Yield answered offers: request, answer, what was sent, and the records that its key had before."""
    for offer in reading.offers:
        send = offer.asked.frame.get("send")
        if send is None or offer.answer is None:
            continue
        key = (offer.asked.far, send["message"], send["to"])
        facts = reading.received.get(offer.asked.root, {}).get(key, [])
        yield offer.asked, offer.answer, send, [fact for fact in facts if fact.stored_at < offer.answer.place]


def i22_conflict(reading: Reading, claim: Claim) -> None:
    """Another content under a known id is refused, and the first one's content is not told."""
    for asked, answer, send, facts in _offers(reading):
        gone = reading.pruned.get(asked.root, {})
        known = [fact for fact in facts if fact.row["cursor"] not in gone]
        if known and not any(all(fact.row[name] == send[name] for name in FIELDS) for fact in known):
            claim(
                answer.frame["kind"] == "error", asked.root, "took", send["message"], "with another content"
            )
        if answer.frame["kind"] == "error":
            more = [name for name in answer.frame["fields"] if name not in SAID_OF_A_REFUSAL]
            claim(not more, asked.root, "tells", more, "with a refusal")


def i23_memory(reading: Reading, claim: Claim) -> None:
    """What was received is remembered until its life and its retention are over."""
    for root in reading.honest:
        retention_ms = reading.starts[root]["retention"]
        for cursor, fact in reading.pruned.get(root, {}).items():
            message = reading.messages.get(root, {}).get(cursor)
            if message is not None and message.row["box"] == "in":
                due_ms = message.row["deadline_ms"] + retention_ms
                claim(fact.at_ms >= due_ms, root, "forgot", cursor, due_ms - fact.at_ms, "ms early")


def i24_authenticated_key(reading: Reading, claim: Claim) -> None:
    """Equal ids of two senders are two messages."""
    for asked, answer, send, facts in _offers(reading):
        others = [
            key
            for key, rows in reading.received.get(asked.root, {}).items()
            if key[1:] == (send["message"], send["to"])
            and key[0] != asked.far
            and rows[0].stored_at < answer.place
        ]
        if others and not facts:
            code = answer.frame.get("code")
            claim(
                code != "MESSAGE_ID_CONFLICT",
                asked.root,
                "took",
                send["message"],
                "of",
                asked.far,
                "for",
                others,
            )
            claim(
                answer.frame["kind"] == "error", asked.root, "answered", asked.far, "with another's receipt"
            )


def i25_no_memory_of_no(reading: Reading, claim: Claim) -> None:
    """A refusal is not remembered as a message."""
    refused: dict[tuple[str, str, str, str], int] = {}
    for asked, answer, send, facts in _offers(reading):
        name = (asked.root, asked.far, str(send["message"]), str(send["to"]))
        if not facts and refused.get(name, NOT_YET) < asked.place:
            code = answer.frame.get("code")
            claim(code != "MESSAGE_ID_CONFLICT", asked.root, "remembers the refused", send["message"])
            claim(answer.frame["kind"] == "error", asked.root, "answers a refused message with a receipt")
        if not facts and answer.frame["kind"] == "error":
            refused[name] = min(refused.get(name, NOT_YET), answer.place)


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I21": i21_one_record,
    "I22": i22_conflict,
    "I23": i23_memory,
    "I24": i24_authenticated_key,
    "I25": i25_no_memory_of_no,
}
