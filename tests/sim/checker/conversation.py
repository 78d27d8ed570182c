"""I26 to I30: replies name what was really sent, asks end once, loops end.

Source: reference/reliability.md 2.4 "Replies and loops".
"""

from collections.abc import Callable

from tests.sim.checker.claims import Claim
from tests.sim.checker.reading import Reading

__all__ = ["INVARIANTS"]

PAIR_WINDOW_MS = 600_000  # reference/native.md 3.4


def _chain(row: dict[str, object]) -> object:
    return row["correlation"] or row["message"]


def i26_reply_names_original(reading: Reading, claim: Claim) -> None:
    """A reply names a message that its target sent to its author, in the same conversation."""
    for root in reading.honest:
        for fact in reading.facts(root, "message"):
            row = fact.row
            if row["reply_to"] is None:
                continue
            box = "out" if row["box"] == "in" else "in"
            originals = [
                one
                for one in reading.messages.get(root, {}).values()
                if one.row["box"] == box
                and one.row["message"] == row["reply_to"]
                and (one.row["sender"], one.row["recipient"]) == (row["recipient"], row["sender"])
                and one.stored_at <= fact.stored_at
            ]
            claim(bool(originals), root, "holds a reply to what was never said:", row["message"])
            if originals:
                is_same = any(_chain(one.row) == row["correlation"] for one in originals)
                claim(is_same, root, "holds a reply of another conversation:", row["message"])


def i27_ask_ends_once(reading: Reading, claim: Claim) -> None:
    """An ask is answered at most once, and never after it has ended."""
    for root in reading.honest:
        for cursor, message in reading.messages.get(root, {}).items():
            if message.row["box"] == "out" and message.row["is_ask"]:
                states = [fact.row["state"] for fact in reading.states(root, cursor)]
                claim(states.count("replied") <= 1, root, "has two answers to", message.row["message"])
                ends = [place for place, state in enumerate(states) if state in ("expired", "replied")]
                is_last = not ends or ends[0] == len(states) - 1
                claim(is_last, root, "revived the ask", message.row["message"], states)


def i28_ended_recipient(reading: Reading, claim: Claim) -> None:
    """Nothing is stored for a run that has ended or for another instance."""
    for root in reading.honest:
        ended: dict[str, int] = {}
        for fact in reading.durable.get(root, ()):
            row = fact.row
            if row["row"] == "run" and not row["is_live"]:
                ended[row["run"]] = fact.stored_at
            elif row["row"] == "message" and row["box"] == "in":
                claim(row["recipient_instance"] == root, root, "stored mail for another instance")
                if row["recipient_run"] is not None:
                    claim(
                        row["recipient_run"] not in ended, root, "stored", row["message"], "for an ended run"
                    )


def i29_loops_end(reading: Reading, claim: Claim) -> None:
    """Automatic messages of a conversation, and sends of a pair without a person, stay in their budgets."""
    for root in reading.honest:
        most: int = reading.starts[root]["automatic"]
        chains: dict[object, dict[object, None]] = {}
        gone = reading.pruned.get(root, {})
        for cursor, fact in reading.messages.get(root, {}).items():
            row = fact.row
            if row["depth"] > 0 and cursor not in gone:
                # Below "auto" our own agents' sends are counted and not refused; what arrives always is.
                chain = chains.setdefault(_chain(row), {})
                chain[row["sender_instance"], row["message"], row["recipient"]] = None
                if row["box"] == "in" and row["sender_instance"] != root:
                    claim(len(chain) <= most, root, "took", len(chain), "automatic of", _chain(row))
        _pairs(reading, claim, root)


def _pairs(reading: Reading, claim: Claim, root: str) -> None:
    """Claim the budget of each pair, counted from its sender's last prompt."""
    most: int = reading.starts[root]["agent_sends"]
    prompts = [
        (place, entry.data["owner"]) for place, entry in reading.all_of("prompt") if entry.root == root
    ]
    asked: dict[tuple[str, str, str], int] = {}
    for place, entry in reading.all_of("submit"):
        if entry.root == root:
            data = entry.data
            asked.setdefault((data["sender"], data["message"], data["recipient"]), place)
    windows: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for fact in reading.messages.get(root, {}).values():
        row = fact.row
        if row["box"] == "out" and not row["from_person"]:
            # A send is decided when it is asked for, which may be a while before its rows are committed.
            decided = asked.get((row["sender"], row["message"], row["recipient"]), fact.asked_at)
            began = max(
                (place for place, owner in prompts if owner == row["sender"] and place < decided), default=0
            )
            window = windows.setdefault((row["sender"], row["recipient"]), [])
            window.append((began, fact.at_ms))
            recent = [one for one in window if one[0] == began and one[1] > fact.at_ms - PAIR_WINDOW_MS]
            claim(len(recent) <= most, root, "sent", len(recent), "without a person")


def i30_crossing_asks(reading: Reading, claim: Claim) -> None:
    """Of two asks that cross, not both wait for ever."""
    asks: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for root in reading.honest:
        if reading.is_alive(root):
            for cursor, fact in reading.messages.get(root, {}).items():
                if fact.row["box"] == "out" and fact.row["is_ask"]:
                    asks.setdefault((fact.row["sender"], fact.row["recipient"]), []).append((root, cursor))
    for (sender, recipient), mine in asks.items():
        theirs = asks.get((recipient, sender), [])
        if sender < recipient and theirs:
            stuck = [
                any(reading.last_state(root, cursor)[0] in ("pending", "unknown") for root, cursor in side)
                for side in (mine, theirs)
            ]
            claim(not all(stuck), sender, "and", recipient, "wait for each other")


INVARIANTS: dict[str, Callable[[Reading, Claim], None]] = {
    "I26": i26_reply_names_original,
    "I27": i27_ask_ends_once,
    "I28": i28_ended_recipient,
    "I29": i29_loops_end,
    "I30": i30_crossing_asks,
}
