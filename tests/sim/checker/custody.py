"""I1 to I9: nothing that was accepted is lost, nothing is said before it is stored.

Source: reference/reliability.md 2.4 "Custody".
"""

from collections.abc import Callable

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import NOT_YET, Fact, Reading, Words, key_of

__all__ = ["INVARIANTS"]

TAKEN = ("accepted", "consumed", "replied")
RESERVE_BYTES = 2_048  # per unresolved record: reference/native.md 2.8
UNKNOWN_CODES = ("PEER_OFFLINE", "DELIVERY_UNKNOWN", "INVALID_RPC", "RECOVERY_REQUIRED")


def stated(reading: Reading) -> list[tuple[Words, dict[str, str]]]:
    """Return every receipt that an honest root wrote as a recipient: answers, and receipts it pushed."""
    found = []
    for words in reading.wrote:
        receipt = words.frame.get("receipt")
        if receipt is not None and words.root in reading.honest:
            found.append((words, receipt))
    return found


def i1_no_loss(reading: Reading, claim: Claim) -> None:
    """What was accepted, or durable at all, is in the store at the end, or was forgotten after its time."""
    for root in reading.honest:
        final = reading.stores.get(root)
        if final is None:
            continue
        held = {row["cursor"]: row for row in final["rows"] if row["row"] == "message"}
        gone = reading.pruned.get(root, {})
        for cursor, fact in reading.messages.get(root, {}).items():
            is_there = cursor in held and held[cursor]["sha"] == fact.row["sha"]
            claim(is_there or cursor in gone, root, "lost message", fact.row["message"], "cursor", cursor)
    for words, receipt in stated(reading):
        if receipt["state"] in TAKEN:
            key = (words.far, receipt["messageId"], receipt["to"])
            claim(
                key in reading.received.get(words.root, {}),
                words.root,
                "acknowledged",
                key,
                "which its store never held",
            )


def i2_ack_after_commit(reading: Reading, claim: Claim) -> None:
    """The commit is durable before the first byte of an answer that says so."""
    for words, receipt in stated(reading):
        if receipt["state"] in TAKEN:
            key = (words.far, receipt["messageId"], receipt["to"])
            facts = reading.received.get(words.root, {}).get(key, [])
            is_stored = any(fact.stored_at < words.place for fact in facts)
            claim(is_stored, words.root, "said", receipt["state"], "of", key, "before it was durable")


def i3_intent_first(reading: Reading, claim: Claim) -> None:
    """The intent is durable before the first byte of the message leaves."""
    for words in reading.wrote:
        send = words.frame.get("send")
        if send is not None and words.root in reading.honest:
            facts = reading.sent.get(words.root, {}).get((words.root, send["message"], send["to"]), [])
            is_stored = any(fact.stored_at < words.place for fact in facts)
            claim(is_stored, words.root, "sent", send["message"], "before its intent was durable")


def i4_three_outcomes(reading: Reading, claim: Claim) -> None:
    """Every send is answered; what was refused was not taken; what is said not delivered was not."""
    answered = {entry.data["call"]: place for place, entry in reading.all_of("answer")}
    for _, entry in reading.all_of("submit"):
        if entry.root not in reading.crashed:
            claim(
                entry.data["call"] in answered, entry.root, "never answered the send", entry.data["message"]
            )
    fates: dict[tuple[str, str, str, str], list[str]] = {}
    for offer in reading.offers:
        send = offer.asked.frame.get("send")
        if send is not None:
            fate = "open" if offer.answer is None else offer.answer.frame["kind"]
            if fate == "error" and offer.answer is not None and offer.answer.frame["code"] in UNKNOWN_CODES:
                fate = "open"
            fates.setdefault((offer.asked.root, offer.asked.far, send["message"], send["to"]), []).append(
                fate
            )
    for (root, far, message, to), kinds in fates.items():
        if all(kind == "error" for kind in kinds):
            is_absent = (far, message, to) not in reading.received.get(root, {})
            claim(is_absent, root, "refused", message, "of", far, "and holds it")
    for root in reading.honest:
        for cursor, fact in reading.messages.get(root, {}).items():
            receiver = reading.receiver(fact.row)
            is_once = len(reading.sent.get(root, {}).get(key_of(fact.row), ())) == 1
            is_said = fact.row["box"] == "out" and reading.last_state(root, cursor)[1] == "NOT_DELIVERED"
            if receiver and is_said and is_once:
                # Of a recipient that is proven gone the reference says so too (native.md 3.3), whatever its
                # dead store holds, and one that forgot the message after its retention does not know it;
                # of any other it must be true.
                said_at = reading.states(root, cursor)[-1].asked_at
                gone = reading.pruned.get(receiver, {})
                held = [
                    one
                    for one in reading.received.get(receiver, {}).get(key_of(fact.row), [])
                    if one.row["cursor"] not in gone or gone[one.row["cursor"]].stored_at > said_at
                ]
                is_gone = reading.crashed.get(receiver, NOT_YET) < said_at
                claim(not held or is_gone, root, "says not delivered of", fact.row["message"])


def i5_integrity(reading: Reading, claim: Claim) -> None:
    """What is stored is what was sent, byte for byte, and so is what goes with it."""
    submitted: dict[tuple[str, str, str], list[str]] = {}
    for _, entry in reading.all_of("submit"):
        data = entry.data
        submitted.setdefault((data["sender"], data["message"], data["recipient"]), []).append(data["sha"])
    offered: dict[tuple[str, str, str, str], list[dict[str, object]]] = {}
    for words in reading.read:
        if "send" in words.frame:
            send = words.frame["send"]
            offered.setdefault((words.root, words.far, send["message"], send["to"]), []).append(send)
    for root in reading.honest:
        for fact in reading.facts(root, "message"):
            row = fact.row
            if row["box"] == "out":
                asked = submitted.get((row["sender"], row["message"], row["recipient"]), [])
                claim(row["sha"] in asked, root, "intends a text that nobody submitted:", row["message"])
            elif row["sender_instance"] == root:
                facts = reading.sent.get(root, {}).get(key_of(row), [])
                claim(any(_is_same(row, one.row) for one in facts), root, "changed its own", row["message"])
            else:
                sends = offered.get((root, row["sender_instance"], row["message"], row["recipient"]), [])
                claim(
                    any(_is_same(row, one) for one in sends),
                    root,
                    "stored what was not sent:",
                    row["message"],
                )


def _is_same(row: dict[str, object], other: dict[str, object]) -> bool:
    return all(row[name] == other[name] for name in ("sha", "topic", "reply_to", "correlation", "depth"))


def i6_no_adoption(reading: Reading, claim: Claim) -> None:
    """Mail is held for, listed to and shown to exactly its recipient."""
    for root in reading.honest:
        for fact in reading.facts(root, "message"):
            if fact.row["box"] == "in":
                claim(
                    fact.row["recipient_instance"] == root,
                    root,
                    "holds mail of another:",
                    fact.row["message"],
                )
    for _, entry in reading.all_of("listed"):
        for cursor, message, _, recipient in entry.data["held"]:
            claim(
                recipient == entry.data["owner"],
                entry.root,
                "listed",
                message,
                cursor,
                "to",
                entry.data["owner"],
            )
    owners = {entry.data["call"]: entry.data["owner"] for _, entry in reading.all_of("expose")}
    for _, entry in reading.all_of("answer"):
        for cursor, message, recipient in entry.data.get("held", ()):
            is_own = recipient == owners[entry.data["call"]]
            claim(is_own, entry.root, "showed", message, cursor, "to", owners[entry.data["call"]])


class _Replay:
    """Open records and unread mail, row by row."""

    def __init__(self) -> None:
        self.messages: dict[int, dict[str, object]] = {}
        self.state: dict[int, tuple[str, str | None]] = {}
        self.unread: dict[str, int] = {}
        self.open_count = 0

    def is_open(self, cursor: int) -> bool:
        """Return whether a change of a record is still to come."""
        state, outcome = self.state[cursor]
        if self.messages[cursor]["box"] == "in":
            return state == "accepted" and outcome is None
        return state in ("pending", "unknown")

    def _count(self, cursor: int, by: int) -> None:
        if self.is_open(cursor):
            self.open_count += by
            if self.messages[cursor]["box"] == "in":
                recipient = str(self.messages[cursor]["recipient"])
                self.unread[recipient] = self.unread.get(recipient, 0) + by

    def apply(self, row: dict[str, object]) -> None:
        """Let one row take effect."""
        cursor: int = row.get("of", row.get("cursor", 0))  # type: ignore[assignment]
        if row["row"] == "message":
            self.messages[cursor] = row
            self.state[cursor] = ("accepted" if row["box"] == "in" else "pending", None)
            self._count(cursor, 1)
        elif row["row"] == "move" and cursor in self.messages:
            self._count(cursor, -1)
            self.state[cursor] = (str(row["state"]), row["outcome"])  # type: ignore[assignment]
            self._count(cursor, 1)


def i7_no_eviction(reading: Reading, claim: Claim) -> None:
    """No open record is forgotten; unread mail and bytes stay within the limits."""
    for root in reading.honest:
        replay, size = _Replay(), 0
        limits = reading.starts[root]
        for fact in reading.durable.get(root, ()):
            if fact.row["row"] == "prune":
                for cursor in fact.row["messages"]:
                    claim(
                        cursor in replay.messages and not replay.is_open(cursor),
                        root,
                        "forgot open record",
                        cursor,
                    )
                    size -= int(str(replay.messages.get(cursor, {}).get("size", 0)))
                continue
            replay.apply(fact.row)
            if fact.row["row"] == "message":
                size += fact.row["size"]
                unread = max(replay.unread.values(), default=0)
                claim(unread <= limits["inbox"], root, "holds", unread, "unread of", limits["inbox"])
                claim(size <= limits["storage"], root, "holds", size, "bytes of", limits["storage"])


def i8_reservation(reading: Reading, claim: Claim) -> None:
    """When new custody is taken, room is reserved for the end of all that is open."""
    for root in reading.honest:
        replay = _Replay()
        for group in reading.groups.get(root, {}).values():
            if group.stored_at == NOT_YET:
                continue
            for row in group.rows:
                replay.apply(row)
            if group.admits:
                needed = RESERVE_BYTES * replay.open_count
                claim(group.reserve >= needed, root, "reserved", group.reserve, "of", needed)


def i9_one_exposure(reading: Reading, claim: Claim) -> None:
    """At most one exposure of a message is in flight, and its context is recorded at most once."""
    for root in reading.honest:
        for cursor, moves in reading.moves.get(root, {}).items():
            token = None
            for fact in moves:
                if fact.row["note"] == "prepared":
                    claim(token is None, root, "exposed", cursor, "to", fact.row["token"], "beside", token)
                token = fact.row["token"] if fact.row["note"] == "prepared" else None
        for cursor, facts in reading.contexts.get(root, {}).items():
            claim(len(facts) == 1, root, "recorded", cursor, len(facts), "times")
    in_flight: dict[tuple[str, int], str] = {}
    tokens: dict[int, tuple[str, str]] = {}
    for place, entry in sorted(
        [
            *reading.all_of("expose"),
            *reading.all_of("answer"),
            *reading.all_of("taken"),
            *reading.all_of("untaken"),
        ],
        key=_place,
    ):
        if entry.event == "expose":
            tokens[entry.data["call"]] = (entry.root, entry.data["token"])
        elif entry.event == "answer":
            for cursor, message, _ in entry.data.get("held", ()):
                root, token = tokens[entry.data["call"]]
                is_free = in_flight.get((root, cursor), "") == "" or _was_released(
                    reading, root, cursor, place
                )
                claim(is_free, root, "showed", message, "to", token, "beside", in_flight.get((root, cursor)))
                in_flight[root, cursor] = token
        else:
            for name, token in list(in_flight.items()):
                if token == entry.data["token"]:
                    in_flight[name] = ""


def _was_released(reading: Reading, root: str, cursor: int, before: int) -> bool:
    """Return whether the last exposure before this one was given back."""
    notes = [fact.row["note"] for fact in reading.states(root, cursor) if fact.stored_at < before]
    return "released" in notes or not notes


def _place(item: tuple[int, object]) -> int:
    return item[0]


def _first(facts: list[Fact]) -> int:
    return facts[0].stored_at if facts else NOT_YET


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I1": i1_no_loss,
    "I2": i2_ack_after_commit,
    "I3": i3_intent_first,
    "I4": i4_three_outcomes,
    "I5": i5_integrity,
    "I6": i6_no_adoption,
    "I7": i7_no_eviction,
    "I8": i8_reservation,
    "I9": i9_one_exposure,
}
