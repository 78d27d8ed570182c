"""I10 to I14: order per route, sequences that stand, cursors without gaps, heads that give way.

Source: reference/reliability.md 2.4 "Ordering".
"""

from collections.abc import Callable
from itertools import pairwise

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import NOT_YET, Fact, Reading, key_of

__all__ = ["INVARIANTS"]

UNKNOWN_CODES = ("PEER_OFFLINE", "DELIVERY_UNKNOWN", "INVALID_RPC", "RECOVERY_REQUIRED")
RECEIPT_FIELDS = frozenset(
    {
        "messageId",
        "from",
        "to",
        "state",
        "cursor",
        "acceptedAt",
        "consumedAt",
        "repliedAt",
        "outcome",
        "durability",
    }
)


def i10_route_order(reading: Reading, claim: Claim) -> None:
    """A route's messages are accepted in the order of their intents; each waits for the one before."""
    settled = _settled(reading)
    routes: dict[tuple[str, str, str], list[Fact]] = {}
    for root in reading.honest:
        for fact in reading.facts(root, "message"):
            # An id that was used anew after its record was forgotten cannot be told apart on the wire.
            is_once = len(reading.sent.get(root, {}).get(key_of(fact.row), ())) == 1
            if fact.row["box"] == "out" and reading.receiver(fact.row) and is_once:
                routes.setdefault((root, fact.row["sender"], fact.row["recipient"]), []).append(fact)
    first_sent: dict[tuple[str, str, str], tuple[int, int]] = {}
    for words in reading.wrote:
        send = words.frame.get("send")
        if send is not None:
            first_sent.setdefault((words.root, send["message"], send["to"]), (words.place, words.at_ms))
    for (root, _, recipient), facts in routes.items():
        for earlier, later in pairwise(facts):
            left = first_sent.get((root, later.row["message"], recipient))
            if left is not None and later.row["message"] != earlier.row["message"]:
                done_at = settled.get((root, earlier.row["message"], recipient), NOT_YET)
                is_due = done_at < left[0] or earlier.row["deadline_ms"] <= left[1]
                claim(
                    is_due,
                    root,
                    "let",
                    later.row["message"],
                    "go before",
                    earlier.row["message"],
                    "was settled",
                )
        _accepted_in_order(reading, claim, root, facts)


def _settled(reading: Reading) -> dict[tuple[str, str, str], int]:
    """Return where each root first read a word about each message that settles it."""
    found: dict[tuple[str, str, str], int] = {}
    for told in reading.asked:
        frame = told.asked.frame
        message = frame["send"]["message"] if "send" in frame else frame.get("message")
        to = frame["send"]["to"] if "send" in frame else frame.get("to")
        if told.answer is not None and message is not None and to is not None:
            answer = told.answer.frame
            if answer["kind"] == "result" or answer["code"] not in UNKNOWN_CODES:
                found.setdefault((told.asked.root, message, to), told.answer.place)
    for words in reading.read:
        receipt = words.frame.get("receipt")
        if receipt is not None and words.frame["kind"] == "request":
            name = (words.root, receipt["messageId"], receipt["to"])
            found[name] = min(found.get(name, NOT_YET), words.place)
    return found


def _accepted_in_order(reading: Reading, claim: Claim, root: str, facts: list[Fact]) -> None:
    previous: tuple[int, Fact] | None = None
    for fact in facts:
        received = reading.received.get(fact.row["recipient_instance"], {}).get(key_of(fact.row), [])
        if not received or _came_back(reading, root, fact.row["cursor"]):
            continue
        accepted = received[0]
        if previous is not None:
            is_after = (
                previous[0] < accepted.row["cursor"] or previous[1].row["deadline_ms"] <= accepted.at_ms
            )
            claim(is_after, root, "had", fact.row["message"], "accepted before", previous[1].row["message"])
        previous = (accepted.row["cursor"], fact)


def _came_back(reading: Reading, root: str, cursor: int) -> bool:
    """Return whether a sender tried a refused message again, which puts it at the end of its route."""
    return any(fact.row["state"] in ("rejected", "pending") for fact in reading.states(root, cursor))


def i11_sequence(reading: Reading, claim: Claim) -> None:
    """A store's numbers only grow, none is used twice, and every later read says the same one."""
    for root in reading.honest:
        last = 0
        for fact in reading.durable.get(root, ()):
            cursor = fact.row.get("cursor")
            if cursor is not None:
                claim(cursor > last, root, "used", cursor, "after", last)
                last = max(last, cursor)
    for place, entry in reading.all_of("listed"):
        for cursor, message, sender, recipient in entry.data["held"]:
            facts = reading.received.get(entry.root, {}).get((sender, message, recipient), [])
            known = [fact.row["cursor"] for fact in facts if fact.stored_at < place]
            if known:
                claim(cursor in known, entry.root, "reads", message, "at", cursor, "stored at", known)
    for words in reading.wrote:
        receipt = words.frame.get("receipt")
        if receipt is None or receipt["state"] != "accepted" or receipt["outcome"] is not None:
            continue
        facts = reading.received.get(words.root, {}).get((words.far, receipt["messageId"], receipt["to"]), [])
        if facts:
            known = [str(fact.row["cursor"]) for fact in facts]
            claim(
                receipt["cursor"] in known,
                words.root,
                "said",
                receipt["cursor"],
                "of what is stored at",
                known,
            )


def i12_cursor(reading: Reading, claim: Claim) -> None:
    """A page holds exactly the events after its cursor; what was forgotten shows as a gap."""
    for place, entry in reading.all_of("page"):
        data, root = entry.data, entry.root
        if "refused" in data:
            continue
        oldest = data["oldest"]
        durable, ever = _events(reading, root, data["owner"], place)
        limit = data["cursors"][-1] if len(data["cursors"]) == data["count_max"] else NOT_YET
        due = [cursor for cursor in durable if data["after"] < cursor <= limit and cursor >= oldest]
        shown = data["cursors"]
        claim(shown == sorted(dict.fromkeys(shown)), root, "page out of order", shown)
        claim(
            all(cursor > data["after"] for cursor in shown), root, "page after", data["after"], "shows", shown
        )
        missing = [cursor for cursor in due if cursor not in shown]
        claim(not missing, root, "page after", data["after"], "leaves out", missing)
        # What was read before it was durable may be lost with its commit; its number is then nobody else's.
        numbers = {fact.row["cursor"]: None for fact in reading.durable.get(root, ()) if "cursor" in fact.row}
        for cursor, message in zip(shown, data["messages"], strict=True):
            is_same = ever[cursor] == message if cursor in ever else cursor not in numbers
            claim(is_same, root, "page shows", message, "at", cursor, "which is another event by now")
        if data["after"] + 1 < oldest:
            claim(data["gap"] is True, root, "hides that events were forgotten")


def _events(reading: Reading, root: str, owner: str, before: int) -> tuple[list[int], dict[int, str]]:
    """Return the cursors of a mailbox's events that were durable at a place, and of all that ever were."""
    known: list[int] = []
    ever: dict[int, str] = {}
    messages = reading.messages.get(root, {})
    for fact in reading.durable.get(root, ()):
        row = fact.row
        if row["row"] == "move" and not row["note"]:
            message = messages.get(row["of"])
        elif row["row"] == "message":
            message = fact
        else:
            continue
        if message is None:
            continue
        box = "recipient" if message.row["box"] == "in" else "sender"
        if message.row[box] == owner:
            ever[row["cursor"]] = message.row["message"]
            # A row told to its writer's loop is the reader's to see; one that is only durable may not be yet.
            if fact.stored_at < before and _is_told(reading, root, fact, before):
                known.append(row["cursor"])
    return known, ever


def _is_told(reading: Reading, root: str, fact: Fact, before: int) -> bool:
    group = next(one for one in reading.groups[root].values() if one.asked_at == fact.asked_at)
    return group.outcome == "stored" or fact.stored_at < before - 200


def i13_head_gives_way(reading: Reading, claim: Claim) -> None:
    """A head that expired or was refused blocks nobody: at the end nothing past its life is pending."""
    for root in reading.honest:
        if reading.is_alive(root):
            for cursor, fact in reading.messages.get(root, {}).items():
                if fact.row["box"] == "out" and fact.row["deadline_ms"] + 60_000 < reading.end_ms:
                    state, _ = reading.last_state(root, cursor)
                    claim(state != "pending", root, "still has", fact.row["message"], "pending")


def i14_no_global_order(reading: Reading, claim: Claim) -> None:
    """Nothing that is said carries a place in an order between independent senders."""
    for words in reading.wrote:
        receipt = words.frame.get("receipt")
        if receipt is not None and words.root in reading.honest:
            more = [name for name in receipt["fields"] if name not in RECEIPT_FIELDS]
            claim(not more, words.root, "says", more, "of a message")


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I10": i10_route_order,
    "I11": i11_sequence,
    "I12": i12_cursor,
    "I13": i13_head_gives_way,
    "I14": i14_no_global_order,
}
